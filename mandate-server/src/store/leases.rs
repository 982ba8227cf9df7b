//! Leases: what one of several servers on a database does for all of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::tx::Tx;
use super::{Store, sql};
use crate::error::Fault;
use crate::model::call::ScriptError;

/// The name of the lease on the scheduled jobs.
const JOBS: &str = "jobs";
/// How long it lasts, in milliseconds, unless it is renewed.
const JOBS_MILLIS: i64 = 60_000;
/// How old it gets before it is renewed.
const RENEW: Duration = Duration::from_secs(15);

/// The lease on the scheduled jobs, as this server holds it.
#[derive(Debug)]
pub(super) struct JobsLease {
    /// When it ends, by the database's clock.
    until: i64,
    /// When it ended at first: it was moved since, and no other server has had it. Nothing has the same end twice.
    taken: i64,
    renewed: Instant,
}

/// Keeps leases in a database that several servers share.
pub struct Leases<'a> {
    store: &'a Store,
    jobs: &'a Arc<Mutex<Option<JobsLease>>>,
}

impl fmt::Debug for Leases<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leases")
    }
}

impl<'a> Leases<'a> {
    pub(super) fn new(store: &'a Store, jobs: &'a Arc<Mutex<Option<JobsLease>>>) -> Self {
        Self { store, jobs }
    }

    /// The store that several servers share.
    #[must_use]
    pub fn store(&self) -> &'a Store {
        self.store
    }

    /// Runs a script that takes a lease, renews it or gives it back.
    ///
    /// # Errors
    /// The database fails.
    pub async fn write<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        write(self.store, script).await
    }

    /// Takes the lease on the scheduled jobs, or renews it where that is due. Gives a number that is another one whenever it was
    /// taken anew. None if another server holds it.
    ///
    /// # Errors
    /// The database fails.
    pub async fn hold_jobs(&self) -> Result<Option<i64>, Fault> {
        let mut jobs = Arc::clone(self.jobs).lock_owned().await;
        if let Some(lease) = jobs.as_ref().filter(|lease| lease.renewed.elapsed() < RENEW) {
            return Ok(Some(lease.taken));
        }
        let store = self.store.clone();
        // A task, which goes on when the server stops meanwhile. So what it takes is known, and is given back.
        let taken = tokio::spawn(async move {
            // If it is not renewed because the database fails, its end is known still, and the next look renews it.
            let renewed = Instant::now();
            let before = jobs.as_ref().map(|lease| (lease.until, lease.taken));
            let take = move |tx: &mut Tx<'_>| -> Result<_, Fault> {
                let mut taken = None;
                if let Some((until, first)) = before {
                    taken = sql::leases::still_held(tx, JOBS, until)?.then_some(first);
                }
                let until = sql::leases::hold(tx, JOBS, JOBS_MILLIS, before.map(|(until, _)| until))?;
                Ok(until.map(|until| (until, taken.unwrap_or(until))))
            };
            let held = write(&store, take).await?;
            *jobs = held.map(|(until, taken)| JobsLease { until, taken, renewed });
            Ok(held.map(|(_, taken)| taken))
        });
        taken.await.map_err(|e| Fault::new(format!("the lease on the scheduled jobs: {e}")))?
    }

    /// Runs a script in a transaction that holds the lease on the scheduled jobs: until its COMMIT no other server takes it. None,
    /// and nothing is done, if another one may have it.
    async fn write_with_jobs<T, S>(&self, script: S) -> Result<Option<T>, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        // Meanwhile it is not renewed.
        let mut jobs = self.jobs.lock().await;
        let Some(until) = jobs.as_ref().map(|lease| lease.until) else { return Ok(None) };
        let fenced = move |tx: &mut Tx<'_>| {
            let is_held = sql::leases::still_held(tx, JOBS, until)?;
            if is_held { script(tx).map(Some) } else { Ok(None) }
        };
        let done = self.write(fenced).await?;
        if done.is_none() {
            *jobs = None;
        }
        Ok(done)
    }

    /// Gives the lease on the scheduled jobs back, so that another server takes it at once.
    ///
    /// # Errors
    /// The database fails.
    pub async fn give_jobs_back(&self) -> Result<(), Fault> {
        let Some(JobsLease { until, .. }) = self.jobs.lock().await.take() else { return Ok(()) };
        self.write(move |tx| sql::leases::give_back(tx, JOBS, until)).await
    }
}

impl Store {
    /// Whether this server runs the scheduled jobs that change the database: it holds the lease on them, or needs none.
    ///
    /// # Errors
    /// The database fails.
    pub async fn has_jobs(&self) -> Result<bool, Fault> {
        Ok(self.jobs_since().await?.is_some())
    }

    /// The same, as a number that stays while no other server has had them. None if this one does not run them.
    ///
    /// # Errors
    /// The database fails.
    pub async fn jobs_since(&self) -> Result<Option<i64>, Fault> {
        match self.leases() {
            Some(leases) => leases.hold_jobs().await,
            None => Ok(Some(0)),
        }
    }

    /// Runs a script in one transaction, as the server that runs the scheduled jobs. None, and nothing is done, if it has lost the
    /// lease on them since [`Store::has_jobs`].
    ///
    /// # Errors
    /// The script ends in a fault, or its transaction could not be committed.
    pub async fn write_with_jobs<T, S>(&self, script: S) -> Result<Option<T>, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        match self.leases() {
            Some(leases) => leases.write_with_jobs(script).await,
            None => write(self, script).await.map(Some),
        }
    }
}

async fn write<T, S>(store: &Store, script: S) -> Result<T, Fault>
where
    T: Send + 'static,
    S: Fn(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
{
    let written = store.write(move |tx| script(tx).map_err(ScriptError::Fault)).await?;
    written.map_err(|refusal| Fault::new(refusal.message))
}
