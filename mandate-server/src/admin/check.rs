//! `check`: whether a database is sound.

use std::io::Write as _;

use super::backup::Progress;
use super::{Common, Failure};
use crate::service::check::{self, Finding, Listener};
use crate::store::upkeep;

/// Whether a database is sound.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Do not read the log: no signatures, no verdicts, no metering
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    common: Common,
}

pub(super) const HELP: &str = "\
Examples:
  mandate-server check
  mandate-server check --quick --database sqlite:///backup/mandate-2026-11-21.db
  mandate-server check --json | jq -r 'select(.table == \"usage\")'

Reads one snapshot, beside a running server. Looked at: the pages and indexes of the file, what refers to what, the schema,
the chains of mandates and reviews; then, of every decision, the signature over its token and the verdict computed again
from its mandate and its basis; the metering counted again from the log; and the answers kept for retries.
Each finding is a line: table, row, what was found, what was expected. Exit code 1 when there is any, and with a line on
standard error alone when the database could not be looked at to its end.";

impl Options {
    /// Looks, and tells.
    ///
    /// # Errors
    /// The database is not sound, or cannot be read.
    pub fn run(self) -> Result<(), Failure> {
        let settings = self.common.settings()?;
        upkeep::must_be_settled(&settings.database).map_err(Failure::failed)?;
        let mut told =
            Told { json: self.common.json, findings: 0, progress: Progress::new("checked decisions") };
        // A file that cannot be opened is a finding, and a database that cannot be reached is none.
        let mut lost = upkeep::is_remote(&settings.database).map_err(Failure::failed)?;
        let checked = upkeep::snapshot(&settings.database, |tx| {
            let checked =
                if self.quick { check::quick(tx, &mut told).map(|_| ()) } else { check::full(tx, &mut told) };
            lost = tx.is_lost();
            checked
        });
        match checked {
            Ok(()) => {}
            Err(fault) if lost => {
                return Err(Failure::failed(format!("it could not be looked at to its end: {fault}")));
            }
            Err(fault) => told.finding(check::unreadable(&fault)),
        }
        match told.findings {
            0 if self.common.json => Ok(()),
            0 => writeln!(std::io::stdout(), "sound").map_err(Failure::failed),
            1 => Err(Failure::failed("1 finding")),
            count => Err(Failure::failed(format!("{count} findings"))),
        }
    }
}

/// Writes findings to standard output as they come.
struct Told {
    json: bool,
    findings: u64,
    progress: Progress,
}

impl Listener for Told {
    fn finding(&mut self, finding: Finding) {
        self.findings += 1;
        let mut out = std::io::stdout().lock();
        // Whoever closes the pipe has heard enough; the exit code still tells.
        let _ = if self.json {
            serde_json::to_writer(&mut out, &finding).map_err(Into::into).and_then(|()| writeln!(out))
        } else {
            let Finding { table, environment, id, found, expected } = finding;
            let id = id.map(|id| format!(" {id}")).unwrap_or_default();
            let environment = environment.map(|e| format!(" (environment {e})")).unwrap_or_default();
            writeln!(out, "{table}{id}{environment}: found {found}; expected {expected}")
        };
    }

    fn looked_at(&mut self, decisions: i64, of: i64) {
        self.progress.tell(decisions, of);
    }
}
