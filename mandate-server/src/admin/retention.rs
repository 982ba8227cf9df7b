//! `retention`: closes old months. Their decisions are in files from then on.

pub mod close;
mod file;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use mandate_core::{DecisionId, Month};
use serde::Serialize;

use self::close::{Listener, Order, Step};
use super::{Common, Failure, operator, terminal};
use crate::clock::SystemEntropy;
use crate::config;
use crate::error::Fault;
use crate::service::retention::{self, Clocks, FileView, Period, Plan};
use crate::store::upkeep;

/// How many ids are counted, or deleted, in one transaction.
const PIECE: i64 = 2_000;

/// Retention.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what closing a month would delete
    #[command(after_help = PLAN_HELP)]
    Plan {
        /// The month, as YYYY-MM
        #[arg(value_parser = month)]
        month: Month,

        #[command(flatten)]
        common: Common,
    },
    /// Write a month's decisions into files, and delete their rows
    #[command(after_help = CLOSE_HELP)]
    Close {
        /// The month, as YYYY-MM
        #[arg(value_parser = month)]
        month: Month,

        /// The directory for the files; it is created if it is not there
        #[arg(long, value_name = "DIR")]
        to: PathBuf,

        /// Do not ask
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        common: Common,
    },
    /// Name the file that has a decision of a closed month
    #[command(after_help = FIND_HELP)]
    Find {
        /// The decision
        decision: String,

        #[command(flatten)]
        common: Common,
    },
}

const PLAN_HELP: &str = "\
Examples:
  mandate-server retention plan 2026-01
  mandate-server retention plan 2026-01 --json | jq .tables.decisions

Changes nothing; a server may be running. Bytes are an estimate, without indexes.";

const CLOSE_HELP: &str = "\
Examples:
  MANDATE_MASTER_KEY_FILE=mandate-master.key \\
      mandate-server retention close 2026-01 --to /archive
  MANDATE_MASTER_KEY_FILE=mandate-master.key \\
      mandate-server retention close 2026-01 --to /archive --yes

Each environment's decisions of the month are written as an NDJSON export with its trailer, which `mandate audit` reads. Each \
file is read back and verified, and each decision is checked as `check` does. Then balances take their place, and the rows of \
decisions, reviews, events and deliveries are deleted, in pieces. What is pending stays, and so do escrows with their decisions, \
mandates and the metering. The current month and the last one are refused, by this machine's clock, the database's, and the \
newest decision. Months are closed one after the other.

On PostgreSQL servers go on meanwhile. The role needs rights that servers do not: run this with the one that owns the tables. \
Where one is missing, the command names it and the role, and changes nothing. On SQLite no server may be running. If the command is cut short, run it again: it \
continues. A file that is gone or has changed by then is written again, all of them with another --to; once rows are deleted, \
the command stops until it is put back. It cannot be undone: back up the database and keep the files. \
The master key comes from MANDATE_MASTER_KEY or MANDATE_MASTER_KEY_FILE.";

const FIND_HELP: &str = "\
Examples:
  mandate-server retention find dec_01k9x5s7q4w8v3r2m6n0p1t5ya

Reads the files that may have the decision. One that cannot be read, or is not as it was written, is shown as such.";

fn month(text: &str) -> Result<Month, String> {
    Month::parse(text).map_err(|e| e.to_string())
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The month cannot be closed, a file cannot be written or verified, no file has the decision, or the database does
    /// not answer.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Plan { month, common } => {
                let plan = plan(month, &common)?;
                terminal::print(common.json, &plan, |out| show(out, &plan))
            }
            Self::Close { month, to, yes, common } => close(month, &to, yes, &common),
            Self::Find { decision, common } => find(&decision, &common),
        }
    }
}

fn plan(month: Month, common: &Common) -> Result<Plan, Failure> {
    let database = common.settings()?.database;
    let clocks = Clocks { operator: operator::here().at, database: &|shown| shown };
    let period = Period::of(month).map_err(Failure::failed)?;
    upkeep::must_be_complete(&database).map_err(Failure::failed)?;
    upkeep::snapshot(&database, |tx| retention::plan(tx, &period, clocks)).map_err(Failure::failed)
}

fn show(out: &mut dyn Write, plan: &Plan) -> std::io::Result<()> {
    let rows = plan.tables.iter();
    let rows = rows.map(|(table, size)| [(*table).to_owned(), size.rows.to_string(), size.bytes.to_string()]);
    terminal::table(out, ["TABLE", "ROWS", "BYTES"], rows)?;
    writeln!(out, "{} decisions up to the end of {} stay", plan.decisions_that_stay, plan.month)
}

fn close(month: Month, to: &Path, yes: bool, common: &Common) -> Result<(), Failure> {
    let (settings, by) = (common.settings()?, operator::here());
    let master = config::master_key().map_err(Failure::unusable)?;
    terminal::confirm(
        &format!(
            "This deletes the rows of {month}. Its decisions are then in files in {} only.",
            to.display()
        ),
        yes,
    )?;
    let order = Order {
        database: &settings.database,
        month,
        directory: to,
        master: &master,
        issuer: settings.verdicts_url.as_deref(),
        piece: PIECE,
        time: &|shown| shown,
        by: &by,
        entropy: Arc::new(SystemEntropy),
    };
    let closed = close::close(&order, &mut Reporter::default()).map_err(Failure::failed)?;
    terminal::print(common.json, &closed, |out| {
        writeln!(out, "{} is closed. Its files are in {}", closed.month, closed.directory)
    })
}

/// Reports progress on standard error.
#[derive(Default)]
struct Reporter {
    counted: usize,
    deleted: usize,
}

impl Listener for Reporter {
    fn done(&mut self, step: &Step<'_>) -> Result<(), Fault> {
        match step {
            Step::Begun => {}
            Step::Written(file) => terminal::note(&format!("written and verified: {file}")),
            Step::Counted(decisions) => self.counted += decisions,
            Step::Ready => terminal::note(&format!("checked and counted: {} decisions", self.counted)),
            Step::Deleted(rows) => self.deleted += rows,
            Step::Closed => terminal::note(&format!("deleted: {} rows", self.deleted)),
        }
        Ok(())
    }
}

/// A file that has a decision, or one that may have it and cannot be read, or has changed.
#[derive(Debug, Serialize)]
pub struct FileMatch {
    /// The file.
    #[serde(flatten)]
    pub found: FileView,
    /// Why it cannot be read, or how it has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// The files that have a decision: one, where all that may have it can be read.
///
/// # Errors
/// No file has it, or the database does not answer.
pub fn files_with(database: &str, id: DecisionId) -> Result<Vec<FileMatch>, Failure> {
    let mut files = Vec::new();
    for found in terminal::run(database, |tx| Ok(retention::find(tx, id)?))? {
        match file::has(&found.path(), found.sha256.0, id) {
            Ok(true) => files.push(FileMatch { found, unreadable: None }),
            Ok(false) => {}
            Err(fault) => files.push(FileMatch { found, unreadable: Some(fault.to_string()) }),
        }
    }
    if files.is_empty() {
        return Err(Failure::failed(format!("no file of a closed month has {id}")));
    }
    Ok(files)
}

fn find(decision: &str, common: &Common) -> Result<(), Failure> {
    let id = DecisionId::parse(decision).map_err(Failure::unusable)?;
    let files = files_with(&common.settings()?.database, id)?;
    terminal::print(common.json, &files, |out| {
        let heads = ["ORGANIZATION", "ENVIRONMENT", "MONTH", "FILE", "SHA256", "NOTE"];
        let rows = files.iter().map(|FileMatch { found, unreadable }| {
            [
                found.organization.clone(),
                found.environment.to_owned(),
                found.month.to_string(),
                found.path().display().to_string(),
                found.sha256.to_string(),
                unreadable.clone().unwrap_or_default(),
            ]
        });
        terminal::table(out, heads, rows)
    })
}
