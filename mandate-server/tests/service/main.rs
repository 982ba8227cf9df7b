//! The service over a real database, with a clock that the tests move: what time and order do to decisions.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod agents_and_mandates;
mod ahead;
mod backups;
mod check;
mod clock;
mod costs;
mod deliveries;
mod durability;
mod escrows;
mod events;
mod exports;
mod limits;
mod lists;
mod migrations;
mod receiver;
mod replays;
mod reviews;
mod rotation;
mod settlement;
mod sweep;
mod usage;
mod world;
