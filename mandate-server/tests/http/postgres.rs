//! The same cases on PostgreSQL, but for those that never come to the database (`bodies`, `input`, `published`, `tls`, `unread`, and
//! `upgrade` from one file to the next) and for the trace, which runs on both at once. `analysts`, `clocks`, `crowded`, `locks`, `losses`, `partitions`,
//! `pooler`, `rates`, `roles`, `standby` and `stops` are about what PostgreSQL alone has, and `transfer` about the way there.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use mandate_tests::Kind;

mod analysts;
#[path = "../service/apart.rs"]
mod apart;
mod behind;
mod clocks;
mod console;
mod contract;
mod crowded;
mod deliveries;
mod escrows;
mod exports;
mod faults;
mod gate;
mod held;
mod hosts;
mod keys;
mod lists;
mod locks;
mod losses;
mod metrics;
mod operations;
#[path = "../service/oracle.rs"]
mod oracle;
mod partitions;
mod pooler;
mod public_log;
mod rates;
#[path = "../service/receiver.rs"]
mod receiver;
mod replays;
mod replicas;
mod roles;
mod rotation;
mod samples;
mod server;
mod settlement;
mod standby;
mod stops;
mod tenants;
mod texts;
mod time;
mod transfer;
mod usage;
mod walk;
mod webhooks;
mod wire;
mod world;

/// What the databases of these tests run on.
const KIND: Kind = Kind::Postgres;
