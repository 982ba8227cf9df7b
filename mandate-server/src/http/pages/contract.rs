//! The page of an escrow's contract.

use askama::Template;
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use mandate_core::{Amount, EscrowState};

use super::{Frame, READ_ONLY, Time, VERIFIER, asset, page};
use crate::error::Fault;
use crate::http::document::Document;
use crate::service::escrows::{Address, Escrow};

/// No place that pages lead to.
const NOWHERE: &str = "";

/// What the contract says, and the token that says it.
#[derive(Debug, Template)]
#[template(path = "contract.html")]
struct Contract<'a> {
    frame: Frame<'a>,
    issuer: &'a str,
    core: &'a str,
    script: &'a str,
    token: &'a str,
    address: Address,
    is_sandbox: bool,
    state: &'static str,
    tone: &'static str,
    meaning: &'static str,
    disputed: bool,
    amount: Amount,
    currency: &'a str,
    buyer: &'a str,
    seller: &'a str,
    arbiter: Option<&'a str>,
    condition: &'a str,
    refund_after: Time,
    history: Vec<Entry<'a>>,
}

/// A state that the escrow has been in.
#[derive(Debug)]
struct Entry<'a> {
    state: &'static str,
    is_dispute: bool,
    /// It is a later state of a deal that was disputed.
    is_later: bool,
    at: Time,
    note: Option<&'a str>,
}

/// There is no such contract.
#[derive(Debug, Template)]
#[template(path = "absent.html")]
struct Absent<'a> {
    frame: Frame<'a>,
    issuer: &'a str,
}

/// The page of an escrow, whose contract is signed in `token`.
pub(in crate::http) fn contract(issuer: &str, escrow: &Escrow, token: &str) -> Result<Document, Fault> {
    let last = escrow.history.last();
    let last = last.ok_or_else(|| Fault::corrupt("database: an escrow without a state"))?;
    let (tone, meaning) = told(last.state);
    let history = escrow.history.iter().map(|entry| Entry {
        state: entry.state.as_str(),
        is_dispute: entry.disputed && entry.state == EscrowState::Disputed,
        is_later: entry.disputed && entry.state != EscrowState::Disputed,
        at: entry.at.into(),
        note: entry.note.as_deref(),
    });
    let contract = Contract {
        frame: Frame::public(issuer, NOWHERE),
        issuer,
        core: &asset::CORE.path,
        script: &asset::CONTRACT.path,
        token,
        address: Address(escrow.contract),
        is_sandbox: escrow.kind.is_sandbox(),
        state: last.state.as_str(),
        tone,
        meaning,
        disputed: last.disputed && last.state != EscrowState::Disputed,
        amount: escrow.amount,
        currency: escrow.currency.as_str(),
        buyer: escrow.buyer.as_str(),
        seller: escrow.seller.as_str(),
        arbiter: escrow.arbiter.as_deref(),
        condition: &escrow.condition,
        refund_after: escrow.refund_after.into(),
        history: history.collect(),
    };
    page(&contract, VERIFIER)
}

/// The page that says that there is no contract at an address.
pub(in crate::http) fn absent(issuer: &str) -> Result<Response, Fault> {
    let document = page(&Absent { frame: Frame::public(issuer, NOWHERE), issuer }, READ_ONLY)?;
    let mut response = document.respond(&HeaderMap::new());
    *response.status_mut() = StatusCode::NOT_FOUND;
    Ok(response)
}

/// How a state looks, and what it means.
fn told(state: EscrowState) -> (&'static str, &'static str) {
    match state {
        EscrowState::Opening => ("care", "The buyer’s funds are being locked."),
        EscrowState::Funded => ("good", "The buyer’s funds are locked for this deal."),
        EscrowState::Delivered => ("good", "The condition was attested. The funds are still locked."),
        EscrowState::Released => ("good", "The funds have moved to the seller. This is final."),
        EscrowState::Refunded => ("care", "The funds have returned to the buyer. This is final."),
        EscrowState::Disputed => ("bad", "A party disputes the deal. The funds are still locked."),
        EscrowState::Failed => ("bad", "The buyer’s funds were not locked. This is final."),
    }
}
