//! `mandate drift`: whether what governs is what the directory has.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::path::PathBuf;

use mandate_core::api_key::KeyClass;

use super::steps::{Action, Step};
use super::{agents, compared, print_step};
use crate::client::Client;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::Output;
use crate::service::Service;
use crate::style::{ERROR, GOOD};

/// Find agents that are governed by anything but their file in a directory of mandates
///
/// It drifts when a mandate was written, replaced or revoked past the directory, when a file is for an agent that is not
/// registered, and when an agent without a file has a mandate in force. Nothing is changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate drift mandates/
  mandate drift mandates/ --allow-unmanaged --json

Exit codes: 0 what governs is what the directory has    27 it is not    30 a file is refused    3 no such directory")]
pub(crate) struct Drift {
    /// The directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Agents without a file are no drift
    #[arg(long)]
    allow_unmanaged: bool,
    #[command(flatten)]
    service: Service,
}

impl Drift {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.service, global, Some(KeyClass::Organization))?;
        let (steps, _) = compared(&client, &self.directory, false, environment::now())?;
        let counts = |step: &&Step| {
            step.action.differs() && !(self.allow_unmanaged && step.action == Action::Unmanaged)
        };
        let drifted: Vec<&Step> = steps.iter().filter(counts).collect();
        if output.is_json() {
            output.json(&serde_json::json!({"drift": !drifted.is_empty(), "steps": drifted}))?;
        } else {
            for step in &drifted {
                print_step(step, output);
            }
            output.text(&if drifted.is_empty() {
                format!("{GOOD}NO DRIFT{GOOD:#}: {}\n", agents(steps.len()))
            } else {
                format!("{ERROR}DRIFT{ERROR:#}: {} of {}\n", drifted.len(), agents(steps.len()))
            });
        }
        Ok(if drifted.is_empty() { Exit::Success } else { Exit::Drift })
    }
}
