//! Measurements of the database for the metrics.

use mandate_core::{EnvironmentKind, Timestamp};

/// Counting stops at this number, so that it stays cheap.
pub const MAX_COUNTED: i64 = 10_000;

/// The counts at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Deliveries that have not ended, up to [`MAX_COUNTED`].
    pub deliveries_pending: i64,
    /// When the first delivery to the first [`MAX_COUNTED`] webhooks in the due queue is or was due.
    pub delivery_due_at: Option<Timestamp>,
    /// Reviews that wait for a person, up to [`MAX_COUNTED`].
    pub reviews_pending: i64,
    /// Exports that are to be built, up to [`MAX_COUNTED`].
    pub exports_pending: i64,
    /// The high-water mark of the instants by which decisions were made.
    pub clock_mark: Timestamp,
    /// When the oldest entry was made that waits for a public log.
    pub log_waits_since: Option<Timestamp>,
    /// Whether the public log of each kind is stopped.
    pub logs_stopped: Vec<(EnvironmentKind, bool)>,
    /// When the newest signing key of each kind was made.
    pub signing_keys: Vec<(EnvironmentKind, Timestamp)>,
}

/// What a database that several servers share shows of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    /// Standbys, and others that receive its log.
    pub receivers: i64,
    /// How far the last of them is behind, in bytes of the log. None without one, or if the server's role may not know it.
    pub lag_bytes: Option<i64>,
    /// Until when decisions and events have partitions, without a gap. Not after the present if this month has none.
    pub partitions_end: Timestamp,
}

/// How much of its disk a database uses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// The database file.
    pub database_bytes: u64,
    /// The write-ahead log, if it is a file of its own.
    pub log_bytes: Option<u64>,
    /// The free space for this user, if it is known.
    pub free_bytes: Option<u64>,
}
