//! `transfer`: moves an installation to another database.

use std::io::Write;
use std::path::PathBuf;

use super::backup::Progress;
use super::{Failure, operator, terminal};
use crate::config::{Flags, Settings};
use crate::error::Fault;
use crate::service::check::{self, Finding};
use crate::service::transfer::{self, Listener, Nul, Summary};

/// How many rows are moved in one transaction.
const PAGE_ROWS: i64 = 1_000;

/// An installation moved to another database.
#[derive(Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "the words are help for a terminal")]
pub struct Options {
    /// Where it is: sqlite://PATH
    #[arg(long, value_name = "URL")]
    from: String,

    /// Where it is to be: the postgres:// URL of a database that holds nothing [env: MANDATE_DATABASE]
    #[arg(long, value_name = "URL")]
    to: Option<String>,

    /// Read settings from this TOML file; its `database` is where it is to be [env: MANDATE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Only show what would be moved
    #[arg(long)]
    dry_run: bool,

    /// Write U+FFFD for each U+0000 in a text, which PostgreSQL does not store
    #[arg(long)]
    replace_nul: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) const HELP: &str = "\
Examples:
  mandate-server transfer --from sqlite:///var/lib/mandate/mandate.db \\
      --to postgres://mandate@db.example.com/mandate --dry-run
  mandate-server transfer --from sqlite:///var/lib/mandate/mandate.db \\
      --to postgres://mandate@db.example.com/mandate
  mandate-server transfer --from sqlite://mandate.db \\
      --to postgres:///mandate?host=/run/postgresql --json | jq .rows

Stop the server first: the transfer locks the source, and does not change it. Keys, tokens, kept answers, pending \
deliveries and audit records all move; the master key stays the same. Then every row is compared with its source, the \
metering is summed in both databases, and the target is checked as `check` does, with every signature.

A row with U+0000 in a text is named, and nothing is moved, unless --replace-nul says to write U+FFFD there: PostgreSQL does \
not store U+0000.

If a transfer is interrupted, run the same command again: it continues. No server starts on the target until the transfer \
has ended. Then start servers on it, copy the files of the exports directory to each, and put the old file away, so that \
no server is started on it again. Other users of the machine can read a command line: set MANDATE_DATABASE instead of \
--to if the URL has a password.";

impl Options {
    /// Moves the installation and prints a summary.
    ///
    /// # Errors
    /// A server has the source open, the target is not empty, or the transfer was interrupted.
    pub fn run(self) -> Result<(), Failure> {
        let flags = Flags { database: self.to, config: self.config, ..Flags::default() };
        let to = Settings::load(&flags).map_err(Failure::unusable)?.database;
        let nul = if self.replace_nul { Nul::Replaced } else { Nul::Refused };
        let summary = if self.dry_run {
            transfer::dry_run(&self.from, &to, nul)
        } else {
            transfer::run(&self.from, &to, (PAGE_ROWS, nul), &operator::here(), &mut Reporter::new())
        };
        let summary = summary.map_err(Failure::failed)?;
        terminal::print(self.json, &summary, |out| format(out, &summary))?;
        if !summary.unmovable.is_empty() {
            let count = summary.unmovable.len();
            return Err(Failure::failed(format!(
                "{count} rows cannot be moved: with --replace-nul the target has U+FFFD in these fields, unless a field is part \
                 of its row's key; see the page \"From SQLite to PostgreSQL\" of operations.md"
            )));
        }
        if summary.complete {
            terminal::note(&format!(
                "{} is as it was. Put it away, so that no server is started on it again: what is decided there is not \
                 known here. Copy the files of its exports directory to each server of the new database.",
                summary.from
            ));
        }
        Ok(())
    }
}

fn format(out: &mut dyn Write, summary: &Summary) -> std::io::Result<()> {
    let Summary { from, to, complete, target, rows, usage, unmovable } = summary;
    writeln!(out, "from      {from}\nto        {to}\ntarget    {target}")?;
    for (table, rows) in rows.iter().filter(|(_, rows)| **rows > 0) {
        writeln!(out, "rows      {table}: {rows}")?;
    }
    for (currency, sums) in usage {
        writeln!(out, "usage     {currency}: {} spent, {} requests", sums.spent, sums.requests)?;
    }
    for row in unmovable {
        writeln!(out, "unmovable {row}")?;
    }
    let verified =
        if *complete { "every row compared, every signature verified" } else { "nothing was moved" };
    writeln!(out, "verified  {verified}")
}

/// Reports progress on standard error.
struct Reporter {
    moving: Option<(String, Progress)>,
    checking: Progress,
}

impl Reporter {
    fn new() -> Self {
        Self { moving: None, checking: Progress::new("checked decisions") }
    }
}

impl Listener for Reporter {
    fn moved(&mut self, table: &str, rows: i64, of: i64) -> Result<(), Fault> {
        if self.moving.as_ref().is_none_or(|(name, _)| name != table) {
            self.moving = Some((table.to_owned(), Progress::new("moved rows")));
            terminal::note(&format!("moving {table}: {of} rows"));
        }
        if let Some((_, progress)) = &mut self.moving {
            progress.show(rows, of);
        }
        Ok(())
    }

    fn compared(&mut self, _: &str, _: i64) {}
}

impl check::Listener for Reporter {
    fn finding(&mut self, _: Finding) {}

    fn looked_at(&mut self, decisions: i64, of: i64) {
        self.checking.show(decisions, of);
    }
}
