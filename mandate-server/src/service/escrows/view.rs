//! An escrow as it is shown: to those who have a key, to anyone with its address, and in events.

use mandate_core::{AgentId, Amount, Currency, DecisionId, EscrowId, EscrowState, Recipient, Timestamp};
use serde::Serialize;

use super::Address;
use crate::error::Fault;
use crate::store::sql::escrows::{Entry, Escrow, SettlementStatus};

/// An escrow as the API shows it. Its public contract lacks `escrow` and `decision`.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    settlement: Option<SettlementStatus>,
}

/// The data of an event about an escrow.
#[derive(Serialize)]
pub(super) struct EventView {
    pub escrow: EscrowId,
    pub state: EscrowState,
    pub disputed: bool,
}

/// The claims of a contract's token. They have neither `verdict` nor `type`, so that it passes neither for a
/// verdict nor for an event.
#[derive(Serialize)]
pub(super) struct ContractClaims<'a> {
    pub iss: &'a str,
    pub iat: i64,
    pub contract: View<'a>,
}

impl<'a> View<'a> {
    pub(super) fn of(escrow: &'a Escrow) -> Result<Self, Fault> {
        let (first, last) = (escrow.history.first(), current_state(escrow)?);
        let history = escrow.history.iter().map(|entry| EntryView {
            state: entry.state,
            disputed: entry.disputed,
            at: entry.at,
            note: entry.note.as_deref(),
            settlement: entry.settlement,
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
            history: history.collect(),
            created_at: first.unwrap_or(last).at,
        })
    }

    pub(super) fn to_strangers(escrow: &'a Escrow) -> Result<Self, Fault> {
        Ok(Self { escrow: None, decision: None, ..Self::of(escrow)? })
    }
}

/// The state that an escrow is in: the last of its history.
pub(super) fn current_state(escrow: &Escrow) -> Result<&Entry, Fault> {
    escrow.history.last().ok_or_else(|| Fault::new("database: an escrow without a state"))
}
