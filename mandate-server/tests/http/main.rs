//! The listeners over real connections: the gate, what is read of a request, and how it is answered.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod bodies;
mod escrows;
mod exports;
mod gate;
mod hosts;
mod keys;
mod replays;
mod rotation;
mod server;
mod settlement;
mod usage;
mod webhooks;
mod world;
