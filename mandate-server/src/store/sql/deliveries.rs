//! Deliveries of events to webhooks, and their attempts.

use mandate_core::{EventId, Timestamp, WebhookId};

use crate::error::Fault;
use crate::store::records::{AttemptRecord, DeliveryRecord, DeliveryState, EventRecord};
use crate::store::tx::{Row, Tx};

const FAN_OUT: &str = "INSERT INTO deliveries (environment, event, webhook, state, due_at, attempts)
    SELECT environment, $1, webhook, 'pending', $2, 0 FROM subscriptions WHERE environment = $3 AND type = $4";
const INSERT: &str = "INSERT INTO deliveries (environment, event, webhook, state, due_at, attempts)
    VALUES ($1, $2, $3, 'pending', $4, 0)";
const END: &str = "UPDATE deliveries SET state = 'ended'
    WHERE environment = $1 AND webhook = $2 AND state = 'pending'";
const OF_EVENT: &str = "SELECT webhook, state, due_at FROM deliveries
    WHERE environment = $1 AND event = $2 ORDER BY webhook";
const COUNT: &str =
    "SELECT state, count(*) FROM deliveries WHERE environment = $1 AND webhook = $2 GROUP BY state";
const ATTEMPTS: &str = "SELECT at, status, error FROM attempts
    WHERE environment = $1 AND event = $2 AND webhook = $3 ORDER BY attempt";

/// Makes a delivery of an event, due at once, to each webhook that subscribes to its type.
pub fn fan_out(tx: &mut Tx<'_>, event: &EventRecord) -> Result<(), Fault> {
    let (id, at) = (event.id.to_bytes().into(), event.at.millis().into());
    tx.execute(FAN_OUT, &[id, at, event.environment.into(), event.kind.as_str().into()])?;
    Ok(())
}

/// Makes a delivery of an event, due at once, to one webhook.
pub fn insert(tx: &mut Tx<'_>, event: &EventRecord, webhook: WebhookId) -> Result<(), Fault> {
    let (id, at) = (event.id.to_bytes().into(), event.at.millis().into());
    tx.execute_one(INSERT, &[event.environment.into(), id, webhook.to_bytes().into(), at])
}

/// Ends the deliveries to a webhook that are under way.
pub fn end(tx: &mut Tx<'_>, environment: i64, webhook: WebhookId) -> Result<(), Fault> {
    tx.execute(END, &[environment.into(), webhook.to_bytes().into()])?;
    Ok(())
}

/// The deliveries of an event with their attempts, in the order of their webhooks' creation.
pub fn of_event(tx: &mut Tx<'_>, environment: i64, event: EventId) -> Result<Vec<DeliveryRecord>, Fault> {
    let rows = tx.query(OF_EVENT, &[environment.into(), event.to_bytes().into()])?;
    rows.into_iter().map(|row| read(tx, environment, event, row)).collect()
}

/// How many deliveries to a webhook stand where. It reads all of the environment's: for operators only.
pub fn count(
    tx: &mut Tx<'_>,
    environment: i64,
    webhook: WebhookId,
) -> Result<Vec<(DeliveryState, i64)>, Fault> {
    let rows = tx.query(COUNT, &[environment.into(), webhook.to_bytes().into()])?.into_iter();
    rows.map(|mut row| Ok((DeliveryState::parse(&row.text()?)?, row.integer()?))).collect()
}

/// There are at most as many deliveries of an event as webhooks: one query each.
fn read(tx: &mut Tx<'_>, environment: i64, event: EventId, mut row: Row) -> Result<DeliveryRecord, Fault> {
    let webhook = WebhookId::from_bytes(row.bytes()?);
    let key = [environment.into(), event.to_bytes().into(), webhook.to_bytes().into()];
    Ok(DeliveryRecord {
        webhook,
        state: DeliveryState::parse(&row.text()?)?,
        due_at: Timestamp::from_millis(row.integer()?),
        attempts: tx.query(ATTEMPTS, &key)?.into_iter().map(read_attempt).collect::<Result<_, _>>()?,
    })
}

fn read_attempt(mut row: Row) -> Result<AttemptRecord, Fault> {
    Ok(AttemptRecord {
        at: Timestamp::from_millis(row.integer()?),
        status: row.maybe_integer()?,
        error: row.maybe_text()?,
    })
}
