//! What is said of `/v1/reviews/{id}/approve` and `/deny`.

use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::authorizations::{self, Authorization};
use super::decisions::{self, Decision};
use super::values::ReviewId;
use super::{Operation, with};

const TAG: &str = "Reviews";

/// Why a review is denied.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Denying {
    /// What the person says.
    #[schema(required = false, max_length = 500)]
    pub reason: String,
}

pub(crate) fn approve(operation: Operation) -> Operation {
    let supersedes = json!({"supersedes": "dec_01jxs6kx1v5n2m8p0c6t3h9d4e"});
    let approved = with(authorizations::example(), supersedes);
    operation
        .named("approveReview", TAG, "Approve a review")
        .told(
            "Evaluates the request again, now, with velocity and review threshold waived. The fresh decision has its own nonce \
             and expiry, and can be a denial. Exactly one resolution wins; any other is 400 and names the status.",
        )
        .id::<ReviewId>("The review's id.")
        .gives::<Authorization>(201, "The fresh decision's verdict.", approved)
        .leads("getDecision", "/decision", "The fresh decision.")
}

pub(crate) fn deny(operation: Operation) -> Operation {
    let review = json!({
        "id": "rev_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "status": "denied",
        "waits_for": "role:head-of-it",
        "expires_at": "2026-06-16T12:00:00.000Z",
        "resolved_at": "2026-06-15T13:00:00.000Z",
        "reason": "not this quarter",
    });
    let denied = with(decisions::example(), json!({"verdict": "review", "review": review}));
    operation
        .named("denyReview", TAG, "Deny a review")
        .told("Ends the review. Exactly one resolution wins; any other is 400 and names the status.")
        .id::<ReviewId>("The review's id.")
        .may_take::<Denying>(json!({"reason": "not this quarter"}))
        .gives::<Decision>(200, "The decision, its review denied.", denied)
        .leads("getDecision", "/jti", "The decision.")
}
