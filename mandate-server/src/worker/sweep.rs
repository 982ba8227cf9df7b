//! Scheduled jobs, run by one scheduler.
//!
//! [`JOBS`] lists them. To add a job, write a script in the service whose changes apply only where they have
//! not been made, so that it is safe to run twice. Add an indexed query for when it is due next, a method that
//! passes both to `while_due`, and a row in the list. No answer depends on a job: readers compare times
//! themselves.
//!
//! Of several servers on a database, the one that holds a lease runs the jobs that change the database. It
//! asks for the lease before each transaction, and renews it; a server that was frozen may run one of them beside another.
//!
//! One job writes without it: each server looks at its own clock, and writes for how long no kept answer is forgotten where
//! that clock was set ahead. Another server, whose clock was not, knows nothing of it and could not write it in its place. The
//! row takes the longest of what all servers write, and one lowers only what it has written itself.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use mandate_core::Timestamp;
use tokio::sync::watch;
use tracing::{error, warn};

use super::export::{self, Exports};
use super::rotate::Rotation;
use crate::clock::Clock;
use crate::error::{Fault, Repeated};
use crate::model::call::ScriptError;
use crate::service::moments::Moments;
use crate::service::people::sessions;
use crate::service::{deliveries, exports, idempotency, mandates, reviews};
use crate::store::Store;
use crate::store::tx::Tx;

/// The longest pause between two runs, in seconds: a row written meanwhile may be due before all others.
const LONGEST_PAUSE_SECONDS: i64 = 10;
/// The shortest pause, in seconds.
const SHORTEST_PAUSE_SECONDS: i64 = 1;
/// How many rows a job changes in one transaction. This bounds how long it occupies the writer.
const BATCH_ROWS: i64 = 200;
/// How often files without an export are looked for, in seconds.
const ORPHANS_SECONDS: i64 = 60 * 60;
/// How often pending deliveries without a webhook are looked for, in seconds.
const LEFT_OVER_SECONDS: i64 = 60;
/// How many of them one transaction ends. It changes one word in each, and no transaction waits for their
/// webhook any more.
const LEFT_OVER_ROWS: i64 = 1_000;
/// How many such transactions run before the other jobs.
const LEFT_OVER_PIECES: usize = 20;

/// A scheduled job.
#[derive(Debug)]
pub struct Job {
    /// Its name in the log.
    pub name: &'static str,
    /// What it changes.
    scope: JobScope,
    /// Runs what is due and returns when the job is due again, or none if that is not known.
    run: for<'a> fn(&'a Sweep, Timestamp) -> BoxFuture<'a, Due>,
}

/// What a job changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobScope {
    /// The database. Of several servers on it, the one that holds the lease on the jobs runs them.
    Database,
    /// What is this server's: its files, and what it knows of its clock.
    Server,
}

/// When a job is due next.
type Due = Result<Option<Timestamp>, Fault>;

/// All scheduled jobs, in the order in which they run.
pub const JOBS: [Job; 10] = [
    // Seven days before a mandate's last day.
    Job {
        name: "announce that mandates are about to expire",
        scope: JobScope::Database,
        run: |sweep, now| Box::pin(sweep.mandates(now)),
    },
    // When a review was not resolved in time.
    Job {
        name: "resolve reviews that have expired",
        scope: JobScope::Database,
        run: |sweep, now| Box::pin(sweep.reviews(now)),
    },
    // When a clock was set ahead. The log says if it is behind its mark.
    Job {
        name: "keep for how long no answer is forgotten",
        scope: JobScope::Server,
        run: |sweep, _| Box::pin(sweep.hold()),
    },
    // 24 hours after the answer.
    Job {
        name: "forget answers kept for retries",
        scope: JobScope::Database,
        run: |sweep, now| Box::pin(sweep.kept_answers(now)),
    },
    // When they are over: readers compare times themselves.
    Job {
        name: "forget sessions, links and statements of people that are over",
        scope: JobScope::Database,
        run: |sweep, now| Box::pin(sweep.sessions(now)),
    },
    // Seven days after they were asked for.
    Job {
        name: "delete exports that have expired",
        scope: JobScope::Database,
        run: |sweep, now| Box::pin(sweep.exports(now)),
    },
    // Every hour. They are what a crash has left, and copies of exports that another server has deleted.
    Job {
        name: "delete files that no export owns",
        scope: JobScope::Server,
        run: |sweep, now| Box::pin(sweep.orphans(now)),
    },
    // Every minute, and again at once while more are left.
    Job {
        name: "end deliveries whose webhook is gone",
        scope: JobScope::Database,
        run: |sweep, now| Box::pin(sweep.left_over_deliveries(now)),
    },
    // When the newest key has signed for as long as the settings say.
    Job {
        name: "rotate signing keys",
        scope: JobScope::Database,
        run: |sweep, now| Box::pin(sweep.rotate(now)),
    },
    // Every minute, if the database needs it.
    Job {
        name: "maintain the database",
        scope: JobScope::Database,
        run: |sweep, now| Box::pin(sweep.maintain(now)),
    },
];

/// The scheduler.
pub struct Sweep {
    store: Store,
    exports: Arc<Exports>,
    moments: Arc<Moments>,
    clock: Arc<dyn Clock>,
    orphans: Every,
    left_over: Every,
    /// When the database was last maintained, and when it is due again.
    maintained: Mutex<Option<(Timestamp, Timestamp)>>,
    rotation: Option<Arc<Rotation>>,
    repeated: Repeated,
}

/// Keeps for how long no kept answer is to be forgotten, if that is new: before a decision that is made by a clock which was
/// set ahead, so that no restart ends it.
///
/// # Errors
/// The database fails.
pub(crate) async fn keep_hold(store: &Store, moments: &Moments) -> Result<(), Fault> {
    let Some(hold) = moments.hold_to_keep() else { return Ok(()) };
    let kept = store.write(move |tx| Moments::keep_hold(tx, hold).map_err(ScriptError::Fault)).await?;
    kept.map_err(|refusal| Fault::new(refusal.message))?;
    moments.hold_is_kept(hold.1);
    Ok(())
}

impl std::fmt::Debug for Sweep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sweep")
    }
}

impl Sweep {
    /// A scheduler over a store and the files of its exports.
    #[must_use]
    pub fn new(store: Store, exports: Arc<Exports>, moments: Arc<Moments>, clock: Arc<dyn Clock>) -> Self {
        let (orphans, left_over) = (Every::new(ORPHANS_SECONDS), Every::new(LEFT_OVER_SECONDS));
        let (maintained, repeated) = (Mutex::new(None), Repeated::in_background());
        Self { store, exports, moments, clock, orphans, left_over, maintained, rotation: None, repeated }
    }

    /// The same, which also rotates signing keys if `rotation` is given.
    #[must_use]
    pub fn rotating(self, rotation: Option<Rotation>) -> Self {
        Self { rotation: rotation.map(Arc::new), ..self }
    }

    /// Runs jobs when they are due, until `stop` changes. A job that is cut short is resumed at the next
    /// start.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let work = async {
            loop {
                let next = self.sweep().await;
                self.clock.sleep_until(next).await;
            }
        };
        tokio::select! {
            () = work => {}
            _ = stop.changed() => {}
        }
        if let Some(leases) = self.store.leases()
            && let Err(fault) = leases.give_jobs_back().await
        {
            warn!(kind = fault.kind(), reason = %fault, "the lease on the scheduled jobs is not given back");
        }
    }

    /// Runs all jobs that are due now, and returns when to look again. A job that fails is logged and delays
    /// no other.
    pub async fn sweep(&self) -> Timestamp {
        let now = self.clock.now();
        let mut next = now.plus_seconds(LONGEST_PAUSE_SECONDS);
        for job in &JOBS {
            match self.run_job(job, now).await {
                Ok(due) => next = due.map_or(next, |due| due.min(next)),
                Err(fault) => {
                    // A database that is away fails all of them.
                    let is_away = matches!(fault, Fault::Unavailable(_));
                    if let Some(others) = self.repeated.due(if is_away { fault.kind() } else { job.name }) {
                        error!(job = job.name, kind = fault.kind(), reason = %fault, others, "a scheduled job failed");
                    }
                }
            }
        }
        next.max(now.plus_seconds(SHORTEST_PAUSE_SECONDS))
    }

    async fn run_job(&self, job: &Job, now: Timestamp) -> Due {
        if job.scope == JobScope::Database && !self.store.has_jobs().await? {
            return Ok(None);
        }
        (job.run)(self, now).await
    }

    /// Runs `script` again and again, each time in a transaction of its own, while `next` is due at `now`. The
    /// script changes a limited number of rows and returns how many. No transaction that writes is begun while
    /// nothing is due, nor once another server has the jobs.
    async fn while_due<N, S>(&self, now: Timestamp, next: N, script: S) -> Due
    where
        N: Fn(&mut Tx<'_>) -> Result<Option<Timestamp>, Fault> + Clone + Send + Sync + 'static,
        S: Fn(&mut Tx<'_>) -> Result<usize, Fault> + Clone + Send + Sync + 'static,
    {
        loop {
            let due = self.store.read(next.clone()).await??;
            if due.is_none_or(|due| due > now) {
                return Ok(due);
            }
            if !self.store.has_jobs().await? {
                return Ok(None);
            }
            let script = script.clone();
            let done = self.store.write(move |tx| script(tx).map_err(ScriptError::Fault)).await?;
            if done.map_err(|refusal| Fault::new(refusal.message))? == 0 {
                return Ok(None);
            }
        }
    }

    async fn mandates(&self, now: Timestamp) -> Due {
        let moments = Arc::clone(&self.moments);
        let announce = move |tx: &mut Tx<'_>| mandates::announce_expiring(tx, &moments, now, BATCH_ROWS);
        self.while_due(now, mandates::next_expiring, announce).await
    }

    async fn reviews(&self, now: Timestamp) -> Due {
        let moments = Arc::clone(&self.moments);
        let expire = move |tx: &mut Tx<'_>| reviews::expire(tx, &moments, now, BATCH_ROWS);
        self.while_due(now, reviews::next_end, expire).await
    }

    async fn hold(&self) -> Due {
        // This looks at the clock.
        let _ = self.moments.forgetting();
        let moments = Arc::clone(&self.moments);
        self.store.read(move |tx| moments.compare(tx)).await??;
        keep_hold(&self.store, &self.moments).await.map(|()| None)
    }

    async fn kept_answers(&self, now: Timestamp) -> Due {
        if self.moments.forgetting() < now {
            return Ok(None);
        }
        let forget = move |tx: &mut Tx<'_>| idempotency::forget(tx, now, BATCH_ROWS);
        self.while_due(now, move |tx| idempotency::next_end(tx, now), forget).await
    }

    async fn sessions(&self, now: Timestamp) -> Due {
        let (moments, same) = (Arc::clone(&self.moments), Arc::clone(&self.moments));
        let forget = move |tx: &mut Tx<'_>| sessions::forget(tx, &moments, now, BATCH_ROWS);
        self.while_due(now, move |tx| sessions::next_end(tx, &same), forget).await
    }

    async fn rotate(&self, now: Timestamp) -> Due {
        let Some(rotation) = &self.rotation else { return Ok(None) };
        Arc::clone(rotation).rotate_due(&self.store, now).await.map(Some)
    }

    async fn maintain(&self, now: Timestamp) -> Due {
        let maintained = *self.maintained.lock().unwrap_or_else(PoisonError::into_inner);
        // A run later than now was by a clock that was ahead and has been set back.
        if let Some((_, due)) = maintained.filter(|(at, due)| (*at..*due).contains(&now)) {
            return Ok(Some(due));
        }
        let due = self.store.maintain(now).await?;
        *self.maintained.lock().unwrap_or_else(PoisonError::into_inner) = due.map(|due| (now, due));
        Ok(due)
    }

    async fn exports(&self, now: Timestamp) -> Due {
        export::delete_expired(&self.store, &self.exports, now).await?;
        self.store.read(exports::next_end).await?
    }

    async fn orphans(&self, now: Timestamp) -> Due {
        if let Some(later) = self.orphans.later(now) {
            return Ok(Some(later));
        }
        export::delete_orphans(&self.store, &self.exports).await?;
        Ok(Some(self.orphans.done(now)))
    }

    async fn left_over_deliveries(&self, now: Timestamp) -> Due {
        if let Some(later) = self.left_over.later(now) {
            return Ok(Some(later));
        }
        let mut left = None;
        for _ in 0..LEFT_OVER_PIECES {
            if left.is_none() {
                left = self.store.read(deliveries::left_over).await??;
            }
            let Some(some) = left else { return Ok(Some(self.left_over.done(now))) };
            if !self.store.has_jobs().await? {
                return Ok(None);
            }
            let end = move |tx: &mut Tx<'_>| Ok(deliveries::end_left_over(tx, &some, LEFT_OVER_ROWS)?);
            left = self.store.write(end).await?.map_err(|refusal| Fault::new(refusal.message))?;
        }
        Ok(Some(now))
    }
}

/// Something that is checked at intervals.
#[derive(Debug)]
struct Every {
    seconds: i64,
    due: Mutex<Timestamp>,
}

impl Every {
    /// Due at once, then every `seconds`.
    fn new(seconds: i64) -> Self {
        Self { seconds, due: Mutex::new(Timestamp::from_seconds(0)) }
    }

    /// When it is due; none if now. A clock that was ahead and is set back delays it by no more than the
    /// interval.
    fn later(&self, now: Timestamp) -> Option<Timestamp> {
        let due = *self.due.lock().unwrap_or_else(PoisonError::into_inner);
        (now < due && due <= now.plus_seconds(self.seconds)).then_some(due)
    }

    /// Notes that it was done, and returns when it is due again.
    fn done(&self, now: Timestamp) -> Timestamp {
        let due = now.plus_seconds(self.seconds);
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = due;
        due
    }
}
