//! The contract over HTTP: every operation of the table, every kind of bad request, and faults on the server's side.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod contract;
mod faults;
mod input;
mod published;
mod samples;
mod walk;
mod world;
