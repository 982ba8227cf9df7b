//! The ground floor: what passes between the layers, and is known to all of them.
//!
//! It imports `mandate-core` and the error types, and nothing else of the server.

pub mod call;
pub mod database;
pub mod gauges;
pub mod idempotency;
pub mod master_key;
pub mod records;
