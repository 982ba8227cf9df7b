//! What an operator does to a database beside a server: here on a thread of its own, since it waits for the database,
//! which a test's asynchronous thread must not.
#![allow(dead_code, reason = "each of the binaries of tests that have this file uses a part of it")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mandate_core::{DecisionId, Timestamp};
use mandate_server::error::{Fault, Refusal};
use mandate_server::metrics::Metrics;
use mandate_server::model::call::ScriptError;
use mandate_server::store::tx::Tx;
use mandate_server::store::uncounted::Uncounted;
use mandate_server::store::{self, Decider, Owned, Schema, Store, upkeep};
use mandate_tests::cluster::run;
use mandate_tests::{Database, Kind};

/// [`store::run_once`].
pub(crate) fn run_once<T: Send>(
    database: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError> + Send,
) -> Result<Result<T, Refusal>, Fault> {
    on_a_thread(|| store::run_once(database, script))
}

/// [`Owned::migrate`], at this time.
pub(crate) fn migrate(database: &str, at: &str) -> Result<Schema, Fault> {
    let at = Timestamp::parse(at).unwrap();
    on_a_thread(|| Owned::take(database, Duration::ZERO)?.migrate(&|_| at))
}

/// A new database with a schema, made at noon of 15 June 2026. The clocks of tests jump by years before a server has made
/// partitions: on PostgreSQL one more partition has all that is earlier, and one all that is later.
pub(crate) fn migrated(kind: Kind) -> Database {
    kind.migrated(|database| {
        migrate(database, "2026-06-15T12:00:00Z").unwrap();
        if kind == Kind::Postgres {
            widen(database);
        }
    })
}

/// Makes those partitions.
fn widen(database: &str) {
    let id = |month: &str| {
        let at = Timestamp::parse(&format!("{month}-01T00:00:00Z")).unwrap();
        let bytes = DecisionId::new(at, 0).to_bytes();
        bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    };
    let (first, behind) = (id("2026-05"), id("2027-07"));
    for table in ["decisions", "events"] {
        for (name, from, to) in [
            ("earlier", "MINVALUE".to_owned(), format!(r"'\x{first}'")),
            ("later", format!(r"'\x{behind}'"), "MAXVALUE".to_owned()),
        ] {
            let make = format!(
                "CREATE TABLE {table}_{name} PARTITION OF {table} FOR VALUES FROM ({from}) TO ({to})"
            );
            run(database, &make);
        }
    }
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

/// Runs what waits for a database.
pub(crate) fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap()
}
