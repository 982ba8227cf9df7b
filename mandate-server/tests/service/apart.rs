//! What an operator does to a database beside a server: here on a thread of its own, since it waits for the database,
//! which a test's asynchronous thread must not.
#![allow(dead_code, reason = "each of the binaries of tests that have this file uses a part of it")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mandate_server::error::{Fault, Refusal};
use mandate_server::metrics::Metrics;
use mandate_server::model::call::ScriptError;
use mandate_server::store::tx::Tx;
use mandate_server::store::uncounted::Uncounted;
use mandate_server::store::{self, Decider, Owned, Schema, Store, upkeep};
use mandate_tests::{Database, Kind};

/// [`store::run_once`].
pub(crate) fn run_once<T: Send>(
    database: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError> + Send,
) -> Result<Result<T, Refusal>, Fault> {
    on_a_thread(|| store::run_once(database, script))
}

/// [`store::migrate`].
pub(crate) fn migrate(database: &str) -> Result<Schema, Fault> {
    on_a_thread(|| store::migrate(database))
}

/// A new database with a schema.
pub(crate) fn migrated(kind: Kind) -> Database {
    kind.migrated(|database| {
        migrate(database).unwrap();
    })
}

/// [`upkeep::snapshot`].
pub(crate) fn snapshot<T: Send>(
    database: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault> + Send,
) -> Result<T, Fault> {
    on_a_thread(|| upkeep::snapshot(database, script))
}

/// [`Store::open`].
pub(crate) fn open(database: &str, decider: Arc<dyn Decider>) -> Result<Store, Fault> {
    on_a_thread(|| Store::open(Owned::take(database, Duration::ZERO)?, decider, Metrics::new()))
}

/// The store of another server on the database: on PostgreSQL a second one, on SQLite the one that there may be.
pub(crate) fn another(store: &Store, database: &str, decider: Arc<dyn Decider>) -> Result<Store, Fault> {
    if database.starts_with("sqlite:") { Ok(store.clone()) } else { open(database, decider) }
}

/// [`Store::open_bounded`].
pub(crate) fn open_bounded(
    database: &str,
    decider: Arc<dyn Decider>,
    uncounted: Uncounted,
) -> Result<Store, Fault> {
    on_a_thread(|| {
        Store::open_bounded(Owned::take(database, Duration::ZERO)?, decider, Metrics::new(), uncounted)
    })
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap()
}
