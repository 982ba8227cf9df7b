//! The outbox: an event and its deliveries are written in the transaction of the change that the event
//! reports.

use mandate_core::{EventKind, Timestamp, WebhookId};
use serde::Serialize;
use serde_json::value::RawValue;

use super::moments::Moments;
use crate::error::Fault;
use crate::model::records::EventRecord;
use crate::store::sql;
use crate::store::tx::Tx;

/// Writes an event, and a delivery to each webhook that subscribes to its type. Returns the event. A script calls
/// it last, since the event's id is drawn here. What follows may wait: the deliveries for a webhook's lock, and in a
/// batch, which draws when it decides, the signatures too. COMMIT is begun 20 seconds after the work was requested or
/// not at all. So an event is visible well within the minute that a client which follows the list allows for.
///
/// # Errors
/// The database fails.
pub fn write(
    tx: &mut Tx<'_>,
    moments: &Moments,
    environment: i64,
    kind: EventKind,
    at: Timestamp,
    data: Box<RawValue>,
) -> Result<EventRecord, Fault> {
    let event = insert(tx, moments, environment, kind, at, data)?;
    sql::deliveries::fan_out(tx, &event)?;
    Ok(event)
}

/// Writes an event for one webhook only, even if it does not subscribe to the type. Returns the event.
///
/// # Errors
/// The database fails.
pub fn write_to(
    tx: &mut Tx<'_>,
    moments: &Moments,
    environment: i64,
    webhook: WebhookId,
    kind: EventKind,
    at: Timestamp,
    data: Box<RawValue>,
) -> Result<EventRecord, Fault> {
    let event = insert(tx, moments, environment, kind, at, data)?;
    sql::deliveries::insert(tx, &event, webhook)?;
    Ok(event)
}

fn insert(
    tx: &mut Tx<'_>,
    moments: &Moments,
    environment: i64,
    kind: EventKind,
    at: Timestamp,
    data: Box<RawValue>,
) -> Result<EventRecord, Fault> {
    let event = EventRecord { environment, id: moments.event(tx, environment, at)?, kind, at, data };
    sql::events::insert(tx, &event)?;
    Ok(event)
}

/// The object that an event is about, as the API shows it.
///
/// # Errors
/// It cannot be written.
pub fn data(view: &impl Serialize) -> Result<Box<RawValue>, Fault> {
    serde_json::value::to_raw_value(view).map_err(|e| Fault::new(format!("cannot write an event: {e}")))
}
