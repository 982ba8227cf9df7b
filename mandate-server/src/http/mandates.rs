//! `/v1/mandates`.

use std::sync::Arc;

use mandate_core::{AgentId, MandateStatus, Terms};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::extract::{Admitted, Post, parameter};
use super::openapi::page::{Page, PageParameters};
use super::openapi::values::{self, with};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::mandates;

/// Write a mandate
///
/// Writes a mandate. From the next decision on it governs its agent; the one that governed becomes `replaced`.
#[utoipa::path(
    post, path = "/v1/mandates", operation_id = "createMandate", tag = "Mandates",
    security(("organizationKey" = [])),
    request_body(content = NewMandate, example = json!(terms())),
    responses((
        status = 201, description = "The mandate.", body = Mandate,
        links(
            ("getMandate" = (
                operation_id = "getMandate", parameters(("id" = "$response.body#/id")),
                description = "The mandate.",
            )),
            ("revokeMandate" = (
                operation_id = "revokeMandate", parameters(("id" = "$response.body#/id")),
                description = "Revoking it.",
            )),
        ),
        example = json!(example()),
    )),
)]
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let moments = Arc::clone(&post.api.moments);
    let command = post.parse(Terms::read).map(|terms| mandates::Create { terms, moments });
    post.write(command, mandates::create).await
}

/// List mandates
///
/// The mandates of the environment; under an agent's key, its own.
#[utoipa::path(
    get, path = "/v1/mandates", operation_id = "listMandates", tag = "Mandates",
    security(("organizationKey" = []), ("agentKey" = [])),
    params(
        PageParameters,
        ("agent" = values::AgentId, Query, description = "Only mandates of this agent."),
        ("status" = values::MandateStatus, Query, description = "Only mandates that have this status now."),
    ),
    responses((
        status = 200, description = "A page, newest first.", body = MandatePage,
        example = json!({"data": [example()], "has_more": false}),
    )),
)]
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, [agent, status]) = request.filtered(["agent", "status"])?;
    let filter = mandates::Filter {
        agent: parameter("agent", agent, AgentId::parse)?,
        status: parameter("status", status, MandateStatus::parse)?,
    };
    let cursors = request.cursors();
    request.read(move |tx, call| mandates::list(tx, call, &filter, &page, &cursors)).await
}

/// Get a mandate
///
/// One mandate. An agent's key reaches the agent's own. DELETE is not supported on this path: it is 400.
#[utoipa::path(
    get, path = "/v1/mandates/{id}", operation_id = "getMandate", tag = "Mandates",
    security(("organizationKey" = []), ("agentKey" = [])),
    params(("id" = values::MandateId, Path, description = "The mandate's id.")),
    responses((
        status = 200, description = "The mandate.", body = Mandate,
        example = json!(example()),
    )),
)]
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let (id, now) = (request.id.clone(), request.at());
    request.read(move |tx, call| mandates::get(tx, call, &id, now)).await
}

/// Revoke a mandate
///
/// Revokes the mandate that governs its agent: the agent's next request is denied with `deny_revoked`. Revoking it
/// again changes nothing. A mandate that was replaced is 400, and the message names the one that governs.
#[utoipa::path(
    post, path = "/v1/mandates/{id}/revoke", operation_id = "revokeMandate", tag = "Mandates",
    security(("organizationKey" = [])),
    params(("id" = values::MandateId, Path, description = "The mandate's id.")),
    responses((
        status = 200, description = "The mandate, revoked.", body = Mandate,
        links(
            ("getMandate" = (
                operation_id = "getMandate", parameters(("id" = "$response.body#/id")),
                description = "The mandate.",
            )),
        ),
        example = json!(revoked()),
    )),
)]
pub(super) async fn revoke(post: Post) -> Result<Answer, Failure> {
    let moments = Arc::clone(&post.api.moments);
    let command = post.no_body().map(|()| mandates::Revoke { id: post.id.clone(), moments });
    post.write(command, mandates::revoke).await
}

/// A mandate to be written.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMandate {
    pub principal: values::Principal,
    /// The agent, which must be registered in the environment.
    pub agent: values::AgentId,
    pub limits: Limits,
    /// What may be bought, without duplicates.
    #[schema(value_type = HashSet<values::Category>, min_items = 1, max_items = 64)]
    pub categories: Vec<values::Category>,
    /// Amounts above it wait for a person. Absent: none does. Not above `limits.per_transaction`.
    #[schema(required = false)]
    pub review_above: values::AmountOrZero,
    /// The last day on which the mandate holds. Not in the past.
    pub expires: values::Day,
    #[schema(required = false)]
    pub escrow: EscrowTerms,
}

/// How much may be spent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// What one request may ask for at most.
    pub per_transaction: values::Amount,
    /// What may be spent in a calendar month, UTC. Absent: no such limit.
    #[schema(required = false)]
    pub per_month: values::Amount,
    pub currency: values::Currency,
}

/// Stored and returned; it changes no verdict.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EscrowTerms {
    pub required_above: values::AmountOrZero,
}

// Not `NewMandate` flattened: its `additionalProperties: false` would refuse the fields that follow.
/// A mandate.
#[derive(Debug, ToSchema)]
pub struct Mandate {
    pub id: values::MandateId,
    pub principal: values::Principal,
    pub agent: values::AgentId,
    pub limits: Limits,
    #[schema(value_type = HashSet<values::Category>, min_items = 1, max_items = 64)]
    pub categories: Vec<values::Category>,
    #[schema(required = false)]
    pub review_above: values::AmountOrZero,
    pub expires: values::Day,
    #[schema(required = false)]
    pub escrow: EscrowTerms,
    pub status: values::MandateStatus,
    pub created_at: values::Timestamp,
    /// When it was revoked, if it was.
    #[schema(required = false)]
    pub revoked_at: values::Timestamp,
    /// The mandate that governs the agent instead, if there is one.
    #[schema(required = false)]
    pub replaced_by: values::MandateId,
    /// The first of the agent's decisions that the mandate may govern, by their `sequence`.
    #[schema(minimum = 1)]
    pub governs_from: i64,
    /// The agent's last decision before the mandate was revoked, by `sequence`: from the next one on it denies. Present when it is revoked.
    #[schema(required = false, minimum = 0)]
    pub revoked_after: i64,
    /// The agent's last decision that the mandate governed, by `sequence`. One less than `governs_from` when it governed none. Present when another mandate governs since.
    #[schema(required = false, minimum = 0)]
    pub governed_until: i64,
}

type MandatePage = Page<Mandate>;

fn terms() -> Value {
    json!({
        "principal": "role:head-of-it",
        "agent": "agt_buyer",
        "limits": {"per_transaction": 500, "per_month": 2000, "currency": "USD"},
        "categories": ["software"],
        "review_above": 200,
        "expires": "2027-06-30",
    })
}

fn example() -> Value {
    let mandate = json!({
        "id": "mnd_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "status": "active",
        "created_at": "2026-06-15T12:00:00.000Z",
        "governs_from": 1,
    });
    with(terms(), mandate)
}

fn revoked() -> Value {
    with(example(), json!({"status": "revoked", "revoked_at": "2026-06-16T08:30:00.000Z"}))
}
