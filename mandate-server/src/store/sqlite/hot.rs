//! The two ends of a batch of authorizations: load what it needs, keep what it made.

use std::collections::btree_map::Entry;

use std::sync::Arc;

use rusqlite::Connection;

use super::super::tail::Tail;
use super::super::tx::{Tally, Tx};
use super::super::{Authorization, Decider, Loaded, Ruling, Signed, sql};
use super::SqliteSession;
use super::jobs::Outcome;
use crate::error::Fault;
use crate::model::call::Answer;
use crate::model::records::{AgentKey, EventRecord, UsageKey};

/// Decides on a batch inside the open transaction, and says in `tally` what was written.
pub(super) fn run(
    connection: &Connection,
    tail: Option<Arc<Tail>>,
    decider: &dyn Decider,
    batch: &[Authorization],
    tally: &mut Tally,
) -> Result<Vec<Result<Answer, Fault>>, Fault> {
    let mut session = SqliteSession::writing(connection, tail);
    let mut tx = Tx::new(&mut session);
    let now = decider.now();
    let mut loaded = load(&mut tx, batch, now.month())?;
    let answers = decider.decide(batch, now, &mut loaded);
    keep(&mut tx, &loaded)?;
    tally.add(tx.into_tally());
    Ok(answers)
}

/// Reads the state of all that the batch concerns. The writer is the lock.
fn load(tx: &mut Tx<'_>, batch: &[Authorization], month: mandate_core::Month) -> Result<Loaded, Fault> {
    let mut loaded = Loaded { mark: Some(sql::clock::mark(tx)?), ..Loaded::default() };
    for authorization in batch {
        let caller = &authorization.call.caller;
        let environment = caller.environment.id;
        if let Some(claim) = &authorization.call.idempotency {
            let key = claim.key(caller);
            if let Some(kept) = sql::idempotency::lock(tx, &key)? {
                loaded.kept.insert(key, kept);
            }
        }
        let Ok(request) = &authorization.request else { continue };
        if let Entry::Vacant(place) = loaded.modes.entry(environment) {
            place.insert(sql::environments::mode(tx, environment)?.0);
        }
        let agent = AgentKey { environment, agent: request.agent.clone() };
        if let Entry::Vacant(place) = loaded.agents.entry(agent.clone()) {
            let state = sql::agents::lock(tx, &agent)?;
            place.insert(state.ok_or_else(|| Fault::new("database: an agent key's agent is not there"))?);
        }
        let usage = UsageKey { agent, month, currency: request.currency.clone() };
        if let Entry::Vacant(place) = loaded.usage.entry(usage) {
            let record = sql::usage::find(tx, place.key())?;
            place.insert(record);
        }
    }
    Ok(loaded)
}

/// Writes what was made in a draft, which rests on nothing being kept under its idempotency key. False, and nothing is written,
/// when something is.
pub(super) fn keep_draft(tx: &mut Tx<'_>, outcome: &Outcome) -> Result<bool, Fault> {
    let Outcome { signed: Signed { made, event, kept, .. }, counted } = outcome;
    if let Some((key, record)) = kept.as_deref()
        && !sql::idempotency::keep_new(tx, key, record)?
    {
        return Ok(false);
    }
    if let Some(Ruling { decision, review }) = made.as_deref() {
        sql::decisions::insert_owed(tx, decision)?;
        review.iter().try_for_each(|review| sql::reviews::insert(tx, decision.environment, review))?;
    }
    event.iter().try_for_each(|event| keep_event(tx, event))?;
    match (counted, made.as_deref()) {
        (Some(counted), _) => sql::owed::write(tx, counted)?,
        (None, Some(Ruling { decision, .. })) => {
            let agent = AgentKey { environment: decision.environment, agent: decision.request.agent.clone() };
            sql::owed::owe(tx, &agent, decision.id)?;
        }
        (None, None) => {}
    }
    Ok(true)
}

/// Writes what the batch made and changed.
fn keep(tx: &mut Tx<'_>, loaded: &Loaded) -> Result<(), Fault> {
    for key in &loaded.made.kept {
        sql::idempotency::keep(tx, key, loaded.kept.get(key).ok_or_else(lost)?)?;
    }
    for decision in &loaded.made.decisions {
        sql::decisions::insert(tx, decision)?;
    }
    for (environment, review) in &loaded.made.reviews {
        sql::reviews::insert(tx, *environment, review)?;
    }
    loaded.made.events.iter().try_for_each(|event| keep_event(tx, event))?;
    for key in &loaded.made.agents {
        sql::agents::keep_recent(tx, key, &loaded.agents.get(key).ok_or_else(lost)?.recent)?;
    }
    for key in &loaded.made.usage {
        sql::usage::keep(tx, key, loaded.usage.get(key).ok_or_else(lost)?)?;
    }
    Ok(())
}

fn lost() -> Fault {
    Fault::new("a batch noted a change to a row that it did not load")
}

/// Writes an event, and whom it is for.
fn keep_event(tx: &mut Tx<'_>, event: &EventRecord) -> Result<(), Fault> {
    sql::events::insert(tx, event)?;
    sql::deliveries::fan_out(tx, event)
}
