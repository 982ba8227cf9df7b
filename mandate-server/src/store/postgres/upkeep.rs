//! The operator's work on a whole database: look at it, and migrate it to the newest schema.

use std::sync::Arc;

use mandate_core::Timestamp;
use refinery::Runner;
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use super::address::Address;
use super::connection_worker::ConnectionWorker;
use super::session::PostgresSession;
use super::{maintenance, migrations, transfer};
use crate::error::Fault;
use crate::store::schema::{self, Applied, Schema};
use crate::store::sql::servers;
use crate::store::tx::Tx;

/// Takes the lock that a process holds while it changes the schema. Other processes wait, and then find it changed.
pub(super) const HOLD: &str = "BEGIN; /* postgres_upkeep.hold */ SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0; \
     SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(7239165340126157901)";
const HAS_HISTORY: &str = "/* postgres_upkeep.has_history */ SELECT count(*) FROM pg_class
    WHERE oid = to_regclass('refinery_schema_history')";
const MAY_CREATE: &str = "/* postgres_upkeep.may_create */ SELECT count(*) FROM pg_namespace
    WHERE nspname = current_schema() AND has_schema_privilege(oid, 'CREATE')
    AND has_database_privilege(current_database(), 'CREATE')";
/// Tables that are new or newly filled have no statistics, by which their statements are planned.
/// Partitions are analyzed with their table.
const TABLES: &str =
    "/* postgres_upkeep.tables */ SELECT string_agg(format('%I', relname), ', ') FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
    AND pg_has_role(relowner, 'USAGE')";
/// The role, and what of that which closing a month needs and servers do not have it lacks.
const LACKS_TO_CLOSE: &str = "/* postgres_upkeep.lacks_to_close */
    SELECT current_user::text, string_agg(n.does || ' ON ' || n.name, ', ' ORDER BY n.name, n.does)
    FROM (VALUES ('answers', 'DELETE'), ('attempts', 'DELETE'), ('balances', 'INSERT'), ('balances', 'UPDATE'), ('closed_months', 'DELETE'),
        ('closed_months', 'INSERT'), ('closings', 'INSERT'), ('closings', 'UPDATE'), ('decisions', 'DELETE'),
        ('deliveries', 'DELETE'), ('events', 'DELETE'), ('openings', 'INSERT'), ('openings', 'UPDATE'),
        ('reviews', 'DELETE')) AS n (name, does)
    WHERE NOT has_table_privilege(n.name, n.does)";
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
        let count = tx.one_row(sql, &[])?.integer()?;
        found.extend((0..count).map(|_| ((*table).to_owned(), (*other).to_owned())));
    }
    Ok(found)
}

/// Whether the server's pages have checksums.
pub(in crate::store) fn has_page_checksums(tx: &mut Tx<'_>) -> Result<bool, Fault> {
    Ok(tx.one_row(PAGE_CHECKSUMS, &[])?.text()? == "on")
}

/// The rights that this role lacks for closing a month, with its name. None if it lacks none.
pub(in crate::store) fn lacks_to_close(tx: &mut Tx<'_>) -> Result<Option<(String, String)>, Fault> {
    let mut row = tx.one_row(LACKS_TO_CLOSE, &[])?;
    let role = row.text()?;
    Ok(row.maybe_text()?.map(|rights| (role, rights)))
}

/// The schema of a snapshot.
pub(in crate::store) fn schema_in(tx: &mut Tx<'_>) -> Result<Schema, Fault> {
    Ok(Schema::of(&schema::applied(tx, HAS_HISTORY)?, &runner()))
}

/// The database's schema, and the migrations that lead from it to the newest one.
pub(in crate::store) fn schema(url: &str) -> Result<Schema, Fault> {
    snapshot(url, schema_in)
}

/// Until when there are partitions, without a gap.
pub(in crate::store) fn partitions_end(tx: &mut Tx<'_>, now: Timestamp) -> Result<Timestamp, Fault> {
    maintenance::end(tx, now)
}

/// Until when there are partitions, if that is soon by the database's clock.
pub(in crate::store) fn partitions_short(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    let now = servers::now(tx)?;
    Ok(Some(maintenance::end(tx, now)?).filter(|end| maintenance::is_short(*end, now)))
}

/// The tables that are in the place of partitions which must exist at `now`, each with the statement that makes it one.
pub(in crate::store) fn detached_partitions(
    tx: &mut Tx<'_>,
    now: Timestamp,
) -> Result<Vec<(String, String)>, Fault> {
    maintenance::detached(tx, now)
}

/// Migrates the database to the newest schema, by all missing migrations or by none. If several processes begin at
/// once, one migrates while the others wait. Then makes the partitions that are missing, if this role may. Returns the
/// schema as this process found it: for those that waited, the newest.
pub(in crate::store) fn migrate(url: &str, time: &dyn Fn(Timestamp) -> Timestamp) -> Result<Schema, Fault> {
    bring_up(url, time, transfer::must_be_whole)
}

/// The same, if the database passes `check`.
pub(super) fn bring_up(
    url: &str,
    time: &dyn Fn(Timestamp) -> Timestamp,
    check: impl Fn(&mut Tx<'_>) -> Result<(), Fault>,
) -> Result<Schema, Fault> {
    let address = Address::parse(url)?;
    let mut worker = ConnectionWorker::new(Arc::clone(&address))?;
    let (mut before, may_create) = worker.look(|tx| {
        check(tx)?;
        Ok::<_, Fault>((schema_in(tx)?, may_create(tx)?))
    })??;
    before.must_be_known(&address.to_string())?;
    if !before.missing.is_empty() {
        if !may_create {
            return Err(Fault::Schema(format!(
                "database: {address} has schema {}, and this program needs {}. This role may not create tables: run \
                 `mandate-server migrate` with the role that owns them",
                before.current, before.newest
            )));
        }
        before = runtime()?.block_on(migrate_held(&address))?;
    }
    make_partitions(&mut worker, time)?;
    Ok(before)
}

/// Whether this role may create tables and schemas.
fn may_create(tx: &mut Tx<'_>) -> Result<bool, Fault> {
    Ok(tx.one_row(MAY_CREATE, &[])?.integer()? > 0)
}

/// Makes the partitions that are missing, if this role may.
fn make_partitions(
    worker: &mut ConnectionWorker,
    time: &dyn Fn(Timestamp) -> Timestamp,
) -> Result<(), Fault> {
    let missing = worker.look(|tx| {
        let now = time(servers::now(tx)?);
        maintenance::missing(tx, now)
    })??;
    let missing = missing.unwrap_or_default();
    if missing.is_empty() {
        return Ok(());
    }
    worker.transact(&mut |session: &mut PostgresSession<'_>| {
        let mut tx = Tx::new(session);
        for (table, month) in &missing {
            maintenance::make_partition(&mut tx, table, month)?;
        }
        session.wrote = true;
        Ok(())
    })
}

/// Has the database look at what is in the tables, for its plans.
pub(super) fn analyze(address: &Address) -> Result<(), Fault> {
    let failed = |e: &dyn std::fmt::Display| Fault::new(format!("database: cannot analyze {address}: {e}"));
    runtime()?.block_on(async {
        let client = connect(address).await.map_err(|fault| failed(&fault))?;
        analyze_all(&client).await.map_err(|e| failed(&e))
    })
}

/// Analyzes the tables that this role owns.
async fn analyze_all(client: &Client) -> Result<(), tokio_postgres::Error> {
    match client.query_one(TABLES, &[]).await?.try_get::<_, Option<String>>(0)? {
        Some(tables) => client.batch_execute(&format!("ANALYZE {tables}")).await,
        None => Ok(()),
    }
}

fn runtime() -> Result<Runtime, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(|e| Fault::new(format!("cannot start the runtime for the connection to the database: {e}")))
}

/// A connection without limits of time. The current runtime drives it.
async fn connect(address: &Address) -> Result<Client, Fault> {
    let connected = address.connect(async |host| Ok(host.connect(address.connector()).await?)).await;
    let (client, connection) = connected.map_err(|error| error.fault)?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

async fn migrate_held(address: &Address) -> Result<Schema, Fault> {
    let failed = |e: &dyn std::fmt::Display| Fault::new(format!("database: cannot migrate {address}: {e}"));
    // The lock has a connection and a transaction of its own: that of the migrations ends with them, and behind a
    // pooler a session lock would be lost.
    let mut works = connect(address).await.map_err(|fault| failed(&fault))?;
    let holds = connect(address).await.map_err(|fault| failed(&fault))?;
    holds.batch_execute(HOLD).await.map_err(|e| failed(&e))?;
    let before = Schema::of(&applied(&works).await.map_err(|e| failed(&e))?, &runner());
    before.must_be_known(&address.to_string())?;
    runner().run_async(&mut works).await.map_err(|e| failed(&e))?;
    if !before.missing.is_empty() {
        analyze_all(&works).await.map_err(|e| failed(&e))?;
    }
    holds.batch_execute("COMMIT").await.map_err(|e| failed(&e))?;
    Ok(before)
}

/// The migrations that are applied when the lock is held.
async fn applied(client: &Client) -> Result<Vec<Applied>, tokio_postgres::Error> {
    if client.query_one(HAS_HISTORY, &[]).await?.try_get::<_, i64>(0)? == 0 {
        return Ok(Vec::new());
    }
    let rows = client.query(schema::HISTORY, &[]).await?;
    let applied = rows.iter().map(|row| {
        Ok(Applied { version: row.try_get(0)?, name: row.try_get(1)?, checksum: row.try_get(2)? })
    });
    applied.collect()
}

/// Runs all missing migrations in one transaction, so that a crash undoes all of them.
fn runner() -> Runner {
    migrations::migrations::runner().set_grouped(true)
}
