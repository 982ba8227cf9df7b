//! Escrows: money locked for a deal, from an allow decision, and the public contract that shows it.

mod address;
mod settling;
mod view;

use std::sync::Arc;

use mandate_core::{DecisionId, EscrowId, EscrowState, Timestamp, VERDICT_LIFETIME_SECONDS, Verdict, jwt};

use super::listing::{Cursors, Query, Walk};
use super::moments::Moments;
use super::signing::Keyring;
use crate::error::{Fault, Refusal};
use crate::model::call::{Answer, Call, ScriptError, Scripted};
use crate::model::records::{AgentKey, DecisionRecord, Slice};
use crate::store::sql;
use crate::store::sql::instructions::Action;
use crate::store::tx::Tx;

use settling::Change;
use view::{ContractClaims, View};

pub use crate::store::sql::escrows::Escrow;
pub use address::Address;
pub use settling::{
    DueInstruction, LONGEST_WAIT_SECONDS, MAX_REFUSAL_REASON, Reply, claim, due, give_back, settle,
};

/// The longest condition, in characters.
pub const MAX_CONDITION: usize = 2_000;
/// The longest name of an arbiter, in characters.
pub const MAX_ARBITER: usize = 200;
/// The longest note on a transition, in characters.
pub const MAX_NOTE: usize = 500;

/// The command to open an escrow.
#[derive(Debug)]
pub struct Create {
    /// The decision that allows the payment.
    pub decision: DecisionId,
    /// Who decides a dispute.
    pub arbiter: Option<String>,
    /// The condition that must be met.
    pub condition: String,
    /// From when on the buyer may have the funds back.
    pub refund_after: Timestamp,
    /// Its id, drawn before.
    pub id: EscrowId,
    /// Its address, drawn before.
    pub contract: Address,
    /// Where its time and the id of the event that reports it come from.
    pub moments: Arc<Moments>,
    /// What the adapter says of a new instruction at once.
    pub settlement: Reply,
}

/// The command to move an escrow on.
#[derive(Debug)]
pub struct Transition {
    /// The escrow's id.
    pub id: String,
    /// The state to enter.
    pub to: EscrowState,
    /// A note that anyone with the address can read.
    pub note: Option<String>,
    /// What the adapter says of a new instruction at once.
    pub settlement: Reply,
    /// Where its time and the id of the event that reports it come from.
    pub moments: Arc<Moments>,
}

/// Opens an escrow from an allow decision without one: `funded` when the lock has settled, `opening` until then. The
/// decision still counts: its token has not expired, and its mandate is not revoked. That is decided while the agent's row
/// is held, as revocations are.
///
/// # Errors
/// There is no such decision, it is not `allow`, it has an escrow, it no longer counts, or `refund_after` is not in the
/// future. Or the clock is behind the high-water mark: then it is not known whether the token has expired. Or the decision
/// or its mandate is damaged, or an escrow of the agent's is.
pub fn create(tx: &mut Tx<'_>, call: &Call, command: &Create) -> Scripted {
    let environment = &call.caller.environment;
    let id = command.decision;
    let Some(whole) = sql::decisions::find_sound(tx, environment.id, id)? else {
        let message = format!("decision must be one of this environment; got `{id}`");
        return Err(Refusal::invalid(message).into());
    };
    let decision = whole.decision;
    let verdict = decision.verdict;
    if verdict != Verdict::Allow {
        let message = format!("decision must be an allow; {id} is {verdict}");
        return Err(Refusal::invalid(message).into());
    }
    let agent = AgentKey { environment: environment.id, agent: decision.request.agent.clone() };
    sql::agents::lock(tx, &agent)?.ok_or_else(|| Fault::corrupt("database: a decision without its agent"))?;
    let now = command.moments.deciding(tx)?;
    if let Some(there) = sql::escrows::of_decision(tx, &decision)? {
        let message = format!("decision {id} has an escrow: {there}; there is one for each decision");
        return Err(Refusal::invalid(message).into());
    }
    must_still_count(tx, environment.id, &decision, now)?;
    // Behind it, since this reads the escrows of as long as the token lasts.
    sql::escrows::none_is_hidden(tx, &decision)?;
    if command.refund_after <= now {
        let message =
            format!("refund_after must be in the future; got `{}`, now is {now}", command.refund_after);
        return Err(Refusal::invalid(message).into());
    }
    let request = decision.request;
    let escrow = Escrow {
        id: command.id,
        kind: environment.kind,
        contract: command.contract.0,
        decision: id,
        buyer: request.agent,
        amount: request.amount,
        currency: request.currency,
        seller: request.recipient,
        arbiter: command.arbiter.clone(),
        condition: command.condition.clone(),
        refund_after: command.refund_after,
        history: Vec::new(),
        instruction: None,
    };
    if !sql::escrows::insert(tx, environment.id, &escrow)? {
        return Err(Fault::new("database: a decision's escrow came while its agent was held").into());
    }
    let mut change = Change { tx, environment: environment.id, escrow, at: now, moments: &command.moments };
    if command.settlement == Reply::Pending {
        change.enter(EscrowState::Opening, None)?;
    }
    change.ask(Action::Lock, None, &command.settlement)?;
    change.seal()?;
    Ok(Answer::new(201, &View::of(&change.escrow)?)?)
}

/// Refuses an allow that a counterparty would not take any more, or whose authority was withdrawn. A mandate that was
/// replaced had granted what it had granted.
fn must_still_count(
    tx: &mut Tx<'_>,
    environment: i64,
    decision: &DecisionRecord,
    now: Timestamp,
) -> Result<(), ScriptError> {
    let id = decision.id;
    let expired_at =
        Timestamp::from_seconds(decision.decided_at.seconds()).plus_seconds(VERDICT_LIFETIME_SECONDS);
    if now >= expired_at {
        let message =
            format!("decision must be one whose token has not expired; that of {id} expired at {expired_at}");
        return Err(Refusal::invalid(message).into());
    }
    let mandate =
        decision.mandate.map(|mandate| sql::mandates::find_sound(tx, environment, mandate)).transpose()?;
    if let Some(mandate) = mandate.filter(|mandate| mandate.revoked_at.is_some()) {
        let message =
            format!("decision must be one whose mandate is not revoked; {}, of {id}, is", mandate.id);
        return Err(Refusal::invalid(message).into());
    }
    Ok(())
}

/// Moves an escrow on. A state that moves funds is asked for, and entered when the provider has settled.
///
/// # Errors
/// There is none of that id, the transition is not allowed, or an instruction is pending. Or it is damaged, or its decision is.
pub fn transition(tx: &mut Tx<'_>, call: &Call, command: &Transition) -> Scripted {
    let environment = call.caller.environment.id;
    let id = EscrowId::parse(&command.id).map_err(|_| Refusal::not_found())?;
    let escrow = sql::escrows::lock(tx, environment, id)?.ok_or_else(Refusal::not_found)?;
    let at = command.moments.now(tx)?;
    let mut change = Change { tx, environment, escrow, at, moments: &command.moments };
    change.transition(command.to, command.note.clone(), &command.settlement)?;
    change.seal()?;
    Ok(Answer::new(200, &View::of(&change.escrow)?)?)
}

/// The escrows of the environment, those in `state` if one is given; under an agent key, its own. A search for a state that
/// finds little stops after some thousand rows and says that there is more: such a page may be empty.
///
/// # Errors
/// The cursor does not open.
pub fn list(
    tx: &mut Tx<'_>,
    call: &Call,
    state: Option<EscrowState>,
    query: &Query,
    cursors: &Cursors,
) -> Scripted {
    let caller = &call.caller;
    let place = |id: &str| Ok(EscrowId::parse(id).ok().map(EscrowId::to_bytes));
    let filters = state.map(|state| format!("state={state}")).unwrap_or_default();
    let walk = Walk::open("escrows", filters, call, query, cursors, place)?;
    let mut page =
        |slice: &Slice| sql::escrows::page(tx, caller.environment.id, caller.agent.as_ref(), slice);
    let is_in = |escrow: &Escrow, state| escrow.history.last().is_some_and(|last| last.state == state);
    let (found, reached) = match state {
        None => (page(&walk.slice)?, None),
        Some(state) => walk.search(page, |found| found.id.to_bytes(), |found| is_in(found, state))?,
    };
    let rows = found.iter().map(|escrow| Ok((escrow.id.to_bytes(), View::of(escrow)?)));
    walk.answer(rows.collect::<Result<_, Fault>>()?, reached)
}

/// One escrow.
///
/// # Errors
/// There is none of that id for this caller.
pub fn get(tx: &mut Tx<'_>, call: &Call, id: &str) -> Scripted {
    let caller = &call.caller;
    let id = EscrowId::parse(id).map_err(|_| Refusal::not_found())?;
    let escrow = sql::escrows::find(tx, caller.environment.id, id)?.ok_or_else(Refusal::not_found)?;
    if caller.agent.as_ref().is_some_and(|own| *own != escrow.buyer) {
        return Err(Refusal::not_found().into());
    }
    Ok(Answer::new(200, &View::of(&escrow)?)?)
}

/// The contract at an address, for any caller that has the address.
///
/// # Errors
/// There is none.
pub fn contract(tx: &mut Tx<'_>, address: Address) -> Scripted {
    let escrow = sql::escrows::at_address(tx, address.0)?.ok_or_else(Refusal::not_found)?;
    Ok(Answer::new(200, &View::public(&escrow)?)?)
}

/// The escrow at an address, with its contract as a token (ES256), which shows its state at `now`.
///
/// # Errors
/// There is none, or it cannot be signed.
pub fn with_token(
    tx: &mut Tx<'_>,
    address: Address,
    keyring: &Keyring,
    now: Timestamp,
) -> Result<(Escrow, String), ScriptError> {
    let escrow = sql::escrows::at_address(tx, address.0)?.ok_or_else(Refusal::not_found)?;
    let contract = View::public(&escrow)?;
    let claims = ContractClaims { iss: keyring.issuer(), iat: now.seconds(), contract };
    let claims = serde_json::to_string(&claims).map_err(|e| Fault::new(e.to_string()))?;
    let token = jwt::sign(&*keyring.signing(escrow.kind, now)?.signer, &claims);
    let token = token.map_err(|e| Fault::new(e.to_string()))?;
    Ok((escrow, token))
}
