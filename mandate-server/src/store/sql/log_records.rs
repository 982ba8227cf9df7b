//! What governs the environments, and who changed it: the records of the public log's entries of type 2.

use mandate_core::EnvironmentKind;

use super::environments;
use super::keys::kind;
use crate::error::Fault;
use crate::store::tx::{Row, Tx};

const INSERT: &str = "/* log_records.insert */
    INSERT INTO log_records (environment, number, record)
    SELECT $1, COALESCE(MAX(number), 0) + 1, $2 FROM log_records WHERE environment = $1";
const PENDING: &str = "/* log_records.pending */
    SELECT r.environment, e.kind, r.number, r.record, r.logged
    FROM log_records r JOIN environments e ON e.environment = r.environment
    WHERE r.logged = 0 AND e.kind = $1 ORDER BY r.environment, r.number LIMIT $2";
const NEXT: &str = "/* log_records.next */
    SELECT record FROM log_records WHERE logged = 0 ORDER BY environment, number LIMIT $1";
const LOGGED: &str = "/* log_records.logged */
    UPDATE log_records SET logged = 1 WHERE environment = $1 AND number = $2 AND logged = 0";
const ONWARD: &str = "/* log_records.onward */
    SELECT r.environment, e.kind, r.number, r.record, r.logged
    FROM log_records r JOIN environments e ON e.environment = r.environment
    WHERE r.environment = $1 AND r.number > $2 ORDER BY r.number LIMIT $3";

/// A record.
#[derive(Debug)]
pub struct LogRecord {
    /// Whose it is.
    pub environment: i64,
    /// The kind of that environment.
    pub kind: EnvironmentKind,
    /// Its number: 1, 2, 3 … for each environment.
    pub number: u64,
    /// A JSON object.
    pub record: String,
    /// Whether its entry is in a log.
    pub logged: bool,
}

/// Writes a record with the environment's next number. It locks the environment's row. After it, a transaction locks nothing
/// but the clock's mark.
pub fn insert(tx: &mut Tx<'_>, environment: i64, record: &str) -> Result<(), Fault> {
    environments::lock(tx, environment)?;
    tx.execute_one(INSERT, &[environment.into(), record.into()])
}

/// Records of a kind of environments that are in no log yet, at most `limit`.
pub fn pending(tx: &mut Tx<'_>, kind: EnvironmentKind, limit: i64) -> Result<Vec<LogRecord>, Fault> {
    tx.query(PENDING, &[kind.as_str().into(), limit.into()])?.into_iter().map(read).collect()
}

/// The records that are appended next, at most `limit`: JSON objects.
pub fn next(tx: &mut Tx<'_>, limit: i64) -> Result<Vec<String>, Fault> {
    tx.query(NEXT, &[limit.into()])?.into_iter().map(|mut row| row.text()).collect()
}

/// Writes that a record is appended in this transaction.
pub fn logged(tx: &mut Tx<'_>, record: &LogRecord) -> Result<(), Fault> {
    let number = i64::try_from(record.number).map_err(|_| Fault::new("a record's number is too great"))?;
    tx.execute_one(LOGGED, &[record.environment.into(), number.into()])
}

/// At most `limit` of an environment's records behind number `after`, in their order.
pub fn onward(tx: &mut Tx<'_>, environment: i64, after: u64, limit: i64) -> Result<Vec<LogRecord>, Fault> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    tx.query(ONWARD, &[environment.into(), after.into(), limit.into()])?.into_iter().map(read).collect()
}

fn read(mut row: Row) -> Result<LogRecord, Fault> {
    Ok(LogRecord {
        environment: row.integer()?,
        kind: kind(&row.text()?)?,
        number: u64::try_from(row.integer()?)
            .map_err(|_| Fault::corrupt("database: log_records.number is negative"))?,
        record: row.text()?,
        logged: row.integer()? == 1,
    })
}
