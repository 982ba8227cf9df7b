//! An escrow as it is shown: to those who have a key, to anyone with its address, and in events.

use mandate_core::{AgentId, Amount, Currency, DecisionId, EscrowId, EscrowState, Recipient, Timestamp};
use serde::Serialize;

use super::Address;
use crate::error::Fault;
use crate::store::sql::escrows::{Entry, Escrow};
use crate::store::sql::instructions::{Action, Instruction, SettlementStatus};

/// An escrow as the API shows it. Its public contract lacks `escrow`, `decision` and `settlement`.
#[derive(Serialize)]
pub(super) struct View<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    escrow: Option<EscrowId>,
    contract: Address,
    state: EscrowState,
    disputed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DecisionId>,
    amount: Amount,
    currency: &'a Currency,
    buyer: &'a AgentId,
    seller: &'a Recipient,
    #[serde(skip_serializing_if = "Option::is_none")]
    arbiter: Option<&'a str>,
    condition: &'a str,
    refund_after: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    settlement: Option<SettlementView<'a>>,
    history: Vec<EntryView<'a>>,
    created_at: Timestamp,
}

#[derive(Serialize)]
struct EntryView<'a> {
    state: EscrowState,
    disputed: bool,
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// The newest instruction to move an escrow's funds.
#[derive(Serialize)]
struct SettlementView<'a> {
    instruction: String,
    action: Action,
    status: SettlementStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// The data of an event about an escrow. That of a refusal has the instruction, and the reason if there is one.
#[derive(Serialize)]
pub(super) struct EscrowEvent {
    pub(super) escrow: EscrowId,
    pub(super) state: EscrowState,
    pub(super) disputed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instruction: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// The claims of a contract's token. They have neither `verdict` nor `type`, so that it passes neither for a
/// verdict nor for an event.
#[derive(Serialize)]
pub(super) struct ContractClaims<'a> {
    pub(super) iss: &'a str,
    pub(super) iat: i64,
    pub(super) contract: View<'a>,
}

impl<'a> View<'a> {
    pub(super) fn of(escrow: &'a Escrow) -> Result<Self, Fault> {
        let (first, last) = (escrow.history.first(), current_state(escrow)?);
        let history = escrow.history.iter().map(|entry| EntryView {
            state: entry.state,
            disputed: entry.disputed,
            at: entry.at,
            note: entry.note.as_deref(),
        });
        Ok(Self {
            escrow: Some(escrow.id),
            contract: Address(escrow.contract),
            state: last.state,
            disputed: last.disputed,
            decision: Some(escrow.decision),
            amount: escrow.amount,
            currency: &escrow.currency,
            buyer: &escrow.buyer,
            seller: &escrow.seller,
            arbiter: escrow.arbiter.as_deref(),
            condition: &escrow.condition,
            refund_after: escrow.refund_after,
            settlement: escrow.instruction.as_ref().map(|newest| SettlementView::of(escrow.id, newest)),
            history: history.collect(),
            created_at: first.unwrap_or(last).at,
        })
    }

    pub(super) fn public(escrow: &'a Escrow) -> Result<Self, Fault> {
        Ok(Self { escrow: None, decision: None, settlement: None, ..Self::of(escrow)? })
    }
}

impl<'a> SettlementView<'a> {
    fn of(escrow: EscrowId, instruction: &'a Instruction) -> Self {
        Self {
            instruction: instruction.id(escrow),
            action: instruction.action,
            status: instruction.status,
            reason: instruction.reason.as_deref(),
        }
    }
}

/// The state that an escrow is in: the last of its history.
pub(super) fn current_state(escrow: &Escrow) -> Result<&Entry, Fault> {
    escrow.history.last().ok_or_else(|| Fault::corrupt("database: an escrow without a state"))
}
