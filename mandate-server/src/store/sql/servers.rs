//! The servers that work on one database, and what they tell each other.

use crate::error::Fault;
use crate::store::tx::Tx;

/// The database's clock, so that those of the servers need not agree.
const TELL: &str = "INSERT INTO servers (server, at, rates)
    VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $2)
    ON CONFLICT (server) DO UPDATE SET at = excluded.at, rates = excluded.rates";
const HEAR: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - at, rates FROM servers
    WHERE server <> $1 AND at > (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $2";
const FORGET: &str =
    "DELETE FROM servers WHERE at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1";

/// What a server has told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// How long ago, in milliseconds, by the database's clock.
    pub age_millis: i64,
    /// What it said of its rates.
    pub rates: Vec<u8>,
}

/// Writes down what a server tells.
pub fn tell(tx: &mut Tx<'_>, server: [u8; 16], rates: &[u8]) -> Result<(), Fault> {
    tx.execute_one(TELL, &[server.into(), rates.to_vec().into()])
}

/// What the other servers have told in the last `millis`.
pub fn hear(tx: &mut Tx<'_>, server: [u8; 16], millis: i64) -> Result<Vec<Told>, Fault> {
    let rows = tx.query(HEAR, &[server.into(), millis.into()])?.into_iter();
    rows.map(|mut row| Ok(Told { age_millis: row.integer()?, rates: row.blob()? })).collect()
}

/// Forgets the servers that have told nothing for so many milliseconds.
pub fn forget(tx: &mut Tx<'_>, millis: i64) -> Result<(), Fault> {
    tx.execute(FORGET, &[millis.into()]).map(|_| ())
}
