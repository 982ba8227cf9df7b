//! `mandate mandate template`: a mandate to start from.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use mandate_core::{AgentId, Currency, Timestamp};
use serde_json::json;

use crate::environment;
use crate::exit::{Exit, Failure};
use crate::named::completed;
use crate::output::Output;
use crate::style::BOLD;
use crate::value::agent;

const YEAR_SECONDS: i64 = 365 * 24 * 60 * 60;

/// Print a mandate template as JSON, or with --explain the meaning of each field
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate mandate template --agent buyer > mandate.json
  mandate mandate template --explain")]
pub(crate) struct Template {
    /// The agent that may spend
    #[arg(long, value_name = "AGENT", default_value = "agt_buyer", value_parser = agent, add = completed::<AgentId>())]
    agent: AgentId,
    /// The currency of the limits
    #[arg(long, value_name = "CODE", default_value = "USD", value_parser = Currency::parse)]
    currency: Currency,
    /// Explain each field instead
    #[arg(long)]
    pub(in crate::command) explain: bool,
}

const FIELDS: [(&str, &str); 9] = [
    ("principal", "the accountable party, role:NAME; it resolves reviews"),
    ("agent", "the agent that may spend, agt_NAME"),
    ("limits.per_transaction", "the limit per payment"),
    ("limits.per_month", "optional: the limit per calendar month (UTC)"),
    ("limits.currency", "the currency of all limits; requests in another one are denied"),
    ("categories", "what money may be spent on: 1 to 64 categories, compared exactly"),
    ("review_above", "optional: payments above this need a review"),
    ("expires", "the last day (UTC) on which the mandate holds"),
    ("escrow.required_above", "optional: stored and returned; changes no verdict"),
];

impl Template {
    pub(super) fn run(&self, output: &mut Output) -> Result<Exit, Failure> {
        if self.explain && output.is_json() {
            let fields = FIELDS.map(|(field, meaning)| json!({"field": field, "meaning": meaning}));
            output.json(&fields)?;
            return Ok(Exit::Success);
        }
        if self.explain {
            for (field, meaning) in FIELDS {
                output.hanging(&format!("{BOLD}{field:<24}{BOLD:#}"), meaning);
            }
            return Ok(Exit::Success);
        }
        let text = self.text(environment::now());
        if output.is_json() {
            output.body(&text)?;
        } else {
            output.text(&text);
        }
        Ok(Exit::Success)
    }

    fn text(&self, now: Timestamp) -> String {
        let Self { agent, currency, .. } = self;
        let expires = now.plus_seconds(YEAR_SECONDS).day();
        format!(
            r#"{{
  "principal": "role:finance_lead",
  "agent": "{agent}",
  "limits": {{"per_transaction": 500, "per_month": 2000, "currency": "{currency}"}},
  "categories": ["software", "cloud.compute"],
  "review_above": 200,
  "expires": "{expires}"
}}
"#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_core::Terms;
    use mandate_core::json::Object;

    #[test]
    fn the_template_is_a_mandate() {
        let (agent, currency) = (AgentId::parse("agt_a").unwrap(), Currency::parse("EUR").unwrap());
        let template = Template { agent, currency, explain: false };
        let now = Timestamp::parse("2026-06-01T12:00:00Z").unwrap();
        let terms = Terms::read(Object::parse(template.text(now).as_bytes()).unwrap()).unwrap();
        assert!(terms.must_hold_at(now).is_ok());
        assert_eq!(
            (terms.agent.to_string(), terms.limits.currency.to_string()),
            ("agt_a".to_owned(), "EUR".to_owned())
        );
    }
}
