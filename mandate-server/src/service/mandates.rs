//! Mandates: written, read and revoked. An agent's newest mandate governs it.

use mandate_core::{EventId, EventKind, Mandate, MandateId, Terms, Timestamp};

use super::listing::{Cursors, Query, Walk};
use super::outbox;
use crate::clock::Ids;
use crate::error::{Fault, Refusal};
use crate::model::call::{Answer, Call, ScriptError, Scripted};
use crate::model::records::{AgentKey, EventRecord};
use crate::store::sql;
use crate::store::tx::Tx;

/// How long before the start of its last day, UTC, a mandate's `mandate.expiring` event is sent, in seconds:
/// seven days.
pub const EXPIRING_SECONDS: i64 = 7 * 24 * 60 * 60;

/// The command to write a mandate.
#[derive(Debug)]
pub struct Create {
    /// What is granted.
    pub terms: Terms,
    /// Its id, drawn before.
    pub id: MandateId,
    /// The id of its `mandate.expiring` event, drawn before.
    pub event: EventId,
    /// When.
    pub at: Timestamp,
}

/// The command to revoke a mandate.
#[derive(Debug)]
pub struct Revoke {
    /// Its id.
    pub id: String,
    /// The id of the event that reports it, drawn before.
    pub event: EventId,
    /// When.
    pub at: Timestamp,
}

/// Writes a mandate. From the next decision on it governs its agent; the one that governed is replaced.
///
/// # Errors
/// The terms have expired, or name an agent that is not registered.
pub fn create(tx: &mut Tx<'_>, call: &Call, command: &Create) -> Scripted {
    command.terms.must_hold_at(command.at)?;
    let agent = AgentKey { environment: call.caller.environment.id, agent: command.terms.agent.clone() };
    let Some(state) = sql::agents::lock(tx, &agent)? else {
        let message =
            format!("agent must be one that is registered in this environment; got `{}`", agent.agent);
        return Err(Refusal::invalid(message).into());
    };
    let mandate = Mandate::new(command.id, command.terms.clone(), command.at);
    let expiring_at = expiring_at(&mandate);
    let soon = expiring_at <= command.at;
    sql::mandates::insert(tx, agent.environment, &mandate, (!soon).then_some(expiring_at))?;
    if let Some(governed) = state.mandate.filter(|m| m.revoked_at.is_none()) {
        sql::mandates::replace(tx, agent.environment, governed.id, mandate.id)?;
    }
    sql::agents::govern(tx, &agent, mandate.id)?;
    if soon {
        expiring(tx, agent.environment, &mandate, command.event, command.at)?;
    }
    Ok(Answer::new(201, &mandate.view(command.at))?)
}

/// When `mandate.expiring` is sent, unless the mandate was written later.
fn expiring_at(mandate: &Mandate) -> Timestamp {
    mandate.terms.expires.start().plus_seconds(-EXPIRING_SECONDS)
}

/// Writes the event `mandate.expiring`.
fn expiring(
    tx: &mut Tx<'_>,
    environment: i64,
    mandate: &Mandate,
    id: EventId,
    at: Timestamp,
) -> Result<(), Fault> {
    let data = outbox::data(&mandate.view(at))?;
    outbox::write(tx, &EventRecord { environment, id, kind: EventKind::MandateExpiring, at, data })
}

/// When `mandate.expiring` is due next.
///
/// # Errors
/// The database fails.
pub fn next_expiring(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    sql::mandates::next_expiring(tx)
}

/// Writes `mandate.expiring` for at most `limit` mandates for which it is due at `now`. Returns how many
/// there were.
///
/// # Errors
/// The database fails.
pub fn tell_expiring(tx: &mut Tx<'_>, ids: &Ids, now: Timestamp, limit: i64) -> Result<usize, Fault> {
    let mut due = sql::mandates::expiring(tx, now, limit)?;
    // Events lock their environment's webhooks: always in the same order, whatever the order of expiry.
    due.sort_unstable();
    for (environment, id) in &due {
        if sql::mandates::told_expiring(tx, *environment, *id)? {
            let mandate = sql::mandates::find(tx, *environment, *id)?;
            let mandate = mandate.ok_or_else(|| Fault::new("database: a mandate just found is not there"))?;
            expiring(tx, *environment, &mandate, EventId::from_bytes(ids.next(now)), now)?;
        }
    }
    Ok(due.len())
}

/// The mandates of the environment; under an agent key, its own.
///
/// # Errors
/// The cursor does not open.
pub fn list(tx: &mut Tx<'_>, call: &Call, query: &Query, cursors: &Cursors) -> Scripted {
    let caller = &call.caller;
    let place = |id: &str| Ok(MandateId::parse(id).ok().map(MandateId::to_bytes));
    let walk = Walk::open("mandates", String::new(), call, query, cursors, place)?;
    let found = sql::mandates::page(tx, caller.environment.id, caller.agent.as_ref(), &walk.slice)?;
    let rows = found.iter().map(|mandate| (mandate.id.to_bytes(), mandate.view(cursors.now))).collect();
    walk.answer(rows, None)
}

/// One mandate.
///
/// # Errors
/// There is none of that id for this caller.
pub fn get(tx: &mut Tx<'_>, call: &Call, id: &str, now: Timestamp) -> Scripted {
    let mandate = find(tx, call, id)?;
    if call.caller.agent.as_ref().is_some_and(|own| *own != mandate.terms.agent) {
        return Err(Refusal::not_found().into());
    }
    Ok(Answer::new(200, &mandate.view(now))?)
}

/// Revokes the mandate that governs its agent: the agent's next request is denied. Revoking it again changes
/// nothing.
///
/// # Errors
/// There is none of that id, or another mandate governs the agent, so that revoking this one would have no
/// effect.
pub fn revoke(tx: &mut Tx<'_>, call: &Call, command: &Revoke) -> Scripted {
    let Revoke { id, event, at } = command;
    let agent = find(tx, call, id)?.terms.agent;
    let key = AgentKey { environment: call.caller.environment.id, agent };
    let state = sql::agents::lock(tx, &key)?;
    let governing = state.and_then(|state| state.mandate);
    // Read it again now that the agent is locked.
    let mut mandate = find(tx, call, id)?;
    if mandate.revoked_at.is_some() {
        return Ok(Answer::new(200, &mandate.view(*at))?);
    }
    let governing =
        governing.ok_or_else(|| Fault::new("database: an agent with a mandate has none that governs"))?;
    if governing.id != mandate.id {
        let message = format!(
            "mandate {id} was replaced and governs no agent; to stop {}, revoke {}, which governs it",
            key.agent, governing.id
        );
        return Err(Refusal::invalid(message).into());
    }
    sql::mandates::revoke(tx, key.environment, mandate.id, *at)?;
    mandate.revoked_at = Some(*at);
    let data = outbox::data(&mandate.view(*at))?;
    let answer = Answer::new(200, &data)?;
    let kind = EventKind::MandateRevoked;
    outbox::write(tx, &EventRecord { environment: key.environment, id: *event, kind, at: *at, data })?;
    Ok(answer)
}

fn find(tx: &mut Tx<'_>, call: &Call, id: &str) -> Result<Mandate, ScriptError> {
    let id = MandateId::parse(id).map_err(|_| Refusal::not_found())?;
    Ok(sql::mandates::find(tx, call.caller.environment.id, id)?.ok_or_else(Refusal::not_found)?)
}
