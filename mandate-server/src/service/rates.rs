//! What servers on one database tell each other of the requests that they have admitted.

use crate::error::Fault;
use crate::store::sql::servers;
use crate::store::tx::Tx;

pub use crate::store::sql::servers::Told;

/// How long what a server has told is of use: longer than the window of a rate, in milliseconds.
const KEPT_MILLIS: i64 = 65_000;

/// Tells the others, and hears what they have told.
///
/// # Errors
/// The database fails.
pub fn exchange(tx: &mut Tx<'_>, server: [u8; 16], rates: &[u8]) -> Result<Vec<Told>, Fault> {
    servers::tell(tx, server, rates)?;
    servers::forget(tx, KEPT_MILLIS)?;
    servers::hear(tx, server, KEPT_MILLIS)
}
