//! Reviews: a person approves or denies, once.

use std::sync::Arc;

use mandate_core::{
    DecisionId, EventKind, PolicyVersion, Resolution, ReviewId, ReviewStatus, Timestamp, Verdict,
};
use serde_json::value::RawValue;

use super::decide::{Engine, Inputs};
use super::moments::Moments;
use super::public_log::Governing;
use super::public_log::governing::Answered;
use super::{actors, decisions, outbox};
use crate::error::{Fault, Refusal};
use crate::model::call::{Answer, Call, Environment, ScriptError, Scripted};
use crate::model::people::By;
use crate::model::records::{AgentKey, AgentState, ReviewRecord, UsageKey};
use crate::store::sql::decisions::Whole;
use crate::store::sql::reviews::Ended;
use crate::store::tx::Tx;
use crate::store::{AgentContext, sql};

/// The longest reason for a denial, in characters.
pub const MAX_REASON: usize = 500;

/// The command to approve.
#[derive(Debug)]
pub struct Approve {
    /// The review's id.
    pub id: String,
    /// Evaluates again.
    pub engine: Arc<Engine>,
}

/// The command to deny.
#[derive(Debug)]
pub struct Deny {
    /// The review's id.
    pub id: String,
    /// Gives the time and ids.
    pub moments: Arc<Moments>,
    /// The person's reason.
    pub reason: Option<String>,
}

/// A decision that an approval has made.
#[derive(Debug)]
pub struct Approved {
    /// The answer of the API.
    pub answer: Answer,
    /// The fresh decision.
    pub decision: DecisionId,
    /// Its verdict.
    pub verdict: Verdict,
    /// Why it is a denial, if it is one.
    pub reason: Option<String>,
}

/// A pending review, its decision, and the agent's state, all locked.
struct Pending {
    review: ReviewRecord,
    whole: Whole,
    state: AgentState,
    /// The time, read after the rows were locked.
    now: Timestamp,
}

/// Approves: the request is evaluated again, now, with velocity and review threshold waived. The result is a
/// fresh decision, which can be a denial.
///
/// # Errors
/// There is no such review, or it is not pending.
pub fn approve(tx: &mut Tx<'_>, call: &Call, command: &Approve) -> Scripted {
    let id = ReviewId::parse(&command.id).map_err(|_| Refusal::not_found())?;
    let by = actors::of_key(tx, call)?;
    Ok(approve_by(tx, &call.caller.environment, id, &by, &command.engine)?.answer)
}

/// Approves for a key or a person.
///
/// # Errors
/// As for [`approve`].
pub fn approve_by(
    tx: &mut Tx<'_>,
    environment: &Environment,
    id: ReviewId,
    by: &By,
    engine: &Engine,
) -> Result<Approved, ScriptError> {
    let moments = engine.moments();
    let Pending { mut review, mut whole, state, now } =
        pending(tx, (environment.id, id), (Resolution::Approve, by), moments)?;
    let request = &whole.decision.request;
    let (mode, _) = sql::environments::mode(tx, environment.id)?;
    let usage = sql::usage::find(tx, &UsageKey::of(environment.id, request, now))?;
    let approves = Some(whole.decision.id);
    let inputs = Inputs { environment, mode, state: &state, usage: &usage, approves, now };
    let fresh = engine.make(&inputs, request)?;
    let newest = &fresh.decided.decision;
    let (decision, verdict, reason) = (newest.id, newest.verdict, newest.reason.clone());
    let answer = fresh.answer(now)?;
    review.fresh = Some(decision);
    sql::reviews::resolve(tx, environment.id, &review)?;
    whole.review = Some(review);
    resolved(tx, environment.id, &environment.policy_version, &whole, (moments, now))?;
    Governing::ReviewApproved(answered(&whole, state.sequence, by)?).record(tx, environment.id)?;
    tx.keep(*fresh.decided, AgentContext { mode, state: &state, usage: &usage })?;
    Ok(Approved { answer, decision, verdict, reason })
}

/// Denies. The answer is the decision, whose review is now denied.
///
/// # Errors
/// There is no such review, or it is not pending.
pub fn deny(tx: &mut Tx<'_>, call: &Call, command: &Deny) -> Scripted {
    let id = ReviewId::parse(&command.id).map_err(|_| Refusal::not_found())?;
    let by = actors::of_key(tx, call)?;
    let denied =
        deny_by(tx, &call.caller.environment, id, (&by, command.reason.as_deref()), &command.moments)?;
    Ok(Answer::new(200, &denied)?)
}

/// Denies for a key or a person, with a reason. Gives the decision as it is shown.
///
/// # Errors
/// As for [`deny`].
pub fn deny_by(
    tx: &mut Tx<'_>,
    environment: &Environment,
    id: ReviewId,
    (by, reason): (&By, Option<&str>),
    moments: &Moments,
) -> Result<Box<RawValue>, ScriptError> {
    let Pending { mut review, mut whole, state, now } =
        pending(tx, (environment.id, id), (Resolution::Deny, by), moments)?;
    review.reason = reason.map(ToOwned::to_owned);
    review.resolved_after = Some(state.sequence);
    sql::reviews::resolve(tx, environment.id, &review)?;
    whole.review = Some(review);
    let shown = resolved(tx, environment.id, &environment.policy_version, &whole, (moments, now))?;
    Governing::ReviewDenied(answered(&whole, state.sequence, by)?).record(tx, environment.id)?;
    Ok(shown)
}

/// What the public log says of a decision's review that was answered.
fn answered<'a>(whole: &'a Whole, resolved_after: i64, by: &'a By) -> Result<Answered<'a>, Fault> {
    let review = whole.review.as_ref().ok_or_else(lost)?;
    Ok(Answered {
        at: review.resolved_at.ok_or_else(lost)?,
        agent: &whole.decision.request.agent,
        review: review.id,
        decision: whole.decision.id,
        fresh: review.fresh,
        reason: review.reason.as_deref(),
        resolved_after,
        by: &by.actor,
        answer: by.answer.as_deref(),
    })
}

/// When the next pending review expires.
///
/// # Errors
/// The database fails.
pub fn next_end(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    sql::reviews::next_end(tx)
}

/// Resolves at most `limit` reviews that have expired by `now`, and writes an event for each, dated when they are held.
/// Returns how many there were. Readers see a review as expired from its end on.
///
/// # Errors
/// The database fails.
pub fn expire(tx: &mut Tx<'_>, moments: &Moments, now: Timestamp, limit: i64) -> Result<usize, Fault> {
    let mut ended = sql::reviews::ended(tx, now, limit)?;
    // Events lock their environment's webhooks: always in the same order, whatever the order of expiry.
    ended.sort_unstable_by_key(|ended| (ended.environment, ended.review));
    let mut expired = Vec::with_capacity(ended.len());
    for one in &ended {
        // Exactly one resolution wins, and reports it.
        if sql::reviews::expire(tx, one.environment, one.review)? {
            expired.push(one);
        }
    }
    let at = moments.now(tx)?;
    for Ended { environment, policy_version, decision, .. } in expired {
        let whole = sql::decisions::find(tx, *environment, *decision)?.ok_or_else(lost)?;
        resolved(tx, *environment, policy_version, &whole, (moments, at))?;
    }
    Ok(ended.len())
}

/// Writes the event that the review of a decision is resolved. Returns the decision as it is shown.
fn resolved(
    tx: &mut Tx<'_>,
    environment: i64,
    policy_version: &PolicyVersion,
    whole: &Whole,
    (moments, at): (&Moments, Timestamp),
) -> Result<Box<RawValue>, Fault> {
    let data = decisions::show(whole, policy_version, at)?;
    Ok(outbox::write(tx, moments, environment, EventKind::DecisionResolved, at, data)?.data)
}

fn lost() -> Fault {
    Fault::corrupt("database: a review's decision or agent is not there")
}

/// Locks the agent, then the review, and resolves the review: exactly one resolution wins. A request that waited for a
/// lock until the review, or the statement that a person signed, had expired is refused: readers have seen it expired.
fn pending(
    tx: &mut Tx<'_>,
    (environment, id): (i64, ReviewId),
    (resolution, by): (Resolution, &By),
    moments: &Moments,
) -> Result<Pending, ScriptError> {
    let Some(decision) = sql::reviews::decision(tx, environment, id)? else {
        // A decision that waits for it says that it was there.
        let decision = sql::reviews::named_by(tx, environment, id)?;
        return Err(decision.map_or_else(|| Refusal::not_found().into(), |_| lost().into()));
    };
    let whole = sql::decisions::find_sound(tx, environment, decision)?.ok_or_else(lost)?;
    let agent = AgentKey { environment, agent: whole.decision.request.agent.clone() };
    let state = sql::agents::lock(tx, &agent)?.ok_or_else(lost)?;
    let mut review = sql::reviews::lock(tx, environment, id)?.ok_or_else(lost)?;
    let now = match resolution {
        Resolution::Approve => moments.deciding(tx)?,
        Resolution::Deny => moments.now(tx)?,
    };
    by.must_be_in_time(now)?;
    let status: ReviewStatus = review.status.at(review.expires_at, now);
    review.status = status.resolve(resolution).map_err(|e| Refusal::invalid(e.to_string()))?;
    (review.resolved_at, review.resolved_by) = (Some(now), Some(by.actor.clone()));
    Ok(Pending { review, whole, state, now })
}
