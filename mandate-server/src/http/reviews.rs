//! `/v1/reviews/{id}/approve` and `/deny`.

use std::sync::Arc;

use mandate_core::Invalid;
use mandate_core::json::Object;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::authorizations::{self, Authorization};
use super::decisions::{self, Decision};
use super::extract::Post;
use super::free_text::free_text;
use super::openapi::values::{self, with};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::reviews::{self, MAX_REASON};

/// Approve a review
///
/// Evaluates the request again, now, with velocity and review threshold waived. The fresh decision has its own
/// nonce and expiry, and can be a denial. Exactly one resolution wins; any other is 400 and names the status.
#[utoipa::path(
    post, path = "/v1/reviews/{id}/approve", operation_id = "approveReview", tag = "Reviews",
    security(("organizationKey" = [])),
    params(("id" = values::ReviewId, Path, description = "The review's id.")),
    responses((
        status = 201, description = "The fresh decision's verdict.", body = Authorization,
        links(
            ("getDecision" = (
                operation_id = "getDecision", parameters(("id" = "$response.body#/decision")),
                description = "The fresh decision.",
            )),
        ),
        example = json!(approved()),
    )),
)]
pub(super) async fn approve(post: Post) -> Result<Answer, Failure> {
    let engine = Arc::clone(&post.api.engine);
    let command = post.no_body().map(|()| reviews::Approve { id: post.id.clone(), engine });
    post.write(command, reviews::approve).await
}

/// Deny a review
///
/// Ends the review. Exactly one resolution wins; any other is 400 and names the status.
#[utoipa::path(
    post, path = "/v1/reviews/{id}/deny", operation_id = "denyReview", tag = "Reviews",
    security(("organizationKey" = [])),
    params(("id" = values::ReviewId, Path, description = "The review's id.")),
    request_body(content = Denying, example = json!({"reason": "not this quarter"})),
    responses((
        status = 200, description = "The decision, its review denied.", body = Decision,
        links(
            ("getDecision" = (
                operation_id = "getDecision", parameters(("id" = "$response.body#/jti")),
                description = "The decision.",
            )),
        ),
        example = json!(denied()),
    )),
)]
pub(super) async fn deny(post: Post) -> Result<Answer, Failure> {
    let reason = post.parse_optional(reason);
    let moments = Arc::clone(&post.api.moments);
    let command = reason.map(|reason| reviews::Deny { id: post.id.clone(), moments, reason });
    post.write(command, reviews::deny).await
}

fn reason(mut body: Object<'_>) -> Result<Option<String>, Invalid> {
    let reason = body.take("reason").map(|field| free_text(&field, 0..=MAX_REASON)).transpose()?;
    body.finish().map(|()| reason)
}

/// Why a review is denied.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Denying {
    #[schema(required = false)]
    pub reason: values::Reason,
}

fn approved() -> Value {
    with(authorizations::example(), json!({"supersedes": "dec_01jxs6kx1v5n2m8p0c6t3h9d4e"}))
}

fn denied() -> Value {
    let review = json!({
        "id": "rev_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "status": "denied",
        "waits_for": "role:head-of-it",
        "expires_at": "2026-06-16T12:00:00.000Z",
        "resolved_at": "2026-06-15T13:00:00.000Z",
        "reason": "not this quarter",
        "resolved_by": {"kind": "key", "id": "key_5c0f2a9b1d3e", "name": "back office"},
    });
    with(decisions::example(), json!({"verdict": "review", "review": review}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_optional_and_bounded() {
        let read = |body: &str| Object::parse(body.as_bytes()).and_then(reason).map_err(|e| e.to_string());
        let text = |length| format!(r#"{{"reason":"{}"}}"#, "ü".repeat(length));
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(&text(MAX_REASON)).unwrap().unwrap().chars().count(), MAX_REASON);
        assert_eq!(read(&text(MAX_REASON + 1)), Err("reason must be at most 500 characters long".to_owned()));
        assert_eq!(read(r#"{"reason":null}"#), Err("reason must be a string; got null".to_owned()));
        assert_eq!(read(r#"{"why":"x"}"#), Err("why is not a known field; known are reason".to_owned()));
    }
}
