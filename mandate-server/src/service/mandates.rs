//! Mandates: written, read and revoked. An agent's newest mandate governs it.

use std::sync::Arc;

use mandate_core::{AgentId, EventKind, Mandate, MandateId, MandateStatus, Terms, Timestamp};
use serde_json::value::RawValue;

use super::listing::{Cursors, Query, Walk};
use super::moments::Moments;
use super::public_log::Governing;
use super::{actors, outbox};
use crate::error::{Fault, Refusal};
use crate::model::call::{Answer, Call, ScriptError, Scripted};
use crate::model::people::By;
use crate::model::records::{AgentKey, Slice};
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
    /// Where its time and its id come from.
    pub moments: Arc<Moments>,
}

/// The command to revoke a mandate.
#[derive(Debug)]
pub struct Revoke {
    /// Its id.
    pub id: String,
    /// Where its time comes from.
    pub moments: Arc<Moments>,
}

/// Writes a mandate. From the next decision on it governs its agent; the one that governed is replaced.
///
/// # Errors
/// The terms have expired, or name an agent that is not registered.
pub fn create(tx: &mut Tx<'_>, call: &Call, command: &Create) -> Scripted {
    let agent = AgentKey { environment: call.caller.environment.id, agent: command.terms.agent.clone() };
    let state = sql::agents::lock(tx, &agent)?;
    let now = command.moments.now(tx)?;
    command.terms.must_hold_at(now)?;
    let Some(state) = state else {
        let message =
            format!("agent must be one that is registered in this environment; got `{}`", agent.agent);
        return Err(Refusal::invalid(message).into());
    };
    let id = command.moments.mandate(tx, agent.environment, now)?;
    let governs_from = u64::try_from(state.sequence).unwrap_or_default() + 1;
    let mandate = Mandate { governs_from, ..Mandate::new(id, command.terms.clone(), now) };
    let expiring_at = expiring_at(&mandate);
    let soon = expiring_at <= now;
    sql::mandates::insert(tx, agent.environment, &mandate, (!soon).then_some(expiring_at))?;
    if let Some(governed) = &state.mandate {
        sql::mandates::end(tx, agent.environment, governed.id, state.sequence)?;
        if governed.revoked_at.is_none() {
            sql::mandates::replace(tx, agent.environment, governed.id, mandate.id)?;
        }
    }
    sql::agents::govern(tx, &agent, mandate.id)?;
    if soon {
        expiring(tx, agent.environment, &mandate, &command.moments, now)?;
    }
    let replaces = state.mandate.as_ref().filter(|governed| governed.revoked_at.is_none()).map(|old| old.id);
    let (mandate_id, terms) = (mandate.id, &mandate.terms);
    let written = Governing::MandateCreated {
        at: now,
        agent: &agent.agent,
        mandate: mandate_id,
        terms,
        replaces,
        governs_from,
    };
    written.record(tx, agent.environment)?;
    Ok(Answer::new(201, &mandate.view(now))?)
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
    moments: &Moments,
    at: Timestamp,
) -> Result<(), Fault> {
    let data = outbox::data(&mandate.view(at))?;
    outbox::write(tx, moments, environment, EventKind::MandateExpiring, at, data).map(drop)
}

/// When `mandate.expiring` is due next.
///
/// # Errors
/// The database fails.
pub fn next_expiring(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    sql::mandates::next_expiring(tx)
}

/// Writes `mandate.expiring` for at most `limit` mandates for which it is due at `now`. The events are dated when the
/// mandates are held. Returns how many there were.
///
/// # Errors
/// The database fails.
pub fn announce_expiring(
    tx: &mut Tx<'_>,
    moments: &Moments,
    now: Timestamp,
    limit: i64,
) -> Result<usize, Fault> {
    let mut due = sql::mandates::expiring(tx, now, limit)?;
    // Events lock their environment's webhooks: always in the same order, whatever the order of expiry.
    due.sort_unstable();
    let mut announced = Vec::with_capacity(due.len());
    for (environment, id) in &due {
        if sql::mandates::mark_announced(tx, *environment, *id)? {
            announced.push((*environment, *id));
        }
    }
    let at = moments.now(tx)?;
    for (environment, id) in announced {
        let mandate = sql::mandates::find(tx, environment, id)?;
        let mandate = mandate.ok_or_else(|| Fault::new("database: a mandate just found is not there"))?;
        expiring(tx, environment, &mandate, moments, at)?;
    }
    Ok(due.len())
}

/// Which mandates are requested.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Those of this agent.
    pub agent: Option<AgentId>,
    /// Those that have this status now.
    pub status: Option<MandateStatus>,
}

impl Filter {
    /// One text for each set of filters.
    fn canonical(&self) -> String {
        let agent = self.agent.as_ref().map(|agent| format!("agent={agent}"));
        let status = self.status.map(|status| format!("status={status}"));
        [agent, status].into_iter().flatten().collect::<Vec<_>>().join("&")
    }
}

/// The mandates of the environment that match `filter`; under an agent key, its own. A search for a status that finds
/// little stops after some thousand rows and says that there is more: such a page may be empty.
///
/// # Errors
/// The cursor does not open.
pub fn list(tx: &mut Tx<'_>, call: &Call, filter: &Filter, query: &Query, cursors: &Cursors) -> Scripted {
    let (caller, now) = (&call.caller, cursors.now);
    let place = |id: &str| Ok(MandateId::parse(id).ok().map(MandateId::to_bytes));
    let walk = Walk::open("mandates", filter.canonical(), call, query, cursors, place)?;
    if caller.agent.is_some() && filter.agent.is_some() && caller.agent != filter.agent {
        return walk.answer(Vec::<(_, ())>::new(), None);
    }
    let agent = caller.agent.as_ref().or(filter.agent.as_ref());
    let mut page = |slice: &Slice| sql::mandates::page(tx, caller.environment.id, agent, slice);
    let (found, reached) = match filter.status {
        None => (page(&walk.slice)?, None),
        Some(status) => {
            walk.search(page, |found| found.id.to_bytes(), |found| found.status(now) == status)?
        }
    };
    let rows = found.iter().map(|mandate| (mandate.id.to_bytes(), mandate.view(now))).collect();
    walk.answer(rows, reached)
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
    let id = MandateId::parse(&command.id).map_err(|_| Refusal::not_found())?;
    let by = actors::of_key(tx, call)?;
    let (shown, _) = revoke_by(tx, call.caller.environment.id, id, &by, &command.moments)?;
    Ok(Answer::new(200, &shown)?)
}

/// Revokes a mandate for a key or a person. Gives the mandate as it is shown, and whether it was not revoked before.
///
/// # Errors
/// As for [`revoke`].
pub fn revoke_by(
    tx: &mut Tx<'_>,
    environment: i64,
    id: MandateId,
    by: &By,
    moments: &Moments,
) -> Result<(Box<RawValue>, bool), ScriptError> {
    let key = AgentKey { environment, agent: find_in(tx, environment, id)?.terms.agent };
    let lost = || Fault::corrupt("database: an agent with a mandate has none that governs");
    let state = sql::agents::lock(tx, &key)?.ok_or_else(lost)?;
    // Read again, now that the agent is locked.
    let (now, mut mandate) = (moments.now(tx)?, find_in(tx, environment, id)?);
    by.must_be_in_time(now)?;
    if mandate.revoked_at.is_some() {
        return Ok((outbox::data(&mandate.view(now))?, false));
    }
    let governing = state.mandate.ok_or_else(lost)?;
    if governing.id != mandate.id {
        let message = format!(
            "mandate {id} was replaced and governs no agent; to stop {}, revoke {}, which governs it",
            key.agent, governing.id
        );
        return Err(Refusal::invalid(message).into());
    }
    sql::mandates::revoke(tx, key.environment, mandate.id, now, state.sequence)?;
    (mandate.revoked_at, mandate.revoked_after) = (Some(now), u64::try_from(state.sequence).ok());
    let data = outbox::data(&mandate.view(now))?;
    let event = outbox::write(tx, moments, key.environment, EventKind::MandateRevoked, now, data)?;
    let (agent, revoked_after) = (&key.agent, state.sequence);
    let (actor, answer) = (&by.actor, by.answer.as_deref());
    let revoked = Governing::MandateRevoked { at: now, agent, mandate: id, revoked_after, by: actor, answer };
    revoked.record(tx, key.environment)?;
    Ok((event.data, true))
}

fn find(tx: &mut Tx<'_>, call: &Call, id: &str) -> Result<Mandate, ScriptError> {
    let id = MandateId::parse(id).map_err(|_| Refusal::not_found())?;
    find_in(tx, call.caller.environment.id, id)
}

fn find_in(tx: &mut Tx<'_>, environment: i64, id: MandateId) -> Result<Mandate, ScriptError> {
    Ok(sql::mandates::find(tx, environment, id)?.ok_or_else(Refusal::not_found)?)
}
