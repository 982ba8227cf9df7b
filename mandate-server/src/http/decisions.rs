//! `/v1/decisions`.

use mandate_core::{AgentId, MandateId, ReviewStatus, Timestamp, Verdict};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::extract::{Admitted, parameter};
use super::openapi::page::{Page, PageParameters};
use super::openapi::values::{self, TOKEN};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::model::records::Mode;
use crate::service::decisions::{self, Filter};

/// List decisions
///
/// The decisions of the environment. Under an agent's key: only that agent's. A search that finds little ends early and says
/// that there is more: such a page can be empty.
#[utoipa::path(
    get, path = "/v1/decisions", operation_id = "listDecisions", tag = "Decisions",
    security(("organizationKey" = []), ("agentKey" = [])),
    params(
        ("agent" = values::AgentId, Query, description = "Of this agent."),
        ("verdict" = values::Verdict, Query, description = "Of this verdict."),
        ("mandate" = values::MandateId, Query, description = "Under this mandate."),
        ("mode" = values::Mode, Query, description = "Made in this mode."),
        ("review" = values::ReviewStatus, Query, description = "Whose review has this status."),
        ("since" = values::Timestamp, Query, description = "Made at this instant or later, by the time in the id. After the clock was set back that is later than `decided_at`."),
        ("until" = values::Timestamp, Query, description = "Made before this instant, by the time in the id. After the clock was set back that is later than `decided_at`."),
        PageParameters,
    ),
    responses((
        status = 200, description = "A page, newest first.", body = DecisionPage,
        example = json!({"data": [example()], "has_more": false}),
    )),
)]
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, [agent, verdict, mandate, mode, review, since, until]) =
        request.filtered(["agent", "verdict", "mandate", "mode", "review", "since", "until"])?;
    let filter = Filter {
        agent: parameter("agent", agent, AgentId::parse)?,
        verdict: parameter("verdict", verdict, Verdict::parse)?,
        mandate: parameter("mandate", mandate, MandateId::parse)?,
        mode: parameter("mode", mode, Mode::parse)?,
        review: parameter("review", review, ReviewStatus::parse)?,
        since: parameter("since", since, Timestamp::parse)?,
        until: parameter("until", until, Timestamp::parse)?,
    };
    let cursors = request.cursors();
    request.read(move |tx, call| decisions::list(tx, call, &filter, &page, &cursors)).await
}

/// Get a decision
///
/// One decision, with its token as it was signed. Under an agent's key: only that agent's decisions.
#[utoipa::path(
    get, path = "/v1/decisions/{id}", operation_id = "getDecision", tag = "Decisions",
    security(("organizationKey" = []), ("agentKey" = [])),
    params(("id" = values::DecisionId, Path, description = "The decision's id.")),
    responses((
        status = 200, description = "The decision.", body = Decision,
        example = json!(example()),
    )),
)]
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let (id, now) = (request.id.clone(), request.at());
    request.read(move |tx, call| decisions::get(tx, call, &id, now)).await
}

/// A decision: the claims of its token, and what is kept beside them.
#[derive(Debug, ToSchema)]
pub struct Decision {
    /// The issuer: the address under which the key set is published.
    pub iss: String,
    pub jti: values::DecisionId,
    /// When it was made.
    pub iat: values::Seconds,
    /// When its token expires: `iat` + 300.
    pub exp: values::Seconds,
    pub verdict: values::Verdict,
    /// The mandate that governed. Absent on `deny_no_mandate`.
    #[schema(required = false)]
    pub mandate: values::MandateId,
    pub policy_version: values::PolicyVersion,
    pub nonce: values::Nonce,
    pub request: Request,
    /// Its number among its agent's decisions: 1, 2, 3 and so on, without a gap.
    #[schema(minimum = 1)]
    pub sequence: i64,
    /// When it was made, to the millisecond. `iat` is its whole second.
    pub decided_at: values::Timestamp,
    pub mode: values::Mode,
    /// Why it was denied; on denials only.
    #[schema(required = false)]
    pub reason: String,
    /// The decision whose review was approved; on approvals only.
    #[schema(required = false)]
    pub supersedes: values::DecisionId,
    /// Every denial that held, in the order of evaluation; on denials only.
    #[schema(required = false)]
    pub denials: Vec<values::Denial>,
    pub basis: Basis,
    #[schema(required = false)]
    pub review: Review,
    pub verdict_token: values::Token,
}

/// The payment that the agent asked for.
#[derive(Debug, ToSchema)]
pub struct Request {
    pub agent: values::AgentId,
    pub amount: values::Amount,
    pub currency: values::Currency,
    pub recipient: values::Recipient,
    pub category: values::Category,
}

/// What the engine looked at beside mandate and request: with these, anyone can compute the verdict again.
#[derive(Debug, ToSchema)]
pub struct Basis {
    /// What the agent had spent in the calendar month (UTC), in the request's currency.
    pub spent: values::Total,
    /// Requests of the agent in the 60 seconds before, at most 10: it means 10 or more.
    #[schema(minimum = 0, maximum = 10)]
    pub recent_requests: u32,
}

/// A person's answer that a decision waits for, or has waited for.
#[derive(Debug, ToSchema)]
pub struct Review {
    pub id: values::ReviewId,
    pub status: values::ReviewStatus,
    /// The mandate's principal.
    pub waits_for: values::Principal,
    pub expires_at: values::Timestamp,
    /// When it was resolved; absent while it is pending.
    #[schema(required = false)]
    pub resolved_at: values::Timestamp,
    /// The `sequence` of the agent's newest decision when a person denied it; on denied reviews only.
    #[schema(required = false, minimum = 0)]
    pub resolved_after: i64,
    /// The fresh decision; on approved reviews only.
    #[schema(required = false)]
    pub decision: values::DecisionId,
    /// The reason that was given when it was denied, if any.
    #[schema(required = false)]
    pub reason: String,
    /// Who approved or denied it. Agents' keys are not shown it.
    #[schema(required = false)]
    pub resolved_by: ResolvedBy,
}

/// Who approved or denied a review.
#[derive(Debug, ToSchema)]
pub struct ResolvedBy {
    /// A person, who signed it with a passkey, or an organization's API key.
    pub kind: ResolverKind,
    /// The person's id, `per_…`, or the id of the key as the operator's `key list` shows it, `key_…`.
    pub id: String,
    /// The person's name, or the key's label, when it was resolved.
    #[schema(required = false)]
    pub name: String,
}

/// What has resolved a review.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum ResolverKind {
    Person,
    Key,
}

type DecisionPage = Page<Decision>;

pub(super) fn example() -> Value {
    json!({
        "iss": "https://verdicts.example.com",
        "jti": "dec_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "iat": 1_781_524_800,
        "exp": 1_781_525_100,
        "verdict": "allow",
        "mandate": "mnd_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "policy_version": "pol_2026-06-01.1",
        "nonce": "n_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "request": {
            "agent": "agt_buyer",
            "amount": 40.5,
            "currency": "USD",
            "recipient": "vendor:acme",
            "category": "software",
        },
        "sequence": 1,
        "decided_at": "2026-06-15T12:00:00.000Z",
        "mode": "enforce",
        "basis": {"spent": 0, "recent_requests": 0},
        "verdict_token": TOKEN,
    })
}
