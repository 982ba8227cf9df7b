//! `mandate usage`: agents' requests and spending in a month.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use mandate_core::{AgentId, Month};

use crate::client::{Client, Paging};
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::Output;
use crate::resource::Resource;
use crate::service::Service;
use crate::table::{text, whole};
use crate::value::agent;

const USAGE: Resource = Resource {
    path: "/usage",
    class: None,
    id: None,
    columns: &[
        text("AGENT", "agent"),
        whole("CURRENCY", "currency"),
        whole("REQUESTS", "requests"),
        whole("ALLOW", "verdicts.allow"),
        whole("REVIEW", "verdicts.review"),
        whole("SPENT", "spent"),
        whole("PER MONTH", "per_month"),
        whole("REMAINING", "remaining"),
    ],
    lines: &[],
    tables: &[],
};

/// Show each agent's requests and spending in a month
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate usage
  mandate usage --month 2026-06 --agent agt_buyer --json")]
pub(crate) struct Usage {
    /// The calendar month, UTC [default: the current one]
    #[arg(long, value_name = "YYYY-MM", value_parser = Month::parse)]
    month: Option<Month>,
    /// Only this agent
    #[arg(long, value_name = "AGENT", value_parser = agent)]
    agent: Option<AgentId>,
    #[command(flatten)]
    service: Service,
}

impl Usage {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let filters = vec![
            ("month", self.month.as_ref().map(ToString::to_string)),
            ("agent", self.agent.as_ref().map(ToString::to_string)),
        ];
        let all = Paging { limit: 1, all: true };
        USAGE.list(&Client::new(&self.service, global, USAGE.class)?, filters, &all, output)
    }
}
