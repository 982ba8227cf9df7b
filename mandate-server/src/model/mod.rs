//! Types that all layers share, and that pass between them.
//!
//! It imports `mandate-core` and the error types, and nothing else of the server.

pub mod call;
pub mod database;
pub mod gauges;
pub mod idempotency;
pub mod mac;
pub mod master_key;
pub mod people;
pub mod records;
pub mod text;
