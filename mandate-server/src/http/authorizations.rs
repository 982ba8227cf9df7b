//! `/v1/authorizations`.

use mandate_core::Request;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::decisions::Review;
use super::extract::Post;
use super::openapi::values::{self, TOKEN};
use super::respond::Failure;
use crate::error::Fault;
use crate::model::call::Answer;
use crate::store;

/// Ask to spend
///
/// Decides on a request to spend, under the mandate that governs the agent. A denial is 201 too: it is an answer,
/// not an error. The verdict is recorded and signed.
#[utoipa::path(
    post, path = "/v1/authorizations", operation_id = "createAuthorization", tag = "Authorizations",
    security(("agentKey" = [])),
    request_body(
        content = NewAuthorization,
        example = json!({"amount": 40.5, "currency": "USD", "recipient": "vendor:acme", "category": "software"}),
    ),
    responses((
        status = 201, description = "The verdict.", body = Authorization,
        links(
            ("getDecision" = (
                operation_id = "getDecision", parameters(("id" = "$response.body#/decision")),
                description = "The decision on record.",
            )),
            ("approveReview" = (
                operation_id = "approveReview", parameters(("id" = "$response.body#/review/id")),
                description = "Approving it, when the verdict is `review`.",
            )),
            ("denyReview" = (
                operation_id = "denyReview", parameters(("id" = "$response.body#/review/id")),
                description = "Denying it, when the verdict is `review`.",
            )),
        ),
        example = json!(example()),
    )),
)]
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let agent =
        post.call.caller.agent.clone().ok_or_else(|| Fault::new("an authorization without an agent"))?;
    let request = post.parse(|body| Request::read(agent, body));
    let (traced, id) = (post.log.traced.clone(), post.call.request_id);
    let answer = post.api.store.decide(store::Authorization { call: post.call, request, traced }).await?;
    let answer = answer.for_request(id)?;
    post.log.decided(&answer);
    Ok(answer)
}

/// What an agent asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAuthorization {
    pub amount: values::Amount,
    pub currency: values::Currency,
    pub recipient: values::Recipient,
    pub category: values::Category,
}

/// The answer to a request to spend.
#[derive(Debug, ToSchema)]
pub struct Authorization {
    pub decision: values::DecisionId,
    pub verdict: values::Verdict,
    pub mode: values::Mode,
    /// The verdict, signed; on `allow` only. It holds for five minutes.
    #[schema(required = false)]
    pub verdict_token: values::Token,
    /// Why it was denied; on denials only.
    #[schema(required = false)]
    pub reason: String,
    /// What it waits for; on `review` only.
    #[schema(required = false)]
    pub review: Review,
    /// The decision whose review was approved; on approvals only.
    #[schema(required = false)]
    pub supersedes: values::DecisionId,
}

pub(super) fn example() -> Value {
    json!({
        "decision": "dec_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "verdict": "allow",
        "mode": "enforce",
        "verdict_token": TOKEN,
    })
}
