//! The types that the store and the service exchange to decide a batch of authorizations, and the trait between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mandate_core::es256::Signer;
use mandate_core::log::write_entry;
use mandate_core::{DecisionId, EnvironmentKind, EventId, Request, Timestamp};

use crate::error::{Fault, Refusal};
use crate::model::call::{Answer, Call};
use crate::model::records::{
    AgentKey, AgentState, DecisionRecord, EventRecord, KeptKey, KeptRecord, Mode, ReviewRecord, UsageKey,
    UsageRecord,
};
use crate::traces::Traced;

/// A request to spend, on its way into a batch.
#[derive(Debug)]
pub struct Authorization {
    /// The call. Its caller is an agent.
    pub call: Call,
    /// The request, or why it is refused. A refusal is kept under its idempotency key too.
    pub request: Result<Request, Refusal>,
    /// Its place in a trace, if it is sampled.
    pub traced: Option<Traced>,
}

impl Authorization {
    /// An authorization that is not traced.
    #[must_use]
    pub fn new(call: Call, request: Result<Request, Refusal>) -> Self {
        Self { call, request, traced: None }
    }
}

/// The rows that a batch of authorizations reads, and what it changes. They are locked until the batch commits.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The mode of each environment in the batch.
    pub modes: BTreeMap<i64, Mode>,
    /// The agents in the batch.
    pub agents: BTreeMap<AgentKey, AgentState>,
    /// Their metering this month, in the currencies that they ask for.
    pub usage: BTreeMap<UsageKey, UsageRecord>,
    /// The answers kept before under the idempotency keys that were sent.
    pub kept: BTreeMap<KeptKey, KeptRecord>,
    /// The high-water mark of the instants by which decisions were made.
    pub mark: Option<Timestamp>,
    /// What the batch has made and changed. It is written before the commit.
    pub made: Made,
}

/// What a batch has made and changed.
#[derive(Debug, Default)]
pub struct Made {
    /// New decisions, in order.
    pub decisions: Vec<DecisionRecord>,
    /// New reviews, each with its environment.
    pub reviews: Vec<(i64, ReviewRecord)>,
    /// New events.
    pub events: Vec<EventRecord>,
    /// Entries of the new decisions for the public logs.
    pub entries: LogEntries,
    /// Idempotency keys with a new answer.
    pub kept: BTreeSet<KeptKey>,
    /// Agents that made a request.
    pub agents: BTreeSet<AgentKey>,
    /// Metering that changed.
    pub usage: BTreeSet<UsageKey>,
}

impl Made {
    /// Adds a decision, and the review that it waits for.
    pub(super) fn add(&mut self, decided: DecisionAndReview) {
        let DecisionAndReview { decision, review, entry } = decided;
        self.entries.add(&entry, decision.decided_at);
        self.reviews.extend(review.map(|review| (decision.environment, review)));
        self.decisions.push(decision);
    }

    /// The agents in these environments for which events are made: each is of a review that waits.
    pub(super) fn announcing(&self, environments: &BTreeSet<i64>) -> BTreeSet<AgentKey> {
        let announces = |decision: &&DecisionRecord| {
            decision.review.is_some() && environments.contains(&decision.environment)
        };
        let key = |decision: &DecisionRecord| AgentKey {
            environment: decision.environment,
            agent: decision.request.agent.clone(),
        };
        self.decisions.iter().filter(announces).map(key).collect()
    }
}

/// The rows for one authorization.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found<'a> {
    /// The agent's context. None if the request was refused.
    pub context: Option<AgentContext<'a>>,
    /// The answer kept before under the idempotency key that was sent.
    pub kept: Option<&'a KeptRecord>,
    /// The high-water mark of the instants by which decisions were made.
    pub mark: Option<Timestamp>,
}

/// What the decision on an agent's request depends on.
#[derive(Debug, Clone, Copy)]
pub struct AgentContext<'a> {
    /// The mode of its environment.
    pub mode: Mode,
    /// Its mandate and newest requests.
    pub state: &'a AgentState,
    /// Its metering this month, in the currency that it asks for.
    pub usage: &'a UsageRecord,
}

/// Counts a decision made at `now`. One that approves another is no request of the agent.
pub(super) fn count(
    decision: &DecisionRecord,
    now: Timestamp,
    state: &mut AgentState,
    usage: &mut UsageRecord,
) {
    if decision.supersedes.is_none() {
        state.recent.record(now);
        usage.requests += 1;
    }
    (state.sequence, state.last) = (decision.sequence, Some(decision.id));
    usage.count(decision.verdict, &decision.request);
}

impl Loaded {
    /// What an authorization is decided on at `now`.
    #[must_use]
    pub fn find(&self, at: &Authorization, now: Timestamp) -> Found<'_> {
        let caller = &at.call.caller;
        let kept = at.call.idempotency.as_ref().and_then(|claim| self.kept.get(&claim.key(caller)));
        let request = at.request.as_ref().ok();
        let context = request.and_then(|request| self.context(caller.environment.id, request, now));
        Found { context, kept, mark: self.mark }
    }

    fn context(&self, environment: i64, request: &Request, now: Timestamp) -> Option<AgentContext<'_>> {
        let key = UsageKey::of(environment, request, now);
        let (state, usage) = (self.agents.get(&key.agent)?, self.usage.get(&key)?);
        Some(AgentContext { mode: *self.modes.get(&environment)?, state, usage })
    }

    /// Counts a decision made at `now`.
    ///
    /// # Errors
    /// Its agent, or its metering, is not loaded.
    pub fn count(&mut self, decision: &DecisionRecord, now: Timestamp) -> Result<(), Fault> {
        let lost = || Fault::new("a batch was asked to count what it did not load");
        let key = UsageKey::of(decision.environment, &decision.request, now);
        let state = self.agents.get_mut(&key.agent).ok_or_else(lost)?;
        count(decision, now, state, self.usage.get_mut(&key).ok_or_else(lost)?);
        self.made.agents.insert(key.agent.clone());
        self.made.usage.insert(key);
        Ok(())
    }
}

/// Decides on authorizations. The service implements it; the store calls it between reading and writing a batch.
pub trait Decider: Send + Sync + 'static {
    /// The time by which it decides, where one server owns the database. It is read when the batch has its rows.
    fn now(&self) -> Timestamp;

    /// The time by which it decides, where the database's clock `shown` is that of several servers.
    fn database(&self, shown: Timestamp) -> Timestamp {
        shown
    }

    /// Does what a thread does once before it can sign, so that no decision waits for it. Called on each thread that signs, as it
    /// starts.
    fn warm_up(&self) {}

    /// From now on gives each decision an id greater than `newest` and all others, and everything else one greater than
    /// `others`. Called where one server owns the database.
    fn follow(&self, newest: Option<DecisionId>, others: Option<[u8; 16]>) {
        let _ = (newest, others);
    }

    /// From now on gives each decision an id that is `behind` or later, the first one after all closed months. Called by each
    /// batch where several servers share the database: another one may have decided last.
    fn leave_closed(&self, behind: Option<DecisionId>) {
        let _ = behind;
    }

    /// Another id for an event of a batch, where several servers share the database: greater than `newest`, the newest
    /// that is stored.
    fn event(&self, newest: Option<[u8; 16]>, event: &EventRecord) -> EventId {
        let _ = newest;
        event.id
    }

    /// Decides on one authorization, on the rows found for it. The decision is not signed yet.
    ///
    /// # Errors
    /// A row is missing, the clock is behind, or no key can sign.
    fn decide_unsigned(
        &self,
        authorization: &Authorization,
        now: Timestamp,
        found: &Found<'_>,
    ) -> Result<UnsignedOutcome, Fault>;

    /// Signs a decision made at `now`. Any thread can do it.
    ///
    /// # Errors
    /// The key cannot sign.
    fn sign(
        &self,
        authorization: &Authorization,
        outcome: UnsignedOutcome,
        now: Timestamp,
    ) -> Result<Signed, Fault>;

    /// Answers each authorization of a batch, in order, and notes in `loaded` what has changed.
    fn decide(
        &self,
        batch: &[&Authorization],
        now: Timestamp,
        loaded: &mut Loaded,
    ) -> Vec<Result<Answer, Fault>> {
        let mut answer = |authorization: &Authorization| {
            let outcome = self.decide_unsigned(authorization, now, &loaded.find(authorization, now))?;
            let signed = self.sign(authorization, outcome, now)?;
            if let Some(decision) = signed.decision() {
                loaded.count(decision, now)?;
            }
            Ok(signed.note(loaded))
        };
        batch.iter().map(|authorization| answer(authorization)).collect()
    }
}

/// A decision, and the review that it waits for.
#[derive(Debug)]
pub struct DecisionAndReview {
    /// The decision.
    pub decision: DecisionRecord,
    /// Its review.
    pub review: Option<ReviewRecord>,
    /// Its entry in the public log; empty until it is signed.
    pub entry: LogEntry,
}

/// An entry for the public log of a kind.
#[derive(Debug)]
pub struct LogEntry {
    /// The kind of the environment.
    pub kind: EnvironmentKind,
    /// The entry.
    pub bytes: Vec<u8>,
}

/// Entries for the public logs that a transaction has made, by kind: when the first was made, and all of them, each with its
/// length before it.
#[derive(Debug, Default)]
pub struct LogEntries(BTreeMap<EnvironmentKind, (Timestamp, Vec<u8>)>);

impl LogEntries {
    /// Adds an entry made at `at`.
    pub fn add(&mut self, entry: &LogEntry, at: Timestamp) {
        let (_, entries) = self.0.entry(entry.kind).or_insert_with(|| (at, Vec::new()));
        // An entry of a decision has 97 bytes: see `MAX_ENTRY_BYTES`.
        let _ = write_entry(entries, &entry.bytes);
    }

    /// Gives them, and has none then.
    pub fn take(&mut self) -> impl Iterator<Item = (EnvironmentKind, Timestamp, Vec<u8>)> + use<> {
        std::mem::take(&mut self.0).into_iter().map(|(kind, (at, entries))| (kind, at, entries))
    }
}

/// A decision that is not signed yet.
#[derive(Debug)]
pub struct Unsigned {
    /// The decision, its signature all zero. Boxed, since it moves between threads.
    pub decided: Box<DecisionAndReview>,
    /// The id of the `decision.review_pending` event. It is drawn with the decision's id, so that events are in the
    /// order of decisions. Signing and COMMIT follow within the bound that `outbox::write` names.
    pub event: Option<EventId>,
    /// The key that signs it.
    pub signer: Arc<dyn Signer>,
}

/// The outcome of an authorization before it is signed.
#[derive(Debug)]
pub enum UnsignedOutcome {
    /// The answer is complete: a replay, a conflict or a refusal.
    Answered(Box<Signed>),
    /// A decision that must be signed.
    Unsigned(Unsigned),
}

/// The outcome of an authorization: the answer, and the rows to write.
#[derive(Debug)]
pub struct Signed {
    /// The answer.
    pub answer: Answer,
    /// The decision, if one was made.
    pub made: Option<Box<DecisionAndReview>>,
    /// The event that reports it.
    pub event: Option<Box<EventRecord>>,
    /// The answer to keep under the idempotency key.
    pub kept: Option<Box<(KeptKey, KeptRecord)>>,
}

impl Signed {
    /// An answer without rows to write.
    #[must_use]
    pub fn answered(answer: Answer) -> Self {
        Self { answer, made: None, event: None, kept: None }
    }

    /// The decision, if one was made.
    #[must_use]
    pub fn decision(&self) -> Option<&DecisionRecord> {
        self.made.as_ref().map(|decided| &decided.decision)
    }

    /// Adds the rows to write to `loaded`. Returns the answer.
    pub fn note(self, loaded: &mut Loaded) -> Answer {
        if let Some(decided) = self.made {
            loaded.made.add(*decided);
        }
        loaded.made.events.extend(self.event.map(|event| *event));
        if let Some((key, record)) = self.kept.map(|kept| *kept) {
            loaded.kept.insert(key.clone(), record);
            loaded.made.kept.insert(key);
        }
        self.answer
    }
}
