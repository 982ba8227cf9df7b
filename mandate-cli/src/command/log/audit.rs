//! `mandate log audit`: compares an export with the log, row by row and, with the watch key, tag by tag.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod compare;
mod rows;

use std::collections::BTreeMap;
use std::path::PathBuf;

use mandate_core::log::{Accepted, Checkpoint};
use serde::Serialize;

use self::compare::{Comparison, Reach, Reasons};
use self::rows::Rows;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::input::Source as File;
use crate::output::Output;
use crate::public_log::entries::Entries;
use crate::public_log::older::{Older, OlderLog};
use crate::public_log::place::{LogArgs, kind_of};
use crate::public_log::source::Source;
use crate::public_log::trust::{Trust, TrustArgs};
use crate::public_log::watch_key;
use crate::style::{CAUTION, ERROR, GOOD, printable};
use crate::value::source;

/// The longest file of a checkpoint.
const MAX_CHECKPOINT_BYTES: usize = mandate_core::log::MAX_NOTE_BYTES;

/// Compare an export with the public log: every row is an entry, and nothing under your tags is missing
///
/// Reads the log up to its newest checkpoint, checks that all entries lead to its root, and compares. Each row of the export
/// must be the same as its entry: the token, and the whole record as it was when it was decided. With --watch-key it looks the
/// other way too: every decision of your agents and every governing change in the log must be in the export, each number once,
/// and the number behind the last must not be there: nothing is missing at the end, no agent is hidden.
///
/// Only an export without filters and without a period shows that. The operator writes into an export that it has `since`, `until`,
/// `agent` or `verdict`; what these keep from being looked for is named, and the exit code is 26. Within a period it is a finding all
/// the same that an agent has a gap between two of its rows, or that any governing change is missing.
///
/// A log that is in use has entries that are younger than the export. Fetch a checkpoint before you ask for the export
/// (`mandate log checkpoint -o FILE`) and pass it here: what the log had then, the export must have. A row older than a day that
/// is not in the log is a finding.
///
/// The logs that this one continues are read too, each to the end that the next one names: a row must be in one of them, and in
/// no other. The exit code is 0 only if each row was compared, and 26 if some were not. Each of these is named with the reason:
/// it is not in the log yet, or may be in an older log that cannot be read, or in the one that goes on where this one has ended
/// (pass the key of that one with --log-key). An older log's copy is looked for beside the log, as `mandate-server log export`
/// writes it: a log's files are below those of the first one, under its number.
///
/// Signatures and verdicts are for `mandate audit`: run both. The memory it takes grows with the export, about 400 bytes a
/// decision.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate log checkpoint --issuer https://verdicts.example.com \\
      -o before.checkpoint
  mandate export download \"$(mandate export create --jq .export)\" \\
      -o export.ndjson
  mandate log audit export.ndjson --issuer https://verdicts.example.com \\
      --checkpoint before.checkpoint --watch-key watch.key

Exit codes:
  0 each row compared, nothing found    23 findings, or no export    26 rows that were not compared,
  or what the export's filters or period keep from being looked for    51 the log is not what it has
  signed    52 it does not continue the checkpoint    2 usage, another environment's watch key or log
  36, 37, 38 log not readable    3 file cannot be read")]
pub(crate) struct AuditLog {
    /// The export in NDJSON, or `-` for standard input
    #[arg(value_name = "EXPORT|-", value_parser = source)]
    export: File,
    /// The file of your environment's watch key; without it nothing can be found missing
    #[arg(long, value_name = "FILE")]
    watch_key: Option<PathBuf>,
    /// What the log had at this checkpoint must be in the export [default: at the newest]
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    trust: TrustArgs,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// The older log that the entry is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<String>,
    /// Which entry of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    check: &'static str,
    /// The decision or the governing change.
    of: String,
    found: String,
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    log: String,
    size: u64,
    /// The older logs that were read, the oldest first.
    older_logs: Vec<String>,
    decisions: u64,
    governing: u64,
    /// Rows that one of the logs has, as they are.
    logged: u64,
    /// Rows that the log does not have yet, or that are in the one that goes on where it has ended.
    younger: u64,
    /// Rows that may be in an older log that cannot be read.
    older: u64,
    /// Whether it was looked for what is missing.
    watched: bool,
    /// What was not looked for among what is missing, as the export has filters or a period.
    not_looked_for: Vec<&'static str>,
    /// The log that goes on where this one has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    findings: u64,
    by_check: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum OutputLine<'a> {
    Finding(&'a Finding),
    /// A row that was not compared, and why.
    NotCompared(&'a Finding),
    Summary(&'a Summary),
}

impl AuditLog {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let place = self.log.place(None, global)?;
        let trust = self.trust.trust(&place)?;
        let source = Source::of(&place, trust.key.as_ref())?;
        let watch_key = self.watch_key.as_deref().map(watch_key::read).transpose()?;
        let (first, newer) = self.states(&source, &trust)?;
        let rows = Rows::read(&self.export)?;
        must_be_of(first.checkpoint.origin(), &rows)?;
        let next = source.next()?.map(|key| key.name().to_owned());
        let mut comparison = Comparison::new(&rows, watch_key.as_ref());
        let older = read(&mut comparison, &source, (&first, newer.as_ref()))?;
        if comparison.is_of_another_key() {
            return Err(another_key());
        }
        // The newest checkpoint is of now, but that of a log that has ended. Of one that was kept only a witness says when it was.
        let now = Some(environment::now().seconds()).filter(|_| next.is_none());
        let mut reached = vec![Reach::of(&first, now.filter(|_| self.checkpoint.is_none()))];
        reached.extend(newer.map(|newer| Reach::of(&newer, now)));
        let older_logs =
            older.logs.iter().rev().map(|log| log.named.checkpoint().origin().to_owned()).collect();
        let younger = match &next {
            None => "it is not in the log as far as that was read: look again later".to_owned(),
            Some(next) => format!("the log has ended: compare with {next}, by its --log-key"),
        };
        let ended = comparison.end(&reached, &Reasons { younger, older: older.unread });
        let mut summary = Summary {
            log: first.checkpoint.origin().to_owned(),
            size: reached.last().map_or(0, |reach| reach.size),
            older_logs,
            decisions: rows.decisions,
            governing: rows.governing,
            logged: ended.logged,
            younger: ended.younger,
            older: ended.older,
            watched: watch_key.is_some(),
            not_looked_for: watch_key.as_ref().map(|_| rows.not_looked_for()).unwrap_or_default(),
            next,
            ..Summary::default()
        };
        for finding in &ended.findings {
            summary.count(finding);
            print(finding, true, output)?;
        }
        for row in &ended.uncompared {
            print(row, false, output)?;
        }
        summary.conclude(output)
    }

    /// The log as of the checkpoint by which the export must have everything, and, behind one that was kept, as of the newest.
    fn states(&self, source: &Source, trust: &Trust) -> Result<(Accepted, Option<Accepted>), Failure> {
        let Some(path) = &self.checkpoint else {
            let newest = trust.read(&source.checkpoint()?).map_err(|e| e.of("the log's checkpoint"))?;
            return Ok((newest.1, None));
        };
        let text = File::File(path.clone()).read("the checkpoint", MAX_CHECKPOINT_BYTES, Exit::NotProved)?;
        let (_, kept) = trust.read(text.as_bytes()).map_err(|e| e.of("the checkpoint"))?;
        match trust.read(&source.checkpoint()?) {
            Ok((_, newest)) => {
                let newer = Some(newest).filter(|newest| newest.checkpoint.size() > kept.checkpoint.size());
                Ok((kept, newer))
            }
            // Its witnesses may come a moment later.
            Err(refused) if refused.check == "quorum" => Ok((kept, None)),
            Err(refused) => Err(refused.of("the log's checkpoint")),
        }
    }
}

/// Reads the log up to the first of these states, and on to the second; then the logs that it continues.
fn read(
    comparison: &mut Comparison<'_>,
    source: &Source,
    (first, newer): (&Accepted, Option<&Accepted>),
) -> Result<Older, Failure> {
    Entries { source, checkpoint: &first.checkpoint }.scan(0, |index, bytes| {
        comparison.take(index, bytes, true);
        Ok(())
    })?;
    if let Some(newer) = newer {
        let entries = Entries { source, checkpoint: &newer.checkpoint };
        let root = entries.scan(first.checkpoint.size(), |index, bytes| {
            comparison.take(index, bytes, false);
            Ok(())
        })?;
        if root != *first.checkpoint.root() {
            return Err(forked(&first.checkpoint, &newer.checkpoint));
        }
    }
    let older = Older::of(source, &first.checkpoint)?;
    for entries in older.logs.iter().map(OlderLog::entries) {
        comparison.begin(entries.checkpoint.origin());
        entries.scan(0, |index, bytes| {
            comparison.take(index, bytes, true);
            Ok(())
        })?;
    }
    Ok(older)
}

/// Refuses the log of another kind of environment.
fn must_be_of(origin: &str, rows: &Rows) -> Result<(), Failure> {
    let exported = rows.header.as_ref().map(|header| header.environment.as_str());
    match (kind_of(origin), exported) {
        (Some(kind), Some(exported)) if kind.as_str() != exported => {
            let what =
                format!("the export is of the environment {exported}, and {origin} is the log of {kind}");
            Err(Failure::new(Exit::Usage, what)
                .next("name the log of the export: with --sandbox, or with --log"))
        }
        _ => Ok(()),
    }
}

fn another_key() -> Failure {
    let what =
        "the watch key is not that of the export's environment: the log has rows of it, none under this key";
    Failure::new(Exit::Usage, what)
        .next("ask the operator for the output of mandate-server log watch-key for this organization and environment")
}

fn forked(kept: &Checkpoint, newest: &Checkpoint) -> Failure {
    let what = format!(
        "the log has forked: its {} entries do not begin with the {} of the checkpoint",
        newest.size(),
        kept.size()
    );
    Failure::new(Exit::Fork, what)
        .next("keep both checkpoints and show them: the log's key has signed both, and no honest log can")
}

/// Shows a finding, or a row that was not compared.
fn print(one: &Finding, is_finding: bool, output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        let line = if is_finding { OutputLine::Finding(one) } else { OutputLine::NotCompared(one) };
        return output.json(&line);
    }
    let Finding { line, log, index, check, of, found } = one;
    let line = line.map(|line| format!("line {line}  ")).unwrap_or_default();
    let log = log.as_ref().map(|log| format!(" of {}", printable(log))).unwrap_or_default();
    let index = index.map(|index| format!("entry {index}{log}  ")).unwrap_or_default();
    let check = if is_finding {
        format!("{ERROR}{check}{ERROR:#}")
    } else {
        format!("{CAUTION}not compared{CAUTION:#}")
    };
    output.text(&format!("{line}{index}{}  {check}: {}\n", printable(of), printable(found)));
    Ok(())
}

impl Summary {
    fn count(&mut self, finding: &Finding) {
        self.findings = self.findings.saturating_add(1);
        let count = self.by_check.entry(finding.check).or_default();
        *count = count.saturating_add(1);
    }

    fn conclude(&self, output: &mut Output) -> Result<Exit, Failure> {
        if output.is_json() {
            output.json(&OutputLine::Summary(self))?;
        } else {
            for older in &self.older_logs {
                output.line("older log", printable(older));
            }
            output.line("log", printable(&self.log));
            output.line("entries", self.size);
            output.line("decisions", self.decisions);
            output.line("governing", self.governing);
            output.line("logged", self.logged);
            self.show_uncompared(output);
            for what in &self.not_looked_for {
                output.text(&format!("{CAUTION}not looked for{CAUTION:#}: {what}\n"));
            }
            output.text(&self.conclusion());
        }
        Ok(match (self.findings, self.is_compared() && self.not_looked_for.is_empty()) {
            (0, true) => Exit::Success,
            (0, false) => Exit::NotCompared,
            _ => Exit::Findings,
        })
    }

    fn rows(&self) -> u64 {
        self.decisions.saturating_add(self.governing)
    }

    /// Whether there is something to compare, and each row was.
    fn is_compared(&self) -> bool {
        self.rows() > 0 && self.younger == 0 && self.older == 0
    }

    fn show_uncompared(&self, output: &mut Output) {
        let shown = |rows: u64| match rows {
            0 => "0".to_owned(),
            _ => format!("{CAUTION}{rows}{CAUTION:#}"),
        };
        output.line("younger", shown(self.younger));
        if self.older > 0 {
            output.line("older", shown(self.older));
        }
    }

    fn conclusion(&self) -> String {
        if self.findings > 0 {
            let checks: Vec<_> =
                self.by_check.iter().map(|(check, count)| format!("{check} {count}")).collect();
            return format!("{ERROR}{} FINDINGS{ERROR:#}: {}\n", self.findings, checks.join(", "));
        }
        if self.rows() == 0 {
            return format!("{CAUTION}NOTHING COMPARED{CAUTION:#}: the export has no row that the log has\n");
        }
        if !self.is_compared() {
            let (rows, logged) = (self.rows(), self.logged);
            return format!(
                "{CAUTION}NOT ALL COMPARED{CAUTION:#}: nothing found in {logged} of {rows} rows; the others were not compared\n"
            );
        }
        if !self.not_looked_for.is_empty() {
            return format!(
                "{CAUTION}NOT ALL COMPARED{CAUTION:#}: each row is its entry; what the export leaves out by its filters or its period was not looked for\n"
            );
        }
        let missing = if self.watched {
            "and nothing under your tags is missing".to_owned()
        } else {
            format!("{CAUTION}without --watch-key nothing can be found missing{CAUTION:#}")
        };
        format!("{GOOD}NOTHING FOUND{GOOD:#}: each row is its entry; {missing}\n")
    }
}
