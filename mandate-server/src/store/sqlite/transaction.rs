//! One transaction of the writer: the drafts that hold, decisions in the place of those that fall, and scripts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use mandate_core::Timestamp;
use rusqlite::Connection;

use super::super::sql::owed::Counted;
use super::super::tail::Tail;
use super::super::tx::{Tally, Tx};
use super::super::{Authorization, sql};
use super::changes::Changes;
use super::jobs::{Answers, Asked, Draft, Drafts, Job, Outcome, Script, Tell};
use super::writer::Thread;
use super::{SqliteSession, hot, whole};
use crate::error::Fault;
use crate::model::call::{Answer, ScriptError};
use crate::model::records::AgentKey;
use crate::traces;

/// Agents of another server that are settled at a time, because the tail of the log is too long: some each time that so many
/// decisions were made as it may have behind it, by 32.
const MAX_SETTLED_FOR_THE_OTHER: usize = 2048;

impl Thread {
    /// Runs all jobs in one transaction and tells each waiter how it ended.
    ///
    /// None of the jobs has been answered yet, so that any order among them is a true one: drafts come first, since scripts
    /// may bring them down.
    pub(super) fn run(&mut self, jobs: &mut Vec<Job>, batches: usize) {
        let (mut drafts, mut scripts) = (Vec::with_capacity(batches), Vec::new());
        for job in jobs.drain(..) {
            match job {
                Job::Drafts(batch) => drafts.push(batch),
                Job::Script(script) => scripts.push(script),
            }
        }
        let count = scripts.len() + drafts.iter().map(|batch| batch.all.len()).sum::<usize>();
        if let Err(e) = self.begin() {
            self.committer.tell("a transaction could not begin", &e);
            self.changes.everything();
            self.tell(batches);
            // Dropping a script drops its waiter's channel: the waiter hears a fault.
            let waiters = drafts.into_iter().flat_map(|batch| batch.all).map(|draft| draft.asked.waiter);
            waiters.for_each(|waiter| _ = waiter.send(Err(Fault::new(format!("database: {e}")))));
            return;
        }
        let asked = drafts.iter().flat_map(|batch| &batch.all).map(|draft| &draft.asked.authorization);
        let mut span = traces::batch(asked.filter_map(|authorization| authorization.traced.as_ref()), count);
        let (mut answers, mut tally) = (Answers::with_capacity(count), Tally::default());
        self.write(drafts, &mut answers, &mut tally);
        let tells = self.scripts(scripts, &mut tally);
        self.mark(tally.decided.len());
        let raised = self.raise(tally.decided_at);
        let committing = Instant::now();
        let ended = self.committer.commit(&self.connection);
        match ended {
            Ok(()) => {
                let written = (tally.decided.len(), tally.newest);
                self.tail.commit(written, std::mem::take(&mut tally.settled));
                self.raised = raised;
            }
            Err(_) => self.tail.doubt(),
        }
        self.metrics.committed(count, committing.elapsed());
        if ended.is_err() {
            self.changes.everything();
            span.iter_mut().for_each(traces::Span::fail);
        }
        drop(span);
        self.tell(batches);
        if ended.is_ok() {
            for (verdict, mode) in tally.decided {
                self.metrics.decided(verdict, mode);
            }
            if tally.announced {
                self.wake.notify_one();
            }
        }
        let committed = ended.as_ref().copied();
        for tell in tells {
            tell(committed);
        }
        if let Err(why) = committed {
            // What was a fault before says more.
            let acknowledged = answers.iter_mut().filter(|(_, answer)| answer.is_ok());
            acknowledged.for_each(|(_, answer)| *answer = Err(why.clone()));
        }
        // A caller that has gone away needs no answer.
        for (waiter, answer) in answers {
            let _ = waiter.send(answer);
        }
    }

    /// Begins a transaction.
    fn begin(&mut self) -> Result<(), Fault> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let looked = self.look();
        if looked.is_err() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        looked
    }

    /// Looks in the transaction that has begun whether another process has written since the last time, and whether the
    /// last has left anything that has failed at its end.
    fn look(&mut self) -> Result<(), Fault> {
        if let Some((agent, decision)) = self.tail.doubted() {
            let mut session = SqliteSession::reading(&self.connection, None);
            let in_log = sql::owed::is_written(&mut Tx::new(&mut session), &agent, decision)?;
            self.tail.is_seen(in_log);
        }
        let version = version(&self.connection)?;
        if version != self.version {
            let mut session = SqliteSession::reading(&self.connection, None);
            self.tail.began_at(sql::owed::since(&mut Tx::new(&mut session))?);
            self.version = version;
            self.changes.everything();
            self.raised = None;
        }
        if !self.tail.is_whole()
            && let Err(fault) = self.take_over()
        {
            tracing::debug!(reason = %fault, "the place of the other server was not taken");
        }
        Ok(())
    }

    /// Raises the high-water mark of the clock for decisions up to `newest`. Gives how high it is known to be then.
    fn raise(&mut self, newest: Option<Timestamp>) -> Option<Timestamp> {
        let known = self.raised.unwrap_or(Timestamp::from_millis(i64::MIN));
        let to = newest.and_then(|newest| sql::clock::raised(known, newest));
        let Some(to) = to.filter(|_| !self.connection.is_autocommit()) else { return self.raised };
        let mut session = SqliteSession::writing(&self.connection, None);
        match sql::clock::raise(&mut Tx::new(&mut session), to) {
            Ok(()) => Some(to),
            Err(fault) => {
                // Without the mark no decision may be in the log.
                self.committer.tell("the mark of the clock could not be raised", &fault);
                let _ = self.connection.execute_batch("ROLLBACK");
                None
            }
        }
    }

    /// Takes the place of the other server, if it has ended: no other process adds to the log from now on.
    pub(super) fn take_over(&mut self) -> Result<(), Fault> {
        let taken = self.presence.try_again().map_err(|e| Fault::new(e.to_string()))?;
        if taken {
            let own = Tail::default();
            gather(&self.connection, &own)?;
            self.tail.adopt(own);
        }
        Ok(())
    }

    /// Writes now and then where the tail of the log begins, so that little of it is read after a crash.
    fn mark(&mut self, decisions: usize) {
        self.unmarked += decisions;
        if self.unmarked < self.tail.marked() || self.connection.is_autocommit() {
            return;
        }
        self.unmarked = 0;
        let marked = if self.tail.is_whole() {
            mark(&self.connection, &self.tail)
        } else {
            self.settle_for_the_other()
        };
        if let Err(fault) = marked {
            tracing::debug!(reason = %fault, "where the tail of the log begins was not written down");
        }
    }

    /// Settles what lies far behind in the log, and writes where it begins: the other server may be idle.
    fn settle_for_the_other(&mut self) -> Result<(), Fault> {
        let Self { connection, changes, tail, .. } = self;
        let own = Arc::new(tail.alike());
        gather(connection, &own)?;
        let settled = in_savepoint(connection, || {
            let mut session = SqliteSession::writing(connection, Some(Arc::clone(&own)));
            let mut tx = Tx::new(&mut session);
            for agent in own.overdue(MAX_SETTLED_FOR_THE_OTHER, |_| false) {
                sql::owed::settle(&mut tx, &agent)?;
                changes.agent(agent);
            }
            Ok(tx.into_tally().settled)
        });
        own.commit((0, None), settled.map_err(fault)?);
        mark(connection, &own)
    }

    /// Takes back all that was done in the transaction. It has ended when another cannot begin.
    fn begin_again(&mut self) {
        self.tail.abort();
        let begun =
            self.connection.execute_batch("ROLLBACK").map_err(Fault::from).and_then(|()| self.begin());
        if let Err(fault) = begun {
            self.committer.tell("a transaction could not begin again", &fault);
        }
    }

    fn scripts(&mut self, scripts: Vec<Script>, tally: &mut Tally) -> Vec<Tell> {
        let run = scripts.into_iter().map(|script| script(&self.connection, tally)).collect();
        self.changes.touched(std::mem::take(&mut tally.touched));
        run
    }

    /// Writes the drafts that hold, and decides where one falls. Nothing was written in the transaction yet.
    fn write(&mut self, mut batches: Vec<Drafts>, answers: &mut Answers, tally: &mut Tally) {
        let Some(oldest) = batches.first() else { return };
        self.changes.known_up_to(oldest.known);
        match self.keep(&mut batches) {
            Ok(done) => tally.add(done),
            Err(error) => {
                let fault = fault(error);
                self.committer.tell("a batch that was decided ahead could not be written", &fault);
                for draft in batches.iter_mut().flat_map(|batch| &mut batch.all) {
                    fall(draft, &mut self.changes);
                }
                for counted in batches.iter_mut().flat_map(|batch| batch.counted.drain(..)) {
                    self.changes.agent(counted.agent);
                }
                if !self.connection.is_autocommit() {
                    self.begin_again();
                }
                if self.connection.is_autocommit() {
                    // On a full disk, among others: the database has undone the whole transaction.
                    let drafts = batches.into_iter().flat_map(|batch| batch.all);
                    let waiters = drafts.map(|draft| draft.asked.waiter);
                    answers.extend(waiters.map(|waiter| (waiter, Err(fault.clone()))));
                    return;
                }
            }
        }
        let (mut batch, mut waiters) = (Vec::new(), Vec::new());
        let drafts = batches.into_iter().flat_map(|batch| batch.all);
        for Draft { asked: Asked { authorization, waiter }, outcome } in drafts {
            if let Some(Outcome { signed, .. }) = outcome {
                answers.push((waiter, Ok(signed.answer)));
            } else {
                batch.push(authorization);
                waiters.push(waiter);
            }
        }
        let decided = self.decide(&batch, tally);
        self.changes.touched(std::mem::take(&mut tally.touched));
        answers.extend(waiters.into_iter().zip(decided));
    }

    /// Writes the drafts that hold; says what was done. The others lose their outcome. In a savepoint each page is copied
    /// before it is changed: what comes first needs none, since all of it is undone by beginning again.
    fn keep(&mut self, batches: &mut [Drafts]) -> Result<Tally, ScriptError> {
        let Self { connection, changes, tail, .. } = self;
        caught(connection, || {
            let tail = whole(tail);
            let mut session = SqliteSession::writing(connection, tail.clone());
            let mut tx = Tx::new(&mut session);
            for Drafts { known, all, counted, overdue } in batches {
                for draft in all {
                    if !stands(draft, *known, changes) || !written(&mut tx, tail.as_deref(), draft)? {
                        fall(draft, changes);
                    }
                }
                for counted in counted {
                    if changes.stands(*known, &counted.agent) {
                        fits(&mut tx, tail.as_deref(), counted)?;
                        sql::owed::write(&mut tx, counted)?;
                    } else {
                        // The thread that decides ahead takes it for written.
                        changes.agent(counted.agent.clone());
                    }
                }
                for agent in overdue {
                    sql::owed::settle(&mut tx, agent)?;
                    changes.agent(agent.clone());
                }
            }
            Ok(tx.into_tally())
        })
    }

    /// Decides on all of a batch together; if that ends in a fault, on each alone, so that one harms no other.
    fn decide(&mut self, batch: &[Authorization], tally: &mut Tally) -> Vec<Result<Answer, Fault>> {
        let Self { connection, decider, committer, tail, .. } = self;
        let mut together = |batch: &[Authorization]| {
            let run = || Ok(hot::run(connection, whole(tail), &**decider, batch, tally)?);
            in_savepoint(connection, run).map_err(fault)
        };
        if batch.is_empty() {
            return Vec::new();
        }
        together(batch).unwrap_or_else(|fault| {
            committer.tell("a batch could not be decided together", &fault);
            if connection.is_autocommit() {
                // On a full disk, among others: the database has undone the whole transaction.
                return batch.iter().map(|_| Err(fault.clone())).collect();
            }
            let mut alone = |one| together(std::slice::from_ref(one)).map(|mut answers| answers.pop());
            batch.iter().map(|one| alone(one)?.ok_or_else(unanswered)?).collect()
        })
    }
}

/// Reads the tail of the log, in a transaction beside which no other process writes.
pub(super) fn gather(connection: &Connection, tail: &Tail) -> Result<(), Fault> {
    let mut session = SqliteSession::writing(connection, None);
    sql::owed::gather(&mut Tx::new(&mut session), tail)
}

/// Writes where the tail of the log begins.
pub(super) fn mark(connection: &Connection, tail: &Arc<Tail>) -> Result<(), Fault> {
    let Some(beginning) = tail.beginning().filter(|id| Some(*id) > tail.since()) else { return Ok(()) };
    let mut session = SqliteSession::writing(connection, whole(tail));
    sql::owed::begin_at(&mut Tx::new(&mut session), beginning)?;
    tail.begin_at(beginning);
    Ok(())
}

/// Whether nothing that a draft rests on has changed since the change of that number.
fn stands(draft: &Draft, known: u64, changes: &Changes) -> bool {
    changes.none_since(known)
        || agent(&draft.asked.authorization).is_none_or(|agent| changes.stands(known, &agent))
}

/// Writes what a draft has made; false when there is nothing to write, since the writer is to decide.
fn written(tx: &mut Tx<'_>, tail: Option<&Tail>, draft: &Draft) -> Result<bool, Fault> {
    let Some(outcome) = &draft.outcome else { return Ok(false) };
    if let Some(counted) = &outcome.counted {
        fits(tx, tail, counted)?;
    }
    hot::keep_draft(tx, outcome)
}

/// Looks whether an agent's rows may be written as they were made ahead. Beside another server, where the tail is not all
/// there, they are made with each decision.
fn fits(tx: &mut Tx<'_>, tail: Option<&Tail>, counted: &Counted) -> Result<(), Fault> {
    tail.map_or(Ok(()), |tail| sql::owed::leaves_none_out(tx, tail, counted))
}

/// A draft falls, and with it all that were decided on what it left.
fn fall(draft: &mut Draft, changes: &mut Changes) {
    draft.outcome = None;
    if let Some(agent) = agent(&draft.asked.authorization) {
        changes.agent(agent);
    }
}

/// The agent that an authorization is about; nothing when it was refused.
fn agent(authorization: &Authorization) -> Option<AgentKey> {
    let environment = authorization.call.caller.environment.id;
    let request = authorization.request.as_ref().ok()?;
    Some(AgentKey { environment, agent: request.agent.clone() })
}

/// A number that is another one after another process has written to the database.
pub(super) fn version(connection: &Connection) -> Result<i64, Fault> {
    Ok(connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

fn unanswered() -> Fault {
    Fault::new("a batch of one was decided without an answer")
}

fn fault(error: ScriptError) -> Fault {
    match error {
        ScriptError::Fault(fault) => fault,
        ScriptError::Refused(refusal) => Fault::new(refusal.message),
    }
}

/// Runs `script` so that a fault, or a panic, undoes what it did and nothing else.
pub(super) fn in_savepoint<T>(
    connection: &Connection,
    script: impl FnOnce() -> Result<T, ScriptError>,
) -> Result<T, ScriptError> {
    let step = |sql| connection.prepare_cached(sql).and_then(|mut s| s.execute([])).map_err(Fault::from);
    if !connection.is_autocommit() {
        step("SAVEPOINT script")?;
    }
    let result = caught(connection, script);
    if matches!(result, Err(ScriptError::Fault(_))) {
        if connection.is_autocommit() {
            return result;
        }
        step("ROLLBACK TO script")?;
    }
    step("RELEASE script")?;
    result
}

/// Runs `script` in the open transaction; a panic is a fault.
fn caught<T>(
    connection: &Connection,
    script: impl FnOnce() -> Result<T, ScriptError>,
) -> Result<T, ScriptError> {
    if connection.is_autocommit() {
        // A statement before this one met such an error that the database undid the whole transaction.
        return Err(Fault::new("database: the transaction was undone").into());
    }
    catch_unwind(AssertUnwindSafe(script)).unwrap_or_else(|_| {
        Err(ScriptError::Fault(Fault::new("a script panicked; see the line before this one")))
    })
}
