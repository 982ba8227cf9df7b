//! One transaction of the writer: authorizations, then scripts, then COMMIT.
//!
//! What holds here, and where:
//!
//! 1. One server owns the file (`owner.rs`), and one thread writes. The order of decisions is the order in which that thread
//!    takes them. A server whose lock, database or write-ahead log was
//!    deleted or replaced stops before its next transaction.
//! 2. [`super::states::States`] is what the open transaction leaves. It is dropped as a whole when a transaction fails,
//!    and for each agent that a script has touched.
//! 3. An answer is sent after its COMMIT has returned, and never otherwise.
//! 4. An idempotency key is looked up in the transaction that keeps an answer under it.
//! 5. Each id is greater than all before it (`Decider::follow`), so that an agent's sequence, the order of ids and the order
//!    of the log agree.
//! 6. An agent's rows lack exactly the decisions that are uncounted in memory ([`super::super::uncounted`]). One function
//!    writes a decision, of a batch or of a script: it adds it to them and raises the clock's mark (`sql::decisions::keep`).
//! 7. Only operators' commands write beside the server, and each adds to a revision. Any other write is a fault; between two
//!    looks at the revision, one beside a command is a fault only if other decisions are uncounted after it. In any case the
//!    state is read again.
//! 8. After an I/O error nothing more is written ([`super::commit`]).
//! 9. What is decided on was verified when it was read: a row by its checksum, one that is not found by its agent's row, and
//!    uncounted decisions by a second tree that has the log ([`super::super::sql::checksums`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;

use super::super::sql;
use super::super::tx::{Tally, Tx};
use super::super::uncounted::Uncounted;
use super::SqliteSession;
use super::batch::Batch;
use super::commit::stopped;
use super::jobs::{Job, PendingAuthorization, Reply, Script};
use super::writer::Thread;
use crate::error::Fault;
use crate::model::call::ScriptError;
use crate::traces;

impl Thread {
    /// Runs all jobs in one transaction, and answers each once it has ended. None has been answered before, so that any
    /// order among them is a true one.
    pub(super) fn run(&mut self, jobs: &mut Vec<Job>) {
        let (mut asked, mut scripts) = (Vec::with_capacity(jobs.len()), Vec::new());
        for job in jobs.drain(..) {
            match job {
                Job::Authorization(authorization) => asked.push(*authorization),
                Job::Script(script) => scripts.push(script),
            }
        }
        if let Err(fault) = self.begin() {
            self.committer.log("a transaction could not begin", &fault);
            for PendingAuthorization { waiter, .. } in asked {
                let _ = waiter.send(Err(fault.clone()));
            }
            for script in scripts {
                script(Err(fault.clone()))(Err(&fault));
            }
            return;
        }
        let count = asked.len() + scripts.len();
        let traced = asked.iter().filter_map(|asked| asked.authorization.traced.as_ref());
        let mut span = traces::batch(traced, count);
        let mut tally = Tally::default();
        let answered = self.decide(asked, &mut tally).done;
        let replies = self.scripts(scripts, &mut tally);
        let ended = self.commit(&mut tally, count);
        if ended.is_err() {
            span.iter_mut().for_each(traces::Span::fail);
        }
        drop(span);
        // A caller that has gone away needs no answer.
        for reply in replies {
            reply(ended.as_ref().copied());
        }
        for (asked, answer) in answered {
            // What was a fault before says more.
            let answer = answer.and_then(|answer| ended.clone().map(|()| answer));
            let _ = asked.waiter.send(answer);
        }
    }

    /// Decides on all of them together. If that ends in a fault, the transaction begins again, and each is decided on
    /// alone, so that one harms no other. Nothing was written in the transaction before.
    fn decide(&mut self, asked: Vec<PendingAuthorization>, tally: &mut Tally) -> Batch {
        let mut batch = Batch::of(asked);
        if batch.waiting.is_empty() {
            return batch;
        }
        // In a savepoint each page is copied before it is changed. What comes first needs none.
        let Self { connection, deciding, .. } = self;
        let Err(fault) = caught(|| deciding.run(connection, &mut batch, tally)) else { return batch };
        self.committer.log("a batch could not be decided together", &fault);
        *tally = Tally::default();
        self.begin_again();
        batch.begin_again();
        if self.connection.is_autocommit() {
            // On a full disk, among others: the database has undone the whole transaction.
            batch.fail(&fault);
        }
        for asked in std::mem::take(&mut batch.waiting) {
            let mut one = Batch::of(vec![asked]);
            let Self { connection, deciding, uncounted, .. } = self;
            let mut own = Tally::default();
            let alone =
                in_savepoint(connection, uncounted, || Ok(deciding.run(connection, &mut one, &mut own)?));
            match alone {
                Ok(()) => tally.add(own),
                Err(error) => {
                    self.deciding.states.clear();
                    one.fail(&error.into_fault());
                }
            }
            batch.done.append(&mut one.done);
        }
        batch
    }

    /// Begins a transaction.
    pub(super) fn begin(&mut self) -> Result<(), Fault> {
        if !self.files.are_found() {
            self.committer.lost();
            return Err(stopped());
        }
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let looked = self.look();
        if looked.is_err() {
            self.deciding.states.clear();
            self.connection.execute_batch("ROLLBACK")?;
        }
        looked
    }

    /// Looks in the transaction that has begun whether another process has written since the last one.
    fn look(&mut self) -> Result<(), Fault> {
        let version = version(&self.connection)?;
        if version == self.version {
            return Ok(());
        }
        let mut session = SqliteSession::writing(&self.connection, None);
        let tx = &mut Tx::new(&mut session);
        let operated = sql::operated::count(tx)?;
        self.deciding.states.clear();
        // Beside an operator's command, another program may have written too: of that, this shows what is uncounted.
        let read = Uncounted::default();
        sql::log_end::gather(tx, &read)?;
        let foreign = operated == self.operated || !self.uncounted.is_same_as(&read);
        if foreign {
            self.uncounted.replace(read);
            self.deciding.decider.follow(sql::decisions::newest(tx)?, sql::newest::others(tx)?);
        }
        (self.version, self.operated) = (version, operated);
        if foreign {
            tracing::warn!(
                "a program that is no command of mandate-server has written to the database, or checkpointed it: the state is read again"
            );
            return Err(Fault::new("database: another program has written to it"));
        }
        Ok(())
    }

    /// Commits, and takes over what was done; drops it where that fails.
    fn commit(&mut self, tally: &mut Tally, count: usize) -> Result<(), Fault> {
        self.mark(tally.decided.len());
        let committing = Instant::now();
        let ended = self.committer.commit(&self.connection);
        self.metrics.committed(count, committing.elapsed());
        if ended.is_ok() {
            self.uncounted.commit((tally.decided.len(), tally.newest), std::mem::take(&mut tally.counted));
            for (verdict, mode) in &tally.decided {
                self.metrics.decided(*verdict, *mode);
            }
            if tally.announced {
                self.wake.notify_one();
            }
        } else {
            self.deciding.states.clear();
            // After a failure of the disk it may be in the log: readers look for each decision there.
            if !self.committer.has_stopped() {
                self.uncounted.abort();
            }
        }
        ended
    }

    /// Writes now and then where the uncounted decisions begin, so that little of it is read after a crash.
    fn mark(&mut self, decisions: usize) {
        self.unmarked += decisions;
        if self.unmarked < self.uncounted.mark_every() || self.connection.is_autocommit() {
            return;
        }
        self.unmarked = 0;
        if let Err(fault) = mark(&self.connection, &self.uncounted) {
            tracing::debug!(reason = %fault, "where the uncounted decisions begin was not written down");
        }
    }

    /// Takes back all that was done in the transaction. It has ended when another cannot begin.
    pub(super) fn begin_again(&mut self) {
        self.deciding.states.clear();
        self.uncounted.abort();
        if !self.connection.is_autocommit()
            && let Err(e) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::debug!(error = %e, "nothing was left to roll back");
        }
        if let Err(fault) = self.begin() {
            self.committer.log("a transaction could not begin again", &fault);
        }
    }

    fn scripts(&mut self, scripts: Vec<Script>, tally: &mut Tally) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(scripts.len());
        for script in scripts {
            replies.push(script(Ok((&self.connection, tally))));
            self.deciding.states.forget(&std::mem::take(&mut tally.touched));
        }
        replies
    }
}

/// Reads the uncounted decisions, in a transaction beside which no other process writes.
pub(super) fn gather(connection: &Connection, uncounted: &Uncounted) -> Result<(), Fault> {
    let mut session = SqliteSession::writing(connection, None);
    sql::log_end::gather(&mut Tx::new(&mut session), uncounted)
}

/// Writes where the uncounted decisions begin.
pub(super) fn mark(connection: &Connection, uncounted: &Arc<Uncounted>) -> Result<(), Fault> {
    let Some(beginning) = uncounted.beginning().filter(|id| Some(*id) > uncounted.since()) else {
        return Ok(());
    };
    let mut session = SqliteSession::writing(connection, Some(Arc::clone(uncounted)));
    sql::log_end::begin_at(&mut Tx::new(&mut session), beginning)?;
    uncounted.begin_at(beginning);
    Ok(())
}

/// A number that is another one after another connection has written to the database.
pub(super) fn version(connection: &Connection) -> Result<i64, Fault> {
    Ok(connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

/// Runs `script` so that a fault, or a panic, undoes what it did and nothing else.
pub(super) fn in_savepoint<T>(
    connection: &Connection,
    uncounted: &Uncounted,
    script: impl FnOnce() -> Result<T, ScriptError>,
) -> Result<T, ScriptError> {
    if connection.is_autocommit() {
        // A statement before this one met such an error that the database undid the whole transaction.
        return Err(Fault::new("database: the transaction was undone").into());
    }
    let step = |sql| connection.prepare_cached(sql).and_then(|mut s| s.execute([])).map_err(Fault::from);
    step("SAVEPOINT script")?;
    let added = uncounted.added();
    let result = caught(script);
    if matches!(result, Err(ScriptError::Fault(_))) {
        uncounted.take_back(added);
        if connection.is_autocommit() {
            return result;
        }
        step("ROLLBACK TO script")?;
    }
    step("RELEASE script")?;
    result
}

/// Runs `script`; a panic, which has logged itself, is a fault.
fn caught<T, E: From<Fault>>(script: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(script))
        .unwrap_or_else(|_| Err(Fault::new("a script panicked; see the line before this one").into()))
}
