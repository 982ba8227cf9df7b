//! The single copy of each query, a file a table, one text for every database.
//!
//! Parameters first appear in ascending order: SQLite numbers `$n` by first appearance.
#![allow(
    clippy::missing_errors_doc,
    reason = "each of these fails when the database does, or a stored value is not valid"
)]

mod agent_rows;
pub mod agents;
pub mod answers;
pub mod audit;
pub mod check;
pub mod checksums;
pub mod clock;
pub mod decisions;
pub mod deliveries;
pub mod environments;
pub mod escrows;
pub mod events;
pub mod export_pieces;
pub mod exports;
pub mod gauges;
pub mod idempotency;
pub mod instructions;
pub mod kept_exports;
pub mod keys;
pub mod leases;
pub mod left_over;
pub mod log_end;
pub mod log_records;
pub mod mandates;
pub mod metered;
pub mod newest;
pub mod notices;
mod of_agent;
pub mod openings;
pub mod operated;
pub mod people;
pub mod public_log;
pub mod retention;
pub mod reviews;
pub mod servers;
pub mod sessions;
pub mod signing_keys;
pub mod uncounted;
pub mod usage;
pub mod webhooks;
pub mod witnesses;
