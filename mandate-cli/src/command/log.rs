//! `mandate log`: the public log, for holders of tokens, auditors, organizations and witnesses.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod audit;
mod checkpoint;
mod evidence;
mod key;
mod monitor;
mod proof;
mod verify;
mod witness;

use std::path::Path;

use clap::Subcommand;

use crate::directory;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::members::Printed;
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum Log {
    Proof(proof::Proof),
    Evidence(evidence::MakeEvidence),
    Verify(verify::VerifyEvidence),
    Checkpoint(checkpoint::Checkpoint),
    /// Show and pin a log's key, and make a witness's
    #[command(subcommand)]
    Key(key::Key),
    Monitor(monitor::Monitor),
    Audit(audit::AuditLog),
    Witness(witness::Witness),
}

impl Log {
    /// What the command prints as JSON.
    pub(super) fn printed(&self) -> Printed {
        let names: &[&str] = match self {
            Self::Proof(_) => &["log", "index", "size", "proof", "witnesses"],
            Self::Evidence(_) => &["evidence", "log", "index", "key_index"],
            Self::Verify(_) => {
                return Printed::Own(vec![
                    "proved", "claims", "log", "index", "size", "cosigned", "key", "error",
                ]);
            }
            Self::Checkpoint(_) => &["log", "size", "root", "witnesses", "checkpoint"],
            Self::Key(key::Key::Create { .. }) => &["key", "file"],
            Self::Key(_) => &["log", "origin", "fingerprint", "key", "pinned_at"],
            Self::Monitor(_) => &[
                "log",
                "before",
                "size",
                "keys",
                "unknown",
                "governing",
                "late",
                "not_compared",
                "older",
                "continues",
                "next",
            ],
            Self::Audit(_) => return Printed::Own(vec!["finding", "not_compared", "summary"]),
            Self::Witness(_) => return Printed::Nothing,
        };
        Printed::Known(names.to_vec())
    }

    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        match self {
            Self::Proof(args) => args.run(global, output),
            Self::Evidence(args) => args.run(global, output),
            Self::Verify(args) => args.run(output),
            Self::Checkpoint(args) => args.run(global, output),
            Self::Key(args) => args.run(global, output),
            Self::Monitor(args) => args.run(global, output),
            Self::Audit(args) => args.run(global, output),
            Self::Witness(args) => args.run(),
        }
    }
}

/// Writes to the path that an option names.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    directory::write_to(path, bytes)
        .map_err(|e| Failure::new(Exit::Io, format!("{} cannot be written: {e}", path.display())))
}
