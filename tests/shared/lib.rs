//! What the tests of several packages share: databases of both kinds, clusters of PostgreSQL, a proxy before one, runs of
//! the binaries, waits that end, and what holds of every honest log.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::panic,
    clippy::unwrap_used,
    reason = "what cannot go on is a failed test"
)]

pub mod black_hole;
pub mod campaign;
pub mod cluster;
pub mod command;
pub mod database;
pub mod oracle;
pub mod pooler;
pub mod proxy;
pub mod shared;
pub mod standby;
pub mod wait;
mod wire;

pub use cluster::Cluster;
pub use command::Ran;
pub use database::{Database, Kind};
pub use pooler::Pooler;
pub use proxy::Proxy;
