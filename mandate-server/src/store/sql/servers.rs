//! The servers that work on one database, and what they tell each other.

use mandate_core::Timestamp;

use crate::error::Fault;
use crate::store::tx::Tx;

/// The database's clock, so that those of the servers need not agree.
const TELL: &str = "/* servers.tell */ INSERT INTO servers (server, at, rates, ended)
    VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $2, $3)
    ON CONFLICT (server) DO UPDATE SET at = excluded.at, rates = excluded.rates, ended = excluded.ended";
const HEAR: &str = "/* servers.hear */
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - at, ended, rates FROM servers
    WHERE server <> $1 AND at > (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $2";
const FORGET: &str = "/* servers.forget */
    DELETE FROM servers WHERE at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1";

const NOW: &str = "/* servers.now */ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// What a server has told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// How long ago, in milliseconds, by the database's clock.
    pub age_millis: i64,
    /// Whether that was the last.
    pub ended: bool,
    /// What it said of its rates.
    pub rates: Vec<u8>,
}

/// Writes down what a server tells, for the last time where it has `ended`.
pub fn tell(tx: &mut Tx<'_>, server: [u8; 16], rates: &[u8], ended: bool) -> Result<(), Fault> {
    tx.execute_one(TELL, &[server.into(), rates.to_vec().into(), i64::from(ended).into()])
}

/// What the other servers have told in the last `millis`.
pub fn hear(tx: &mut Tx<'_>, server: [u8; 16], millis: i64) -> Result<Vec<Told>, Fault> {
    let rows = tx.query(HEAR, &[server.into(), millis.into()])?.into_iter();
    rows.map(|mut row| {
        Ok(Told { age_millis: row.integer()?, ended: row.integer()? != 0, rates: row.blob()? })
    })
    .collect()
}

/// What the database's clock shows.
pub fn now(tx: &mut Tx<'_>) -> Result<Timestamp, Fault> {
    let row = tx.row(NOW, &[])?;
    Ok(Timestamp::from_millis(row.ok_or_else(|| Fault::new("database: a time without a row"))?.integer()?))
}

/// Forgets the servers that have told nothing for so many milliseconds.
pub fn forget(tx: &mut Tx<'_>, millis: i64) -> Result<(), Fault> {
    tx.execute(FORGET, &[millis.into()]).map(|_| ())
}
