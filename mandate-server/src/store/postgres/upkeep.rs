//! The operator's work on a whole database: look at it, and migrate it to the newest schema.

use std::sync::Arc;

use refinery::Runner;
use tokio_postgres::Client;

use super::address::Address;
use super::connection_worker::ConnectionWorker;
use super::migrations;
use super::transfer;
use crate::error::Fault;
use crate::store::Schema;
use crate::store::tx::Tx;
use crate::store::upkeep::{self, Applied};

/// Takes the lock that a process holds while it changes the schema. Other processes wait, and then find it changed.
pub(super) const HOLD: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0; \
     SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(7239165340126157901)";
const HAS_HISTORY: &str = "/* postgres_upkeep.has_history */ SELECT count(*) FROM pg_class
    WHERE oid = to_regclass('refinery_schema_history')";
const PAGE_CHECKSUMS: &str = "/* postgres_upkeep.page_checksums */ SELECT current_setting('data_checksums')";
/// Checks in place of foreign keys, which partitioned tables lack.
const DANGLING: &[(&str, &str, &str)] = &[
    (
        "deliveries",
        "events",
        "/* postgres_upkeep.deliveries */ SELECT count(*) FROM deliveries d LEFT JOIN events e ON e.environment = d.environment AND e.event = d.event
        WHERE e.event IS NULL",
    ),
    (
        "events",
        "environments",
        "/* postgres_upkeep.events */ SELECT count(*) FROM events v LEFT JOIN environments e ON e.environment = v.environment
        WHERE e.environment IS NULL",
    ),
];

/// Runs `script` over one snapshot.
pub(in crate::store) fn snapshot<T>(
    url: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    ConnectionWorker::new(Address::parse(url)?)?.look(script)?
}

/// Refuses a database that a transfer has not filled yet.
pub(in crate::store) fn must_be_complete(url: &str) -> Result<(), Fault> {
    snapshot(url, transfer::must_be_whole)
}

/// The rows that refer to missing rows: their table, and the table referred to.
pub(in crate::store) fn dangling(tx: &mut Tx<'_>) -> Result<Vec<(String, String)>, Fault> {
    let mut found = Vec::new();
    for (table, other, sql) in DANGLING {
        let row = tx.row(sql, &[])?;
        let count = row.ok_or_else(|| Fault::new("database: a count without a row"))?.integer()?;
        found.extend((0..count).map(|_| ((*table).to_owned(), (*other).to_owned())));
    }
    Ok(found)
}

/// Whether the server's pages have checksums.
pub(in crate::store) fn has_page_checksums(tx: &mut Tx<'_>) -> Result<bool, Fault> {
    let row = tx.row(PAGE_CHECKSUMS, &[])?;
    Ok(row.ok_or_else(|| Fault::new("database: no setting data_checksums"))?.text()? == "on")
}

/// The schema of a snapshot.
pub(in crate::store) fn schema_in(tx: &mut Tx<'_>) -> Result<Schema, Fault> {
    Ok(Schema::of(&upkeep::applied(tx, HAS_HISTORY)?, &runner()))
}

/// The database's schema, and the migrations that lead from it to the newest one.
pub(in crate::store) fn schema(url: &str) -> Result<Schema, Fault> {
    snapshot(url, schema_in)
}

/// Migrates the database to the newest schema, by all missing migrations or by none. If several processes begin at
/// once, one migrates while the others wait. Returns the schema as this process found it: for those that waited,
/// the newest.
pub(in crate::store) fn migrate(url: &str) -> Result<Schema, Fault> {
    let address = Address::parse(url)?;
    let before = schema(url)?;
    before.must_be_known(&address.to_string())?;
    if before.missing.is_empty() {
        return Ok(before);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| {
        Fault::new(format!("cannot start the runtime for the connection to the database: {e}"))
    })?;
    runtime.block_on(migrate_held(address))
}

async fn migrate_held(address: Arc<Address>) -> Result<Schema, Fault> {
    let failed = |e: &dyn std::fmt::Display| Fault::new(format!("database: cannot migrate {address}: {e}"));
    // The lock has a connection and a transaction of its own: that of the migrations ends with them, and behind a
    // pooler a session lock would be lost.
    let mut connections = Vec::with_capacity(2);
    for _ in 0..2 {
        let connected = address.connect(async |host| Ok(host.connect(address.connector()).await?)).await;
        let (client, connection) = connected.map_err(|error| failed(&error.fault))?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        connections.push(client);
    }
    let (Some(mut works), Some(holds)) = (connections.pop(), connections.pop()) else {
        return Err(failed(&"there is no connection"));
    };
    holds.batch_execute(HOLD).await.map_err(|e| failed(&e))?;
    let before = Schema::of(&applied(&works).await.map_err(|e| failed(&e))?, &runner());
    before.must_be_known(&address.to_string())?;
    runner().run_async(&mut works).await.map_err(|e| failed(&e))?;
    holds.batch_execute("COMMIT").await.map_err(|e| failed(&e))?;
    Ok(before)
}

/// The migrations that are applied when the lock is held.
async fn applied(client: &Client) -> Result<Vec<Applied>, tokio_postgres::Error> {
    if client.query_one(HAS_HISTORY, &[]).await?.try_get::<_, i64>(0)? == 0 {
        return Ok(Vec::new());
    }
    let rows = client.query(upkeep::HISTORY, &[]).await?;
    let applied = rows.iter().map(|row| {
        Ok(Applied { version: row.try_get(0)?, name: row.try_get(1)?, checksum: row.try_get(2)? })
    });
    applied.collect()
}

/// Runs all missing migrations in one transaction, so that a crash undoes all of them.
fn runner() -> Runner {
    migrations::migrations::runner().set_grouped(true)
}
