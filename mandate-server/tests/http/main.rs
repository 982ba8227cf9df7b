//! The server over its real listeners, with a clock that the tests move.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

mod escrows;
mod exports;
mod server;
mod settlement;
mod usage;
