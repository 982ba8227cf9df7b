//! `mandate event`: lists and shows events, whether or not they were delivered to a webhook.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::Subcommand;
use mandate_core::api_key::KeyClass;
use mandate_core::{EventId, EventKind};

use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::named::{Given, completed, given};
use crate::output::Output;
use crate::resource::{Filter, ListOptions, Resource};
use crate::service::Service;
use crate::table::{id, state, text, time, whole};
use crate::tail::Following;
use crate::value::event_kind;

/// How lists, `show` and a ping print events.
pub(super) const EVENTS: Resource = Resource {
    path: "/events",
    class: Some(KeyClass::Organization),
    id: Some("event"),
    columns: &[id("EVENT", "event").spare(1), whole("TYPE", "type"), time("CREATED", "created_at")],
    lines: &[
        whole("event", "event"),
        text("type", "type"),
        text("created", "created_at"),
        text("data", "data"),
    ],
    tables: &[(
        "deliveries",
        &[id("WEBHOOK", "webhook"), state("STATUS", "status"), time("NEXT ATTEMPT", "next_attempt_at")],
    )],
};

#[derive(Debug, Subcommand)]
pub(crate) enum Event {
    /// List events, newest first
    #[command(
        alias = "ls",
        after_help = "\
Examples:
  mandate event list --type decision.review_pending
  mandate event list --all --format ndjson"
    )]
    List {
        /// Only this type
        #[arg(long = "type", value_name = "TYPE", value_parser = event_kind())]
        kind: Option<EventKind>,
        #[command(flatten)]
        list: ListOptions,
    },
    /// Show an event and its deliveries
    #[command(after_help = "\
Examples:
  mandate event show evt_01hf7yat000000000000000007
  mandate event show evt_01hf7yat000000000000000007 \\
      --jq '.deliveries[].attempts'")]
    Show {
        /// The event's id, `evt_...`, or its beginning as lists show it [default: a choice]
        #[arg(value_parser = given::<EventId>, add = completed::<EventId>())]
        id: Option<Given<EventId>>,
        #[command(flatten)]
        service: Service,
    },
    /// Show the newest events; with --follow, also each new one
    #[command(after_help = "\
Examples:
  mandate event tail --follow
  mandate event tail -f --type mandate.revoked \\
      | while read -r event; do echo \"$event\"; done

In a pipe, each event is one line of JSON.")]
    Tail {
        /// Only this type
        #[arg(long = "type", value_name = "TYPE", value_parser = event_kind())]
        kind: Option<EventKind>,
        #[command(flatten)]
        tail: Following,
        #[command(flatten)]
        service: Service,
    },
}

impl Event {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let filters = |kind: &Option<EventKind>| -> Vec<Filter> {
            vec![("type", kind.as_ref().map(ToString::to_string))]
        };
        match self {
            Self::List { kind, list } => list.run(&EVENTS, filters(kind), global, output),
            Self::Show { id, service } => EVENTS.get(service, id.as_ref(), global, output),
            Self::Tail { kind, tail, service } => tail.run(
                &Client::new(service, global, EVENTS.class)?,
                &EVENTS,
                filters(kind),
                ("type", &[]),
                output,
            ),
        }
    }
}
