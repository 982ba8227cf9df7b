//! `/v1/escrows`.

use std::sync::Arc;

use mandate_core::json::{Field, Object};
use mandate_core::{DecisionId, EscrowId, EscrowState, Invalid, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::extract::{Admitted, Post, parameter};
use super::free_text::free_text;
use super::openapi::page::{Page, PageParameters};
use super::openapi::values::{self, ADDRESS, with};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::escrows::{self, Address, MAX_ARBITER, MAX_CONDITION, MAX_NOTE};

/// Open an escrow
///
/// Opens an escrow from an `allow` decision, before its token has expired and while its mandate is not revoked. A decision
/// has at most one. It is `opening` until the provider of settlement has locked the funds, then `funded`; if the provider
/// refuses, it is `failed`, which is final. In a sandbox, and where no provider is configured, it is `funded` at once.
#[utoipa::path(
    post, path = "/v1/escrows", operation_id = "createEscrow", tag = "Escrows",
    security(("organizationKey" = [])),
    request_body(content = NewEscrow, example = json!(asked())),
    responses((
        status = 201, description = "The escrow.", body = Escrow,
        links(
            ("getEscrow" = (
                operation_id = "getEscrow", parameters(("id" = "$response.body#/escrow")),
                description = "The escrow.",
            )),
            ("transitionEscrow" = (
                operation_id = "transitionEscrow", parameters(("id" = "$response.body#/escrow")),
                description = "The transition of the escrow to another state.",
            )),
        ),
        example = json!(example()),
    )),
)]
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let id = EscrowId::from_bytes(post.new_id());
    let moments = Arc::clone(&post.api.moments);
    let api = Arc::clone(&post.api);
    let settlement = api.settlement.recorded(post.call.caller.environment.kind);
    let mut contract = [0; 32];
    post.api.entropy.fill(&mut contract);
    let command = post.parse(|mut body| {
        let command = escrows::Create {
            decision: read(&body.require("decision")?, DecisionId::parse)?,
            arbiter: body.take("arbiter").map(|field| free_text(&field, 1..=MAX_ARBITER)).transpose()?,
            condition: free_text(&body.require("condition")?, 1..=MAX_CONDITION)?,
            refund_after: read(&body.require("refund_after")?, Timestamp::parse)?,
            id,
            contract: Address(contract),
            moments,
            settlement,
        };
        body.finish().map(|()| command)
    });
    let answer = post.write(command, escrows::create).await;
    api.settlement.wake();
    answer
}

/// List escrows
///
/// The escrows of the environment. Under an agent's key: only those in which the agent is the buyer.
#[utoipa::path(
    get, path = "/v1/escrows", operation_id = "listEscrows", tag = "Escrows",
    security(("organizationKey" = []), ("agentKey" = [])),
    params(
        PageParameters,
        ("state" = values::EscrowState, Query, description = "Only escrows in this state."),
    ),
    responses((
        status = 200, description = "A page, newest first.", body = EscrowPage,
        example = json!({"data": [example()], "has_more": false}),
    )),
)]
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, [state]) = request.filtered(["state"])?;
    let (state, cursors) = (parameter("state", state, EscrowState::parse)?, request.cursors());
    request.read(move |tx, call| escrows::list(tx, call, state, &page, &cursors)).await
}

/// Get an escrow
///
/// One escrow, with its history. Under an agent's key: only an escrow in which the agent is the buyer.
#[utoipa::path(
    get, path = "/v1/escrows/{id}", operation_id = "getEscrow", tag = "Escrows",
    security(("organizationKey" = []), ("agentKey" = [])),
    params(("id" = values::EscrowId, Path, description = "The escrow's id.")),
    responses((
        status = 200, description = "The escrow.", body = Escrow,
        example = json!(example()),
    )),
)]
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let id = request.id.clone();
    request.read(move |tx, call| escrows::get(tx, call, &id)).await
}

/// Change an escrow's state
///
/// Moves an escrow to another state. A state that cannot follow is 400, and the message names the current state.
/// `released` and `refunded` move funds: the answer has the state before it, and in `settlement` the instruction to the
/// provider of settlement. State, history, event and contract follow the provider's answer. A refusal leaves the state, and
/// either can be asked for again. While an instruction is pending, every transition is 400 and names it, except a dispute:
/// `disputed` is raised and `escrow.disputed` sent at once, and the state becomes `disputed` only if the provider refuses.
#[utoipa::path(
    post, path = "/v1/escrows/{id}/transitions", operation_id = "transitionEscrow", tag = "Escrows",
    security(("organizationKey" = [])),
    params(("id" = values::EscrowId, Path, description = "The escrow's id.")),
    request_body(content = NewTransition, example = json!({"to": "delivered", "note": "signed for"})),
    responses((
        status = 200, description = "The escrow.", body = Escrow,
        links(
            ("getEscrow" = (
                operation_id = "getEscrow", parameters(("id" = "$response.body#/escrow")),
                description = "The escrow.",
            )),
        ),
        example = json!(delivered()),
    )),
)]
pub(super) async fn transition(post: Post) -> Result<Answer, Failure> {
    let api = Arc::clone(&post.api);
    let settlement = api.settlement.recorded(post.call.caller.environment.kind);
    let command = post.parse(transition_body).map(|(to, note)| escrows::Transition {
        id: post.id.clone(),
        to,
        note,
        settlement,
        moments: Arc::clone(&post.api.moments),
    });
    let answer = post.write(command, escrows::transition).await;
    api.settlement.wake();
    answer
}

fn transition_body(mut body: Object<'_>) -> Result<(EscrowState, Option<String>), Invalid> {
    let to = read(&body.require("to")?, EscrowState::parse)?;
    let note = body.take("note").map(|field| free_text(&field, 1..=MAX_NOTE)).transpose()?;
    body.finish().map(|()| (to, note))
}

/// Applies `parse` to a text. A refusal names the field.
fn read<T>(field: &Field<'_>, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> Result<T, Invalid> {
    parse(&field.string()?).map_err(|e| e.at(field.path()))
}

/// An escrow to be opened.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEscrow {
    /// An `allow` decision that has no escrow. Amount, currency, buyer and seller are the decision's.
    pub decision: values::DecisionId,
    #[schema(required = false)]
    pub arbiter: values::Arbiter,
    pub condition: values::Condition,
    /// The instant from which the buyer may have the funds back. It must lie in the future.
    pub refund_after: values::Timestamp,
}

/// A transition of an escrow.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTransition {
    /// The new state. `funded` can become `delivered`, `refunded` or `disputed`; `delivered` can become `released` or
    /// `disputed`; `disputed` can become `released` or `refunded`. `opening` becomes `funded` or `failed` by the provider's
    /// answer, and by no transition.
    pub to: values::EscrowState,
    #[schema(required = false)]
    pub note: values::Note,
}

/// An escrow.
#[derive(Debug, ToSchema)]
pub struct Escrow {
    pub escrow: values::EscrowId,
    pub contract: values::ContractAddress,
    pub state: values::EscrowState,
    /// Whether it was ever disputed.
    pub disputed: bool,
    pub decision: values::DecisionId,
    pub amount: values::Amount,
    pub currency: values::Currency,
    pub buyer: values::AgentId,
    pub seller: values::Recipient,
    #[schema(required = false)]
    pub arbiter: values::Arbiter,
    pub condition: values::Condition,
    pub refund_after: values::Timestamp,
    /// The newest instruction to move its funds.
    pub settlement: Settlement,
    /// Every state, oldest first. A dispute that was raised while an instruction was pending repeats the state.
    #[schema(min_items = 1)]
    pub history: Vec<EscrowEntry>,
    pub created_at: values::Timestamp,
}

/// A state that an escrow has entered.
#[derive(Debug, ToSchema)]
pub struct EscrowEntry {
    pub state: values::EscrowState,
    pub disputed: bool,
    pub at: values::Timestamp,
    #[schema(required = false)]
    pub note: values::Note,
}

/// An instruction to move an escrow's funds.
#[derive(Debug, ToSchema)]
pub struct Settlement {
    pub instruction: values::InstructionId,
    pub action: values::SettlementAction,
    pub status: values::SettlementStatus,
    /// Why it was refused, in the provider's words. Present if the provider gave a reason.
    #[schema(required = false)]
    pub reason: values::RefusalReason,
}

type EscrowPage = Page<Escrow>;

fn funded() -> Value {
    json!({"state": "funded", "disputed": false, "at": "2026-06-15T12:00:00.000Z"})
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
        "settlement": {
            "instruction": "esc_01jxs6m2t0f3k9v8q4r7w5x1yz.lock.1",
            "action": "lock",
            "status": "settled",
        },
        "history": [funded()],
        "created_at": "2026-06-15T12:00:00.000Z",
    })
}

fn asked() -> Value {
    json!({
        "decision": "dec_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "condition": "goods received",
        "refund_after": "2027-06-30T00:00:00Z",
    })
}

fn delivered() -> Value {
    let delivered = json!({
        "state": "delivered", "disputed": false, "at": "2026-06-20T09:00:00.000Z", "note": "signed for",
    });
    with(example(), json!({"state": "delivered", "history": [funded(), delivered]}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_and_counted_in_characters() {
        let read = |note: &str| {
            let body = format!(r#"{{"to":"disputed","note":"{note}"}}"#);
            Object::parse(body.as_bytes()).and_then(transition_body).map_err(|e| e.to_string())
        };
        assert!(read(&"ü".repeat(MAX_NOTE)).is_ok());
        for note in ["", &"ü".repeat(MAX_NOTE + 1)] {
            assert_eq!(read(note), Err("note must be 1 to 500 characters long".to_owned()));
        }
    }
}
