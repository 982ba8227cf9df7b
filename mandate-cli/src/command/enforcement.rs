//! `mandate enforcement`: shows and switches the mode.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::Subcommand;
use mandate_core::api_key::KeyClass;

use super::decision::{Mode, word};
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::Output;
use crate::resource::Resource;
use crate::service::{Change, Service};
use crate::table::{state, text};

const ENFORCEMENT: Resource = Resource {
    path: "/enforcement",
    class: Some(KeyClass::Organization),
    id: Some("mode"),
    columns: &[],
    lines: &[state("mode", "mode"), text("since", "since")],
    tables: &[],
};

#[derive(Debug, Subcommand)]
pub(crate) enum Enforcement {
    /// Show the enforcement mode
    #[command(after_help = "\
Examples:
  mandate enforcement get
  mandate enforcement get --jq .mode")]
    Get {
        #[command(flatten)]
        service: Service,
    },
    /// Switch the enforcement mode, from the next decision on
    #[command(after_help = "\
Examples:
  mandate enforcement set enforce
  mandate enforcement set observe --profile live --yes")]
    Set {
        /// The mode
        #[arg(value_enum)]
        mode: Mode,
        #[command(flatten)]
        change: Change,
    },
}

impl Enforcement {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let class = Some(KeyClass::Organization);
        match self {
            Self::Get { service } => {
                let body = Client::new(service, global, class)?.get(ENFORCEMENT.path, &[])?;
                ENFORCEMENT.show(&body, output)
            }
            Self::Set { mode, change } => {
                let client = Client::for_change(change, global, class)?;
                client.confirm(match mode {
                    Mode::Observe => "observe: from the next decision on nothing is blocked",
                    Mode::Enforce => "enforce: from the next decision on denials block",
                })?;
                let body = serde_json::json!({ "mode": word(mode) }).to_string();
                ENFORCEMENT.change(&client, ENFORCEMENT.path, Some(&body), output)
            }
        }
    }
}
