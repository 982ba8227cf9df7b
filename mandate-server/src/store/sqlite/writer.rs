//! The one thread that writes, and the one that decides ahead of it. While a transaction commits, the next one gathers and is
//! decided on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use mandate_core::{DecisionId, Timestamp};
use rusqlite::Connection;
use tokio::sync::{Notify, mpsc, oneshot};

use super::super::tail::Tail;
use super::super::tx::{Tally, Tx};
use super::super::{Authorization, Decider, sql};
use super::ahead::Ahead;
use super::changes::{Board, Changes};
use super::checkpoint::Checkpointer;
use super::commit::{Committer, Disk, leave, stopped};
use super::jobs::{Asked, Job, MAX_BATCH, SETTLED, SETTLING, Tell};
use super::presence::Presence;
use super::signers::Signers;
use super::transaction::{self, in_savepoint};
use super::{SqliteSession, connect, whole};
use crate::error::{Fault, Refusal};
use crate::metrics::Metrics;
use crate::model::call::{Answer, ScriptError};

/// How many jobs may be queued. Beyond that, senders wait.
const MAX_WAITING: usize = 4096;

/// The two threads and the way to them.
pub(super) struct Writer {
    ways: Mutex<Option<Ways>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    metrics: Metrics,
    /// Nothing is written any more, until the server is started again.
    stopped: Arc<AtomicBool>,
    tail: Arc<Tail>,
}

/// Scripts go to the writer, authorizations to the thread that decides ahead of it.
#[derive(Clone)]
struct Ways {
    jobs: mpsc::Sender<Job>,
    asked: mpsc::Sender<Asked>,
}

impl Writer {
    pub(super) fn start(
        path: &str,
        decider: Arc<dyn Decider>,
        metrics: Metrics,
        wake: Arc<Notify>,
        disk: Disk,
        presence: Presence,
        tail: &Arc<Tail>,
    ) -> Result<Self, Fault> {
        let mut connection = connect(path)?;
        // The pages as they were before a savepoint: beyond 16 of them SQLite would make a file for each transaction.
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        if !presence.is_doubled() {
            // What is read for it is not to fill the writer's cache.
            let connection = connect(path)?;
            connection.execute_batch("BEGIN IMMEDIATE")?;
            transaction::gather(&connection, tail)?;
            transaction::mark(&connection, tail)?;
            connection.execute_batch("COMMIT")?;
            tail.commit((0, None), Vec::new());
        }
        decider.follow(newest(&connection)?);
        let reading = connect(path)?;
        reading.pragma_update(None, "query_only", "ON")?;
        let stopped = Arc::new(AtomicBool::new(false));
        let checkpointer =
            Checkpointer::start(connect(path)?, disk.checkpoint, Arc::clone(&stopped), &mut connection)?;
        let (jobs, work) = mpsc::channel(MAX_WAITING);
        let (asked, waiting) = mpsc::channel(MAX_WAITING);
        let (ended, ends) = channel();
        let board = Arc::new(Board::default());
        let ahead = Ahead {
            connection: reading,
            decider: Arc::clone(&decider),
            signers: Signers::start(&decider)?,
            board: Arc::clone(&board),
            tail: Arc::clone(tail),
            writer: jobs.clone(),
            ended: ends,
        };
        let thread = Thread {
            // Before anything is read ahead: what others write from now on is noticed.
            version: transaction::version(&connection)?,
            connection,
            decider,
            committer: Committer::new(disk.commit, Arc::clone(&stopped)),
            changes: Changes::default(),
            board,
            metrics: metrics.clone(),
            presence,
            tail: Arc::clone(tail),
            unmarked: 0,
            raised: None,
            wake,
            ended,
        };
        let spawn = |name: &str, serve: Box<dyn FnOnce() + Send>| {
            let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(serve);
            spawned.map_err(|e| Fault::new(format!("cannot start the thread `{name}`: {e}")))
        };
        let threads = vec![
            spawn("ahead", Box::new(move || ahead.serve(waiting)))?,
            spawn("writer", Box::new(move || thread.serve(work, checkpointer)))?,
        ];
        let ways = Mutex::new(Some(Ways { jobs, asked }));
        Ok(Self { ways, threads: Mutex::new(threads), metrics, stopped, tail: Arc::clone(tail) })
    }

    pub(super) async fn write<T, S>(&self, script: S) -> Result<Result<T, Refusal>, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, ScriptError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let tail = Arc::clone(&self.tail);
        let job = move |connection: &Connection, tally: &mut Tally| -> Tell {
            let result = in_savepoint(connection, || {
                let mut session = SqliteSession::writing(connection, whole(&tail));
                let mut tx = Tx::new(&mut session);
                let result = script(&mut tx);
                if !matches!(result, Err(ScriptError::Fault(_))) {
                    tally.add(tx.into_tally());
                }
                result
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
        let sent = self.ways()?.jobs.send(Job::Script(Box::new(job))).await;
        sent.map_err(|_| self.gone())?;
        answered.await.map_err(|_| self.gone())?
    }

    pub(super) async fn decide(&self, authorization: Authorization) -> Result<Answer, Fault> {
        let (waiter, answered) = oneshot::channel();
        let began = Instant::now();
        let sent = self.ways()?.asked.send(Asked { authorization, waiter }).await;
        sent.map_err(|_| self.gone())?;
        let answer = answered.await.map_err(|_| self.gone())??;
        self.metrics.authorized(began.elapsed());
        Ok(answer)
    }

    /// How many jobs wait.
    pub(super) fn waiting(&self) -> usize {
        fn waits<T>(way: &mpsc::Sender<T>) -> usize {
            way.max_capacity() - way.capacity()
        }
        let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        ways.as_ref().map_or(0, |ways| waits(&ways.jobs) + waits(&ways.asked))
    }

    /// Lets the threads end what waits, and joins them.
    pub(super) fn close(&self) {
        drop(self.ways.lock().unwrap_or_else(PoisonError::into_inner).take());
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }

    /// Whether the disk has failed, so that nothing is written any more.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn ways(&self) -> Result<Ways, Fault> {
        let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        ways.clone().ok_or_else(|| self.gone())
    }

    fn gone(&self) -> Fault {
        if self.has_stopped() { stopped() } else { Fault::new("the writer has ended") }
    }
}

/// The newest decision in the log.
fn newest(connection: &Connection) -> Result<Option<DecisionId>, Fault> {
    let mut session = SqliteSession::reading(connection, None);
    sql::decisions::newest(&mut Tx::new(&mut session))
}

/// What the writing thread has to itself.
pub(super) struct Thread {
    pub(super) connection: Connection,
    pub(super) decider: Arc<dyn Decider>,
    pub(super) committer: Committer,
    /// What the database's version was after the last transaction: another one means that another process has written.
    pub(super) version: i64,
    pub(super) changes: Changes,
    pub(super) board: Arc<Board>,
    pub(super) metrics: Metrics,
    /// The place of the server, until the thread ends.
    pub(super) presence: Presence,
    pub(super) tail: Arc<Tail>,
    /// Decisions since it was written where the tail begins.
    pub(super) unmarked: usize,
    /// How high the mark of the clock is known to be.
    pub(super) raised: Option<Timestamp>,
    /// Wakes the delivery worker.
    pub(super) wake: Arc<Notify>,
    /// Hears of how many more batches the transactions have ended.
    pub(super) ended: Sender<usize>,
}

impl Thread {
    fn serve(mut self, mut work: mpsc::Receiver<Job>, checkpointer: Checkpointer) {
        let mut jobs = Vec::with_capacity(MAX_BATCH);
        while work.blocking_recv_many(&mut jobs, MAX_BATCH) > 0 {
            let batches = jobs.iter().filter(|job| matches!(job, Job::Drafts(_))).count();
            if self.committer.has_stopped() {
                // Each waiter hears that its job was dropped.
                jobs.clear();
                self.tell(batches);
            } else {
                self.run(&mut jobs, batches);
            }
        }
        self.end(checkpointer);
    }

    /// Leaves all that was written where others look for it, unless the disk has failed.
    fn end(mut self, checkpointer: Checkpointer) {
        if !self.committer.has_stopped()
            && let Err(fault) = self.settle()
        {
            tracing::warn!(kind = fault.kind(), reason = %fault, "counters were not settled at the end");
        }
        if let Err(fault) = checkpointer.end(&mut self.connection) {
            tracing::debug!(reason = %fault, "the checkpoint thread could not be ended");
        }
        if self.committer.has_stopped() {
            leave(&self.connection);
            return;
        }
        // So that a copy of the one file is whole after an orderly end.
        if let Err(e) = self.connection.pragma_update(None, "wal_checkpoint", "TRUNCATE") {
            tracing::debug!(error = %e, "the last checkpoint of the log failed");
        }
    }

    /// Writes what the agents' rows lack, as far as the time for it reaches: what is left is found in the log. Beside another
    /// server there is nothing to do: what is owed is that one's.
    fn settle(&mut self) -> Result<(), Fault> {
        let (began, mut after) = (Instant::now(), (0, String::new()));
        loop {
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            if !self.tail.is_whole()
                && let Err(fault) = self.take_over()
            {
                tracing::debug!(reason = %fault, "the place of the other server was not taken");
            }
            if !self.tail.is_whole() {
                return Ok(self.connection.execute_batch("ROLLBACK")?);
            }
            let mut session = SqliteSession::writing(&self.connection, whole(&self.tail));
            let mut tx = Tx::new(&mut session);
            let in_time = began.elapsed() < SETTLING;
            let agents = if in_time {
                sql::owed::owing(&mut tx, (after.0, &after.1), SETTLED)
            } else {
                Ok(Vec::new())
            };
            let settled = agents.and_then(|agents| {
                agents.iter().try_for_each(|agent| sql::owed::settle(&mut tx, agent))?;
                Ok(agents.into_iter().next_back())
            });
            let settled = settled.and_then(|last| {
                let tally = tx.into_tally();
                if last.is_none() {
                    transaction::mark(&self.connection, &self.tail)?;
                }
                Ok((last, tally))
            });
            let (last, tally) = match settled {
                Ok(settled) => settled,
                Err(fault) => {
                    self.connection.execute_batch("ROLLBACK")?;
                    return Err(fault);
                }
            };
            self.committer.commit(&self.connection)?;
            self.tail.commit((0, None), tally.settled);
            match last {
                Some(last) => after = (last.environment, last.agent.as_str().to_owned()),
                None => return Ok(()),
            }
        }
    }

    /// Tells what has changed, and that so many batches have ended.
    pub(super) fn tell(&mut self, batches: usize) {
        self.changes.tell(&self.board);
        if batches > 0 {
            // No thread listens once no request can come any more.
            let _ = self.ended.send(batches);
        }
    }
}
