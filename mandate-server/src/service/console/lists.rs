//! What an organization has besides: agents, webhooks with their deliveries, exports.

use mandate_core::Timestamp;

use crate::error::Fault;
use crate::model::records::{DeliveryRecord, Direction, EventRecord, Slice, WebhookRecord};
use crate::service::webhooks::MAX_WEBHOOKS;
use crate::store::sql;
use crate::store::tx::Tx;

pub use crate::store::sql::agents::Agent;
pub use crate::store::sql::exports::Export;

/// How many agents a page shows.
pub const AGENTS: usize = 200;
/// How many of the newest events are shown with their deliveries.
const EVENTS: i64 = 30;

/// An event, and how it was delivered.
#[derive(Debug)]
pub struct Sent {
    /// The event.
    pub event: EventRecord,
    /// Its deliveries.
    pub deliveries: Vec<DeliveryRecord>,
}

/// The newest agents, and whether there are more.
///
/// # Errors
/// The database fails.
pub fn agents(tx: &mut Tx<'_>, environment: i64) -> Result<(Vec<Agent>, bool), Fault> {
    let mut rows =
        sql::agents::page(tx, environment, &newest(i64::try_from(AGENTS + 1).unwrap_or(i64::MAX)))?;
    let has_more = rows.len() > AGENTS;
    rows.truncate(AGENTS);
    Ok((rows, has_more))
}

/// The webhooks, and the newest events with their deliveries.
///
/// # Errors
/// The database fails.
pub fn webhooks(tx: &mut Tx<'_>, environment: i64) -> Result<(Vec<WebhookRecord>, Vec<Sent>), Fault> {
    let webhooks = sql::webhooks::page(tx, environment, &newest(MAX_WEBHOOKS))?;
    let mut sent = Vec::new();
    for event in sql::events::page(tx, environment, None, &newest(EVENTS))? {
        let deliveries = sql::deliveries::of_event(tx, environment, event.id)?;
        sent.push(Sent { event, deliveries });
    }
    Ok((webhooks, sent))
}

/// The exports that are kept, newest first.
///
/// # Errors
/// The database fails.
pub fn exports(tx: &mut Tx<'_>, environment: i64, now: Timestamp) -> Result<Vec<Export>, Fault> {
    sql::exports::of_environment(tx, environment, now)
}

fn newest(limit: i64) -> Slice {
    Slice { direction: Direction::Older, from: [0xff; 16], limit }
}
