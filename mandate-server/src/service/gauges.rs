//! What the store tells to whoever watches the server: numbers of all tenants together, each read by an index.

use mandate_core::{EnvironmentKind, Timestamp};

use crate::error::Fault;
use crate::store::sql::gauges;
use crate::store::tx::Tx;

/// The largest number that is counted to: reading stays cheap however much there is.
pub const MAX_COUNTED: i64 = 10_000;

/// What there is at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Deliveries that have not ended, up to [`MAX_COUNTED`].
    pub deliveries_pending: i64,
    /// When the first of them is due, or was, that go to the first [`MAX_COUNTED`] webhooks in the line.
    pub delivery_due_at: Option<Timestamp>,
    /// Reviews that wait for a person, up to [`MAX_COUNTED`].
    pub reviews_pending: i64,
    /// Exports that are to be built, up to [`MAX_COUNTED`].
    pub exports_pending: i64,
    /// When the newest signing key of each kind was made.
    pub signing_keys: Vec<(EnvironmentKind, Timestamp)>,
}

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
        signing_keys: gauges::signing_keys(tx)?,
    })
}
