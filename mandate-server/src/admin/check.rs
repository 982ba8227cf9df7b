//! `check`: whether a database is sound.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::backup::Progress;
use super::{Common, Failure};
use crate::config;
use crate::service::check::{self, Finding, Listener};
use crate::store::upkeep;

/// Whether a database is sound.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Skip the log: no signatures, verdicts or metering
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

Reads one snapshot; a server may be running. It checks the write-ahead log, the pages and indexes of the file, the references between rows, the \
schema, the checksums of rows, and the chains of mandates and reviews. For every decision it verifies the signature and computes the verdict again \
from the mandate and the recorded basis. It counts the metering again from the log, and reads the answers kept for retries. \
It computes the trees of the public logs again from their entries, and looks for the entry of each decision. Where the master key is \
set (MANDATE_MASTER_KEY_FILE), it compares what each row says with its entry, too, and opens what is sealed under it. \
Each finding is one line: table, row, environment, agent, sequence, found, expected. The exit code is 1 if there is a finding. It is 3, with the reason \
on standard error, if the database could not be read to its end: a full disk, a directory without permission, a lost \
connection, a role without rights. That says nothing about the database.";

impl Options {
    /// Checks the database and prints the findings.
    ///
    /// # Errors
    /// The database is not sound, or cannot be read.
    pub fn run(self) -> Result<(), Failure> {
        let settings = self.common.settings()?;
        upkeep::must_be_complete(&settings.database).map_err(Failure::unseen)?;
        let mut printer =
            Printer { json: self.common.json, findings: 0, progress: Progress::new("checked decisions") };
        let master_key = config::master_key_if_set().map_err(Failure::unusable)?;
        let is_remote = upkeep::is_remote(&settings.database).map_err(Failure::failed)?;
        let checked = upkeep::snapshot(&settings.database, |tx| {
            if self.quick {
                check::quick(tx, &mut printer).map(|_| ())
            } else {
                check::full(tx, master_key.as_ref(), &mut printer)
            }
        });
        match checked {
            Ok(()) => {}
            Err(fault) if check::is_damage(&fault, is_remote) => printer.finding(check::unreadable(&fault)),
            Err(fault) => {
                let where_to = unwritable(&settings.database).map(|directory| {
                    let directory = directory.display();
                    format!("; SQLite needs a file beside the database to read it, and {directory} may not be written")
                });
                let why = format!("{fault}{}", where_to.unwrap_or_default());
                return Err(Failure::unseen(format!("the database could not be read to its end: {why}")));
            }
        }
        match printer.findings {
            0 if self.common.json => Ok(()),
            0 => writeln!(std::io::stdout(), "sound").map_err(Failure::failed),
            1 => Err(Failure::failed("1 finding")),
            count => Err(Failure::failed(format!("{count} findings"))),
        }
    }
}

/// The directory of a database on this machine, if this user may not write into it.
fn unwritable(database: &str) -> Option<PathBuf> {
    let file = upkeep::file(database).ok()?;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    access(directory, Access::WRITE_OK).is_err().then(|| directory.to_owned())
}

/// Writes findings to standard output as they come.
struct Printer {
    json: bool,
    findings: u64,
    progress: Progress,
}

impl Listener for Printer {
    fn finding(&mut self, finding: Finding) {
        self.findings += 1;
        let mut out = std::io::stdout().lock();
        // A closed pipe wants no more output. The exit code still reports the result.
        let _ = if self.json {
            serde_json::to_writer(&mut out, &finding).map_err(Into::into).and_then(|()| writeln!(out))
        } else {
            let Finding { table, environment, id, agent, sequence, found, expected } = finding;
            let id = id.map(|id| format!(" {id}")).unwrap_or_default();
            let environment = environment.map(|number| format!("environment {number}"));
            let sequence = sequence.map(|number| format!("sequence {number}"));
            let place: Vec<_> = [environment, agent, sequence].into_iter().flatten().collect();
            let place = if place.is_empty() { String::new() } else { format!(" ({})", place.join(", ")) };
            writeln!(out, "{table}{id}{place}: found {found}; expected {expected}")
        };
    }

    fn looked_at(&mut self, decisions: i64, of: i64) {
        self.progress.show(decisions, of);
    }

    fn note(&mut self, note: &str) {
        // Not on standard output, where each line is a finding.
        let _ = writeln!(std::io::stderr(), "note: {note}");
    }
}
