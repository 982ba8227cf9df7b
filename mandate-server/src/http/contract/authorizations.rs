//! What is said of `/v1/authorizations`.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Operation;
use super::decisions::Review;
use super::values::{Amount, Category, Currency, DecisionId, Mode, Recipient, TOKEN, Token, Verdict};

/// What an agent asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAuthorization {
    pub amount: Amount,
    pub currency: Currency,
    pub recipient: Recipient,
    pub category: Category,
}

/// The answer to a request to spend.
#[derive(Debug, ToSchema)]
pub struct Authorization {
    pub decision: DecisionId,
    pub verdict: Verdict,
    pub mode: Mode,
    /// The verdict, signed; on `allow` only. It holds for five minutes.
    #[schema(required = false)]
    pub verdict_token: Token,
    /// Why it was denied; on denials only.
    #[schema(required = false)]
    pub reason: String,
    /// What it waits for; on `review` only.
    #[schema(required = false)]
    pub review: Review,
    /// The decision whose review was approved; on approvals only.
    #[schema(required = false)]
    pub supersedes: DecisionId,
}

pub(crate) fn create(operation: Operation) -> Operation {
    operation
        .named("createAuthorization", "Authorizations", "Ask to spend")
        .told(
            "Decides on a request to spend, under the mandate that governs the agent. A denial is 201 too: it is an answer, not \
             an error. The verdict is recorded and signed.",
        )
        .takes::<NewAuthorization>(
            json!({"amount": 40.5, "currency": "USD", "recipient": "vendor:acme", "category": "software"}),
        )
        .gives::<Authorization>(201, "The verdict.", example())
        .leads("getDecision", "/decision", "The decision on record.")
        .leads("approveReview", "/review/id", "Approving it, when the verdict is `review`.")
        .leads("denyReview", "/review/id", "Denying it, when the verdict is `review`.")
}

pub(super) fn example() -> Value {
    json!({
        "decision": "dec_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "verdict": "allow",
        "mode": "enforce",
        "verdict_token": TOKEN,
    })
}
