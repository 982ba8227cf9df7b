//! Webhooks: the addresses to which an organization's events are delivered.

use std::collections::BTreeSet;
use std::sync::Arc;

use mandate_core::api_key::holds_key;
use mandate_core::json::{Field, Object};
use mandate_core::{AgentName, EnvironmentKind, EventKind, Invalid, Timestamp, WebhookId};
use serde::Serialize;

use super::endpoint::{self, EgressPolicy};
use super::events::EventView;
use super::listing::{Cursors, Query, Walk};
use super::moments::Moments;
use super::{organizations, outbox};
use crate::error::Refusal;
use crate::model::call::{Answer, Call, ScriptError, Scripted};
use crate::model::records::{DeliveryState, Direction, Slice, WebhookRecord};
use crate::store::sql;
use crate::store::tx::Tx;

/// How many webhooks an environment may have.
pub const MAX_WEBHOOKS: i64 = 16;

/// The settings of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The receiver's URL, normalised.
    pub url: String,
    /// The types of events.
    pub events: BTreeSet<EventKind>,
}

/// A webhook as the operator sees it.
#[derive(Debug)]
pub struct Overview {
    /// The kind of its environment.
    pub kind: EnvironmentKind,
    /// The webhook.
    pub webhook: WebhookRecord,
    /// Deliveries that are still to be attempted.
    pub pending: i64,
    /// Deliveries that failed for good.
    pub failed: i64,
}

/// The command to register a webhook.
#[derive(Debug)]
pub struct Create {
    /// Its settings.
    pub subscription: Subscription,
    /// Its id, drawn before.
    pub id: WebhookId,
    /// When.
    pub at: Timestamp,
}

/// The command to ping a webhook.
#[derive(Debug)]
pub struct Ping {
    /// Its id.
    pub id: String,
    /// Where the event's time and id come from.
    pub moments: Arc<Moments>,
}

#[derive(Serialize)]
struct View<'a> {
    webhook: WebhookId,
    url: &'a str,
    events: &'a BTreeSet<EventKind>,
    status: &'static str,
    created_at: Timestamp,
}

#[derive(Serialize)]
struct Pinged {
    webhook: WebhookId,
}

impl Subscription {
    /// Reads the body of POST /v1/webhooks.
    ///
    /// # Errors
    /// A field is missing or unknown, or its type or value is invalid.
    pub fn read(mut body: Object<'_>, egress: &EgressPolicy) -> Result<Self, Invalid> {
        let url = body.require("url")?.string()?;
        // A key between `&` and `=`, `+` and `%` is in a piece of its own, or in the only one.
        let mut pieces = form_urlencoded::parse(url.as_bytes());
        if pieces.any(|(name, value)| holds_key(&name) || holds_key(&value)) {
            return Err(Invalid::new("url", "must not hold an API key, percent-encoded or not"));
        }
        let url = endpoint::parse(&url, egress)?.into();
        let events = read_events(&body.require("events")?)?;
        body.finish()?;
        Ok(Self { url, events })
    }
}

fn read_events(field: &Field<'_>) -> Result<BTreeSet<EventKind>, Invalid> {
    let elements = field.array()?;
    if elements.is_empty() {
        return Err(Invalid::new("events", "must hold at least one type of event"));
    }
    let mut events = BTreeSet::new();
    for element in elements {
        let kind = EventKind::parse(&element.string()?).map_err(|e| e.at(element.path()))?;
        if !events.insert(kind) {
            return Err(Invalid::new(element.path(), format!("must not be given twice; got `{kind}`")));
        }
    }
    Ok(events)
}

impl<'a> View<'a> {
    fn of(webhook: &'a WebhookRecord) -> Self {
        Self {
            webhook: webhook.id,
            url: &webhook.url,
            events: &webhook.events,
            status: "active",
            created_at: webhook.created_at,
        }
    }
}

/// Registers a webhook. It receives the events that happen from then on.
///
/// # Errors
/// The environment has [`MAX_WEBHOOKS`] of them.
pub fn create(tx: &mut Tx<'_>, call: &Call, command: &Create) -> Scripted {
    let environment = call.caller.environment.id;
    sql::environments::lock(tx, environment)?;
    if sql::webhooks::count(tx, environment)? >= MAX_WEBHOOKS {
        let message =
            format!("there are {MAX_WEBHOOKS} webhooks, the most that there can be; delete one first");
        return Err(Refusal::invalid(message).into());
    }
    let Subscription { url, events } = command.subscription.clone();
    let webhook = WebhookRecord { id: command.id, url, events, created_at: command.at };
    sql::webhooks::insert(tx, environment, &webhook)?;
    Ok(Answer::new(201, &View::of(&webhook))?)
}

/// The webhooks of the environment.
///
/// # Errors
/// The cursor does not open.
pub fn list(tx: &mut Tx<'_>, call: &Call, query: &Query, cursors: &Cursors) -> Scripted {
    let place = |id: &str| Ok(WebhookId::parse(id).ok().map(WebhookId::to_bytes));
    let walk = Walk::open("webhooks", String::new(), call, query, cursors, place)?;
    let found = sql::webhooks::page(tx, call.caller.environment.id, &walk.slice)?;
    let rows = found.iter().map(|webhook| (webhook.id.to_bytes(), View::of(webhook))).collect();
    walk.answer(rows, None)
}

/// One webhook.
///
/// # Errors
/// There is none of that id.
pub fn get(tx: &mut Tx<'_>, call: &Call, id: &str) -> Scripted {
    let webhook = sql::webhooks::find(tx, call.caller.environment.id, parse(id)?)?;
    Ok(Answer::new(200, &View::of(&webhook.ok_or_else(Refusal::not_found)?))?)
}

/// Deletes a webhook. Its pending deliveries end with it, however many there are.
/// [`super::deliveries::end_left_over`] updates their rows later, since transactions that write events for
/// the webhook wait for this one.
///
/// # Errors
/// There is none of that id.
pub fn delete(tx: &mut Tx<'_>, call: &Call, id: &str) -> Scripted {
    let webhook = lock(tx, call, id)?;
    sql::webhooks::delete(tx, call.caller.environment.id, webhook)?;
    Ok(Answer::empty())
}

/// Sends a ping to this webhook alone, whatever it subscribes to.
///
/// # Errors
/// There is none of that id.
pub fn ping(tx: &mut Tx<'_>, call: &Call, command: &Ping) -> Scripted {
    let webhook = lock(tx, call, &command.id)?;
    let (environment, moments) = (call.caller.environment.id, &command.moments);
    let (at, data) = (moments.now(tx)?, outbox::data(&Pinged { webhook })?);
    let event = outbox::write_to(tx, moments, environment, webhook, EventKind::Ping, at, data)?;
    Ok(Answer::new(202, &EventView::of(&event))?)
}

fn parse(id: &str) -> Result<WebhookId, Refusal> {
    WebhookId::parse(id).map_err(|_| Refusal::not_found())
}

fn lock(tx: &mut Tx<'_>, call: &Call, id: &str) -> Result<WebhookId, ScriptError> {
    let webhook = sql::webhooks::lock(tx, call.caller.environment.id, parse(id)?)?;
    Ok(webhook.ok_or_else(Refusal::not_found)?.id)
}

/// The webhooks of an organization with the state of their deliveries, newest first in each environment.
///
/// # Errors
/// There is no such organization.
pub fn overview(tx: &mut Tx<'_>, organization: &AgentName) -> Result<Vec<Overview>, ScriptError> {
    let newest = Slice { direction: Direction::Older, from: [u8::MAX; 16], limit: MAX_WEBHOOKS };
    let mut found = Vec::new();
    for environment in organizations::list(tx, Some(organization))? {
        for webhook in sql::webhooks::page(tx, environment.environment, &newest)? {
            let counts = sql::deliveries::count(tx, environment.environment, webhook.id)?;
            let of = |state| counts.iter().filter(|(at, _)| *at == state).map(|(_, count)| count).sum();
            let (pending, failed) = (of(DeliveryState::Pending), of(DeliveryState::Failed));
            found.push(Overview { kind: environment.kind, webhook, pending, failed });
        }
    }
    Ok(found)
}
