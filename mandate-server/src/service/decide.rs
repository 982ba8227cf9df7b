//! How one authorization is decided: the request and the agent's state go in, the answer and the new rows come out.
//! Nothing here reads or writes the database, and nothing waits: the store loads rows, calls `decide_unsigned` and `sign`,
//! and writes. The way through: `decide_unsigned → decide_one → decide_on → evaluate`, then `sign → seal → answer →
//! kept`. Approvals call `make`.
//! `decide_on` draws `sequence`, one more than the state's: its caller holds the agent's row, or is the only writer.
//! A refusal is kept here, by `decide_unsigned`. Metering and the state's sequence are counted by the store
//! (`Loaded::count`, `States`).

use std::fmt;
use std::sync::Arc;

use mandate_core::json::one_line;
use mandate_core::log::{Entry, record_hash, token_hash};
use mandate_core::{
    DecisionId, EnvironmentKind, Evaluation, EventId, EventKind, Nonce, Request, ReviewId, ReviewStatus,
    Timestamp, Verdict, evaluate, jwt,
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::decisions::{ReviewView, claims, raw, show_made};
use super::moments::{Moments, must_not_be_behind};
use super::public_log::LogSecrets;
use super::signing::Keyring;
use crate::error::Fault;
use crate::model::call::{Answer, Environment};
use crate::model::idempotency::Judgement;
use crate::model::records::{
    AgentState, DecisionRecord, EventRecord, KeptKey, KeptRecord, Mode, ReviewRecord, UsageRecord,
};
use crate::store::{
    AgentContext, Authorization, Decider, DecisionAndReview, Found, LogEntry, Signed, Unsigned,
    UnsignedOutcome,
};

/// Decides on requests, and signs the decisions.
pub struct Engine {
    keyring: Keyring,
    moments: Arc<Moments>,
    review_seconds: i64,
}

impl Decider for Engine {
    fn decide_unsigned(
        &self,
        at: &Authorization,
        now: Timestamp,
        found: &Found<'_>,
    ) -> Result<UnsignedOutcome, Fault> {
        let answered = |answer| Ok(UnsignedOutcome::Answered(Box::new(Signed::answered(answer))));
        if let Some(claim) = &at.call.idempotency {
            match claim.judge(found.kept)? {
                Judgement::Fresh => {}
                Judgement::Replay(answer) => return answered(answer),
                Judgement::Conflict(refusal) => {
                    return answered(Answer::refused(&refusal, at.call.request_id)?);
                }
            }
        }
        match &at.request {
            Ok(request) => Ok(UnsignedOutcome::Unsigned(self.decide_one(at, request, now, found)?)),
            Err(refusal) => {
                let answer = Answer::refused(refusal, at.call.request_id)?;
                let kept = kept(at, &answer, now)?;
                Ok(UnsignedOutcome::Answered(Box::new(Signed { kept, ..Signed::answered(answer) })))
            }
        }
    }

    fn sign(&self, at: &Authorization, outcome: UnsignedOutcome, now: Timestamp) -> Result<Signed, Fault> {
        let unsigned = match outcome {
            UnsignedOutcome::Answered(signed) => return Ok(*signed),
            UnsignedOutcome::Unsigned(unsigned) => unsigned,
        };
        let environment = &at.call.caller.environment;
        let event = unsigned.event;
        let fresh = self.seal(unsigned, environment)?;
        let answer = fresh.answer(now)?;
        let event = event.map(|id| review_pending(&fresh, id)).transpose()?;
        let kept = kept(at, &answer, now)?;
        Ok(Signed { answer, made: Some(fresh.decided), event: event.map(Box::new), kept })
    }

    fn now(&self) -> Timestamp {
        self.moments.clock().now()
    }

    /// The first signature of a thread takes some 25 ms: aws-lc-rs gathers randomness for each thread.
    fn warm_up(&self) {
        // Where no key can sign, the decisions say so.
        if let Ok(key) = self.keyring.signing(EnvironmentKind::Sandbox, self.now()) {
            let _ = key.signer.sign(b"");
        }
    }

    fn database(&self, shown: Timestamp) -> Timestamp {
        self.moments.clock().database(shown)
    }

    fn follow(&self, newest: Option<DecisionId>, others: Option<[u8; 16]>) {
        self.moments.follow(newest, others);
    }

    fn leave_closed(&self, behind: Option<DecisionId>) {
        self.moments.leave_closed(behind);
    }

    fn event(&self, newest: Option<[u8; 16]>, event: &EventRecord) -> EventId {
        self.moments.event_after(newest, event.at)
    }
}

impl Engine {
    /// An engine that signs with `keyring`; its reviews expire after `review_seconds`.
    #[must_use]
    pub fn new(keyring: Keyring, moments: Arc<Moments>, review_seconds: i64) -> Self {
        Self { keyring, moments, review_seconds }
    }

    /// Where its time and its ids come from.
    #[must_use]
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// Makes one decision, and signs it.
    ///
    /// # Errors
    /// The signing backend cannot sign.
    pub fn make(&self, inputs: &Inputs<'_>, request: &Request) -> Result<SignedDecision, Fault> {
        self.seal(self.decide_on(inputs, request)?, inputs.environment)
    }

    /// Decides on one request of a batch, on the rows that the store has found for it.
    fn decide_one(
        &self,
        at: &Authorization,
        request: &Request,
        now: Timestamp,
        found: &Found<'_>,
    ) -> Result<Unsigned, Fault> {
        let lost = || Fault::new("a batch was asked to decide on what it did not load");
        must_not_be_behind(now, found.mark.ok_or_else(lost)?)?;
        let environment = &at.call.caller.environment;
        let AgentContext { mode, state, usage } = found.context.ok_or_else(lost)?;
        self.decide_on(&Inputs { environment, mode, state, usage, approves: None, now }, request)
    }

    /// Makes one decision, without its signature.
    fn decide_on(&self, inputs: &Inputs<'_>, request: &Request) -> Result<Unsigned, Fault> {
        let (now, state, ids) = (inputs.now, inputs.state, self.moments.ids());
        let mandate = state.mandate.as_deref();
        let basis =
            mandate_core::Basis { spent: inputs.usage.spent, recent_requests: state.recent.count_at(now) };
        let evaluation = if inputs.approves.is_some() { Evaluation::Approval } else { Evaluation::Request };
        let outcome = evaluate(mandate, &basis, request, now, evaluation);

        let id = self.moments.decision(state.last, now);
        let review = mandate.filter(|_| outcome.verdict == Verdict::Review).map(|mandate| ReviewRecord {
            id: ReviewId::from_bytes(ids.next(now)),
            decision: id,
            status: ReviewStatus::Pending,
            waits_for: mandate.terms.principal.clone(),
            expires_at: now.plus_seconds(self.review_seconds),
            resolved_at: None,
            resolved_after: None,
            fresh: None,
            reason: None,
            resolved_by: None,
        });
        let key = self.keyring.signing(inputs.environment.kind, now)?;
        let decision = DecisionRecord {
            environment: inputs.environment.id,
            id,
            sequence: state.sequence + 1,
            decided_at: now,
            verdict: outcome.verdict,
            mandate: mandate.map(|m| m.id),
            nonce: Nonce::from_bytes(ids.fresh(now)),
            request: request.clone(),
            mode: inputs.mode,
            reason: outcome.reason.map(|reason| reason.to_string()),
            denials: outcome.denials,
            basis,
            supersedes: inputs.approves,
            review: review.as_ref().map(|review| review.id),
            issuer: self.keyring.issuer_id(),
            signing_key: key.id,
            signature: [0; 64],
        };
        // Not by `Moments::event`, which reads the newest: one server's ids are in order anyway, and on PostgreSQL the batch
        // compares this one with the newest, and draws again (`hot.rs`). An approval's event is drawn by its script.
        let event = review.as_ref().map(|_| EventId::from_bytes(ids.next(now)));
        let entry = LogEntry { kind: inputs.environment.kind, bytes: Vec::new() };
        let decided = Box::new(DecisionAndReview { decision, review, entry });
        Ok(Unsigned { decided, event, signer: key.signer })
    }

    /// Signs a decision, and makes its entry in the public log. This takes most of the time of an authorization.
    fn seal(&self, unsigned: Unsigned, environment: &Environment) -> Result<SignedDecision, Fault> {
        let Unsigned { mut decided, signer, .. } = unsigned;
        let claims = claims(&decided.decision, self.keyring.issuer(), &environment.policy_version).to_json();
        let signed = jwt::sign_kept(&*signer, &claims).map_err(|e| Fault::new(e.to_string()));
        let token;
        (token, decided.decision.signature) = signed?;
        let row = show_made(&decided, &claims, &token)?;
        let entry = log_entry(&decided.decision, &token, &row, self.keyring.log_secrets())?;
        decided.entry.bytes = entry.to_bytes();
        Ok(SignedDecision { decided, token, row })
    }
}

/// The event `decision.review_pending`.
fn review_pending(fresh: &SignedDecision, id: EventId) -> Result<EventRecord, Fault> {
    let DecisionRecord { environment, decided_at, .. } = fresh.decided.decision;
    let data = raw(fresh.row.clone())?;
    Ok(EventRecord { environment, id, kind: EventKind::DecisionReviewPending, at: decided_at, data })
}

/// A decision's entry in the public log. `row` is the decision as an export shows it, before its review is answered.
///
/// # Errors
/// The token is none.
pub fn log_entry(
    decision: &DecisionRecord,
    token: &str,
    row: &str,
    secrets: &LogSecrets,
) -> Result<Entry, Fault> {
    let secrets = secrets.environment(decision.environment);
    let sequence = u64::try_from(decision.sequence).map_err(|_| Fault::corrupt("a negative sequence"))?;
    let record = record_hash(&secrets.blind.decision(decision.id), one_line(row).as_bytes());
    let token = token_hash(token).ok_or_else(|| Fault::new("a token that cannot be logged"))?;
    Ok(Entry::Decision { tag: secrets.watch.decision(&decision.request.agent, sequence), token, record })
}

/// The answer as it is kept under the idempotency key that was sent, if one was.
fn kept(
    at: &Authorization,
    answer: &Answer,
    now: Timestamp,
) -> Result<Option<Box<(KeptKey, KeptRecord)>>, Fault> {
    let Some(claim) = &at.call.idempotency else { return Ok(None) };
    Ok(Some(Box::new((claim.key(&at.call.caller), claim.keep(answer, now)?))))
}

/// All that a decision rests on, beside the request.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The tenant.
    pub environment: &'a Environment,
    /// The mode in force.
    pub mode: Mode,
    /// The agent's mandate and newest requests.
    pub state: &'a AgentState,
    /// What the agent has spent this month, in the request's currency.
    pub usage: &'a UsageRecord,
    /// The decision whose review is being approved.
    pub approves: Option<DecisionId>,
    /// The time by which it is decided.
    pub now: Timestamp,
}

/// A decision just made.
#[derive(Debug)]
pub struct SignedDecision {
    /// The decision, and the review that it waits for.
    pub decided: Box<DecisionAndReview>,
    /// Its token.
    pub token: String,
    /// The decision as it is shown.
    row: String,
}

#[derive(Serialize)]
struct View<'a> {
    decision: DecisionId,
    verdict: Verdict,
    mode: Mode,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict_token: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    review: Option<ReviewView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    supersedes: Option<DecisionId>,
}

impl SignedDecision {
    /// The authorization response. The token is in it on `allow` only.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn answer(&self, now: Timestamp) -> Result<Answer, Fault> {
        let DecisionAndReview { decision, review, .. } = &*self.decided;
        let token = (decision.verdict == Verdict::Allow).then(|| quoted(&self.token)).transpose()?;
        let answer = Answer::new(
            201,
            &View {
                decision: decision.id,
                verdict: decision.verdict,
                mode: decision.mode,
                verdict_token: token.as_deref(),
                reason: decision.reason.as_deref(),
                review: review.as_ref().map(|review| ReviewView::of(review, now)),
                supersedes: decision.supersedes,
            },
        )?;
        Ok(Answer { decided: Some((decision.verdict, decision.mode)), ..answer })
    }
}

/// A token as a JSON string. Base64url and full stops need no escapes.
fn quoted(token: &str) -> Result<Box<RawValue>, Fault> {
    let text = ["\"", token, "\""].concat();
    RawValue::from_string(text).map_err(|e| Fault::new(format!("a token cannot be written as JSON: {e}")))
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("review_seconds", &self.review_seconds).finish_non_exhaustive()
    }
}
