//! `settlement`: instructions to move the funds of escrows that the provider has refused.

use clap::Subcommand;
use mandate_core::{EscrowId, Timestamp};
use serde::Serialize;

use super::{Common, Failure, operator, terminal};
use crate::service::settlements::{self, RefusedEntry};

/// Refused instructions.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the instructions that the provider has refused: their funds have not moved
    #[command(after_help = LIST_HELP)]
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Send an escrow's refused instructions again
    #[command(after_help = RETRY_HELP)]
    Retry {
        /// The escrow, as `settlement list` shows it
        escrow: String,

        #[command(flatten)]
        common: Common,
    },
}

const LIST_HELP: &str = "\
Examples:
  mandate-server settlement list
  mandate-server settlement list --json | jq -r '.[].escrow'";

const RETRY_HELP: &str = "\
Examples:
  mandate-server settlement retry esc_01k9x5s7q4w8v3r2m6n0p1t5ya

Use it when the provider has fixed the cause of its refusal. The instruction is sent within seconds under its old id, so \
that a provider which has executed it in the meantime does not execute it twice.";

#[derive(Serialize)]
struct View<'a> {
    escrow: EscrowId,
    organization: &'a str,
    environment: &'static str,
    state: &'static str,
    at: Timestamp,
    attempts: i64,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The escrow has no refused instruction, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        let by = operator::here();
        let (common, found) = match self {
            Self::List { common } => {
                let database = common.settings()?.database;
                (common, terminal::run(&database, |tx| Ok(settlements::refused(tx)?))?)
            }
            Self::Retry { escrow, common } => {
                let database = common.settings()?.database;
                let id = EscrowId::parse(&escrow).map_err(Failure::unusable)?;
                (common, terminal::run(&database, |tx| settlements::retry(tx, id, &by))?)
            }
        };
        let views: Vec<_> = found.iter().map(View::of).collect();
        terminal::print(common.json, &views, |out| {
            let heads = ["ESCROW", "ORGANIZATION", "ENVIRONMENT", "STATE", "SINCE", "ATTEMPTS"];
            let rows = views.iter().map(|view| {
                [
                    view.escrow.to_string(),
                    view.organization.to_owned(),
                    view.environment.to_owned(),
                    view.state.to_owned(),
                    terminal::instant(Some(view.at)),
                    view.attempts.to_string(),
                ]
            });
            terminal::table(out, heads, rows)
        })
    }
}

impl<'a> View<'a> {
    fn of(entry: &'a RefusedEntry) -> Self {
        Self {
            escrow: entry.escrow,
            organization: &entry.organization,
            environment: entry.kind.as_str(),
            state: entry.state.as_str(),
            at: entry.at,
            attempts: entry.attempts,
        }
    }
}
