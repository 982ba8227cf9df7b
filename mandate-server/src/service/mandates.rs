//! Mandates: written, read and revoked. The newest of an agent governs it.

use mandate_core::{EventId, EventKind, Mandate, MandateId, Terms, Timestamp};

use super::listing::{Cursors, Query, Walk};
use super::{Answer, Call, Scripted, outbox};
use crate::error::{Fault, Refusal};
use crate::store::records::{AgentKey, EventRecord};
use crate::store::sql;
use crate::store::tx::Tx;

/// What it takes to write a mandate.
#[derive(Debug)]
pub struct Create {
    /// What is granted.
    pub terms: Terms,
    /// Its id, drawn before.
    pub id: MandateId,
    /// When.
    pub at: Timestamp,
}

/// What it takes to revoke a mandate.
#[derive(Debug)]
pub struct Revoke {
    /// Its id.
    pub id: String,
    /// The id of the event that tells of it, drawn before.
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
    let mandate = Mandate {
        id: command.id,
        terms: command.terms.clone(),
        created_at: command.at,
        revoked_at: None,
        replaced_by: None,
    };
    sql::mandates::insert(tx, agent.environment, &mandate)?;
    if let Some(governed) = state.mandate.filter(|m| m.revoked_at.is_none()) {
        sql::mandates::replace(tx, agent.environment, governed.id, mandate.id)?;
    }
    sql::agents::govern(tx, &agent, mandate.id)?;
    Ok(Answer::new(201, &mandate.view(command.at))?)
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

/// Revokes the mandate that governs its agent: the agent's next request is denied. Revoking it again changes nothing.
///
/// # Errors
/// There is none of that id, or another one governs the agent, so that revoking this one would stop nobody.
pub fn revoke(tx: &mut Tx<'_>, call: &Call, command: &Revoke) -> Scripted {
    let Revoke { id, event, at } = command;
    let agent = find(tx, call, id)?.terms.agent;
    let key = AgentKey { environment: call.caller.environment.id, agent };
    let state = sql::agents::lock(tx, &key)?;
    let governing = state.and_then(|state| state.mandate);
    // Read again, now that the agent is locked.
    let mut mandate = find(tx, call, id)?;
    if mandate.revoked_at.is_some() {
        return Ok(Answer::new(200, &mandate.view(*at))?);
    }
    let governing =
        governing.ok_or_else(|| Fault::new("database: an agent with a mandate has none that governs"))?;
    if governing.id != mandate.id {
        let message = format!(
            "mandate {id} was replaced and governs nobody; to stop {}, revoke {}, which governs it",
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

fn find(tx: &mut Tx<'_>, call: &Call, id: &str) -> Result<Mandate, super::Stop> {
    let id = MandateId::parse(id).map_err(|_| Refusal::not_found())?;
    Ok(sql::mandates::find(tx, call.caller.environment.id, id)?.ok_or_else(Refusal::not_found)?)
}
