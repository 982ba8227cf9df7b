//! The one thread that writes. While a transaction commits, the next one gathers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use mandate_core::DecisionId;
use rusqlite::Connection;
use tokio::sync::{Notify, mpsc, oneshot};

use super::super::tx::Tx;
use super::super::uncounted::Uncounted;
use super::super::{Authorization, Decider, sql};
use super::batch::Deciding;
use super::checkpoint::Checkpointer;
use super::commit::{Committer, Disk, leave, stopped};
use super::jobs::{AGENTS_AT_ONCE, Begun, COUNTING_TIME, Job, MAX_BATCH, PendingAuthorization, Reply};
use super::owner::{Files, Owner};
use super::signers::Signers;
use super::states::States;
use super::transaction::{self, in_savepoint};
use super::{CACHE_KIB, SqliteSession, connect};
use crate::error::{Fault, Refusal};
use crate::metrics::Metrics;
use crate::model::call::{Answer, ScriptError};
use crate::model::records::AgentKey;

/// How many jobs may be queued. Beyond that, senders wait.
const MAX_WAITING: usize = 4096;
/// Page cache while the end of the log is read at a start, in KiB.
const READING_CACHE_KIB: i64 = 1024;

/// The thread and the way to it.
pub(super) struct Writer {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    metrics: Metrics,
    /// Nothing is written any more, until the server is started again.
    stopped: Arc<AtomicBool>,
    files: Files,
    uncounted: Arc<Uncounted>,
}

impl Writer {
    pub(super) fn start(
        owner: Owner,
        decider: Arc<dyn Decider>,
        metrics: Metrics,
        wake: Arc<Notify>,
        disk: Disk,
        uncounted: &Arc<Uncounted>,
    ) -> Result<Self, Fault> {
        let path = owner.path();
        let mut connection = connect(path)?;
        // The pages as they were before a savepoint: beyond 16 of them SQLite would make a file for each transaction.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        let Seen { version, operated, newest, others } = take_over(&connection, uncounted)?;
        let files = owner.files()?;
        decider.follow(newest, others);
        let stopped = Arc::new(AtomicBool::new(false));
        let checkpointer =
            Checkpointer::start(connect(path)?, disk.checkpoint, Arc::clone(&stopped), &mut connection)?;
        let (jobs, work) = mpsc::channel(MAX_WAITING);
        let signers = Signers::start(&decider)?;
        let thread = Thread {
            version,
            operated,
            connection,
            committer: Committer::new(disk.commit, Arc::clone(&stopped)),
            deciding: Deciding { decider, signers, states: States::new(), uncounted: Arc::clone(uncounted) },
            metrics: metrics.clone(),
            uncounted: Arc::clone(uncounted),
            unmarked: 0,
            wake,
            files: files.clone(),
            _owner: owner,
        };
        let thread = std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || thread.serve(work, checkpointer))
            .map_err(|e| Fault::new(format!("cannot start the thread `writer`: {e}")))?;
        let (jobs, thread) = (Mutex::new(Some(jobs)), Mutex::new(Some(thread)));
        Ok(Self { jobs, thread, metrics, stopped, files, uncounted: Arc::clone(uncounted) })
    }

    pub(super) async fn write<T, S>(&self, script: S) -> Result<Result<T, Refusal>, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, ScriptError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let uncounted = Arc::clone(&self.uncounted);
        let job = move |begun: Begun<'_>| -> Reply {
            let result = begun.map_err(ScriptError::Fault).and_then(|(connection, tally)| {
                in_savepoint(connection, &uncounted, || {
                    let mut session = SqliteSession::writing(connection, Some(Arc::clone(&uncounted)));
                    let mut tx = Tx::new(&mut session);
                    let result = script(&mut tx);
                    if !matches!(result, Err(ScriptError::Fault(_))) {
                        tally.add(tx.into_tally());
                    }
                    result
                })
            });
            Box::new(move |committed| {
                let result = match (result, committed) {
                    (Err(ScriptError::Fault(fault)), _) => Err(fault),
                    (_, Err(why)) => Err(why.clone()),
                    (Ok(value), Ok(())) => Ok(Ok(value)),
                    (Err(ScriptError::Refused(refusal)), Ok(())) => Ok(Err(refusal)),
                };
                // A caller that has gone away needs no answer.
                let _ = answer.send(result);
            })
        };
        self.send(Job::Script(Box::new(job))).await?;
        answered.await.map_err(|_| self.gone())?
    }

    pub(super) async fn decide(&self, authorization: Authorization) -> Result<Answer, Fault> {
        let (waiter, answered) = oneshot::channel();
        let began = Instant::now();
        self.send(Job::Authorization(Box::new(PendingAuthorization { authorization, waiter }))).await?;
        let answer = answered.await.map_err(|_| self.gone())??;
        self.metrics.authorized(began.elapsed());
        Ok(answer)
    }

    async fn send(&self, job: Job) -> Result<(), Fault> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        jobs.ok_or_else(|| self.gone())?.send(job).await.map_err(|_| self.gone())
    }

    /// How many jobs wait.
    pub(super) fn waiting(&self) -> usize {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().map_or(0, |jobs| jobs.max_capacity() - jobs.capacity())
    }

    /// Lets the thread end what waits, and joins it.
    pub(super) fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }

    /// Whether the disk has failed, or the database or its lock is lost, so that nothing is written any more.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Whether the database, its write-ahead log or its lock is not found any more: then nothing is to be written.
    pub(super) fn is_lost(&self) -> bool {
        !self.files.are_found()
    }

    fn gone(&self) -> Fault {
        if self.has_stopped() { stopped() } else { Fault::new("the writer has ended") }
    }
}

/// What the writer found in the database when it took it over.
struct Seen {
    version: i64,
    operated: i64,
    newest: Option<DecisionId>,
    /// The newest id that is not a decision's.
    others: Option<[u8; 16]>,
}

/// Takes the database over, in one transaction, so that no other program writes unseen, and reads the uncounted
/// decisions.
fn take_over(connection: &Connection, uncounted: &Arc<Uncounted>) -> Result<Seen, Fault> {
    // The log is read once, from one end to the other: no page is read again.
    connection.pragma_update(None, "cache_size", -READING_CACHE_KIB)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    transaction::gather(connection, uncounted)?;
    transaction::mark(connection, uncounted)?;
    let seen = {
        let mut session = SqliteSession::writing(connection, None);
        let tx = &mut Tx::new(&mut session);
        // Those of a server that was killed: no other can hold one.
        sql::deliveries::release_all(tx)?;
        let (newest, others) = (sql::decisions::newest(tx)?, sql::newest::others(tx)?);
        Seen {
            operated: sql::operated::count(tx)?,
            version: transaction::version(connection)?,
            newest,
            others,
        }
    };
    connection.execute_batch("COMMIT")?;
    uncounted.commit((0, None), Vec::new());
    connection.execute_batch("PRAGMA shrink_memory")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(seen)
}

/// What the writing thread has to itself.
pub(super) struct Thread {
    pub(super) connection: Connection,
    pub(super) committer: Committer,
    pub(super) deciding: Deciding,
    /// What the database's version was after the last transaction: another one means that another process has written.
    pub(super) version: i64,
    /// How often operators' commands had written by then.
    pub(super) operated: i64,
    pub(super) metrics: Metrics,
    pub(super) uncounted: Arc<Uncounted>,
    /// Decisions since it was written where the uncounted decisions begin.
    pub(super) unmarked: usize,
    /// Wakes the delivery worker.
    pub(super) wake: Arc<Notify>,
    pub(super) files: Files,
    /// The database is this thread's until it ends.
    _owner: Owner,
}

impl Thread {
    fn serve(mut self, mut work: mpsc::Receiver<Job>, checkpointer: Checkpointer) {
        self.deciding.decider.warm_up();
        let mut jobs = Vec::with_capacity(MAX_BATCH);
        while work.blocking_recv_many(&mut jobs, MAX_BATCH) > 0 {
            if self.committer.has_stopped() {
                // To drop a job drops its waiter's channel, which is a fault.
                jobs.clear();
            } else {
                self.run(&mut jobs);
            }
        }
        self.end(checkpointer);
    }

    /// Leaves all that was written where others look for it, unless the disk has failed.
    fn end(mut self, checkpointer: Checkpointer) {
        if !self.committer.has_stopped()
            && let Err(fault) = self.count_all()
        {
            tracing::warn!(kind = fault.kind(), reason = %fault, "agents' rows were not all written at the end");
        }
        if let Err(fault) = checkpointer.end(&mut self.connection) {
            tracing::debug!(reason = %fault, "the checkpoint thread could not be ended");
        }
        self.deciding.signers.end();
        if self.committer.has_stopped() {
            leave(&self.connection);
            return;
        }
        // So that a copy of the one file is whole after an orderly end.
        if let Err(e) = self.connection.pragma_update(None, "wal_checkpoint", "TRUNCATE") {
            tracing::debug!(error = %e, "the last checkpoint of the log failed");
        }
    }

    /// Writes what the agents' rows lack, as far as the time for it reaches: the rest is found in the log.
    fn count_all(&mut self) -> Result<(), Fault> {
        let (began, mut after) = (Instant::now(), (0, String::new()));
        while began.elapsed() < COUNTING_TIME {
            let agents = self.uncounted.agents((after.0, &after.1), AGENTS_AT_ONCE);
            self.begin()?;
            let counted = self.count_some(&agents);
            let counted = match counted {
                Ok(counted) => counted,
                Err(fault) => {
                    self.connection.execute_batch("ROLLBACK")?;
                    return Err(fault);
                }
            };
            self.committer.commit(&self.connection)?;
            self.uncounted.commit((0, None), counted);
            match agents.into_iter().next_back() {
                Some(last) => after = (last.environment, last.agent.as_str().to_owned()),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Writes what these agents' rows lack; at the end, where the uncounted decisions begin.
    fn count_some(&mut self, agents: &[AgentKey]) -> Result<Vec<(AgentKey, DecisionId)>, Fault> {
        let mut session = SqliteSession::writing(&self.connection, Some(Arc::clone(&self.uncounted)));
        let mut tx = Tx::new(&mut session);
        agents.iter().try_for_each(|agent| self.deciding.write_rows(agent, &mut tx))?;
        let counted = tx.into_tally().counted;
        if agents.is_empty() {
            transaction::mark(&self.connection, &self.uncounted)?;
        }
        Ok(counted)
    }
}
