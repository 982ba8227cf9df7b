//! The same cases on PostgreSQL, but for those that are about SQLite's writer: `states`; and about files: `backups`, `costs` (counted in steps of SQLite's machine),
//! `damage`, `files` and `flips`. `metered` is about agents' rows, `closing_beside`, `fan_out`, `log_lease` and `order` about locks and `partitions` about what they are called, which PostgreSQL alone has.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use mandate_tests::Kind;

mod adjoining;
mod agents_and_mandates;
mod apart;
mod archive;
mod attacks;
mod authenticator;
mod check;
mod clock;
mod closing;
mod closing_beside;
mod cosigned;
mod deal;
mod deliveries;
mod durability;
mod escrows;
mod events;
mod exports;
mod fan_out;
mod granted;
mod left_over;
mod limits;
mod lists;
mod log_guesses;
mod log_lease;
mod log_origins;
mod log_strangers;
mod long;
mod lookups;
mod lost;
mod metered;
mod notices;
mod oracle;
mod order;
mod partitions;
mod people;
mod public_log;
mod receiver;
mod registered;
mod replays;
mod retention;
mod reviews;
mod rotation;
mod sealed;
mod settlement;
mod shared_jobs;
mod signed;
mod sweep;
mod usage;
mod witnesses;
mod world;

/// What the databases of these tests run on.
const KIND: Kind = Kind::Postgres;
