//! `/v1/usage`.

use mandate_core::{AgentId, Month};
use serde_json::{Value, json};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::extract::{Admitted, DEFAULT_LIMIT, page_size, parameter};
use super::openapi::values;
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::usage;

/// Get the metering of a month
///
/// Requests, verdicts and spending in a calendar month (UTC). Under an agent's key: only that agent's.
#[utoipa::path(
    get, path = "/v1/usage", operation_id = "getUsage", tag = "Usage",
    security(("organizationKey" = []), ("agentKey" = [])),
    params(
        ("month" = values::Month, Query, description = "The calendar month (UTC). Without it, the current month."),
        ("agent" = values::AgentId, Query, description = "Only this agent's metering."),
        ("limit" = u32, Query),
        ("cursor" = String, Query),
    ),
    responses((
        status = 200, description = "The metering.", body = Usage,
        example = json!(example()),
    )),
)]
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    let [month, agent, limit, cursor] = request.parameters(["month", "agent", "limit", "cursor"])?;
    let query = usage::Query {
        month: parameter("month", month, Month::parse)?,
        agent: parameter("agent", agent, AgentId::parse)?,
        limit: limit.as_deref().map_or(Ok(DEFAULT_LIMIT), page_size)?,
        cursor,
    };
    let cursors = request.cursors();
    request.read(move |tx, call| usage::list(tx, call, &query, &cursors)).await
}

/// The metering of a month, a page of it.
#[derive(Debug, ToSchema)]
pub struct Usage {
    pub month: values::Month,
    /// A row for each agent and currency that has a decision, in that order.
    #[schema(max_items = 100)]
    pub data: Vec<UsageRow>,
    /// Whether there are more.
    pub has_more: bool,
    /// Where the next page begins. Absent when `has_more` is false.
    #[schema(required = false, min_length = 1)]
    pub next_cursor: String,
}

/// The requests and the spending of one agent in one currency.
#[derive(Debug, ToSchema)]
pub struct UsageRow {
    pub agent: values::AgentId,
    pub currency: values::Currency,
    /// Requests that were decided on.
    #[schema(minimum = 0)]
    pub requests: i64,
    pub verdicts: VerdictCounts,
    /// The sum of the allowed amounts, approvals included.
    pub spent: values::Total,
    /// The monthly limit of the mandate in force. Present for the current month only.
    #[schema(required = false)]
    pub per_month: values::Amount,
    /// What remains of that limit.
    #[schema(required = false)]
    pub remaining: values::Total,
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

fn example() -> Value {
    let verdicts = json!({
        "allow": 12, "review": 1, "deny_no_mandate": 0, "deny_revoked": 0, "deny_expired": 0, "deny_limit": 2,
        "deny_category": 0, "deny_velocity": 0,
    });
    let row = json!({
        "agent": "agt_buyer", "currency": "USD", "requests": 15, "verdicts": verdicts, "spent": 980.5, "per_month": 2000,
        "remaining": 1019.5,
    });
    json!({"month": "2026-06", "data": [row], "has_more": false})
}
