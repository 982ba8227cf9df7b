//! What is said of `/v1/decisions`.

use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Operation;
use super::values::{
    AgentId, Amount, Category, Currency, DecisionId, Denial, MandateId, Mode, Nonce, PolicyVersion,
    Principal, Recipient, ReviewId, ReviewStatus, Seconds, TOKEN, Timestamp, Token, Total, Verdict,
};

const TAG: &str = "Decisions";

/// A decision: the claims of its token, and what is kept beside them.
#[derive(Debug, ToSchema)]
pub struct Decision {
    /// Who signed it: the address under which the key set is published.
    pub iss: String,
    pub jti: DecisionId,
    /// When it was made.
    pub iat: Seconds,
    /// When its token ends to hold: `iat` + 300.
    pub exp: Seconds,
    pub verdict: Verdict,
    /// The mandate that governed. Absent on `deny_no_mandate`.
    #[schema(required = false)]
    pub mandate: MandateId,
    pub policy_version: PolicyVersion,
    pub nonce: Nonce,
    pub request: Request,
    pub mode: Mode,
    /// Why it was denied; on denials only.
    #[schema(required = false)]
    pub reason: String,
    /// The decision whose review was approved; on approvals only.
    #[schema(required = false)]
    pub supersedes: DecisionId,
    /// Every denial that held, in the order of evaluation; on denials only.
    #[schema(required = false)]
    pub denials: Vec<Denial>,
    pub basis: Basis,
    #[schema(required = false)]
    pub review: Review,
    pub verdict_token: Token,
}

/// What was asked for.
#[derive(Debug, ToSchema)]
pub struct Request {
    pub agent: AgentId,
    pub amount: Amount,
    pub currency: Currency,
    pub recipient: Recipient,
    pub category: Category,
}

/// What the engine looked at beside mandate and request: with these, anyone can compute the verdict again.
#[derive(Debug, ToSchema)]
pub struct Basis {
    /// What the agent had spent in the calendar month (UTC), in the request's currency.
    pub spent: Total,
    /// Requests of the agent in the 60 seconds before, 10 standing for any number from 10 on.
    #[schema(minimum = 0, maximum = 10)]
    pub recent_requests: u32,
}

/// A person's answer that a decision waits for, or has waited for.
#[derive(Debug, ToSchema)]
pub struct Review {
    pub id: ReviewId,
    pub status: ReviewStatus,
    /// The mandate's principal.
    pub waits_for: Principal,
    pub expires_at: Timestamp,
    /// When it was resolved; absent while it is pending.
    #[schema(required = false)]
    pub resolved_at: Timestamp,
    /// The fresh decision; on approved reviews only.
    #[schema(required = false)]
    pub decision: DecisionId,
    /// What was said when it was denied, if anything was.
    #[schema(required = false)]
    pub reason: String,
}

pub(crate) fn list(operation: Operation) -> Operation {
    operation
        .named("listDecisions", TAG, "List decisions")
        .told(
            "The decisions of the environment; under an agent's key, its own. A search that finds little ends early and says \
             that there is more: such a page can be empty.",
        )
        .filter::<AgentId>("agent", "Of this agent.")
        .filter::<Verdict>("verdict", "Of this verdict.")
        .filter::<MandateId>("mandate", "Under this mandate.")
        .filter::<Mode>("mode", "Made in this mode.")
        .filter::<ReviewStatus>("review", "Whose review stands so.")
        .filter::<Timestamp>("since", "Made at this instant or later.")
        .filter::<Timestamp>("until", "Made before this instant.")
        .pages::<Decision>(&example())
}

pub(crate) fn get(operation: Operation) -> Operation {
    operation
        .named("getDecision", TAG, "Get a decision")
        .told("One decision, with its token as it was signed. An agent's key reaches the agent's own.")
        .id::<DecisionId>("The decision's id.")
        .gives::<Decision>(200, "The decision.", example())
}

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
        "mode": "enforce",
        "basis": {"spent": 0, "recent_requests": 0},
        "verdict_token": TOKEN,
    })
}
