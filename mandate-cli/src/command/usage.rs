//! `mandate usage`: agents' requests and spending in a month.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use mandate_core::{AgentId, Month};

use crate::client::{Client, Paging};
use crate::csv_rows::{self, Column};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::named::completed;
use crate::output::Output;
use crate::resource::Resource;
use crate::service::Service;
use crate::table::{agent as agent_of, whole};
use crate::value::agent;

const USAGE: Resource = Resource {
    path: "/usage",
    class: None,
    id: None,
    columns: &[
        agent_of("AGENT", "agent"),
        whole("CURRENCY", "currency"),
        whole("REQUESTS", "requests").spare(1),
        whole("ALLOW", "verdicts.allow").spare(2),
        whole("REVIEW", "verdicts.review").spare(2),
        whole("SPENT", "spent"),
        whole("PER MONTH", "per_month"),
        whole("REMAINING", "remaining"),
    ],
    lines: &[],
    tables: &[],
};

/// The columns of CSV, after the month.
const CSV: [Column; 14] = [
    csv_rows::text("agent", "agent"),
    csv_rows::text("currency", "currency"),
    csv_rows::text("requests", "requests"),
    csv_rows::text("allow", "verdicts.allow"),
    csv_rows::text("review", "verdicts.review"),
    csv_rows::text("deny_no_mandate", "verdicts.deny_no_mandate"),
    csv_rows::text("deny_revoked", "verdicts.deny_revoked"),
    csv_rows::text("deny_expired", "verdicts.deny_expired"),
    csv_rows::text("deny_limit", "verdicts.deny_limit"),
    csv_rows::text("deny_category", "verdicts.deny_category"),
    csv_rows::text("deny_velocity", "verdicts.deny_velocity"),
    csv_rows::amount("spent", "spent"),
    csv_rows::amount("per_month", "per_month"),
    csv_rows::amount("remaining", "remaining"),
];

/// Show each agent's requests and spending in a month
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate usage
  mandate usage --month 2026-06 --format csv > june.csv
  mandate usage --month 2026-06 --agent agt_buyer --json")]
pub(crate) struct Usage {
    /// The calendar month, UTC [default: the current one]
    #[arg(long, value_name = "YYYY-MM", value_parser = Month::parse)]
    month: Option<Month>,
    /// Only this agent
    #[arg(long, value_name = "AGENT", value_parser = agent, add = completed::<AgentId>())]
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
        let month = self.month.unwrap_or_else(|| environment::now().month());
        output.begin_csv([vec![csv_rows::fixed("month", month.to_string())], CSV.to_vec()].concat())?;
        let all = Paging { limit: 1, all: true };
        USAGE.list(&Client::new(&self.service, global, USAGE.class)?, filters, &all, output)
    }
}
