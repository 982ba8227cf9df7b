//! `mandate decision`: lists and shows decisions.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::{Subcommand, ValueEnum};
use mandate_core::{AgentId, DecisionId, MandateId, Timestamp, Verdict};

use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::Output;
use crate::resource::{Filter, ListOptions, Resource};
use crate::service::Service;
use crate::table::{seconds, state, text, whole};
use crate::tail::Following;
use crate::value::{agent, instant};

/// How lists and `show` print decisions.
pub(super) const DECISIONS: Resource = Resource {
    path: "/decisions",
    class: None,
    id: Some("jti"),
    columns: &[
        whole("DECISION", "jti"),
        state("VERDICT", "verdict"),
        whole("AMOUNT", "request.amount request.currency"),
        text("AGENT", "request.agent"),
        text("RECIPIENT", "request.recipient"),
        seconds("MADE", "iat"),
    ],
    lines: &[
        state("verdict", "verdict"),
        text("reason", "reason"),
        whole("decision", "jti"),
        text("sequence", "sequence"),
        text("mode", "mode"),
        text("amount", "request.amount request.currency"),
        text("recipient", "request.recipient"),
        text("category", "request.category"),
        text("agent", "request.agent"),
        text("mandate", "mandate"),
        text("made", "decided_at"),
        text("denials", "denials"),
        text("supersedes", "supersedes"),
        text("spent before", "basis.spent"),
        text("recent", "basis.recent_requests"),
        text("review", "review.id"),
        state("status", "review.status"),
        text("waits for", "review.waits_for"),
        text("expires", "review.expires_at"),
        text("resolved", "review.resolved_at"),
        text("became", "review.decision"),
        text("said", "review.reason"),
        text("token", "verdict_token"),
    ],
    tables: &[],
};

#[derive(Debug, Subcommand)]
pub(crate) enum Decision {
    /// List decisions, newest first; with an agent key, only its own
    #[command(after_help = "\
Examples:
  mandate decision list --agent agt_buyer --verdict deny_limit
  mandate decision list --since 2026-06-01T00:00:00Z --all --format ndjson \\
      > june.ndjson
  mandate decision list --all --jq 'map(.request.amount) | add'")]
    List {
        #[command(flatten)]
        filters: Filters,
        #[command(flatten)]
        list: ListOptions,
    },
    /// Show a decision and its signed token
    #[command(after_help = "\
Examples:
  mandate decision show dec_01hf7yat000000000000000007
  mandate decision show dec_01hf7yat000000000000000007 --jq .verdict_token")]
    Show {
        /// The decision's id, `dec_...`
        #[arg(value_parser = DecisionId::parse)]
        id: DecisionId,
        #[command(flatten)]
        service: Service,
    },
    /// Show the newest decisions; with --follow, also each new one
    #[command(after_help = "\
Examples:
  mandate decision tail --follow
  mandate decision tail -f --verdict review | jq -r .review.id

In a pipe, each decision is one line of JSON.")]
    Tail {
        #[command(flatten)]
        filters: Filters,
        #[command(flatten)]
        tail: Following,
        #[command(flatten)]
        service: Service,
    },
}

/// Which decisions.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Only this agent
    #[arg(long, value_name = "AGENT", value_parser = agent)]
    agent: Option<AgentId>,
    /// Only this verdict: allow, review, deny_limit ...
    #[arg(long, value_parser = Verdict::parse)]
    verdict: Option<Verdict>,
    /// Only under this mandate
    #[arg(long, value_name = "ID", value_parser = MandateId::parse)]
    mandate: Option<MandateId>,
    /// Only decisions made in this mode
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Only decisions whose review has this state
    #[arg(long, value_enum)]
    review: Option<Review>,
    /// Only from this time on, by the time in ids: RFC 3339, or seconds since the epoch
    #[arg(long, value_name = "TIME", value_parser = instant)]
    since: Option<Timestamp>,
    /// Only before this time, by the time in ids
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<Timestamp>,
}

/// The mode of an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Verdicts are recorded, and nothing blocks
    Observe,
    /// Denials block
    Enforce,
}

/// The state of a review.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Review {
    /// Not yet resolved
    Pending,
    /// Approved by a person
    Approved,
    /// Denied by a person
    Denied,
    /// Not resolved in time
    Expired,
}

/// The word for a value of a closed set.
pub(super) fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl Filters {
    fn given(&self) -> Vec<Filter> {
        let text = |value: Option<&dyn std::fmt::Display>| value.map(ToString::to_string);
        vec![
            ("agent", text(self.agent.as_ref().map(|v| v as _))),
            ("verdict", text(self.verdict.as_ref().map(|v| v as _))),
            ("mandate", text(self.mandate.as_ref().map(|v| v as _))),
            ("mode", self.mode.as_ref().map(word)),
            ("review", self.review.as_ref().map(word)),
            ("since", text(self.since.as_ref().map(|v| v as _))),
            ("until", text(self.until.as_ref().map(|v| v as _))),
        ]
    }
}

impl Decision {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        match self {
            Self::List { filters, list } => list.run(&DECISIONS, filters.given(), global, output),
            Self::Show { id, service } => DECISIONS.get(service, id, global, output),
            Self::Tail { filters, tail, service } => {
                tail.run(&Client::new(service, global, DECISIONS.class)?, &DECISIONS, filters.given(), output)
            }
        }
    }
}
