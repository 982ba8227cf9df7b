//! `webhook`: the webhooks of organizations, and the state of their deliveries.

use clap::Subcommand;
use mandate_core::{AgentName, EventId, EventKind, Timestamp, WebhookId};
use serde::Serialize;
use serde_json::json;

use super::{Common, Failure, operator, terminal};
use crate::service::deliveries;
use crate::service::webhooks::{self, Overview};

/// Webhooks.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List an organization's webhooks, and how many deliveries wait or have failed
    #[command(after_help = LIST_HELP)]
    List {
        /// The organization
        #[arg(long, value_name = "NAME", value_parser = AgentName::parse)]
        organization: AgentName,

        #[command(flatten)]
        common: Common,
    },
    /// Make a delivery again that has failed: at once, and for another 24 hours
    #[command(after_help = RETRY_HELP)]
    Retry {
        /// The event
        event: String,

        /// The webhook
        webhook: String,

        #[command(flatten)]
        common: Common,
    },
}

const LIST_HELP: &str = "\
Examples:
  mandate-server webhook list --organization acme
  mandate-server webhook list --organization acme --json \\
      | jq '.[] | select(.failed > 0)'

The deliveries are counted, which takes a while if there are many.";

const RETRY_HELP: &str = "\
Examples:
  mandate-server webhook retry evt_01k9x5s7q4w8v3r2m6n0p1t5ya \\
      whk_01k9x5s7q4w8v3r2m6n0p1t5yb

GET /v1/events/{id} shows the deliveries of an event. The receiver recognises the event by its `jti`.";

#[derive(Serialize)]
struct View<'a> {
    webhook: WebhookId,
    environment: &'static str,
    url: &'a str,
    events: Vec<&'static str>,
    pending: i64,
    failed: i64,
    created_at: Timestamp,
}

impl<'a> View<'a> {
    fn of(overview: &'a Overview) -> Self {
        let Overview { kind, webhook, pending, failed } = overview;
        Self {
            webhook: webhook.id,
            environment: kind.as_str(),
            url: &webhook.url,
            events: webhook.events.iter().map(|kind| EventKind::as_str(*kind)).collect(),
            pending: *pending,
            failed: *failed,
            created_at: webhook.created_at,
        }
    }
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// There is no such organization, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::List { organization, common } => list(&organization, &common),
            Self::Retry { event, webhook, common } => retry(&event, &webhook, &common),
        }
    }
}

fn retry(event: &str, webhook: &str, common: &Common) -> Result<(), Failure> {
    let by = operator::here();
    let event = EventId::parse(event).map_err(Failure::unusable)?;
    let webhook = WebhookId::parse(webhook).map_err(Failure::unusable)?;
    let database = common.settings()?.database;
    terminal::run(&database, |tx| deliveries::retry(tx, event, webhook, &by))?;
    let done = json!({ "event": event.to_string(), "webhook": webhook.to_string(), "status": "pending" });
    terminal::print(common.json, &done, |out| writeln!(out, "{event} is sent to {webhook} again, at once."))
}

fn list(organization: &AgentName, common: &Common) -> Result<(), Failure> {
    let database = common.settings()?.database;
    let found = terminal::run(&database, |tx| webhooks::overview(tx, organization))?;
    let views: Vec<_> = found.iter().map(View::of).collect();
    terminal::print(common.json, &views, |out| {
        let heads = ["WEBHOOK", "ENVIRONMENT", "URL", "EVENTS", "PENDING", "FAILED"];
        let rows = views.iter().map(|view| {
            [
                view.webhook.to_string(),
                view.environment.to_owned(),
                view.url.to_owned(),
                view.events.join(","),
                view.pending.to_string(),
                view.failed.to_string(),
            ]
        });
        terminal::table(out, heads, rows)
    })
}
