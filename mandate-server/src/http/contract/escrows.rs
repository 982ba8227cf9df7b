//! What is said of `/v1/escrows`.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::values::{
    ADDRESS, AgentId, Amount, ContractAddress, Currency, DecisionId, EscrowId, EscrowState, Recipient,
    SettlementStatus, Timestamp,
};
use super::{Operation, with};

const TAG: &str = "Escrows";

/// An escrow to be opened.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEscrow {
    /// An `allow` decision that has no escrow. Amount, currency, buyer and seller are the decision's.
    pub decision: DecisionId,
    /// Who is to be asked in a dispute. It is stored and given back.
    #[schema(required = false, min_length = 1, max_length = 200)]
    pub arbiter: String,
    /// What must be met.
    #[schema(min_length = 1, max_length = 2000)]
    pub condition: String,
    /// When the buyer may have the funds back. In the future.
    pub refund_after: Timestamp,
}

/// Where an escrow is to go.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTransition {
    /// What may follow `funded` is `delivered`, `refunded` and `disputed`; `delivered`: `released` and `disputed`;
    /// `disputed`: `released` and `refunded`.
    pub to: EscrowState,
    /// What is said with it, to everybody who holds the address.
    #[schema(required = false, min_length = 1, max_length = 500)]
    pub note: String,
}

/// An escrow.
#[derive(Debug, ToSchema)]
pub struct Escrow {
    pub escrow: EscrowId,
    pub contract: ContractAddress,
    pub state: EscrowState,
    /// Whether it was ever disputed.
    pub disputed: bool,
    pub decision: DecisionId,
    pub amount: Amount,
    pub currency: Currency,
    pub buyer: AgentId,
    pub seller: Recipient,
    #[schema(required = false)]
    pub arbiter: String,
    pub condition: String,
    pub refund_after: Timestamp,
    /// Every state, oldest first.
    #[schema(min_items = 1)]
    pub history: Vec<EscrowEntry>,
    pub created_at: Timestamp,
}

/// A state that an escrow has entered.
#[derive(Debug, ToSchema)]
pub struct EscrowEntry {
    pub state: EscrowState,
    pub disputed: bool,
    pub at: Timestamp,
    #[schema(required = false)]
    pub note: String,
    /// Whether the funds have moved, in the states that move them.
    #[schema(required = false)]
    pub settlement: SettlementStatus,
}

pub(crate) fn create(operation: Operation) -> Operation {
    operation
        .named("createEscrow", TAG, "Open an escrow")
        .told("Opens an escrow, `funded`, from an `allow` decision. A decision has at most one.")
        .takes::<NewEscrow>(json!({
            "decision": "dec_01jxs6m2t0f3k9v8q4r7w5x1yz",
            "condition": "goods received",
            "refund_after": "2027-06-30T00:00:00Z",
        }))
        .gives::<Escrow>(201, "The escrow.", example())
        .leads("getEscrow", "/escrow", "The escrow.")
        .leads("transitionEscrow", "/escrow", "Moving it on.")
}

pub(crate) fn list(operation: Operation) -> Operation {
    operation
        .named("listEscrows", TAG, "List escrows")
        .told("The escrows of the environment; under an agent's key, those that it buys with.")
        .pages::<Escrow>(&example())
}

pub(crate) fn get(operation: Operation) -> Operation {
    operation
        .named("getEscrow", TAG, "Get an escrow")
        .told("One escrow, with its history. An agent's key reaches those that the agent buys with.")
        .id::<EscrowId>("The escrow's id.")
        .gives::<Escrow>(200, "The escrow.", example())
}

pub(crate) fn transition(operation: Operation) -> Operation {
    let delivered = json!({"state": "delivered", "disputed": false, "at": "2026-06-20T09:00:00.000Z", "note": "signed for"});
    let history = json!([funded(), delivered]);
    operation
        .named("transitionEscrow", TAG, "Move an escrow on")
        .told("Moves an escrow on. A state that cannot follow is 400, and the message names the one that it stands in.")
        .id::<EscrowId>("The escrow's id.")
        .takes::<NewTransition>(json!({"to": "delivered", "note": "signed for"}))
        .gives::<Escrow>(200, "The escrow.", with(example(), json!({"state": "delivered", "history": history})))
        .leads("getEscrow", "/escrow", "The escrow.")
}

fn funded() -> Value {
    json!({"state": "funded", "disputed": false, "at": "2026-06-15T12:00:00.000Z", "settlement": "settled"})
}

fn example() -> Value {
    json!({
        "escrow": "esc_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "contract": ADDRESS,
        "state": "funded",
        "disputed": false,
        "decision": "dec_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "amount": 40.5,
        "currency": "USD",
        "buyer": "agt_buyer",
        "seller": "vendor:acme",
        "condition": "goods received",
        "refund_after": "2027-06-30T00:00:00.000Z",
        "history": [funded()],
        "created_at": "2026-06-15T12:00:00.000Z",
    })
}
