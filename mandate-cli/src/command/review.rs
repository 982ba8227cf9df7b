//! `mandate review`: lists and resolves payments that wait for a person.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod watch;

use clap::Subcommand;
use mandate_core::ReviewId;
use mandate_core::api_key::KeyClass;

use super::authorize;
use super::decision::DECISIONS;
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::named::{Given, completed, given, to_change};
use crate::output::Output;
use crate::resource::{ListOptions, Resource};
use crate::service::Change;
use crate::table::{agent, id, recipient, text, time, whole};

/// A review is shown as the decision that it belongs to.
const REVIEWS: Resource = Resource {
    path: "/decisions",
    class: Some(KeyClass::Organization),
    id: Some("jti"),
    columns: &[
        id("REVIEW", "review.id").spare(2),
        whole("AMOUNT", "request.amount request.currency"),
        agent("AGENT", "request.agent"),
        recipient("RECIPIENT", "request.recipient"),
        text("CATEGORY", "request.category").spare(1),
        time("EXPIRES", "review.expires_at"),
    ],
    lines: &[],
    tables: &[],
};

#[derive(Debug, Subcommand)]
pub(crate) enum Review {
    /// List pending reviews, newest first
    #[command(
        alias = "ls",
        after_help = "\
Examples:
  mandate review list
  mandate review list --all --jq '.[].review.id'"
    )]
    List(ListOptions),
    /// Approve a review: the request is decided again, and the new verdict shown
    #[command(after_help = "\
Examples:
  mandate review approve rev_01hf7yat000000000000000007

Exit codes: 0 allow    20 denied: the mandate was revoked, or the month's limit is reached")]
    Approve {
        /// The review's id, `rev_...`; at a terminal also its beginning [default: a choice]
        #[arg(value_parser = given::<ReviewId>, add = completed::<ReviewId>())]
        id: Option<Given<ReviewId>>,
        #[command(flatten)]
        change: Change,
    },
    /// Deny a review
    #[command(after_help = "\
Examples:
  mandate review deny rev_01hf7yat000000000000000007 \\
      --reason 'ask for the yearly licence'")]
    Deny {
        /// The review's id, `rev_...`; at a terminal also its beginning [default: a choice]
        #[arg(value_parser = given::<ReviewId>, add = completed::<ReviewId>())]
        id: Option<Given<ReviewId>>,
        /// The reason, up to 500 characters; it is stored with the decision
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        change: Change,
    },
    Watch(watch::Watch),
}

impl Review {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let class = Some(KeyClass::Organization);
        match self {
            Self::List(list) => {
                let pending = vec![("review", Some("pending".to_owned()))];
                list.run(&REVIEWS, pending, global, output)
            }
            Self::Approve { id, change } => {
                let client = Client::for_change(change, global, class)?;
                let id: ReviewId = to_change(id.as_ref(), &client)?;
                client.confirm(&format!("approve {id}"))?;
                let body = client.post(&format!("/reviews/{id}/approve"), None)?;
                client.note_if_lost(output);
                let (verdict, _) = authorize::print(&body, output).map_err(|failure| client.made(failure))?;
                Ok(authorize::exit_of(verdict))
            }
            Self::Deny { id, reason, change } => {
                let client = Client::for_change(change, global, class)?;
                let id: ReviewId = to_change(id.as_ref(), &client)?;
                client.confirm(&format!("deny {id}"))?;
                let body = reason.as_ref().map(|reason| serde_json::json!({ "reason": reason }).to_string());
                DECISIONS.change(&client, &format!("/reviews/{id}/deny"), body.as_deref(), output)
            }
            Self::Watch(args) => args.run(global),
        }
    }
}
