//! The log of events, as the API shows it.

use mandate_core::{EventId, EventKind, Timestamp, WebhookId};
use serde::Serialize;
use serde_json::value::RawValue;

use super::listing::{Cursors, Query, Walk};
use crate::error::Refusal;
use crate::model::call::{Answer, Call, Scripted};
use crate::model::records::{AttemptRecord, DeliveryRecord, DeliveryState, EventRecord};
use crate::store::sql;
use crate::store::tx::Tx;

/// An event as the API shows it.
#[derive(Debug, Serialize)]
pub struct EventView<'a> {
    event: EventId,
    #[serde(rename = "type")]
    kind: EventKind,
    created_at: Timestamp,
    data: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliveries: Option<Vec<DeliveryView<'a>>>,
}

#[derive(Debug, Serialize)]
struct DeliveryView<'a> {
    webhook: WebhookId,
    status: DeliveryState,
    attempts: Vec<AttemptView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
struct AttemptView<'a> {
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> EventView<'a> {
    /// The event without its deliveries.
    #[must_use]
    pub fn of(event: &'a EventRecord) -> Self {
        Self { event: event.id, kind: event.kind, created_at: event.at, data: &event.data, deliveries: None }
    }
}

impl<'a> DeliveryView<'a> {
    fn of(delivery: &'a DeliveryRecord) -> Self {
        Self {
            webhook: delivery.webhook,
            status: delivery.state,
            attempts: delivery.attempts.iter().map(AttemptView::of).collect(),
            next_attempt_at: (delivery.state == DeliveryState::Pending).then_some(delivery.due_at),
        }
    }
}

impl<'a> AttemptView<'a> {
    fn of(attempt: &'a AttemptRecord) -> Self {
        Self { at: attempt.at, status: attempt.status, error: attempt.error.as_deref() }
    }
}

/// The events of the environment, of one type or of all.
///
/// # Errors
/// The cursor does not open.
pub fn list(
    tx: &mut Tx<'_>,
    call: &Call,
    kind: Option<EventKind>,
    query: &Query,
    cursors: &Cursors,
) -> Scripted {
    let filters = kind.map_or_else(String::new, |kind| format!("type={kind}"));
    let place = |id: &str| Ok(EventId::parse(id).ok().map(EventId::to_bytes));
    let walk = Walk::open("events", filters, call, query, cursors, place)?;
    let found = sql::events::page(tx, call.caller.environment.id, kind, &walk.slice)?;
    let rows = found.iter().map(|event| (event.id.to_bytes(), EventView::of(event))).collect();
    walk.answer(rows, None)
}

/// One event, with its deliveries and their attempts.
///
/// # Errors
/// There is none of that id for this caller.
pub fn get(tx: &mut Tx<'_>, call: &Call, id: &str) -> Scripted {
    let environment = call.caller.environment.id;
    let id = EventId::parse(id).map_err(|_| Refusal::not_found())?;
    let event = sql::events::find(tx, environment, id)?.ok_or_else(Refusal::not_found)?;
    let deliveries = sql::deliveries::of_event(tx, environment, id)?;
    let deliveries = Some(deliveries.iter().map(DeliveryView::of).collect());
    Ok(Answer::new(200, &EventView { deliveries, ..EventView::of(&event) })?)
}
