//! The store. What is committed is durable, and what is not committed is never seen.
//!
//! It has three entry points: [`Store::read`] runs a script over a snapshot, [`Store::write`] runs one in a
//! transaction, and [`Store::decide`] puts an authorization into the next batch. No answer is given before its
//! COMMIT has returned.

mod decider;
mod leases;
mod owned;
mod postgres;
mod schema;
pub mod sql;
mod sqlite;
pub mod transfer;
pub mod tx;
pub mod uncounted;
pub mod upkeep;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mandate_core::Timestamp;
use tokio::sync::Notify;

use crate::error::{Fault, Refusal};
use crate::metrics::Metrics;
use crate::model::call::{Answer, ScriptError};
use crate::model::database::{POSTGRES, SQLITE};
use crate::model::gauges::{Cluster, DiskUsage};
use crate::traces::Span;
use tx::Tx;
use uncounted::Uncounted;

pub use decider::{
    AgentContext, Authorization, Decider, DecisionAndReview, Found, Loaded, LogEntries, LogEntry, Made,
    Signed, Unsigned, UnsignedOutcome,
};
pub use leases::Leases;
pub use owned::Owned;
pub use schema::{Schema, Step};
pub use sqlite::upkeep::Holder;
pub use upkeep::migrate;

/// An open database. Clones share it.
#[derive(Clone)]
pub struct Store {
    backend: Backend,
    announced: Arc<Notify>,
}

/// The kind of database.
#[derive(Clone)]
enum Backend {
    Sqlite(Arc<sqlite::Sqlite>),
    Postgres(Arc<postgres::Postgres>),
}

/// Where the database is that `--database` names.
enum Place<'a> {
    /// The canonical path of a file.
    Sqlite(String),
    /// The whole URL.
    Postgres(&'a str),
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// Opens a database that [`migrate`] has brought up to date, and starts the threads that serve it.
    ///
    /// # Errors
    /// The database cannot be opened.
    pub fn open(owned: Owned, decider: Arc<dyn Decider>, metrics: Metrics) -> Result<Self, Fault> {
        Self::open_bounded(owned, decider, metrics, Uncounted::default())
    }

    /// Opens a database as [`Store::open`] does, with other bounds for the uncounted decisions.
    ///
    /// # Errors
    /// As with [`Store::open`].
    pub fn open_bounded(
        owned: Owned,
        decider: Arc<dyn Decider>,
        metrics: Metrics,
        uncounted: Uncounted,
    ) -> Result<Self, Fault> {
        Self::open_with(owned, decider, metrics, sqlite::commit::Disk::new(), uncounted)
    }

    /// Opens a database that comes onto its disk by `disk`.
    fn open_with(
        owned: Owned,
        decider: Arc<dyn Decider>,
        metrics: Metrics,
        disk: sqlite::commit::Disk,
        uncounted: Uncounted,
    ) -> Result<Self, Fault> {
        let announced = Arc::new(Notify::new());
        let wake = Arc::clone(&announced);
        let backend = match owned {
            Owned::Sqlite(file) => Backend::Sqlite(Arc::new(sqlite::Sqlite::open(
                file, decider, metrics, wake, disk, uncounted,
            )?)),
            Owned::Postgres(url) => {
                Backend::Postgres(Arc::new(postgres::Postgres::open(&url, &decider, metrics, wake)?))
            }
        };
        Ok(Self { backend, announced })
    }

    /// Runs `script` over a snapshot of what is committed. If the connection is lost meanwhile, runs it again over
    /// a new snapshot.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn read<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> T + Send + 'static,
    {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.read(script).await,
            Backend::Postgres(postgres) => postgres.read(script).await,
        }
    }

    /// As [`Self::read`], on one of two connections that are kept for scripts that take long: they hold up no other.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn read_long<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> T + Send + 'static,
    {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.read_long(script).await,
            Backend::Postgres(postgres) => postgres.read_long(script).await,
        }
    }

    /// Runs `script` in one transaction. A refusal is committed like a success; a fault leaves nothing behind.
    ///
    /// # Errors
    /// The script ends in a fault, or its transaction could not be committed.
    pub async fn write<T, S>(&self, script: S) -> Result<Result<T, Refusal>, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, ScriptError> + Send + 'static,
    {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.write(script).await,
            Backend::Postgres(postgres) => postgres.write(script).await,
        }
    }

    /// Decides on an authorization, in one batch with others that wait.
    ///
    /// # Errors
    /// The batch could not be committed.
    pub async fn decide(&self, mut authorization: Authorization) -> Result<Answer, Fault> {
        // The span lasts from the queue to the commit.
        let span = authorization.traced.as_ref().and_then(|traced| traced.begin("decide"));
        authorization.traced = span.as_ref().map(Span::place);
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.decide(authorization).await,
            Backend::Postgres(postgres) => postgres.decide(authorization).await,
        }
    }

    /// Waits until this store has committed something to deliver. One waiter is woken.
    pub async fn announced(&self) {
        self.announced.notified().await;
    }

    /// How many jobs wait for a thread.
    #[must_use]
    pub fn waiting(&self) -> usize {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.waiting(),
            Backend::Postgres(postgres) => postgres.waiting(),
        }
    }

    /// Has those that decide show that they can commit, where the database is another process. Returns when they have tried.
    pub async fn prove(&self) {
        match &self.backend {
            Backend::Sqlite(_) => {}
            Backend::Postgres(postgres) => postgres.prove().await,
        }
    }

    /// For how long some of those that decide have had work without a commit, or without a connection.
    #[must_use]
    pub fn stuck(&self) -> Duration {
        match &self.backend {
            Backend::Sqlite(_) => Duration::ZERO,
            Backend::Postgres(postgres) => postgres.stuck(),
        }
    }

    /// What keeps leases, where several servers may work on the same database. A file belongs to one, which needs none.
    #[must_use]
    pub fn leases(&self) -> Option<Leases<'_>> {
        match &self.backend {
            Backend::Sqlite(_) => None,
            Backend::Postgres(postgres) => Some(Leases::new(self, postgres.jobs())),
        }
    }

    /// Whether the disk has failed at a commit. Then nothing is written until the server is started again. What is
    /// committed can still be read.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.has_stopped(),
            // A database that cannot be reached may come back, so each request tries again.
            Backend::Postgres(_) => false,
        }
    }

    /// Whether the file of the database, or the one that locks it for this server, was deleted or replaced. This asks the
    /// file system.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.is_lost(),
            Backend::Postgres(_) => false,
        }
    }

    /// How much of its disk the database uses. This asks the file system or the database, so it may take a while.
    ///
    /// # Errors
    /// The size cannot be read.
    pub fn disk_usage(&self) -> Result<DiskUsage, Fault> {
        match &self.backend {
            Backend::Sqlite(sqlite) => {
                sqlite.disk_usage().map_err(|e| Fault::new(format!("database: its size cannot be read: {e}")))
            }
            Backend::Postgres(postgres) => postgres.disk_usage(),
        }
    }

    /// What a database that several servers share shows of itself at `now`. This asks it, so it may take a while.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn cluster(&self, now: Timestamp) -> Result<Option<Cluster>, Fault> {
        match &self.backend {
            Backend::Sqlite(_) => Ok(None),
            Backend::Postgres(postgres) => postgres.cluster(now).map(Some),
        }
    }

    /// How many connections to the database are open, by what they are for. A file has none.
    #[must_use]
    pub fn connections(&self) -> Vec<(&'static str, usize)> {
        match &self.backend {
            Backend::Sqlite(_) => Vec::new(),
            Backend::Postgres(postgres) => postgres.connections(),
        }
    }

    /// Runs the database's regular maintenance. Returns when it is due again.
    ///
    /// # Errors
    /// The database fails.
    pub async fn maintain(&self, now: Timestamp) -> Result<Option<Timestamp>, Fault> {
        match &self.backend {
            // A file needs no maintenance.
            Backend::Sqlite(_) => Ok(None),
            Backend::Postgres(postgres) => postgres.maintain(now).await.map(Some),
        }
    }

    /// Lets the threads finish what they have begun, ends them, and checkpoints the log into the database file.
    pub fn close(&self) {
        match &self.backend {
            Backend::Sqlite(sqlite) => sqlite.close(),
            Backend::Postgres(postgres) => postgres.close(),
        }
    }
}

/// Runs one script in one transaction without the threads of a [`Store`]. The operator's commands use it beside a
/// running server.
///
/// # Errors
/// The database cannot be opened, the script ends in a fault, or the transaction could not be committed.
pub fn run_once<T>(
    database: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError>,
) -> Result<Result<T, Refusal>, Fault> {
    match place(database)? {
        Place::Sqlite(path) => sqlite::run_once(&path, script),
        Place::Postgres(url) => postgres::run_once(url, script),
    }
}

/// Runs one script as [`run_once`] does, and rolls it back. So a dry run shows whether the script would be refused.
///
/// # Errors
/// As with [`run_once`].
pub fn dry_run<T>(
    database: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError>,
) -> Result<Result<T, Refusal>, Fault> {
    match place(database)? {
        Place::Sqlite(path) => sqlite::dry_run(&path, script),
        Place::Postgres(url) => postgres::dry_run(url, script),
    }
}

fn place(database: &str) -> Result<Place<'_>, Fault> {
    if POSTGRES.iter().any(|scheme| database.starts_with(scheme)) {
        return Ok(Place::Postgres(database));
    }
    let path = database.strip_prefix(SQLITE).filter(|path| !path.is_empty()).ok_or_else(|| {
        Fault::new(format!(
            "database must be {SQLITE} and the path of a file, for example sqlite://mandate.db, or the URL of a \
             PostgreSQL database, for example postgres://mandate@localhost/mandate"
        ))
    });
    Ok(Place::Sqlite(sqlite::place::resolve(path?)?))
}
