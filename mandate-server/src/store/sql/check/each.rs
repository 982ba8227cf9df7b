//! Rows that are compared with the public log, each by itself: one that cannot be read hides none behind it.

use mandate_core::Mandate;

use crate::error::Fault;
use crate::model::people::PasskeyRecord;
use crate::store::sql::agents::Agent;
use crate::store::sql::decisions::Whole;
use crate::store::sql::{agents, decisions, mandates, people};
use crate::store::tx::{Row, Tx, Value};

/// How many rows are held in memory at a time.
const PAGE: i64 = 1_000;
const PASSKEYS: &str = "/* each.passkeys */
    SELECT environment, credential, person, key, label, origin, is_synced, enrolled_at, withdrawn_at, checksum
    FROM person_keys WHERE environment = $1 AND credential > $2 ORDER BY credential LIMIT $3";

/// Takes the key of a row within its environment, and what the row says, or why it cannot be read.
pub type Take<'a, T> = &'a mut dyn FnMut(&Value, Result<T, String>) -> Result<(), Fault>;

/// The mandates of an environment, in the order of their ids.
pub fn mandate(tx: &mut Tx<'_>, environment: i64, take: Take<'_, Mandate>) -> Result<(), Fault> {
    let read = |mut row: Row| {
        let mandate = mandates::read_joined(&mut row)?;
        mandate.ok_or_else(|| Fault::corrupt("database: a mandate without an id"))
    };
    let page = |tx: &mut Tx<'_>, after| tx.query(mandates::NEWER, &[environment.into(), after, PAGE.into()]);
    pages(tx, [0; 16].into(), page, [0, 0], read, take)
}

/// The decisions of an environment, in the order of their ids, each with its review.
pub fn decision(tx: &mut Tx<'_>, environment: i64, take: Take<'_, Whole>) -> Result<(), Fault> {
    let page = |tx: &mut Tx<'_>, after| {
        tx.query(decisions::ONWARD, &[environment.into(), after, [0xff; 16].into(), PAGE.into()])
    };
    pages(tx, [0; 16].into(), page, [1, 1], decisions::read, take)
}

/// The agents of an environment, in the order in which they were registered.
pub fn agent(tx: &mut Tx<'_>, environment: i64, take: Take<'_, Agent>) -> Result<(), Fault> {
    let page = |tx: &mut Tx<'_>, after| tx.query(agents::NEWER, &[environment.into(), after, PAGE.into()]);
    pages(tx, [0; 16].into(), page, [0, 1], agents::read, take)
}

/// The passkeys of an environment, in the order of their ids.
pub fn passkey(tx: &mut Tx<'_>, environment: i64, take: Take<'_, PasskeyRecord>) -> Result<(), Fault> {
    let page = |tx: &mut Tx<'_>, after| tx.query(PASSKEYS, &[environment.into(), after, PAGE.into()]);
    pages(tx, Vec::new().into(), page, [1, 1], people::read_key, take)
}

/// Reads page behind page, after `first`. One column has the key of a row, and one its place in the order.
fn pages<T>(
    tx: &mut Tx<'_>,
    first: Value,
    page: impl Fn(&mut Tx<'_>, Value) -> Result<Vec<Row>, Fault>,
    [key, place]: [usize; 2],
    read: impl Fn(Row) -> Result<T, Fault>,
    take: Take<'_, T>,
) -> Result<(), Fault> {
    let mut after = Some(first);
    while let Some(behind) = after.take() {
        for row in page(tx, behind)? {
            let at = |column: usize| row.rest().get(column).cloned().unwrap_or(Value::Null);
            let (key, place) = (at(key), at(place));
            match read(row) {
                Ok(read) => take(&key, Ok(read))?,
                Err(Fault::Corrupt(why)) => take(&key, Err(why))?,
                Err(fault) => return Err(fault),
            }
            after = Some(place);
        }
    }
    Ok(())
}
