//! Decides on the authorizations of one transaction: each in order, on the state that the one before left.
//!
//! They go in rounds: decide, sign, write. One round is enough, unless an authorization rests on what the round has not
//! written yet, such as the answer under its own idempotency key.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mandate_core::Timestamp;
use rusqlite::Connection;

use super::super::sql::uncounted::Counted;
use super::super::tx::{Tally, Tx};
use super::super::uncounted::Uncounted;
use super::super::{Authorization, Decider, Found, LogEntries, Signed, UnsignedOutcome, sql};
use super::SqliteSession;
use super::jobs::{MAX_BATCH, PendingAuthorization};
use super::signers::{Ready, Signers, Unsigned};
use super::states::States;
use super::transaction::in_savepoint;
use crate::error::Fault;
use crate::model::call::Answer;
use crate::model::records::{AgentKey, KeptKey, UsageKey};

/// How many agents' rows are written with a batch because there are too many uncounted decisions. A batch adds fewer.
const MAX_OVERDUE: usize = MAX_BATCH;

/// Decides on batches.
pub(super) struct Deciding {
    pub(super) decider: Arc<dyn Decider>,
    pub(super) signers: Signers,
    pub(super) states: States,
    pub(super) uncounted: Arc<Uncounted>,
}

/// The authorizations of one transaction.
#[derive(Default)]
pub(super) struct Batch {
    /// Those to decide on.
    pub(super) waiting: VecDeque<PendingAuthorization>,
    /// The others, each with its answer, which is sent when the transaction has been committed.
    pub(super) done: Vec<(PendingAuthorization, Result<Answer, Fault>)>,
}

impl Batch {
    /// A batch of these, in this order.
    pub(super) fn of(asked: Vec<PendingAuthorization>) -> Self {
        Self { waiting: asked.into(), done: Vec::new() }
    }

    /// Puts all of them back among those to decide on.
    pub(super) fn begin_again(&mut self) {
        for (asked, _) in self.done.drain(..).rev() {
            self.waiting.push_front(asked);
        }
    }

    /// Answers all of them with a fault.
    pub(super) fn fail(&mut self, fault: &Fault) {
        self.begin_again();
        self.done.extend(self.waiting.drain(..).map(|asked| (asked, Err(fault.clone()))));
    }
}

impl Deciding {
    /// Decides on all that wait, and writes what was made.
    ///
    /// # Errors
    /// Something could not be written. The transaction, or its savepoint, has to be undone then.
    pub(super) fn run(
        &mut self,
        connection: &Connection,
        batch: &mut Batch,
        tally: &mut Tally,
    ) -> Result<(), Fault> {
        let mut session = SqliteSession::writing(connection, Some(Arc::clone(&self.uncounted)));
        let mut tx = Tx::new(&mut session);
        let now = self.decider.now();
        let mut entries = LogEntries::default();
        while !batch.waiting.is_empty() {
            let unsigned = self.round((connection, &mut tx), now, batch);
            let Some(ready) = self.signers.sign(unsigned) else {
                return Err(Fault::new("a thread that signs has ended"));
            };
            if connection.is_autocommit() {
                let undone = Fault::new("database: the transaction was undone");
                batch.done.extend(ready.into_iter().map(|ready| (ready.asked, Err(undone.clone()))));
                return Err(undone);
            }
            self.write(ready, batch, (&mut tx, &mut entries))?;
        }
        for key in self.uncounted.overdue(MAX_OVERDUE) {
            match self.write_whole(connection, &key, &mut tx) {
                // Nothing was written. Its requests are faults, and those of others are not.
                Err(Fault::Corrupt(reason)) => {
                    tracing::debug!(agent = key.agent.as_str(), reason, "an agent's rows are not written");
                }
                written => written?,
            }
        }
        for (kind, at, entries) in entries.take() {
            sql::public_log::add(&mut tx, kind, at, entries)?;
        }
        tally.add(tx.into_tally());
        Ok(())
    }

    /// Decides on as many as can be decided on before any of them is written.
    fn round(
        &mut self,
        (connection, tx): (&Connection, &mut Tx<'_>),
        now: Timestamp,
        batch: &mut Batch,
    ) -> Vec<Unsigned> {
        let mut unsigned: Vec<Unsigned> = Vec::with_capacity(batch.waiting.len());
        let mut names = HashSet::new();
        while let Some(asked) = batch.waiting.pop_front() {
            let authorization = &asked.authorization;
            let name =
                authorization.call.idempotency.as_ref().map(|claim| claim.key(&authorization.call.caller));
            let environment = authorization.call.caller.environment.id;
            let request = authorization.request.as_ref().ok();
            let month = request.map(|request| UsageKey::of(environment, request, now));
            let rests_on_the_round = name.as_ref().is_some_and(|name| names.contains(name))
                || month.as_ref().is_some_and(|month| self.states.is_full(month));
            if rests_on_the_round && !unsigned.is_empty() {
                batch.waiting.push_front(asked);
                break;
            }
            let asked_for = (name.as_ref(), month.as_ref());
            let decide = || self.decide((connection, tx), authorization, asked_for, now);
            let panicked = |_| Err(Fault::new("deciding has panicked; see the line before this one"));
            match catch_unwind(AssertUnwindSafe(decide)).unwrap_or_else(panicked) {
                Ok((outcome, rows)) => {
                    names.extend(name);
                    unsigned.push(Unsigned { asked, at: now, outcome, rows });
                }
                Err(fault) => batch.done.push((asked, Err(fault))),
            }
        }
        unsigned
    }

    /// Decides on one. Gives the rows of its agent, if they are to be written with the decision.
    fn decide(
        &mut self,
        (connection, tx): (&Connection, &mut Tx<'_>),
        authorization: &Authorization,
        (name, month): (Option<&KeptKey>, Option<&UsageKey>),
        now: Timestamp,
    ) -> Result<(UnsignedOutcome, Option<Counted>), Fault> {
        let kept = match name {
            Some(name) => sql::idempotency::lock(tx, name)?,
            None => None,
        };
        let mut found = Found { context: None, kept: kept.as_ref(), mark: Some(self.states.mark(tx)?) };
        if let Some(month) = month {
            if self.states.is_full(month) {
                self.write_whole(connection, &month.agent, tx)?;
                self.states.forget_agent(&month.agent);
            }
            let absent = || Fault::corrupt("database: an agent key's agent is not there");
            found.context = Some(self.states.find(month, tx)?.ok_or_else(absent)?);
        }
        let outcome = self.decider.decide_unsigned(authorization, now, &found)?;
        let rows = match (&outcome, month) {
            (UnsignedOutcome::Unsigned(made), Some(month)) => {
                self.states.count(month, &made.decided.decision)?
            }
            _ => None,
        };
        Ok((outcome, rows))
    }

    /// Writes what a round has made. Where one could not be signed, those of the same agent behind it fall with it.
    fn write(
        &mut self,
        ready: Vec<Ready>,
        batch: &mut Batch,
        (tx, entries): (&mut Tx<'_>, &mut LogEntries),
    ) -> Result<(), Fault> {
        let mut fallen: HashSet<AgentKey> = HashSet::new();
        let mut ready = ready.into_iter();
        while let Some(Ready { asked, signed, rows }) = ready.next() {
            let agent = agent(&asked.authorization);
            let signed = signed.and_then(|signed| match &agent {
                Some(agent) if signed.made.is_some() && fallen.contains(agent) => {
                    Err(Fault::new("the agent's decision before this one could not be signed"))
                }
                _ => Ok(signed),
            });
            let signed = match signed {
                Ok(signed) => signed,
                Err(fault) => {
                    if let Some(agent) = agent {
                        self.states.forget_agent(&agent);
                        fallen.insert(agent);
                    }
                    batch.done.push((asked, Err(fault)));
                    continue;
                }
            };
            if let Err(fault) = self.keep(&signed, rows.as_ref(), tx) {
                batch.done.push((asked, Err(fault.clone())));
                batch.done.extend(ready.map(|ready| (ready.asked, Err(fault.clone()))));
                return Err(fault);
            }
            if let Some(decided) = &signed.made {
                entries.add(&decided.entry, decided.decision.decided_at);
            }
            batch.done.push((asked, Ok(signed.answer)));
        }
        Ok(())
    }

    /// Writes what was made for one authorization.
    fn keep(&mut self, signed: &Signed, rows: Option<&Counted>, tx: &mut Tx<'_>) -> Result<(), Fault> {
        let Signed { made, event, kept, .. } = signed;
        if let Some((key, record)) = kept.as_deref() {
            sql::idempotency::keep(tx, key, record)?;
        }
        if let Some(decided) = made.as_deref() {
            let mark = self.states.mark(tx)?;
            self.states.set_mark(sql::decisions::keep(tx, decided, mark)?);
        }
        if let Some(event) = event {
            sql::events::insert(tx, event)?;
            sql::deliveries::fan_out(tx, event)?;
        }
        rows.map_or(Ok(()), |rows| sql::uncounted::write(tx, rows))
    }

    /// Writes what the rows of one agent lack, all of it or nothing: the transaction goes on.
    fn write_whole(&mut self, connection: &Connection, key: &AgentKey, tx: &mut Tx<'_>) -> Result<(), Fault> {
        let uncounted = Arc::clone(&self.uncounted);
        let written = in_savepoint(connection, &uncounted, || Ok(self.write_rows(key, tx)?));
        written.map_err(|error| {
            self.states.forget_agent(key);
            error.into_fault()
        })
    }

    /// Writes what the rows of one agent lack.
    pub(super) fn write_rows(&mut self, key: &AgentKey, tx: &mut Tx<'_>) -> Result<(), Fault> {
        match self.states.uncounted(key) {
            Some(0) => Ok(()),
            Some(_) => self.states.rows(key).map_or(Ok(()), |rows| sql::uncounted::write(tx, &rows)),
            None => sql::uncounted::count(tx, key),
        }
    }
}

/// The agent that an authorization is about; none if it was refused.
fn agent(authorization: &Authorization) -> Option<AgentKey> {
    let environment = authorization.call.caller.environment.id;
    let request = authorization.request.as_ref().ok()?;
    Some(AgentKey { environment, agent: request.agent.clone() })
}
