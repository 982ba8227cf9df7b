//! The one thread that writes. While a batch commits, the next one gathers; no timer is needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rusqlite::Connection;
use tokio::sync::{Notify, mpsc, oneshot};

use super::super::tx::{Tally, Tx};
use super::super::{Authorization, Decider};
use super::commit::{Commit, Committer, STOPPED};
use super::{Ground, hot};
use crate::error::{Fault, Refusal};
use crate::metrics::Metrics;
use crate::service::{Answer, Stop};
use crate::traces;

/// How many jobs one transaction may hold.
const MAX_BATCH: usize = 256;
/// How many jobs may wait; more wait at the door.
const MAX_WAITING: usize = 4096;

/// Tells a waiter how its transaction ended: with the text of the fault, if it did not commit.
type Tell = Box<dyn FnOnce(Result<(), &str>) + Send>;
/// A script, run inside the batch; it says what it did, and brings its own ending.
type Script = Box<dyn FnOnce(&Connection, &mut Tally) -> Tell + Send>;

enum Job {
    Script(Script),
    Decide(Authorization, oneshot::Sender<Result<Answer, Fault>>),
}

/// The writer thread and the way to it.
pub(super) struct Writer {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    metrics: Metrics,
    /// Nothing is written any more, until the server is started again.
    stopped: Arc<AtomicBool>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        decider: Arc<dyn Decider>,
        metrics: Metrics,
        wake: Arc<Notify>,
        commit: Commit,
    ) -> Result<Self, Fault> {
        let stopped = Arc::new(AtomicBool::new(false));
        let mut committer = Committer::new(commit, Arc::clone(&stopped));
        let after = After { metrics: metrics.clone(), wake };
        let (jobs, waiting) = mpsc::channel(MAX_WAITING);
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || serve(&connection, decider.as_ref(), &mut committer, &after, waiting))
            .map_err(|e| Fault::new(format!("cannot start the writer thread: {e}")))?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)), metrics, stopped })
    }

    pub(super) async fn write<T, S>(&self, script: S) -> Result<Result<T, Refusal>, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, Stop> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = move |connection: &Connection, tally: &mut Tally| -> Tell {
            let result = in_savepoint(connection, || {
                let mut ground = Ground(connection);
                let mut tx = Tx::new(&mut ground);
                let result = script(&mut tx)?;
                tally.add(tx.into_tally());
                Ok(result)
            });
            Box::new(move |committed| {
                let result = match (result, committed) {
                    (Err(Stop::Fault(fault)), _) => Err(fault),
                    (_, Err(why)) => Err(Fault::new(why)),
                    (Ok(value), Ok(())) => Ok(Ok(value)),
                    (Err(Stop::Refused(refusal)), Ok(())) => Ok(Err(refusal)),
                };
                // A caller that has gone away needs no answer.
                let _ = answer.send(result);
            })
        };
        self.send(Job::Script(Box::new(job))).await?;
        answered.await.map_err(|_| self.gone())?
    }

    pub(super) async fn decide(&self, authorization: Authorization) -> Result<Answer, Fault> {
        let (answer, answered) = oneshot::channel();
        let began = Instant::now();
        self.send(Job::Decide(authorization, answer)).await?;
        let answer = answered.await.map_err(|_| self.gone())??;
        self.metrics.authorized(began.elapsed());
        Ok(answer)
    }

    /// How many jobs wait.
    pub(super) fn waiting(&self) -> usize {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().map_or(0, |jobs| jobs.max_capacity() - jobs.capacity())
    }

    /// Lets the thread end what waits, and joins it.
    pub(super) fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    async fn send(&self, job: Job) -> Result<(), Fault> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        jobs.ok_or_else(|| self.gone())?.send(job).await.map_err(|_| self.gone())
    }

    /// Whether the disk has failed, so that nothing is written any more.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn gone(&self) -> Fault {
        Fault::new(if self.has_stopped() { STOPPED } else { "the writer has ended" })
    }
}

/// Who hears of what has been committed.
struct After {
    metrics: Metrics,
    /// Wakes whoever delivers.
    wake: Arc<Notify>,
}

fn serve(
    connection: &Connection,
    decider: &dyn Decider,
    committer: &mut Committer,
    after: &After,
    mut waiting: mpsc::Receiver<Job>,
) {
    let mut jobs = Vec::with_capacity(MAX_BATCH);
    while waiting.blocking_recv_many(&mut jobs, MAX_BATCH) > 0 {
        if committer.has_stopped() {
            // Each waiter hears that its job was dropped.
            jobs.clear();
        } else {
            run(connection, decider, committer, after, &mut jobs);
        }
    }
    if committer.has_stopped() {
        return;
    }
    // Folds the log into the database file, so that a copy of the one file is whole after an orderly end.
    if let Err(e) = connection.pragma_update(None, "wal_checkpoint", "TRUNCATE") {
        tracing::debug!(error = %e, "the log was not folded in at the end");
    }
}

/// Runs all jobs in one transaction and tells each waiter how it ended.
///
/// None of the jobs has been answered yet, so that any order among them is a true one: scripts come first.
fn run(
    connection: &Connection,
    decider: &dyn Decider,
    committer: &mut Committer,
    after: &After,
    jobs: &mut Vec<Job>,
) {
    let (count, mut tally) = (jobs.len(), Tally::default());
    let began = connection.execute_batch("BEGIN IMMEDIATE");
    let mut tells: Vec<Tell> = Vec::new();
    let (mut batch, mut waiters) = (Vec::new(), Vec::new());
    for job in jobs.drain(..) {
        match job {
            Job::Script(script) if began.is_ok() => tells.push(script(connection, &mut tally)),
            // Dropping the script drops its waiter's channel: the waiter hears a fault.
            Job::Script(_) => {}
            Job::Decide(authorization, waiter) => {
                batch.push(authorization);
                waiters.push(waiter);
            }
        }
    }
    if let Err(e) = began {
        committer.tell("a transaction could not begin", &e);
        tell_all(waiters, &format!("database: {e}"));
        return;
    }
    let mut span = traces::batch(batch.iter().filter_map(|asked| asked.call.traced.as_ref()), count);
    let answers = decide(connection, decider, committer, &batch, &mut tally);
    let committing = Instant::now();
    let ended = committer.commit(connection);
    after.metrics.committed(count, committing.elapsed());
    if let Some(span) = span.as_mut().filter(|_| ended.is_err()) {
        span.fail();
    }
    drop(span);
    if ended.is_ok() {
        for (verdict, mode) in tally.decided {
            after.metrics.decided(verdict, mode);
        }
        if tally.announced {
            after.wake.notify_one();
        }
    }
    let told = ended.as_ref().copied().map_err(String::as_str);
    for tell in tells {
        tell(told);
    }
    for (waiter, answer) in waiters.into_iter().zip(answers) {
        let _ = waiter.send(answer.and_then(|answer| told.map(|()| answer).map_err(Fault::new)));
    }
}

/// Decides on all of a batch together; if that ends in a fault, on each alone, so that one harms no other.
fn decide(
    connection: &Connection,
    decider: &dyn Decider,
    committer: &mut Committer,
    batch: &[Authorization],
    tally: &mut Tally,
) -> Vec<Result<Answer, Fault>> {
    let mut together = |batch: &[Authorization]| {
        let run = || Ok(hot::run(connection, decider, batch, tally)?);
        in_savepoint(connection, run).map_err(|stop| match stop {
            Stop::Fault(fault) => fault,
            Stop::Refused(refusal) => Fault::new(refusal.message),
        })
    };
    if batch.is_empty() {
        return Vec::new();
    }
    together(batch).unwrap_or_else(|fault| {
        committer.tell("a batch could not be decided together", &fault);
        if connection.is_autocommit() {
            // On a full disk, among others: the database has undone the whole transaction.
            return batch.iter().map(|_| Err(Fault::new(fault.to_string()))).collect();
        }
        let mut alone = |one| together(std::slice::from_ref(one)).map(|mut answers| answers.pop());
        batch.iter().map(|one| alone(one)?.ok_or_else(unanswered)?).collect()
    })
}

fn unanswered() -> Fault {
    Fault::new("a batch of one was decided without an answer")
}

fn tell_all(waiters: Vec<oneshot::Sender<Result<Answer, Fault>>>, why: &str) {
    for waiter in waiters {
        let _ = waiter.send(Err(Fault::new(why)));
    }
}

/// Runs `script` so that a fault, or a panic, undoes what it did and nothing else.
fn in_savepoint<T>(connection: &Connection, script: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
    if connection.is_autocommit() {
        // A statement before this one met such an error that the database undid the whole transaction.
        return Err(Fault::new("database: the transaction was undone").into());
    }
    let step = |sql| connection.prepare_cached(sql).and_then(|mut s| s.execute([])).map_err(Fault::from);
    step("SAVEPOINT script")?;
    let result = catch_unwind(AssertUnwindSafe(script))
        .unwrap_or_else(|_| Err(Stop::Fault(Fault::new("a script panicked; see the line before this one"))));
    if matches!(result, Err(Stop::Fault(_))) {
        if connection.is_autocommit() {
            return result;
        }
        step("ROLLBACK TO script")?;
    }
    step("RELEASE script")?;
    result
}
