//! `mandate log checkpoint`: what a log says of itself now.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::path::PathBuf;

use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::Output;
use crate::public_log::place::LogArgs;
use crate::public_log::proof::witnesses;
use crate::public_log::source::Source;
use crate::public_log::trust::TrustArgs;
use crate::style::printable;

/// Fetch the log's newest checkpoint, and check its signatures
///
/// Keep one from before an export: what the log had then, the export must have. See `mandate log audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate log checkpoint --issuer https://verdicts.example.com
  mandate log checkpoint --issuer https://verdicts.example.com \\
      --policy witnesses.policy -o before.checkpoint

Exit codes:
  0 its signatures hold    51 they do not    2 usage    36, 37 log not reachable    3 file cannot be written")]
pub(crate) struct Checkpoint {
    /// Write it to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    trust: TrustArgs,
}

impl Checkpoint {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let place = self.log.place(None, global)?;
        let trust = self.trust.trust(&place)?;
        let source = Source::of(&place, trust.key.as_ref())?;
        let bytes = source.checkpoint()?;
        let (signed, accepted) = trust.read(&bytes).map_err(|e| e.of("the log's checkpoint"))?;
        if let Some(path) = &self.output {
            super::write(path, &bytes)?;
        }
        let checkpoint = &accepted.checkpoint;
        if output.is_json() {
            output.json(&json!({
                "log": checkpoint.origin(), "size": checkpoint.size(), "root": checkpoint.root().to_string(),
                "witnesses": accepted.cosigned.keys().collect::<Vec<_>>(), "checkpoint": signed.to_string(),
            }))?;
            return Ok(Exit::Success);
        }
        output.line("log", printable(checkpoint.origin()));
        output.line("entries", checkpoint.size());
        output.line("root", checkpoint.root());
        output.line("witnesses", printable(&witnesses(&accepted)));
        Ok(Exit::Success)
    }
}
