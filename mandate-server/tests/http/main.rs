//! The server over real connections: the listeners, every operation of the table held against its contract, every kind of
//! bad request, and faults on the server's side.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use mandate_tests::Kind;

#[path = "../service/apart.rs"]
mod apart;
mod behind;
mod bodies;
mod console;
mod contract;
mod deliveries;
mod escrows;
mod exports;
mod faults;
mod gate;
mod held;
mod hosts;
mod input;
mod keys;
mod lists;
mod metrics;
mod operations;
#[path = "../service/oracle.rs"]
mod oracle;
mod public_log;
mod published;
#[path = "../service/receiver.rs"]
mod receiver;
mod replays;
mod rotation;
mod samples;
mod server;
mod settlement;
mod tenants;
mod texts;
mod time;
mod tls;
mod trace;
mod traces;
mod unread;
mod usage;
mod walk;
mod webhooks;
mod wire;
mod world;

/// What the databases of these tests run on.
const KIND: Kind = Kind::Sqlite;
