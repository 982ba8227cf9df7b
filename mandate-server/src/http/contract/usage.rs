//! What is said of `/v1/usage`.

use serde_json::json;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::Operation;
use super::values::{AgentId, Amount, Currency, Month, Total};

/// The metering of a month, a page of it.
#[derive(Debug, ToSchema)]
pub struct Usage {
    pub month: Month,
    /// A row for each agent and currency that has a decision, in that order.
    #[schema(max_items = 1000)]
    pub data: Vec<UsageRow>,
    /// Whether there are more.
    pub has_more: bool,
    /// Where the next page begins. Absent when `has_more` is false.
    #[schema(required = false)]
    pub next_cursor: String,
}

/// What one agent has asked for and spent in one currency.
#[derive(Debug, ToSchema)]
pub struct UsageRow {
    pub agent: AgentId,
    pub currency: Currency,
    /// Requests that were decided on.
    #[schema(minimum = 0)]
    pub requests: i64,
    pub verdicts: VerdictCounts,
    /// What was allowed, approvals included.
    pub spent: Total,
    /// The cap of the mandate in force, in the present month.
    #[schema(required = false)]
    pub per_month: Amount,
    /// What remains of it.
    #[schema(required = false)]
    pub remaining: Total,
}

/// How often each verdict was given.
#[derive(Debug)]
pub struct VerdictCounts;

impl PartialSchema for VerdictCounts {
    fn schema() -> RefOr<Schema> {
        let count = || ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
        let counts =
            ObjectBuilder::new().description(Some("How often each verdict was given, approvals included."));
        let verdicts = mandate_core::Verdict::ALL.map(mandate_core::Verdict::as_str);
        verdicts.iter().fold(counts, |counts, name| counts.property(*name, count()).required(*name)).into()
    }
}

impl ToSchema for VerdictCounts {}

pub(crate) fn list(operation: Operation) -> Operation {
    let verdicts = json!({
        "allow": 12, "review": 1, "deny_no_mandate": 0, "deny_revoked": 0, "deny_expired": 0, "deny_limit": 2,
        "deny_category": 0, "deny_velocity": 0,
    });
    let row = json!({
        "agent": "agt_buyer", "currency": "USD", "requests": 15, "verdicts": verdicts, "spent": 980.5, "per_month": 2000,
        "remaining": 1019.5,
    });
    operation
        .named("getUsage", "Usage", "Get the metering of a month")
        .told("What was asked for, decided and spent in a calendar month (UTC); under an agent's key, the agent's own.")
        .filter::<Month>("month", "The month. Absent: the present one.")
        .filter::<AgentId>("agent", "Of this agent.")
        .shares("Cursor")
        .gives::<Usage>(200, "The metering.", json!({"month": "2026-06", "data": [row], "has_more": false}))
}
