//! Reads the values of the gauges: totals over all tenants, each through an index.

use mandate_core::Timestamp;

use crate::error::Fault;
use crate::model::gauges::{MAX_COUNTED, Stored};
use crate::service::public_log::append;
use crate::store::sql::{clock, gauges};
use crate::store::tx::Tx;

/// Reads them.
///
/// # Errors
/// The database fails.
pub fn read(tx: &mut Tx<'_>, now: Timestamp) -> Result<Stored, Fault> {
    Ok(Stored {
        deliveries_pending: gauges::deliveries_pending(tx, MAX_COUNTED)?,
        delivery_due_at: gauges::delivery_due_at(tx, MAX_COUNTED)?,
        reviews_pending: gauges::reviews_pending(tx, now, MAX_COUNTED)?,
        exports_pending: gauges::exports_pending(tx, MAX_COUNTED)?,
        clock_mark: clock::mark(tx)?,
        log_waits_since: append::waits_since(tx)?,
        logs_stopped: gauges::logs_stopped(tx)?,
        signing_keys: gauges::signing_keys(tx)?,
    })
}
