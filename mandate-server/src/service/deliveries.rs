//! Deliveries: which server leases them, their results, and the operator's retry.

use std::collections::BTreeSet;

use mandate_core::{EventId, Timestamp, WebhookId};
use serde_json::json;

use super::audit::{self, AuditEntry, Operator};
use crate::error::{Code, Fault, Refusal};
use crate::model::call::ScriptError;
use crate::model::records::{DeliveryState, DueRecord, LeaseRecord, TriedRecord};
use crate::store::sql;
use crate::store::sql::left_over::{self, LeftOver};
use crate::store::tx::Tx;

/// How long a server leases a webhook's deliveries, in seconds. If it dies, others take over after that.
pub const LEASE_SECONDS: i64 = 60;
/// How far ahead the clock of a leasing server may be, in seconds. A lease that ends later than that was
/// given by a wrong clock that has been set back: no server holds it. Servers correct their clocks by the database's once
/// a second, so that one that has just jumped is wrong meanwhile, and others differ by as much as an answer travels.
pub const LEASE_SKEW_SECONDS: i64 = 60;
/// The longest time between two attempts, in seconds: two hours and a tenth.
pub const LONGEST_WAIT_SECONDS: i64 = 2 * 60 * 60 + 12 * 60;

/// What one server stores, gives back and takes in one round.
#[derive(Debug, Clone, Default)]
pub struct Round {
    /// The results of its attempts.
    pub tried: Vec<TriedRecord>,
    /// The webhooks that it gives back.
    pub released: Vec<LeaseRecord>,
    /// How many more webhooks it can take.
    pub room: i64,
    /// Its clock was ahead since the server started, and has been set back.
    pub set_back: bool,
}

/// Stores results, gives webhooks back, and leases others that are due.
///
/// # Errors
/// The database fails.
pub fn run_round(tx: &mut Tx<'_>, round: &Round, now: Timestamp) -> Result<Vec<LeaseRecord>, Fault> {
    // Webhooks before deliveries, in key order, as fan-out and deletion lock them.
    let tried = round.tried.iter().map(|tried| (tried.environment, tried.webhook));
    let released = round.released.iter().map(|lease| (lease.environment, lease.webhook));
    for (environment, webhook) in tried.chain(released).collect::<BTreeSet<_>>() {
        sql::webhooks::hold(tx, environment, webhook)?;
    }
    for tried in &round.tried {
        sql::deliveries::keep(tx, tried)?;
    }
    for lease in &round.released {
        sql::deliveries::release(tx, lease, now)?;
    }
    // A webhook that was queued by a clock that was ahead would not be looked at.
    let latest = if round.set_back { now } else { latest_attempt(now) };
    sql::deliveries::bring_forward(tx, now, latest)?;
    match round.room {
        0 => Ok(Vec::new()),
        room => sql::deliveries::lease(tx, now, now.plus_seconds(LEASE_SECONDS), latest_lease(now), room),
    }
}

/// The latest end of a lease that is given now.
fn latest_lease(now: Timestamp) -> Timestamp {
    now.plus_seconds(LEASE_SECONDS + LEASE_SKEW_SECONDS)
}

/// The latest time of a next attempt after one made by now. What is due later was put off by a clock that was
/// ahead and has been set back: it is due now.
fn latest_attempt(now: Timestamp) -> Timestamp {
    now.plus_seconds(LONGEST_WAIT_SECONDS + LEASE_SKEW_SECONDS)
}

/// Up to `limit` due deliveries to a leased webhook, those first that have waited longest.
///
/// # Errors
/// The database fails.
pub fn due(
    tx: &mut Tx<'_>,
    lease: &LeaseRecord,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<DueRecord>, Fault> {
    sql::deliveries::due(tx, lease, now, latest_attempt(now), limit)
}

/// When something will be due, as far as is known, to webhooks that no server has leased.
///
/// # Errors
/// The database fails.
pub fn next_due(tx: &mut Tx<'_>, now: Timestamp) -> Result<Option<Timestamp>, Fault> {
    if sql::deliveries::is_any_after(tx, latest_attempt(now))? {
        return Ok(Some(now));
    }
    sql::deliveries::next(tx, now, latest_lease(now))
}

/// Pending deliveries of one webhook that is missing from the due queue, if there are any.
///
/// # Errors
/// The database fails.
pub fn left_over(tx: &mut Tx<'_>) -> Result<Option<LeftOver>, Fault> {
    left_over::first(tx)
}

/// If their webhook is gone, ends at most `limit` of them; else puts it back into the due queue. Returns what
/// is left.
///
/// # Errors
/// The database fails.
pub fn end_left_over(tx: &mut Tx<'_>, left: &LeftOver, limit: i64) -> Result<Option<LeftOver>, Fault> {
    sql::webhooks::hold(tx, left.environment, WebhookId::from_bytes(left.webhook))?;
    if left_over::queue(tx, left)? {
        return Ok(None);
    }
    left_over::end(tx, left, limit)
}

/// Repeats a failed delivery: at once, and for another 24 hours. For the operator, who works across tenants.
///
/// # Errors
/// There is no such delivery, its webhook was deleted, or it has not failed.
pub fn retry(tx: &mut Tx<'_>, event: EventId, webhook: WebhookId, by: &Operator) -> Result<(), ScriptError> {
    let Some(found) = sql::deliveries::find(tx, event, webhook)? else {
        let message = format!("there is no delivery of {event} to {webhook}, or no such webhook any more");
        return Err(Refusal::new(Code::NotFound, message).into());
    };
    if found.state != DeliveryState::Failed {
        let state = found.state.as_str();
        let message = format!("the delivery is {state}: only one that has failed can be made again");
        return Err(Refusal::invalid(message).into());
    }
    sql::deliveries::retry(tx, found.environment, event, webhook, by.at)?;
    let entry = AuditEntry {
        action: "webhook.retry",
        organization: Some(&found.organization),
        environment: Some(found.kind),
        subject: &webhook.to_string(),
        details: json!({ "event": event.to_string() }),
    };
    Ok(audit::write(tx, by, &entry)?)
}
