//! `settlement`: instructions to move the funds of escrows that have not settled.

use clap::Subcommand;
use mandate_core::{EscrowId, Timestamp};
use serde::Serialize;

use super::{Common, Failure, operator, terminal};
use crate::service::settlements::{self, Unsettled};

/// Instructions that have not settled.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the instructions that are pending or were refused: their funds have not moved
    #[command(after_help = LIST_HELP)]
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Send an escrow's pending instruction now
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
  mandate-server settlement list --json | jq -r '.[] | select(.status == \"refused\") | .escrow'

It shows the newest instruction of each escrow, unless that has settled. A pending one is sent again by itself, once an \
hour at least. A refused one has ended: the organization can ask again for a release or a refund, and an escrow whose \
lock was refused has failed.";

const RETRY_HELP: &str = "\
Examples:
  mandate-server settlement retry esc_01k9x5s7q4w8v3r2m6n0p1t5ya

Use it when the provider answers again, and you do not want to wait for the next attempt. The instruction is sent within \
seconds under its id, so that a provider which has executed it in the meantime does not execute it twice.";

#[derive(Serialize)]
struct View<'a> {
    escrow: EscrowId,
    instruction: String,
    organization: &'a str,
    environment: &'static str,
    action: &'static str,
    status: &'static str,
    at: Timestamp,
    sent: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The escrow has no pending instruction, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        let by = operator::here();
        let (common, found) = match self {
            Self::List { common } => {
                let database = common.settings()?.database;
                (common, terminal::run(&database, |tx| Ok(settlements::unsettled(tx)?))?)
            }
            Self::Retry { escrow, common } => {
                let database = common.settings()?.database;
                let id = EscrowId::parse(&escrow).map_err(Failure::unusable)?;
                (common, vec![terminal::run(&database, |tx| settlements::retry(tx, id, &by))?])
            }
        };
        let views: Vec<_> = found.iter().map(View::of).collect();
        terminal::print(common.json, &views, |out| {
            let heads = ["INSTRUCTION", "ORGANIZATION", "ENVIRONMENT", "STATUS", "SINCE", "SENT", "REASON"];
            let rows = views.iter().map(|view| {
                [
                    view.instruction.clone(),
                    view.organization.to_owned(),
                    view.environment.to_owned(),
                    view.status.to_owned(),
                    terminal::instant(Some(view.at)),
                    view.sent.to_string(),
                    view.reason.unwrap_or_default().to_owned(),
                ]
            });
            terminal::table(out, heads, rows)
        })
    }
}

impl<'a> View<'a> {
    fn of(found: &'a Unsettled) -> Self {
        let instruction = &found.instruction;
        Self {
            escrow: found.escrow,
            instruction: instruction.id(found.escrow),
            organization: &found.organization,
            environment: found.kind.as_str(),
            action: instruction.action.as_str(),
            status: instruction.status.as_str(),
            at: instruction.at,
            sent: found.sent,
            reason: instruction.reason.as_deref(),
        }
    }
}
