//! The threads of the store. Each owns one connection, and their number is bounded.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};

use super::super::tx::Tx;
use super::super::{Authorization, Decider};
use super::address::Address;
use super::aside::Aside;
use super::batch_worker::BatchWorker;
use super::connection_worker::ConnectionWorker;
use super::deciding::{LastFailure, Progress};
use super::jobs::{After, MAX_WAITING, PendingAuthorization, Work, overdue};
use super::room::{Kind, Place, Rank};
use super::scripts::{self, BRIEFLY, Script, ScriptOutcome};
use crate::error::{Fault, Refusal};
use crate::model::call::{Answer, ScriptError};

/// How many threads read.
const READERS: usize = 4;
/// How many more read what takes long.
const LONG_READERS: usize = 2;
/// How many threads run scripts that write, besides the one for scripts whose locks are held.
const WRITERS: usize = 4;
/// How many batches run at a time. An agent is always served by the same batch worker, so that two never
/// compete for its row.
const BATCH_WORKERS: usize = 2;
/// How many agents' rows that other transactions hold are waited for at a time, each by a thread.
const IN_TURN: usize = 2;
/// How long a job may be queued. After that its caller has given up, and its ids would carry an old time.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(20);

/// A script that reads.
type Job = Box<dyn FnOnce(&mut ConnectionWorker) + Send>;

/// The queue of some threads: none once they are to end.
type Queue<J> = Mutex<Option<mpsc::Sender<J>>>;

/// The threads and their queues.
pub(super) struct Pool {
    address: Arc<Address>,
    readers: Queue<Job>,
    long_readers: Queue<Job>,
    writers: Queue<Script>,
    /// Scripts whose locks another transaction holds.
    patient: Queue<Script>,
    batch_workers: Vec<(Queue<Work>, Arc<Progress>)>,
    /// Requests of agents whose rows another transaction holds.
    aside: Arc<Aside>,
    /// How many scripts are set aside because of a held lock.
    scripts_aside: Arc<AtomicUsize>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The threads that wait for rows. They end after all others.
    in_turn: Mutex<Vec<JoinHandle<()>>>,
    after: After,
    max_wait: Duration,
}

impl Pool {
    /// Starts the threads. A job that has waited longer than `max_wait` is neither started nor committed.
    pub(super) fn start(
        address: &Arc<Address>,
        decider: &Arc<dyn Decider>,
        after: After,
        max_wait: Duration,
    ) -> Result<Self, Fault> {
        let mut threads = Vec::with_capacity(READERS + LONG_READERS + WRITERS + 1 + BATCH_WORKERS);
        let first = |kind, rank| Place { kind, rank };
        let place = first(Kind::Read, Rank::Read);
        let readers = start_workers("reader", (READERS, place), address, &mut threads, serve)?;
        let place = first(Kind::ReadLong, Rank::ReadLong);
        let long_readers = start_workers("long-reader", (LONG_READERS, place), address, &mut threads, serve)?;
        let (patient, held) = mpsc::channel(MAX_WAITING);
        let writers = {
            let patient = patient.clone();
            let serve = move |worker: ConnectionWorker, waiting: &AsyncMutex<_>| {
                scripts::serve(worker, waiting, &patient);
            };
            start_workers("writer", (WRITERS, first(Kind::Write, Rank::Write)), address, &mut threads, serve)?
        };
        let scripts_aside = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&scripts_aside);
        let serve = move |worker: ConnectionWorker| scripts::serve_patiently(worker, held, &count);
        let place = first(Kind::Patient, Rank::Patient);
        threads.push(thread("writer-patient".to_owned(), address, place, serve)?);
        let aside = Arc::new(Aside::default());
        let new_worker = |progress: &Arc<Progress>| {
            let (decider, aside) = (Arc::clone(decider), Arc::clone(&aside));
            BatchWorker::new(decider, after.clone(), max_wait, aside, Arc::clone(progress))
        };
        let failure = LastFailure::default();
        let progress = || Arc::new(Progress::new(failure.clone()));
        let mut batch_workers = Vec::with_capacity(BATCH_WORKERS);
        for number in 0..BATCH_WORKERS {
            let (asked, waiting) = mpsc::channel(MAX_WAITING);
            let progress = progress();
            let batches = new_worker(&progress);
            let serve = move |worker: ConnectionWorker| batches.serve(worker, waiting);
            let place = first(Kind::Decide, Rank::Decide);
            threads.push(thread(format!("batch-worker-{number}"), address, place, serve)?);
            batch_workers.push((Mutex::new(Some(asked)), progress));
        }
        let mut in_turn = Vec::with_capacity(IN_TURN);
        for number in 0..IN_TURN {
            // What these cannot do says nothing about the others. What they decide does.
            let batches = new_worker(&progress());
            let serve = move |worker: ConnectionWorker| batches.serve_in_turn(worker);
            let place = first(Kind::Wait, Rank::Surplus);
            in_turn.push(thread(format!("batch-worker-in-turn-{number}"), address, place, serve)?);
        }
        Ok(Self {
            address: Arc::clone(address),
            readers,
            long_readers,
            writers,
            patient: Mutex::new(Some(patient)),
            batch_workers,
            aside,
            scripts_aside,
            threads: Mutex::new(threads),
            in_turn: Mutex::new(in_turn),
            after,
            max_wait,
        })
    }

    pub(super) async fn read<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> T + Send + 'static,
    {
        read(&self.readers, script).await
    }

    pub(super) async fn read_long<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> T + Send + 'static,
    {
        read(&self.long_readers, script).await
    }

    /// Reads on behalf of a thread that may block.
    pub(super) fn read_here<T: Send + 'static>(
        &self,
        script: impl Fn(&mut Tx<'_>) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |worker| {
            let _ = answer.send(worker.read(&script));
        });
        sender(&self.readers)?.blocking_send(job).map_err(|_| gone())?;
        answered.blocking_recv().map_err(|_| gone())?
    }

    pub(super) async fn write<T, S>(&self, script: S) -> Result<Result<T, Refusal>, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, ScriptError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let (after, until) = (self.after.clone(), Instant::now() + self.max_wait);
        let mut answer = Some(answer);
        let job: Script = Box::new(move |worker| {
            let ended = if Instant::now() < until {
                let ended = worker.write_until(until, BRIEFLY, &script);
                if ended.is_err() && worker.is_held() && Instant::now() < until {
                    return ScriptOutcome::Locked;
                }
                ended.map(|(result, tally)| {
                    after.record(1, worker.committing(), &tally);
                    result
                })
            } else {
                Err(overdue())
            };
            if let Some(answer) = answer.take() {
                let _ = answer.send(ended);
            }
            ScriptOutcome::Answered
        });
        send(&self.writers, job).await?;
        answered.await.map_err(|_| gone())?
    }

    pub(super) async fn decide(&self, authorization: Authorization) -> Result<Answer, Fault> {
        let (waiter, answered) = oneshot::channel();
        let began = Instant::now();
        let caller = &authorization.call.caller;
        let mut hasher = DefaultHasher::new();
        (caller.environment.id, &caller.agent).hash(&mut hasher);
        let batch_worker =
            usize::try_from(hasher.finish() % self.batch_workers.len().max(1) as u64).unwrap_or_default();
        let (queue, _) = self.batch_workers.get(batch_worker).ok_or_else(gone)?;
        send(queue, Work::Decide(PendingAuthorization { authorization, at: began, waiter })).await?;
        let answer = answered.await.map_err(|_| gone())??;
        self.after.authorized(began.elapsed());
        Ok(answer)
    }

    /// How many jobs wait for a thread or for a lock.
    pub(super) fn waiting(&self) -> usize {
        let queued = self.batch_workers.iter().map(|(queue, _)| waiting(queue)).sum::<usize>();
        let aside = self.aside.count() + self.scripts_aside.load(Ordering::Relaxed);
        waiting(&self.readers)
            + waiting(&self.long_readers)
            + waiting(&self.writers)
            + waiting(&self.patient)
            + queued
            + aside
    }

    /// Has each batch worker that has not just committed show that it can. Returns when all have tried.
    pub(super) async fn prove(&self) {
        let mut proofs = Vec::with_capacity(BATCH_WORKERS);
        for (queue, progress) in self.batch_workers.iter().filter(|(_, progress)| !progress.is_recent()) {
            progress.begin();
            let (proof, proved) = oneshot::channel();
            if send(queue, Work::Prove(proof)).await.is_ok() {
                proofs.push(proved);
            }
        }
        for proved in proofs {
            let _ = proved.await;
        }
    }

    /// For how long a batch worker has had work without a commit.
    pub(super) fn stuck(&self) -> Duration {
        self.batch_workers.iter().map(|(_, progress)| progress.stuck()).max().unwrap_or_default()
    }

    /// How many connections of each kind are open.
    pub(super) fn connections(&self) -> Vec<(&'static str, usize)> {
        self.address.room.open()
    }

    /// Finishes the queued jobs, then joins the threads.
    pub(super) fn close(&self) {
        self.address.room.close();
        for readers in [&self.readers, &self.long_readers] {
            drop(readers.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        drop(self.writers.lock().unwrap_or_else(PoisonError::into_inner).take());
        // What the writers hand over still arrives.
        drop(self.patient.lock().unwrap_or_else(PoisonError::into_inner).take());
        for (queue, _) in &self.batch_workers {
            drop(queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
        // The batch workers have ended, and nothing is set aside any more.
        self.aside.close();
        for thread in self.in_turn.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }
}

async fn read<T, S>(queue: &Queue<Job>, script: S) -> Result<T, Fault>
where
    T: Send + 'static,
    S: Fn(&mut Tx<'_>) -> T + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let job: Job = Box::new(move |worker| {
        // The caller may have gone away: then no answer is needed.
        let _ = answer.send(worker.read(&script));
    });
    send(queue, job).await?;
    answered.await.map_err(|_| gone())?
}

fn waiting<J>(queue: &Queue<J>) -> usize {
    let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    queue.as_ref().map_or(0, |jobs| jobs.max_capacity() - jobs.capacity())
}

fn sender<J>(queue: &Queue<J>) -> Result<mpsc::Sender<J>, Fault> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(gone)
}

async fn send<J>(queue: &Queue<J>, job: J) -> Result<(), Fault> {
    sender(queue)?.send(job).await.map_err(|_| gone())
}

fn gone() -> Fault {
    Fault::new("the threads of the store have ended, or a script panicked; see the line before this one")
}

/// Starts a thread with its connection.
fn thread(
    name: String,
    address: &Arc<Address>,
    place: Place,
    serve: impl FnOnce(ConnectionWorker) + Send + 'static,
) -> Result<JoinHandle<()>, Fault> {
    let worker = ConnectionWorker::at(Arc::clone(address), place)?;
    let started = std::thread::Builder::new().name(name).spawn(move || serve(worker));
    started.map_err(|e| Fault::new(format!("cannot start a thread for the database: {e}")))
}

/// Starts threads that share one queue. The first has the place, and the others stand behind it.
fn start_workers<J: Send + 'static>(
    name: &str,
    (count, first): (usize, Place),
    address: &Arc<Address>,
    threads: &mut Vec<JoinHandle<()>>,
    serve: impl Fn(ConnectionWorker, &AsyncMutex<mpsc::Receiver<J>>) + Clone + Send + 'static,
) -> Result<Queue<J>, Fault> {
    let (jobs, waiting) = mpsc::channel(MAX_WAITING);
    let waiting = Arc::new(AsyncMutex::new(waiting));
    for number in 0..count {
        let (waiting, serve) = (Arc::clone(&waiting), serve.clone());
        let place = if number == 0 { first } else { Place { rank: Rank::Surplus, ..first } };
        let serve = move |worker: ConnectionWorker| serve(worker, &waiting);
        threads.push(thread(format!("{name}-{number}"), address, place, serve)?);
    }
    Ok(Mutex::new(Some(jobs)))
}

fn serve(mut worker: ConnectionWorker, waiting: &AsyncMutex<mpsc::Receiver<Job>>) {
    // One thread waits for the next job, the others for the lock on the queue.
    while let Some(job) = worker.next(async || waiting.lock().await.recv().await) {
        // A panic drops the caller's channel. The thread goes on.
        if catch_unwind(AssertUnwindSafe(|| job(&mut worker))).is_err() {
            worker.leave();
        }
    }
}
