//! What an organization has besides: agents, webhooks with their deliveries, exports, people with their passkeys.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use mandate_core::Timestamp;
use url::Url;

use super::Console;
use super::frame::{AGENTS, EXPORTS, Frame, PEOPLE, WEBHOOKS, html};
use super::session::Visit;
use crate::http::pages::Time;
use crate::http::respond::Failure;
use crate::model::people::PasskeyRecord;
use crate::model::records::{DeliveryRecord, DeliveryState, WebhookRecord};
use crate::service::console::lists::{self, Agent, Export, Sent};
use crate::service::exports::requested_at;
use crate::service::people::{self, Listed};

#[derive(Debug, Template)]
#[template(path = "console/agents.html")]
struct Agents<'a> {
    frame: Frame<'a>,
    rows: Vec<AgentRow>,
    has_more: bool,
}

#[derive(Debug)]
struct AgentRow {
    id: String,
    at: Time,
    mandate: Option<String>,
}

#[derive(Debug, Template)]
#[template(path = "console/webhooks.html")]
struct WebhooksPage<'a> {
    frame: Frame<'a>,
    webhooks: Vec<WebhookRow>,
    sent: Vec<SentRow>,
}

/// A webhook. Of its URL the host alone: the rest may be secret.
#[derive(Debug)]
struct WebhookRow {
    id: String,
    host: String,
    events: String,
    at: Time,
}

#[derive(Debug)]
struct SentRow {
    id: String,
    kind: String,
    at: Time,
    deliveries: Vec<DeliveryRow>,
}

#[derive(Debug)]
struct DeliveryRow {
    state: &'static str,
    tone: &'static str,
    detail: String,
}

#[derive(Debug, Template)]
#[template(path = "console/exports.html")]
struct Exports<'a> {
    frame: Frame<'a>,
    rows: Vec<ExportRow>,
}

#[derive(Debug)]
struct ExportRow {
    id: String,
    at: Time,
    what: String,
    state: &'static str,
    tone: &'static str,
    rows: Option<i64>,
}

#[derive(Debug, Template)]
#[template(path = "console/people.html")]
struct People<'a> {
    frame: Frame<'a>,
    people: Vec<PersonRow>,
}

#[derive(Debug)]
struct PersonRow {
    name: String,
    is_own: bool,
    is_disabled: bool,
    roles: String,
    may: &'static str,
    keys: Vec<KeyRow>,
}

#[derive(Debug)]
struct KeyRow {
    label: String,
    detail: String,
}

/// The agents.
pub(super) async fn agents(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let environment = visit.viewer.environment.id;
    let (agents, has_more) = console.read(move |tx| lists::agents(tx, environment)).await?;
    let rows = agents.iter().map(AgentRow::from).collect();
    html(&Agents { frame: Frame::of(&visit, AGENTS), rows, has_more })
}

/// The webhooks, and what was sent.
pub(super) async fn webhooks(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let environment = visit.viewer.environment.id;
    let (webhooks, sent) = console.read(move |tx| lists::webhooks(tx, environment)).await?;
    html(&WebhooksPage {
        frame: Frame::of(&visit, WEBHOOKS),
        sent: sent.iter().map(|sent| SentRow::of(sent, &webhooks)).collect(),
        webhooks: webhooks.iter().map(WebhookRow::from).collect(),
    })
}

/// The exports.
pub(super) async fn exports(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let (environment, now) = (visit.viewer.environment.id, visit.at);
    let exports = console.read(move |tx| lists::exports(tx, environment, now)).await?;
    html(&Exports { frame: Frame::of(&visit, EXPORTS), rows: exports.iter().map(ExportRow::from).collect() })
}

/// The people, and their passkeys.
pub(super) async fn people(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let environment = visit.viewer.environment.id;
    let listed = console.read(move |tx| people::all(tx, environment)).await?;
    let people = listed.iter().map(|listed| PersonRow::of(listed, &visit)).collect();
    html(&People { frame: Frame::of(&visit, PEOPLE), people })
}

impl From<&Agent> for AgentRow {
    fn from(agent: &Agent) -> Self {
        let mandate = agent.governing.map(|id| id.to_string());
        Self { id: agent.id.to_string(), at: agent.created_at.into(), mandate }
    }
}

fn host(url: &str) -> String {
    Url::parse(url).map_or_else(|_| "?".to_owned(), |url| url.origin().ascii_serialization())
}

impl From<&WebhookRecord> for WebhookRow {
    fn from(webhook: &WebhookRecord) -> Self {
        let events: Vec<_> = webhook.events.iter().map(ToString::to_string).collect();
        Self {
            id: webhook.id.to_string(),
            host: host(&webhook.url),
            events: events.join(", "),
            at: webhook.created_at.into(),
        }
    }
}

impl SentRow {
    fn of(sent: &Sent, webhooks: &[WebhookRecord]) -> Self {
        let deliveries = sent.deliveries.iter().map(|delivery| DeliveryRow::of(delivery, webhooks));
        Self {
            id: sent.event.id.to_string(),
            kind: sent.event.kind.to_string(),
            at: sent.event.at.into(),
            deliveries: deliveries.collect(),
        }
    }
}

impl DeliveryRow {
    fn of(delivery: &DeliveryRecord, webhooks: &[WebhookRecord]) -> Self {
        let tone = match delivery.state {
            DeliveryState::Delivered => "good",
            DeliveryState::Pending => "care",
            DeliveryState::Failed => "bad",
            DeliveryState::Ended => "dim",
        };
        let to = webhooks.iter().find(|webhook| webhook.id == delivery.webhook);
        let to = to.map_or_else(|| delivery.webhook.to_string(), |webhook| host(&webhook.url));
        let (tried, last) = (delivery.attempts.len(), delivery.attempts.last());
        let last = last.and_then(|attempt| {
            attempt.error.clone().or_else(|| attempt.status.map(|status| format!("status {status}")))
        });
        let last = last.map(|last| format!(", last: {last}")).unwrap_or_default();
        let detail = format!("to {to}, attempts: {tried}{last}");
        Self { state: delivery.state.as_str(), tone, detail }
    }
}

impl From<&Export> for ExportRow {
    fn from(export: &Export) -> Self {
        let filter = &export.filter;
        let time = |at: Timestamp| Time::from(at).shown;
        let parts = [
            Some(export.format.as_str().to_owned()),
            filter.agent.as_ref().map(ToString::to_string),
            filter.verdict.map(|verdict| verdict.to_string()),
            filter.since.map(|since| format!("from {}", time(since))),
            filter.until.map(|until| format!("until {}", time(until))),
        ];
        let state = export.status.as_str();
        Self {
            id: export.id.to_string(),
            at: requested_at(export.expires_at).into(),
            what: parts.into_iter().flatten().collect::<Vec<_>>().join(", "),
            state,
            tone: match state {
                "ready" => "good",
                "failed" => "bad",
                _ => "care",
            },
            rows: export.content.map(|(rows, _)| rows),
        }
    }
}

impl PersonRow {
    fn of(Listed { record, keys }: &Listed, visit: &Visit) -> Self {
        let roles: Vec<_> = record.person.roles.iter().map(ToString::to_string).collect();
        Self {
            name: record.person.name.clone(),
            is_own: record.person.id == visit.viewer.person.id,
            is_disabled: record.disabled_at.is_some(),
            roles: roles.join(", "),
            may: record.person.may.as_str(),
            keys: keys.iter().map(KeyRow::from).collect(),
        }
    }
}

impl From<&PasskeyRecord> for KeyRow {
    fn from(key: &PasskeyRecord) -> Self {
        let synced = if key.is_synced { ", synced" } else { "" };
        let withdrawn = key.withdrawn_at.map(|at| format!(", withdrawn {}", Time::from(at).shown));
        let enrolled = Time::from(key.enrolled_at).shown;
        let detail = format!("enrolled {enrolled}{synced}{}", withdrawn.unwrap_or_default());
        Self { label: key.label.clone(), detail }
    }
}
