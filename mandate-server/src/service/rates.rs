//! The reports that servers on one database exchange: the requests that they have admitted, and the state of
//! their clocks.

use crate::clock::{Clock, Skew};
use crate::error::Fault;
use crate::store::sql::servers;
use crate::store::tx::Tx;

pub use crate::store::sql::servers::Report;

/// How long a report is kept, in milliseconds: longer than the window of a rate.
const KEPT_MILLIS: i64 = 65_000;

/// Compares `clock` with the database's, and notes in `skew` how far it is off.
///
/// # Errors
/// The database fails.
pub fn compare(tx: &mut Tx<'_>, clock: &dyn Clock, skew: &Skew) -> Result<(), Fault> {
    let before = clock.now();
    let shown = clock.database(servers::now(tx)?);
    skew.note(before, shown, clock.now());
    Ok(())
}

/// Sends the last report. From then on the other servers share what is left of a rate.
///
/// # Errors
/// The database fails.
pub fn end(tx: &mut Tx<'_>, server: [u8; 16], rates: &[u8]) -> Result<(), Fault> {
    servers::write_report(tx, server, rates, true)
}

/// Sends a report, and returns those of the others.
///
/// # Errors
/// The database fails.
pub fn exchange(tx: &mut Tx<'_>, server: [u8; 16], rates: &[u8]) -> Result<Vec<Report>, Fault> {
    servers::write_report(tx, server, rates, false)?;
    servers::forget(tx, KEPT_MILLIS)?;
    servers::read_reports(tx, server, KEPT_MILLIS)
}
