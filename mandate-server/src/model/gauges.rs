//! What is measured of the database for the metrics.

use mandate_core::{EnvironmentKind, Timestamp};

/// The largest number that is counted to: reading stays cheap however much there is.
pub const MAX_COUNTED: i64 = 10_000;

/// What there is at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Deliveries that have not ended, up to [`MAX_COUNTED`].
    pub deliveries_pending: i64,
    /// When the first of them is due, or was, that go to the first [`MAX_COUNTED`] webhooks in the due queue.
    pub delivery_due_at: Option<Timestamp>,
    /// Reviews that wait for a person, up to [`MAX_COUNTED`].
    pub reviews_pending: i64,
    /// Exports that are to be built, up to [`MAX_COUNTED`].
    pub exports_pending: i64,
    /// The high-water mark of the instants by which decisions were made.
    pub clock_mark: Timestamp,
    /// When the newest signing key of each kind was made.
    pub signing_keys: Vec<(EnvironmentKind, Timestamp)>,
}

/// What a database takes on its disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// The database file.
    pub database_bytes: u64,
    /// What was written and not yet checkpointed into it, where it is another file.
    pub log_bytes: Option<u64>,
    /// What is left on the disk for this user, where it is known.
    pub free_bytes: Option<u64>,
}
