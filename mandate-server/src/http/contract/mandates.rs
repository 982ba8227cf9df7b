//! What is said of `/v1/mandates`.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::values::{
    AgentId, Amount, AmountOrZero, Category, Currency, Day, MandateId, MandateStatus, Principal, Timestamp,
};
use super::{Operation, with};

const TAG: &str = "Mandates";

/// A mandate to be written.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMandate {
    pub principal: Principal,
    /// The agent, which must be registered in the environment.
    pub agent: AgentId,
    pub limits: Limits,
    /// What may be bought, without duplicates.
    #[schema(value_type = HashSet<Category>, min_items = 1, max_items = 64)]
    pub categories: Vec<Category>,
    /// Amounts above it wait for a person. Absent: none does. Not above `limits.per_transaction`.
    #[schema(required = false)]
    pub review_above: AmountOrZero,
    /// The last day on which the mandate holds. Not in the past.
    pub expires: Day,
    #[schema(required = false)]
    pub escrow: EscrowTerms,
}

/// How much may be spent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// What one request may ask for at most.
    pub per_transaction: Amount,
    /// What may be spent in a calendar month, UTC. Absent: no such limit.
    #[schema(required = false)]
    pub per_month: Amount,
    pub currency: Currency,
}

/// Kept and given back; it changes no verdict.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EscrowTerms {
    pub required_above: AmountOrZero,
}

/// A mandate.
#[derive(Debug, ToSchema)]
pub struct Mandate {
    pub id: MandateId,
    pub principal: Principal,
    pub agent: AgentId,
    pub limits: Limits,
    #[schema(value_type = HashSet<Category>, min_items = 1, max_items = 64)]
    pub categories: Vec<Category>,
    #[schema(required = false)]
    pub review_above: AmountOrZero,
    pub expires: Day,
    #[schema(required = false)]
    pub escrow: EscrowTerms,
    pub status: MandateStatus,
    pub created_at: Timestamp,
    /// When it was revoked, if it was.
    #[schema(required = false)]
    pub revoked_at: Timestamp,
    /// The mandate that governs the agent instead, if there is one.
    #[schema(required = false)]
    pub replaced_by: MandateId,
}

pub(crate) fn create(operation: Operation) -> Operation {
    operation
        .named("createMandate", TAG, "Write a mandate")
        .told("Writes a mandate. From the next decision on it governs its agent; the one that governed becomes `replaced`.")
        .takes::<NewMandate>(terms())
        .gives::<Mandate>(201, "The mandate.", example())
        .leads("getMandate", "/id", "The mandate.")
        .leads("revokeMandate", "/id", "Revoking it.")
}

pub(crate) fn list(operation: Operation) -> Operation {
    operation
        .named("listMandates", TAG, "List mandates")
        .told("The mandates of the environment; under an agent's key, its own.")
        .pages::<Mandate>(&example())
}

pub(crate) fn get(operation: Operation) -> Operation {
    operation
        .named("getMandate", TAG, "Get a mandate")
        .told("One mandate. An agent's key reaches the agent's own. DELETE is not supported on this path: it is 400.")
        .id::<MandateId>("The mandate's id.")
        .gives::<Mandate>(200, "The mandate.", example())
}

pub(crate) fn revoke(operation: Operation) -> Operation {
    let revoked = json!({"status": "revoked", "revoked_at": "2026-06-16T08:30:00.000Z"});
    operation
        .named("revokeMandate", TAG, "Revoke a mandate")
        .told(
            "Revokes the mandate that governs its agent: the agent's next request is denied with `deny_revoked`. Revoking it \
             again changes nothing. A mandate that was replaced is 400, and the message names the one that governs.",
        )
        .id::<MandateId>("The mandate's id.")
        .gives::<Mandate>(200, "The mandate, revoked.", with(example(), revoked))
        .leads("getMandate", "/id", "The mandate.")
}

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
    });
    with(terms(), mandate)
}
