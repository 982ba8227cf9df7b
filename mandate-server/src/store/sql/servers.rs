//! The servers that work on one database, and the reports that they leave for each other.

use mandate_core::Timestamp;

use crate::error::Fault;
use crate::store::tx::{Backend, Tx};

/// Reports are dated by the database's clock, so that the servers' clocks need not agree.
const WRITE_REPORT: &str = "/* servers.write_report */ INSERT INTO servers (server, at, rates, ended)
    VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $2, $3)
    ON CONFLICT (server) DO UPDATE SET at = excluded.at, rates = excluded.rates, ended = excluded.ended";
const READ_REPORTS: &str = "/* servers.read_reports */
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - at, ended, rates FROM servers
    WHERE server <> $1 AND at > (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $2";
const FORGET: &str = "/* servers.forget */
    DELETE FROM servers WHERE at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1";

const NOW: &str = "/* servers.now */ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Gives this transaction a number, on PostgreSQL.
const TRANSACTION: &str = "/* servers.transaction */ SELECT CAST(CAST(pg_current_xact_id() AS xid) AS TEXT)";
/// Others of the servers that were begun before the transaction `$1` and write.
const OLDER: &str = "/* servers.older */ SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
        AND backend_xid IS NOT NULL AND age(backend_xid) > age(CAST(CAST($1 AS TEXT) AS xid))";

/// A server's newest report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How long ago, in milliseconds, by the database's clock.
    pub age_millis: i64,
    /// Whether it was the server's last.
    pub ended: bool,
    /// The requests that the server has admitted.
    pub rates: Vec<u8>,
}

/// Writes a server's report over its previous one. `ended` marks the server's last.
pub fn write_report(tx: &mut Tx<'_>, server: [u8; 16], rates: &[u8], ended: bool) -> Result<(), Fault> {
    tx.execute_one(WRITE_REPORT, &[server.into(), rates.to_vec().into(), i64::from(ended).into()])
}

/// The reports that the other servers have written in the last `millis`.
pub fn read_reports(tx: &mut Tx<'_>, server: [u8; 16], millis: i64) -> Result<Vec<Report>, Fault> {
    let rows = tx.query(READ_REPORTS, &[server.into(), millis.into()])?.into_iter();
    rows.map(|mut row| {
        Ok(Report { age_millis: row.integer()?, ended: row.integer()? != 0, rates: row.blob()? })
    })
    .collect()
}

/// The time by the database's clock.
pub fn now(tx: &mut Tx<'_>) -> Result<Timestamp, Fault> {
    Ok(Timestamp::from_millis(tx.one_row(NOW, &[])?.integer()?))
}

/// The number of this transaction, where others can be under way beside it.
pub fn transaction(tx: &mut Tx<'_>) -> Result<Option<String>, Fault> {
    if tx.backend() == Backend::Sqlite {
        return Ok(None);
    }
    tx.one_row(TRANSACTION, &[])?.text().map(Some)
}

/// Whether every transaction of the servers has ended that was begun before the one of this number and writes.
pub fn is_oldest(tx: &mut Tx<'_>, number: &str) -> Result<bool, Fault> {
    Ok(tx.one_row(OLDER, &[number.into()])?.integer()? == 0)
}

/// Deletes reports that are older than so many milliseconds.
pub fn forget(tx: &mut Tx<'_>, millis: i64) -> Result<(), Fault> {
    tx.execute(FORGET, &[millis.into()]).map(|_| ())
}
