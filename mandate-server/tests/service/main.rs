//! The service over a real database, with a clock that the tests move: what time and order do to decisions.
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
mod backups;
mod check;
mod clock;
mod closing;
mod cosigned;
mod costs;
mod counts;
mod damage;
mod deal;
mod deliveries;
mod durability;
mod escrows;
mod events;
mod exports;
mod files;
mod flips;
mod granted;
mod left_over;
mod limits;
mod lists;
mod log_guesses;
mod log_origins;
mod log_strangers;
mod long;
mod lookups;
mod notices;
mod oracle;
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
mod signed;
mod states;
mod sweep;
mod uncounted;
mod usage;
mod witnesses;
mod world;

/// What the databases of these tests run on.
const KIND: Kind = Kind::Sqlite;
