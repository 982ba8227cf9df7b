//! SQLite: one writer thread that decides and commits in batches, and a few readers beside it.

mod batch;
pub(super) mod beside;
mod checkpoint;
pub(super) mod commit;
mod jobs;
pub(super) mod owner;
pub(super) mod place;
mod readers;
pub(super) mod replace;
mod signers;
mod states;
mod transaction;
pub(super) mod upkeep;
mod wal;
mod writer;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params_from_iter};
use tokio::sync::Notify;

use super::tx::{Backend, Counting, Row, Session, Tally, Tx, Value};
use super::uncounted::Uncounted;
use super::{AgentContext, Authorization, Decider, DecisionAndReview, LogEntries, sql};
use crate::error::{Fault, Refusal};
use crate::metrics::Metrics;
use crate::model::call::{Answer, ScriptError};
use crate::model::gauges::DiskUsage;
use crate::model::records::{AgentKey, DecisionRecord};
use commit::Disk;
use owner::Owner;
use readers::Readers;
use upkeep::Holder;
use writer::Writer;

/// How long a connection waits for another process that holds the write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Statements that each connection keeps prepared.
const STATEMENT_CACHE: usize = 128;
/// How many threads read.
const READERS: usize = 4;
/// How many more read what takes long.
const LONG_READERS: usize = 2;
/// Page cache of each connection, in KiB.
const CACHE_KIB: i64 = 16 * 1024;

mod migrations {
    refinery::embed_migrations!("src/store/migrations/sqlite");
}

/// An open database and its threads.
pub(super) struct Sqlite {
    path: String,
    writer: Writer,
    readers: Readers,
    /// For scripts that take long.
    long_readers: Readers,
    /// Tells a process that would replace the file that it is in use.
    _held: File,
}

impl Sqlite {
    pub(super) fn open(
        owner: Owner,
        decider: Arc<dyn Decider>,
        metrics: Metrics,
        wake: Arc<Notify>,
        disk: Disk,
        uncounted: Uncounted,
    ) -> Result<Self, Fault> {
        let path = owner.path().to_owned();
        let path = path.as_str();
        let held = upkeep::claim(path, Holder::Server)?;
        let uncounted = Arc::new(uncounted);
        let writer = Writer::start(owner, decider, metrics, wake, disk, &uncounted)?;
        let readers = Readers::start(path, &uncounted, ("reader", READERS))?;
        let long_readers = Readers::start(path, &uncounted, ("long-reader", LONG_READERS))?;
        Ok(Self { path: path.to_owned(), writer, readers, long_readers, _held: held })
    }

    pub(super) async fn read<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: FnOnce(&mut Tx<'_>) -> T + Send + 'static,
    {
        self.readers.run(script).await
    }

    pub(super) async fn read_long<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: FnOnce(&mut Tx<'_>) -> T + Send + 'static,
    {
        self.long_readers.run(script).await
    }

    pub(super) async fn write<T, S>(&self, script: S) -> Result<Result<T, Refusal>, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, ScriptError> + Send + 'static,
    {
        self.writer.write(script).await
    }

    pub(super) async fn decide(&self, authorization: Authorization) -> Result<Answer, Fault> {
        self.writer.decide(authorization).await
    }

    pub(super) fn waiting(&self) -> usize {
        self.writer.waiting()
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.writer.has_stopped()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.writer.is_lost()
    }

    pub(super) fn disk_usage(&self) -> io::Result<DiskUsage> {
        let bytes = |path: &str| Path::new(path).metadata().map(|metadata| metadata.len());
        let disk = rustix::fs::statvfs(&self.path)?;
        Ok(DiskUsage {
            database_bytes: bytes(&self.path)?,
            log_bytes: Some(bytes(&format!("{}-wal", self.path)).unwrap_or(0)),
            free_bytes: Some(disk.f_bavail.saturating_mul(disk.f_frsize)),
        })
    }

    pub(super) fn close(&self) {
        self.readers.close();
        self.long_readers.close();
        self.writer.close();
    }
}

pub(super) fn run_once<T>(
    path: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError>,
) -> Result<Result<T, Refusal>, Fault> {
    apart(path, script, End::Commit)
}

pub(super) fn dry_run<T>(
    path: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError>,
) -> Result<Result<T, Refusal>, Fault> {
    apart(path, script, End::Rollback)
}

/// How the transaction of a script that has succeeded ends.
#[derive(Clone, Copy)]
enum End {
    Commit,
    Rollback,
}

/// Runs a script over a connection of its own, and ends its transaction so; after a fault, with a rollback.
fn apart<T>(
    path: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError>,
    end: End,
) -> Result<Result<T, Refusal>, Fault> {
    if !Path::new(path).exists() && !replace::is_pending(path)? {
        return Err(Fault::new(format!(
            "database: there is no file {path}; `mandate-server serve` creates it"
        )));
    }
    let _held = upkeep::claim(path, Holder::Server)?;
    let mut connection = connect(path)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut session = SqliteSession::writing(&transaction, None);
    let mut tx = Tx::new(&mut session);
    upkeep::schema_in(&mut tx)?.must_be_newest(path)?;
    let result = match script(&mut tx) {
        Ok(value) => Ok(value),
        Err(ScriptError::Refused(refusal)) => Err(refusal),
        Err(ScriptError::Fault(fault)) => return Err(fault),
    };
    match end {
        End::Commit => {
            sql::operated::add(&mut Tx::new(&mut SqliteSession::writing(&transaction, None)))?;
            transaction.commit()?;
        }
        End::Rollback => transaction.rollback()?,
    }
    Ok(result)
}

/// Opens a connection with the settings that durability rests on.
fn connect(path: &str) -> Result<Connection, Fault> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)
        .map_err(|e| Fault::new(format!("database: cannot open {path}: {e}")))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // NORMAL would lose acknowledged commits when the machine fails.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // Without it a statement with a join is planned again at each run, because other values could want another plan.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.wal_hook(Some(checkpoint::alone))?;
    Ok(connection)
}

/// A connection as the session of a transaction.
struct SqliteSession<'a> {
    connection: &'a Connection,
    counting: Counting,
    /// The server's, or what this transaction finds where it is not one of the server's.
    uncounted: Option<Arc<Uncounted>>,
}

impl<'a> SqliteSession<'a> {
    fn reading(connection: &'a Connection, uncounted: Option<Arc<Uncounted>>) -> Self {
        Self { connection, counting: Counting::Reading, uncounted }
    }

    fn writing(connection: &'a Connection, uncounted: Option<Arc<Uncounted>>) -> Self {
        Self { connection, counting: Counting::Writing, uncounted }
    }
}

/// The uncounted decisions, as the transaction of `session` sees them.
fn gathered(session: &mut dyn Session) -> Result<Arc<Uncounted>, Fault> {
    let uncounted = Arc::default();
    sql::log_end::gather(&mut Tx::new(session), &uncounted)?;
    Ok(uncounted)
}

impl Session for SqliteSession<'_> {
    fn backend(&self) -> Backend {
        Backend::Sqlite
    }

    /// The writer is the lock.
    fn hold(&mut self, _: &'static str, _: &[Value]) -> Result<(), Fault> {
        Ok(())
    }

    fn counting(&self) -> Counting {
        self.counting
    }

    fn uncounted(&mut self) -> Result<Arc<Uncounted>, Fault> {
        if self.uncounted.is_none() {
            self.uncounted = Some(gathered(self)?);
        }
        Ok(self.uncounted.clone().unwrap_or_default())
    }

    fn query(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Vec<Row>, Fault> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let columns = statement.column_count();
        let mut found = statement.query(params_from_iter(parameters))?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let mut values = Vec::with_capacity(columns);
            for column in 0..columns {
                values.push(match row.get_ref(column)? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(value) => Value::Integer(value),
                    ValueRef::Real(_) => return Err(Fault::corrupt("database: a column of floats")),
                    ValueRef::Text(text) => Value::Text(
                        String::from_utf8(text.to_vec())
                            .map_err(|_| Fault::corrupt("database: text is not UTF-8"))?,
                    ),
                    ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
                });
            }
            rows.push(Row::new(values));
        }
        Ok(rows)
    }

    fn execute(&mut self, sql: &'static str, parameters: &[Value]) -> Result<usize, Fault> {
        Ok(self.connection.prepare_cached(sql)?.execute(params_from_iter(parameters))?)
    }

    /// The agent's rows are written with it as often as with a batch's.
    fn keep(&mut self, decided: DecisionAndReview, context: AgentContext<'_>) -> Result<Tally, Fault> {
        let mut tx = Tx::new(self);
        let mark = sql::clock::mark(&mut tx)?;
        sql::decisions::keep(&mut tx, &decided, mark)?;
        let mut entries = LogEntries::default();
        entries.add(&decided.entry, decided.decision.decided_at);
        for (kind, at, entries) in entries.take() {
            sql::public_log::add(&mut tx, kind, at, entries)?;
        }
        let DecisionRecord { environment, request, .. } = decided.decision;
        let agent = AgentKey { environment, agent: request.agent };
        let lacking = sql::uncounted::ids(&mut tx, &agent)?.len();
        if sql::uncounted::is_due(context.usage, lacking) {
            sql::uncounted::count(&mut tx, &agent)?;
        }
        Ok(tx.into_tally())
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        use rusqlite::types::ToSqlOutput::Borrowed;
        Ok(Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Blob(value) => ValueRef::Blob(value),
        }))
    }
}
