//! `mandate webhook`: creates, lists, pings and deletes webhooks.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::Subcommand;
use mandate_core::api_key::KeyClass;
use mandate_core::{EventKind, WebhookId};
use serde_json::json;

use super::event::EVENTS;
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::named::{Given, completed, given, to_change};
use crate::output::Output;
use crate::resource::{ListOptions, Resource};
use crate::service::{Change, Service};
use crate::table::{id, state, text, whole};
use crate::value::event_kind;

/// The narrowest column of addresses, which shows the host of most.
const URL_WIDTH: u16 = 30;

const WEBHOOKS: Resource = Resource {
    path: "/webhooks",
    class: Some(KeyClass::Organization),
    id: Some("webhook"),
    columns: &[
        id("WEBHOOK", "webhook"),
        state("STATUS", "status"),
        text("URL", "url").least(URL_WIDTH),
        text("EVENTS", "events").spare(1),
    ],
    lines: &[
        whole("webhook", "webhook"),
        text("url", "url"),
        text("events", "events"),
        state("status", "status"),
        text("created", "created_at"),
    ],
    tables: &[],
};

#[derive(Debug, Subcommand)]
pub(crate) enum Webhook {
    /// Create a webhook
    #[command(after_help = "\
Examples:
  mandate webhook create https://hooks.example.com/mandate \\
      --events decision.review_pending,mandate.revoked
  mandate webhook create https://hooks.example.com/all --all-events")]
    Create {
        /// The URL that events are posted to, https
        url: String,
        /// The event types, separated by commas
        #[arg(long, value_name = "TYPE,...", value_delimiter = ',', required_unless_present = "all_events", value_parser = event_kind())]
        events: Vec<EventKind>,
        /// All event types
        #[arg(long, conflicts_with = "events")]
        all_events: bool,
        #[command(flatten)]
        change: Change,
    },
    /// List webhooks
    #[command(
        alias = "ls",
        after_help = "\
Examples:
  mandate webhook list"
    )]
    List(ListOptions),
    /// Show a webhook
    #[command(after_help = "\
Examples:
  mandate webhook show whk_01hf7yat000000000000000007")]
    Show {
        /// The webhook's id, `whk_...`, or its beginning as lists show it [default: a choice]
        #[arg(value_parser = given::<WebhookId>, add = completed::<WebhookId>())]
        id: Option<Given<WebhookId>>,
        #[command(flatten)]
        service: Service,
    },
    /// Delete a webhook; its pending deliveries are dropped
    #[command(
        alias = "rm",
        after_help = "\
Examples:
  mandate webhook delete whk_01hf7yat000000000000000007"
    )]
    Delete {
        /// The webhook's id, `whk_...`; at a terminal also its beginning [default: a choice]
        #[arg(value_parser = given::<WebhookId>, add = completed::<WebhookId>())]
        id: Option<Given<WebhookId>>,
        #[command(flatten)]
        service: Service,
    },
    /// Send a ping event to a webhook
    #[command(after_help = "\
Examples:
  mandate webhook ping whk_01hf7yat000000000000000007
  mandate event show \\
      \"$(mandate webhook ping whk_01hf7yat000000000000000007 --jq .event)\"")]
    Ping {
        /// The webhook's id, `whk_...`; at a terminal also its beginning [default: a choice]
        #[arg(value_parser = given::<WebhookId>, add = completed::<WebhookId>())]
        id: Option<Given<WebhookId>>,
        #[command(flatten)]
        change: Change,
    },
}

impl Webhook {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let class = Some(KeyClass::Organization);
        match self {
            Self::Create { url, events, all_events, change } => {
                let client = Client::for_change(change, global, class)?;
                let events = if *all_events { &EventKind::ALL[..] } else { events };
                let events: Vec<String> = events.iter().map(ToString::to_string).collect();
                client.confirm(&format!("send {} to {url}", events.join(", ")))?;
                let body = json!({"url": url, "events": events}).to_string();
                WEBHOOKS.change(&client, WEBHOOKS.path, Some(&body), output)
            }
            Self::List(list) => list.run(&WEBHOOKS, Vec::new(), global, output),
            Self::Show { id, service } => WEBHOOKS.get(service, id.as_ref(), global, output),
            Self::Delete { id, service } => {
                let client = Client::new(service, global, class)?;
                let id: WebhookId = to_change(id.as_ref(), &client)?;
                client.confirm(&format!("delete {id}"))?;
                client.delete(&format!("/webhooks/{id}"))?;
                WEBHOOKS.show(&json!({"webhook": id.to_string(), "status": "deleted"}).to_string(), output)
            }
            Self::Ping { id, change } => {
                let client = Client::for_change(change, global, class)?;
                let id: WebhookId = to_change(id.as_ref(), &client)?;
                client.confirm(&format!("send a ping to {id}"))?;
                EVENTS.change(&client, &format!("/webhooks/{id}/ping"), None, output)
            }
        }
    }
}
