//! PostgreSQL: any number of servers on one database, each with a bounded number of connections.

mod address;
mod aside;
mod batch_worker;
mod breaker;
mod cluster;
mod columns;
mod connection;
mod connection_worker;
mod database_error;
mod deciding;
mod hot;
mod jobs;
mod keep;
mod maintenance;
mod pool;
mod purpose;
mod room;
mod scripts;
mod session;
#[cfg(test)]
mod tests;
mod tls;
mod transfer;
pub(super) mod upkeep;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use mandate_core::Timestamp;
use tokio::sync::{Mutex, Notify};
use tracing::warn;

use super::leases::JobsLease;
use super::tx::{Tally, Tx};
use super::{Authorization, Decider};
use crate::error::{Fault, Refusal};
use crate::metrics::Metrics;
use crate::model::call::{Answer, ScriptError};
use crate::model::gauges::{Cluster, DiskUsage};
use address::Address;
use connection_worker::ConnectionWorker;
use jobs::After;
use pool::{MAX_WAIT, Pool};
use purpose::End;
use session::split_error;
pub(super) use transfer::Filling;
pub use transfer::TargetState;

mod migrations {
    refinery::embed_migrations!("src/store/migrations/postgres");
}

/// How often the log warns that partitions are short.
const WARN_EVERY: Duration = Duration::from_hours(1);
const SIZE: &str = "/* postgres.size */ SELECT pg_database_size(current_database())";

/// An open database and the threads that serve it.
pub(super) struct Postgres {
    pool: Pool,
    /// The lease on the scheduled jobs, if this server holds it.
    jobs: Arc<Mutex<Option<JobsLease>>>,
    /// When the log last warned that partitions are short.
    warned: std::sync::Mutex<Option<Instant>>,
    /// The day that the database's clock shows, and since when this server knows.
    seen: std::sync::Mutex<Option<(u64, Instant)>>,
}

impl Postgres {
    pub(super) fn open(
        url: &str,
        decider: &Arc<dyn Decider>,
        metrics: Metrics,
        wake: Arc<Notify>,
    ) -> Result<Self, Fault> {
        let address = Address::parse(url)?;
        let name = address.to_string();
        ConnectionWorker::new(Arc::clone(&address))?.read(&|tx: &mut Tx<'_>| must_be_usable(tx, &name))??;
        let pool = Pool::start(&address, decider, After::new(metrics, wake), MAX_WAIT)?;
        Ok(Self {
            pool,
            jobs: Arc::default(),
            warned: std::sync::Mutex::default(),
            seen: std::sync::Mutex::default(),
        })
    }

    pub(super) fn jobs(&self) -> &Arc<Mutex<Option<JobsLease>>> {
        &self.jobs
    }

    pub(super) async fn read<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> T + Send + 'static,
    {
        self.pool.read(script).await
    }

    pub(super) async fn read_long<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> T + Send + 'static,
    {
        self.pool.read_long(script).await
    }

    pub(super) async fn write<T, S>(&self, script: S) -> Result<Result<T, Refusal>, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, ScriptError> + Send + 'static,
    {
        self.pool.write(script).await
    }

    pub(super) async fn decide(&self, authorization: Authorization) -> Result<Answer, Fault> {
        self.pool.decide(authorization).await
    }

    pub(super) fn waiting(&self) -> usize {
        self.pool.waiting()
    }

    /// Has those that decide show that they can.
    pub(super) async fn prove(&self) {
        self.pool.prove().await;
    }

    /// For how long one of those that decide has had work without a commit.
    pub(super) fn stuck(&self) -> Duration {
        self.pool.stuck()
    }

    /// The size of the database. PostgreSQL does not report the free space.
    pub(super) fn disk_usage(&self) -> Result<DiskUsage, Fault> {
        let size = self.pool.read_here(|tx| tx.one_row(SIZE, &[])?.integer())??;
        Ok(DiskUsage { database_bytes: size.unsigned_abs(), log_bytes: None, free_bytes: None })
    }

    /// What the database shows of its standbys and partitions.
    pub(super) fn cluster(&self, now: Timestamp) -> Result<Cluster, Fault> {
        self.pool.read_here(move |tx| cluster::read(tx, now))?
    }

    /// How many connections of each kind are open.
    pub(super) fn connections(&self) -> Vec<(&'static str, usize)> {
        self.pool.connections()
    }

    /// Runs the maintenance that is due. Returns when it is due again.
    pub(super) async fn maintain(&self, now: Timestamp) -> Result<Timestamp, Fault> {
        // A server whose role owns no table leaves partitions to `migrate`.
        for (table, month) in self.read(move |tx| maintenance::missing(tx, now)).await??.unwrap_or_default() {
            let make = move |tx: &mut Tx<'_>| Ok(maintenance::make_partition(tx, table, &month)?);
            if let Err(fault) = self.write(make).await {
                warn!(table, kind = fault.kind(), reason = %fault, "a partition is not made yet");
            }
        }
        let end = self.read(move |tx| maintenance::end(tx, now)).await??;
        if maintenance::is_short(end, now) && self.is_warning_due() {
            warn!(
                %end,
                "the partitions of decisions and events end soon, and nothing is decided without one: run \
                 `mandate-server migrate` with the role that owns the tables"
            );
        }
        let day = self.read(maintenance::day).await??;
        if self.has_rested(day) && self.read(move |tx| maintenance::has_commits(tx, day)).await?? {
            self.write(move |tx| Ok(maintenance::empty_commits(tx, day)?))
                .await?
                .map_err(|r| Fault::new(r.message))?;
        }
        Ok(now.plus_seconds(maintenance::EVERY_SECONDS))
    }

    /// Whether the log has not warned for a while that partitions are short.
    fn is_warning_due(&self) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let due = warned.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if due {
            *warned = Some(Instant::now());
        }
        due
    }

    /// Whether the database's clock has shown `day` for long enough.
    fn has_rested(&self, day: u64) -> bool {
        maintenance::has_rested(
            &mut self.seen.lock().unwrap_or_else(PoisonError::into_inner),
            day,
            Instant::now(),
        )
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }
}

/// Refuses a database whose schema is not the newest, and one that a transfer is filling.
fn must_be_usable(tx: &mut Tx<'_>, name: &str) -> Result<(), Fault> {
    upkeep::schema_in(tx)?.must_be_newest(name)?;
    transfer::must_be_whole(tx)
}

pub(super) fn run_once<T>(
    url: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError>,
) -> Result<Result<T, Refusal>, Fault> {
    apart(url, script, End::Commit)
}

pub(super) fn dry_run<T>(
    url: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError>,
) -> Result<Result<T, Refusal>, Fault> {
    apart(url, script, End::Rollback)
}

/// Runs a script over a connection of its own and ends the transaction as `end` says. A fault rolls back.
fn apart<T>(
    url: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError>,
    end: End,
) -> Result<Result<T, Refusal>, Fault> {
    let address = Address::parse(url)?;
    let name = address.to_string();
    let mut worker = ConnectionWorker::new(address)?;
    let run = |session: &mut session::PostgresSession<'_>| {
        let mut tx = Tx::new(session);
        must_be_usable(&mut tx, &name)?;
        let result = split_error(script(&mut tx))?;
        let _: Tally = tx.into_tally();
        Ok(result)
    };
    worker.once(run, end)
}
