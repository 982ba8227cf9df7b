//! What the store and the pure middle of a batch hand each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mandate_core::es256::Signer;
use mandate_core::{DecisionId, EventId, Request, Timestamp};

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
    /// Who asks; the caller is an agent.
    pub call: Call,
    /// What is asked, or why that is refused: a refusal too is kept under its idempotency key.
    pub request: Result<Request, Refusal>,
    /// Its place in a trace, if it is among those sampled.
    pub traced: Option<Traced>,
}

impl Authorization {
    /// An authorization that no trace follows.
    #[must_use]
    pub fn new(call: Call, request: Result<Request, Refusal>) -> Self {
        Self { call, request, traced: None }
    }
}

/// What a batch of authorizations needs to know, and what it changes. The rows are locked until the batch commits.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The mode of each environment concerned.
    pub modes: BTreeMap<i64, Mode>,
    /// The agents concerned.
    pub agents: BTreeMap<AgentKey, AgentState>,
    /// Their metering this month, in the currencies that they ask for.
    pub usage: BTreeMap<UsageKey, UsageRecord>,
    /// The answers kept before under the idempotency keys that were sent.
    pub kept: BTreeMap<KeptKey, KeptRecord>,
    /// The high-water mark of the instants by which decisions were made.
    pub mark: Option<Timestamp>,
    /// What the batch has made and changed: to be written before it commits.
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
    /// Idempotency keys with a new answer.
    pub kept: BTreeSet<KeptKey>,
    /// Agents that made a request.
    pub agents: BTreeSet<AgentKey>,
    /// Metering that changed.
    pub usage: BTreeSet<UsageKey>,
}

/// What one authorization is decided on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found<'a> {
    /// What decides on the request; nothing where the request was refused.
    pub standing: Option<Standing<'a>>,
    /// The answer kept before under the idempotency key that was sent.
    pub kept: Option<&'a KeptRecord>,
    /// The high-water mark of the instants by which decisions were made.
    pub mark: Option<Timestamp>,
}

/// The state of an agent when it asks.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// The mode of its environment.
    pub mode: Mode,
    /// Its mandate and newest requests.
    pub state: &'a AgentState,
    /// Its metering this month, in the currency that it asks for.
    pub usage: &'a UsageRecord,
}

/// Counts the request that was decided on at `now`.
pub(super) fn count(
    decision: &DecisionRecord,
    now: Timestamp,
    state: &mut AgentState,
    usage: &mut UsageRecord,
) {
    state.recent.record(now);
    (state.sequence, state.last) = (decision.sequence, Some(decision.id));
    usage.requests += 1;
    usage.count(decision.verdict, &decision.request);
}

impl Loaded {
    /// What an authorization is decided on at `now`.
    #[must_use]
    pub fn find(&self, at: &Authorization, now: Timestamp) -> Found<'_> {
        let caller = &at.call.caller;
        let kept = at.call.idempotency.as_ref().and_then(|claim| self.kept.get(&claim.key(caller)));
        let request = at.request.as_ref().ok();
        let standing = request.and_then(|request| self.standing(caller.environment.id, request, now));
        Found { standing, kept, mark: self.mark }
    }

    fn standing(&self, environment: i64, request: &Request, now: Timestamp) -> Option<Standing<'_>> {
        let key = UsageKey::of(environment, request, now);
        let (state, usage) = (self.agents.get(&key.agent)?, self.usage.get(&key)?);
        Some(Standing { mode: *self.modes.get(&environment)?, state, usage })
    }

    /// Counts the request that was decided on at `now`.
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

/// The pure middle of a batch, which the service brings.
pub trait Decider: Send + Sync + 'static {
    /// The time by which it decides, where one server owns the database. It is read when the batch has its rows.
    fn now(&self) -> Timestamp;

    /// The time by which it decides, where the database's clock `shown` is that of several servers.
    fn database(&self, shown: Timestamp) -> Timestamp {
        shown
    }

    /// Has all decisions from now on get ids that are greater than `newest`, where one server owns the database.
    fn follow(&self, newest: Option<DecisionId>) {
        let _ = newest;
    }

    /// Decides on one authorization, over what was found of it.
    ///
    /// # Errors
    /// It is not all found that the authorization concerns, or no key can sign.
    fn draft(
        &self,
        authorization: &Authorization,
        now: Timestamp,
        found: &Found<'_>,
    ) -> Result<Drafted, Fault>;

    /// Signs what was drafted at `now`. It rests on nothing else, so that any thread may do it.
    ///
    /// # Errors
    /// The key cannot sign.
    fn sign(&self, authorization: &Authorization, drafted: Drafted, now: Timestamp) -> Result<Signed, Fault>;

    /// Answers each authorization, in order, over `loaded`, and notes there what has changed.
    fn decide(
        &self,
        batch: &[Authorization],
        now: Timestamp,
        loaded: &mut Loaded,
    ) -> Vec<Result<Answer, Fault>> {
        let mut answer = |authorization| {
            let drafted = self.draft(authorization, now, &loaded.find(authorization, now))?;
            let signed = self.sign(authorization, drafted, now)?;
            if let Some(decision) = signed.decision() {
                loaded.count(decision, now)?;
            }
            Ok(signed.note(loaded))
        };
        batch.iter().map(&mut answer).collect()
    }
}

/// A decision, and the review that it waits for.
#[derive(Debug)]
pub struct Ruling {
    /// The decision.
    pub decision: DecisionRecord,
    /// Its review.
    pub review: Option<ReviewRecord>,
}

/// A decision that is not signed yet.
#[derive(Debug)]
pub struct Unsigned {
    /// The decision, with nothing in the place of the signature. It goes through several threads, and stays where it is.
    pub ruling: Box<Ruling>,
    /// The id of the event that reports the review. It is drawn with the decision's, so that events have the order of
    /// decisions.
    pub event: Option<EventId>,
    /// What signs it.
    pub signer: Arc<dyn Signer>,
}

/// What comes of an authorization, but for the signature.
#[derive(Debug)]
pub enum Drafted {
    /// Nothing is to be decided.
    Answered(Box<Signed>),
    /// A decision is to be signed.
    Unsigned(Unsigned),
}

/// What comes of an authorization: the answer, and what is to be kept of it.
#[derive(Debug)]
pub struct Signed {
    /// The answer.
    pub answer: Answer,
    /// What was decided.
    pub made: Option<Box<Ruling>>,
    /// The event that reports it.
    pub event: Option<Box<EventRecord>>,
    /// The answer as it is kept under an idempotency key.
    pub kept: Option<Box<(KeptKey, KeptRecord)>>,
}

impl Signed {
    /// An answer, and nothing to be kept.
    #[must_use]
    pub fn answered(answer: Answer) -> Self {
        Self { answer, made: None, event: None, kept: None }
    }

    /// The decision, if one was made.
    #[must_use]
    pub fn decision(&self) -> Option<&DecisionRecord> {
        self.made.as_ref().map(|ruling| &ruling.decision)
    }

    /// Notes in `loaded` what is to be written; gives the answer.
    pub fn note(self, loaded: &mut Loaded) -> Answer {
        if let Some(ruling) = self.made {
            let Ruling { decision, review } = *ruling;
            loaded.made.reviews.extend(review.map(|review| (decision.environment, review)));
            loaded.made.decisions.push(decision);
        }
        loaded.made.events.extend(self.event.map(|event| *event));
        if let Some((key, record)) = self.kept.map(|kept| *kept) {
            loaded.kept.insert(key.clone(), record);
            loaded.made.kept.insert(key);
        }
        self.answer
    }
}
