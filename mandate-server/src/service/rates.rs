//! What servers on one database tell each other of the requests that they have admitted, and how their clocks are.

use mandate_core::Timestamp;

use crate::clock::{Clock, Skew};
use crate::error::Fault;
use crate::store::sql::servers;
use crate::store::tx::{Backend, Tx};

pub use crate::store::sql::servers::Told;

/// How long what a server has told is of use: longer than the window of a rate, in milliseconds.
const KEPT_MILLIS: i64 = 65_000;

/// Compares `clock` with the database's, and notes in `skew` how far it is off.
///
/// # Errors
/// The database fails.
pub fn compare(tx: &mut Tx<'_>, clock: &dyn Clock, skew: &Skew) -> Result<(), Fault> {
    let before = clock.now();
    let told = clock.elsewhere(servers::now(tx)?);
    skew.note(before, told, clock.now());
    Ok(())
}

/// What the database's clock shows, where several servers go by it.
///
/// # Errors
/// The database fails.
pub fn shown(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    match tx.backend() {
        Backend::Sqlite => Ok(None),
        Backend::Postgres => servers::now(tx).map(Some),
    }
}

/// Tells the others for the last time: they divide what is left to a key among themselves from then on.
///
/// # Errors
/// The database fails.
pub fn end(tx: &mut Tx<'_>, server: [u8; 16], rates: &[u8]) -> Result<(), Fault> {
    servers::tell(tx, server, rates, true)
}

/// Tells the others, and hears what they have told.
///
/// # Errors
/// The database fails.
pub fn exchange(tx: &mut Tx<'_>, server: [u8; 16], rates: &[u8]) -> Result<Vec<Told>, Fault> {
    servers::tell(tx, server, rates, false)?;
    servers::forget(tx, KEPT_MILLIS)?;
    servers::hear(tx, server, KEPT_MILLIS)
}
