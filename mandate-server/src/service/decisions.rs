//! The log of decisions as the API shows it.

use mandate_core::jwks::Kid;
use mandate_core::{
    Basis, DecisionId, Denials, PolicyVersion, Principal, ReviewId, ReviewStatus, Timestamp,
    VERDICT_LIFETIME_SECONDS, VerdictClaims, jwt,
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::listing::{Cursors, Query, Walk};
use crate::error::{Fault, Refusal};
use crate::model::call::{Answer, Call, Caller, Scripted};
use crate::model::people::Actor;
use crate::model::records::{DecisionRecord, Mode, ReviewRecord};
use crate::store::DecisionAndReview;
use crate::store::sql;
use crate::store::sql::decisions::Whole;

pub use crate::store::sql::decisions::Filter;
use crate::store::tx::Tx;

/// How many rows the search for one page reads at most.
pub const SEARCHED_ROWS: i64 = 1_000;

/// A review as the API shows it.
#[derive(Debug, Serialize)]
pub struct ReviewView<'a> {
    id: ReviewId,
    status: ReviewStatus,
    waits_for: &'a Principal,
    expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_after: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DecisionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_by: Option<&'a Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<&'a RawValue>,
}

/// What a decision has beside its token's claims.
#[derive(Serialize)]
struct Beside<'a> {
    sequence: i64,
    decided_at: Timestamp,
    mode: Mode,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    supersedes: Option<DecisionId>,
    #[serde(skip_serializing_if = "Denials::is_empty")]
    denials: Denials,
    basis: Basis,
    #[serde(skip_serializing_if = "Option::is_none")]
    review: Option<ReviewView<'a>>,
    verdict_token: &'a str,
}

impl<'a> ReviewView<'a> {
    /// The review's state at `now`.
    #[must_use]
    pub fn of(review: &'a ReviewRecord, now: Timestamp) -> Self {
        let status = review.status.at(review.expires_at, now);
        Self {
            id: review.id,
            status,
            waits_for: &review.waits_for,
            expires_at: review.expires_at,
            // An expired review was resolved at its end.
            resolved_at: review
                .resolved_at
                .or((status == ReviewStatus::Expired).then_some(review.expires_at)),
            resolved_after: review.resolved_after,
            decision: review.fresh,
            reason: review.reason.as_deref(),
            resolved_by: review.resolved_by.as_ref(),
            answer: None,
        }
    }
}

/// The claims of a decision's token.
#[must_use]
pub fn claims(decision: &DecisionRecord, issuer: &str, policy_version: &PolicyVersion) -> VerdictClaims {
    VerdictClaims {
        iss: issuer.to_owned(),
        jti: decision.id,
        iat: decision.decided_at.seconds(),
        exp: decision.decided_at.seconds().saturating_add(VERDICT_LIFETIME_SECONDS),
        verdict: decision.verdict,
        mandate: decision.mandate,
        policy_version: policy_version.clone(),
        nonce: decision.nonce,
        request: decision.request.clone(),
    }
}

/// The decision object as JSON, with what a person has signed to answer its review, as exports have it.
///
/// # Errors
/// A stored value is not valid.
pub fn show_answered(
    whole: &Whole,
    policy_version: &PolicyVersion,
    now: Timestamp,
    answer: Option<&RawValue>,
) -> Result<Box<RawValue>, Fault> {
    let decision = &whole.decision;
    let claims = claims(decision, &whole.issuer, policy_version).to_json();
    let token = assemble(whole, &claims)?;
    let review = whole.review.as_ref().map(|review| ReviewView { answer, ..ReviewView::of(review, now) });
    raw(write(decision, review, &claims, &token)?)
}

/// The decision object as JSON. Its token is rebuilt byte for byte from the stored signature.
///
/// # Errors
/// A stored value is not valid.
pub fn show(whole: &Whole, policy_version: &PolicyVersion, now: Timestamp) -> Result<Box<RawValue>, Fault> {
    show_answered(whole, policy_version, now, None)
}

/// The decision object as JSON when it is made, from the JSON of its claims and its token.
///
/// # Errors
/// It cannot be written.
pub fn show_made(
    DecisionAndReview { decision, review, .. }: &DecisionAndReview,
    claims: &str,
    verdict_token: &str,
) -> Result<String, Fault> {
    let review = review.as_ref().map(|review| ReviewView::of(review, decision.decided_at));
    write(decision, review, claims, verdict_token)
}

/// One object of the claims, which are one already, and of what the decision has beside them.
fn write(
    decision: &DecisionRecord,
    review: Option<ReviewView<'_>>,
    claims: &str,
    verdict_token: &str,
) -> Result<String, Fault> {
    let beside = Beside {
        sequence: decision.sequence,
        decided_at: decision.decided_at,
        mode: decision.mode,
        reason: decision.reason.as_deref(),
        supersedes: decision.supersedes,
        denials: decision.denials,
        basis: decision.basis,
        review,
        verdict_token,
    };
    let beside = serde_json::to_string(&beside).map_err(|e| unwritable(&e))?;
    match (claims.strip_suffix('}'), beside.strip_prefix('{')) {
        (Some(claims), Some(beside)) => Ok([claims, ",", beside].concat()),
        _ => Err(Fault::new("a decision's claims are no JSON object")),
    }
}

/// The same as a part of another document.
pub(super) fn raw(decision: String) -> Result<Box<RawValue>, Fault> {
    RawValue::from_string(decision).map_err(|e| unwritable(&e))
}

fn unwritable(error: &serde_json::Error) -> Fault {
    Fault::new(format!("cannot write a decision: {error}"))
}

/// The decision's token, rebuilt in the same way.
///
/// # Errors
/// A stored value is not valid.
pub fn token(whole: &Whole, policy_version: &PolicyVersion) -> Result<String, Fault> {
    assemble(whole, &claims(&whole.decision, &whole.issuer, policy_version).to_json())
}

fn assemble(whole: &Whole, claims: &str) -> Result<String, Fault> {
    Ok(jwt::assemble(&Kid::parse(&whole.kid)?, claims, &whole.decision.signature))
}

/// The decisions of the environment that match `filter`; under an agent key, its own.
///
/// A search that finds little stops after [`SEARCHED_ROWS`] and says that there is more: such a page may be
/// empty.
///
/// # Errors
/// The cursor does not open.
pub fn list(tx: &mut Tx<'_>, call: &Call, filter: &Filter, query: &Query, cursors: &Cursors) -> Scripted {
    let environment = &call.caller.environment;
    let place = |id: &str| Ok(DecisionId::parse(id).ok().map(DecisionId::to_bytes));
    let walk = Walk::open("decisions", canonical(filter), call, query, cursors, place)?;
    let mut filter = filter.clone();
    if let Some(own) = &call.caller.agent {
        if filter.agent.as_ref().is_some_and(|agent| agent != own) {
            return walk.answer(Vec::<(_, ())>::new(), None);
        }
        filter.agent = Some(own.clone());
    }
    let found = sql::decisions::search(tx, environment.id, &filter, &walk.slice, cursors.now, SEARCHED_ROWS)?;
    let mut rows = Vec::with_capacity(found.ids.len());
    for id in found.ids {
        let whole = sql::decisions::find(tx, environment.id, id)?;
        let whole = whole.ok_or_else(|| Fault::new("database: a decision just found is not there"))?;
        let whole = told(&call.caller, whole);
        rows.push((id.to_bytes(), show(&whole, &environment.policy_version, cursors.now)?));
    }
    walk.answer(rows, found.stopped_at.map(DecisionId::to_bytes))
}

/// One text for each set of filters.
fn canonical(filter: &Filter) -> String {
    let Filter { agent, verdict, mandate, mode, review, since, until } = filter;
    let parts = [
        agent.as_ref().map(|agent| format!("agent={agent}")),
        verdict.map(|verdict| format!("verdict={verdict}")),
        mandate.map(|mandate| format!("mandate={mandate}")),
        mode.map(|mode| format!("mode={}", mode.as_str())),
        review.map(|review| format!("review={review}")),
        since.map(|since| format!("since={}", since.millis())),
        until.map(|until| format!("until={}", until.millis())),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("&")
}

/// What a caller sees of a decision: an agent does not see who has answered its review.
fn told(caller: &Caller, mut whole: Whole) -> Whole {
    if let Some(review) = whole.review.as_mut().filter(|_| caller.agent.is_some()) {
        review.resolved_by = None;
    }
    whole
}

/// One decision.
///
/// # Errors
/// There is none of that id for this caller.
pub fn get(tx: &mut Tx<'_>, call: &Call, id: &str, now: Timestamp) -> Scripted {
    let caller = &call.caller;
    let id = DecisionId::parse(id).map_err(|_| Refusal::not_found())?;
    let whole = sql::decisions::find(tx, caller.environment.id, id)?.ok_or_else(Refusal::not_found)?;
    if caller.agent.as_ref().is_some_and(|own| *own != whole.decision.request.agent) {
        return Err(Refusal::not_found().into());
    }
    let whole = told(caller, whole);
    Ok(Answer::new(200, &show(&whole, &caller.environment.policy_version, now)?)?)
}
