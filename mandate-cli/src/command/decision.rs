//! `mandate decision`: lists and shows decisions.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::{Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use mandate_core::{AgentId, DecisionId, MandateId, Verdict};

use crate::client::Client;
use crate::csv_rows::{self, Column};
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::named::{Given, completed, given, to_read};
use crate::output::Output;
use crate::period::Period;
use crate::resource::{Filter, ListOptions, Resource};
use crate::service::Service;
use crate::table::{VERDICT_WIDTH, agent, id, recipient, seconds, state, text, whole};
use crate::tail::Following;
use crate::value::agent as agent_id;

/// How lists and `show` print decisions.
pub(super) const DECISIONS: Resource = Resource {
    path: "/decisions",
    class: None,
    id: Some("jti"),
    columns: &[
        id("DECISION", "jti").spare(2),
        state("VERDICT", "verdict").least(VERDICT_WIDTH),
        whole("AMOUNT", "request.amount request.currency"),
        agent("AGENT", "request.agent"),
        recipient("RECIPIENT", "request.recipient"),
        text("CATEGORY", "request.category").spare(1),
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
        text("by", "review.resolved_by.id review.resolved_by.name"),
        text("became", "review.decision"),
        text("said", "review.reason"),
        text("token", "verdict_token"),
    ],
    tables: &[],
};

/// The columns of CSV: those of the service's exports, without the token.
const CSV: [Column; 21] = [
    csv_rows::text("decision", "jti"),
    csv_rows::seconds("iat", "iat"),
    csv_rows::text("sequence", "sequence"),
    csv_rows::text("decided_at", "decided_at"),
    csv_rows::text("verdict", "verdict"),
    csv_rows::text("mode", "mode"),
    csv_rows::text("agent", "request.agent"),
    csv_rows::amount("amount", "request.amount"),
    csv_rows::text("currency", "request.currency"),
    csv_rows::text("recipient", "request.recipient"),
    csv_rows::text("category", "request.category"),
    csv_rows::text("mandate", "mandate"),
    csv_rows::text("policy_version", "policy_version"),
    csv_rows::text("reason", "reason"),
    csv_rows::words("denials", "denials"),
    csv_rows::amount("spent", "basis.spent"),
    csv_rows::text("recent_requests", "basis.recent_requests"),
    csv_rows::text("supersedes", "supersedes"),
    csv_rows::text("review", "review.id"),
    csv_rows::text("review_status", "review.status"),
    csv_rows::text("nonce", "nonce"),
];

#[derive(Debug, Subcommand)]
pub(crate) enum Decision {
    /// List decisions, newest first; with an agent key, only its own
    #[command(
        alias = "ls",
        after_help = "\
Examples:
  mandate decision list --agent agt_buyer --verdict deny_limit
  mandate decision list --verdict deny --since 24h
  mandate decision list --since 2026-06-01 --until 2026-07-01 --all \\
      --format ndjson > june.ndjson
  mandate decision list --since 2026-06-01 --until 2026-07-01 --all \\
      --format csv > june.csv
  mandate decision list --all --jq 'map(.request.amount) | add'"
    )]
    List {
        #[command(flatten)]
        filters: Filters,
        /// With --format csv: add a column with the signed token
        #[arg(long)]
        with_token: bool,
        #[command(flatten)]
        list: ListOptions,
    },
    /// Show a decision and its signed token
    #[command(after_help = "\
Examples:
  mandate decision show dec_01hf7yat000000000000000007
  mandate decision show dec_01hf7yat000000000000000007 --jq .verdict_token")]
    Show {
        /// The decision's id, `dec_...`, or its beginning as lists show it [default: a choice]
        #[arg(value_parser = given::<DecisionId>, add = completed::<DecisionId>())]
        id: Option<Given<DecisionId>>,
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
    #[arg(long, value_name = "AGENT", value_parser = agent_id, add = completed::<AgentId>())]
    agent: Option<AgentId>,
    /// Only this verdict: allow, review, deny_limit ...; deny stands for every denial
    #[arg(long, value_parser = asked, add = ArgValueCandidates::new(verdicts))]
    verdict: Option<Asked>,
    /// Only under this mandate, or the only one whose id begins like this
    #[arg(long, value_name = "ID", value_parser = given::<MandateId>, add = completed::<MandateId>())]
    mandate: Option<Given<MandateId>>,
    /// Only decisions made in this mode
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Only decisions whose review has this state
    #[arg(long, value_enum)]
    review: Option<Review>,
    #[command(flatten)]
    period: Period,
}

/// The verdicts that are asked for.
#[derive(Debug, Clone, Copy)]
enum Asked {
    One(Verdict),
    /// Every denial.
    Denials,
}

fn asked(text: &str) -> Result<Asked, String> {
    if text == "deny" {
        return Ok(Asked::Denials);
    }
    Verdict::parse(text).map(Asked::One).map_err(|e| format!("{e}; deny stands for every denial"))
}

/// What a shell offers for a verdict that is asked for.
fn verdicts() -> Vec<CompletionCandidate> {
    let names = Verdict::ALL.into_iter().map(|verdict| CompletionCandidate::new(verdict.as_str()));
    names.chain([CompletionCandidate::new("deny").help(Some("every denial".into()))]).collect()
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
    /// The one verdict that is asked for, if it is one.
    fn one(&self) -> Option<Verdict> {
        match self.verdict {
            Some(Asked::One(verdict)) => Some(verdict),
            Some(Asked::Denials) | None => None,
        }
    }

    /// The values of the filter on the verdict that the service is asked for one after the other.
    fn verdicts(&self) -> Vec<String> {
        let denials = Verdict::ALL.into_iter().filter(|verdict| verdict.is_denial());
        match self.verdict {
            Some(Asked::Denials) => denials.map(|verdict| verdict.to_string()).collect(),
            Some(Asked::One(_)) | None => Vec::new(),
        }
    }

    fn given(&self, client: &Client) -> Result<Vec<Filter>, Failure> {
        let [since, until] = self.period.filters()?;
        let mandate = self.mandate.as_ref().map(|id| to_read(Some(id), client)).transpose()?;
        let text = |value: Option<&dyn std::fmt::Display>| value.map(ToString::to_string);
        Ok(vec![
            ("agent", text(self.agent.as_ref().map(|v| v as _))),
            ("verdict", self.one().map(|verdict| verdict.to_string())),
            ("mandate", text(mandate.as_ref().map(|v| v as _))),
            ("mode", self.mode.as_ref().map(word)),
            ("review", self.review.as_ref().map(word)),
            since,
            until,
        ])
    }
}

impl Decision {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        match self {
            Self::List { filters, with_token, list } => {
                if *with_token && !output.is_csv() {
                    return Err(Failure::new(Exit::Usage, "--with-token is for --format csv")
                        .next("JSON has the token: --json=jti,verdict_token"));
                }
                let token = with_token.then(|| csv_rows::text("verdict_token", "verdict_token"));
                output.begin_csv(CSV.into_iter().chain(token).collect())?;
                let client = list.client(&DECISIONS, global)?;
                let any = filters.verdicts();
                list.run_any(&client, &DECISIONS, filters.given(&client)?, ("verdict", &any), output)
            }
            Self::Show { id, service } => DECISIONS.get(service, id.as_ref(), global, output),
            Self::Tail { filters, tail, service } => {
                let client = Client::new(service, global, DECISIONS.class)?;
                tail.run(
                    &client,
                    &DECISIONS,
                    filters.given(&client)?,
                    ("verdict", &filters.verdicts()),
                    output,
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;
    use crate::table::{Look, Tabular};

    /// The page with one decision at this width, and the note beside it.
    fn page(width: u16, agent: &str, recipient: &str) -> (String, Option<String>) {
        let row = format!(
            r#"{{"jti":"dec_01hf7yat000000000000000007","verdict":"deny_velocity","iat":1700000000,"request":
            {{"amount":1234.56,"currency":"USD","agent":"agt_{agent}","recipient":"vendor:{recipient}","category":"cloud.compute"}}}}"#
        );
        let mut table = Tabular::new(DECISIONS.columns, Look::of_width(width));
        let page = strip_str(&table.page(std::iter::once(row.as_str()))).to_string();
        assert!(page.lines().all(|line| line.chars().count() <= usize::from(width)), "{page}");
        (page, table.hidden())
    }

    #[test]
    fn who_pays_whom_is_not_cut_for_what_is_less_needed() {
        for width in [60, 80] {
            let (page, _) = page(width, "purchaser", "openrouter");
            assert!(page.contains("1234.56 USD  purchaser  openrouter  "), "{page}");
        }
        // The id is hidden first, then the category, and only then a name is cut; when it was is always shown.
        let (agent, recipient) = ("data-purchaser", "openrouter-inference");
        for (width, hidden) in [(110, None), (98, Some("DECISION")), (80, Some("DECISION, CATEGORY"))] {
            let (page, note) = page(width, agent, recipient);
            let whole = format!("deny_velocity  1234.56 USD  {agent}  {recipient}  ");
            assert!(page.contains(&whole) && page.contains("2023-11-14"), "{width}: {page}");
            let said = hidden.map(|hidden| format!("hidden at {width} columns: {hidden}; --json has all"));
            assert_eq!(note, said, "{page}");
        }
        let (page, note) = page(60, agent, recipient);
        assert!(page.contains("…") && page.contains("MADE") && page.contains("2023-11-14"), "{page}");
        assert!(note.unwrap().contains("DECISION, CATEGORY;"), "{page}");
    }
}
