//! `mandate log audit`: compares an export with the log, row by row and, with the watch key, tag by tag.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod compare;
mod rows;

use std::collections::BTreeMap;
use std::path::PathBuf;

use mandate_core::log::{Accepted, Checkpoint};
use serde::Serialize;

use self::compare::{Comparison, Reach};
use self::rows::Rows;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::input::Source as File;
use crate::output::Output;
use crate::public_log::entries::Entries;
use crate::public_log::place::{LogArgs, kind_of};
use crate::public_log::source::Source;
use crate::public_log::trust::{Trust, TrustArgs};
use crate::public_log::watch_key;
use crate::style::{CAUTION, ERROR, GOOD, printable};
use crate::value::source;

/// The longest file of a checkpoint.
const MAX_CHECKPOINT_BYTES: usize = mandate_core::log::MAX_NOTE_BYTES;

/// Compare an export with the public log: every row is an entry, and nothing of yours is missing
///
/// Reads the log up to its newest checkpoint, checks that all entries lead to its root, and compares. Each row of the export
/// must be the same as its entry: the token, and the whole record as it was when it was decided. With --watch-key it looks the
/// other way too: every decision of your agents and every governing change in the log must be in the export, each number once,
/// and the number behind the last must not be there: nothing is missing at the end, no agent is hidden.
///
/// A log that is in use has entries that are younger than the export. Fetch a checkpoint before you ask for the export
/// (`mandate log checkpoint -o FILE`) and pass it here: what the log had then, the export must have. A row older than a day that
/// is not in the log is a finding.
///
/// The exit code is 0 only if each row was compared, and 26 if some were not: they are not in the log yet, or in an older log
/// that this one continues, or in the one that goes on where this one has ended. Compare with that log too, with its own key:
/// each row must be logged in one of them. Signatures and verdicts are for `mandate audit`: run both. The memory it takes grows
/// with the export, about 400 bytes a decision.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate log checkpoint --issuer https://verdicts.example.com -o before.checkpoint
  mandate export download \"$(mandate export create --jq .export)\" -o export.ndjson
  mandate log audit export.ndjson --issuer https://verdicts.example.com \\
      --checkpoint before.checkpoint --watch-key watch.key

Exit codes:
  0 each row compared, nothing found    23 findings, or no export    26 rows that were not compared
  51 the log is not what it has signed    52 it does not continue the checkpoint    2 usage, another
  environment's watch key or log    36, 37, 38 log not readable    3 file cannot be read")]
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
    decisions: u64,
    governing: u64,
    /// Rows that the log has at this checkpoint, as they are.
    logged: u64,
    /// Rows that the log does not have yet, or that are in the one that goes on where it has ended.
    younger: u64,
    /// Rows from before the log, where it continues an older one.
    older: u64,
    /// Whether it was looked for what is missing.
    watched: bool,
    /// Whether the export has only what a filter let through.
    filtered: bool,
    /// The log that goes on where this one has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    findings: u64,
    by_check: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum OutputLine<'a> {
    Finding(&'a Finding),
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
        Entries { source: &source, checkpoint: &first.checkpoint }.scan(0, |index, bytes| {
            comparison.take(index, bytes, true);
            Ok(())
        })?;
        if let Some(newer) = &newer {
            let entries = Entries { source: &source, checkpoint: &newer.checkpoint };
            let root = entries.scan(first.checkpoint.size(), |index, bytes| {
                comparison.take(index, bytes, false);
                Ok(())
            })?;
            if root != *first.checkpoint.root() {
                return Err(forked(&first.checkpoint, &newer.checkpoint));
            }
        }
        if comparison.is_of_another_key() {
            return Err(another_key());
        }
        // The newest checkpoint is of now, but that of a log that has ended. Of one that was kept only a witness says when it was.
        let now = Some(environment::now().seconds()).filter(|_| next.is_none());
        let mut reached = vec![Reach::of(&first, now.filter(|_| self.checkpoint.is_none()))];
        reached.extend(newer.map(|newer| Reach::of(&newer, now)));
        let ended = comparison.end(&reached);
        let mut summary = Summary {
            log: first.checkpoint.origin().to_owned(),
            size: reached.last().map_or(0, |reach| reach.size),
            decisions: rows.decisions,
            governing: rows.governing,
            logged: ended.logged,
            younger: ended.younger,
            older: ended.older,
            watched: watch_key.is_some(),
            filtered: !rows.is_whole(),
            next,
            ..Summary::default()
        };
        for finding in &ended.findings {
            summary.print(finding, output)?;
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

impl Summary {
    fn print(&mut self, finding: &Finding, output: &mut Output) -> Result<(), Failure> {
        self.findings = self.findings.saturating_add(1);
        let count = self.by_check.entry(finding.check).or_default();
        *count = count.saturating_add(1);
        if output.is_json() {
            return output.json(&OutputLine::Finding(finding));
        }
        let Finding { line, index, check, of, found } = finding;
        let line = line.map(|line| format!("line {line}  ")).unwrap_or_default();
        let index = index.map(|index| format!("entry {index}  ")).unwrap_or_default();
        output.text(&format!(
            "{line}{index}{}  {ERROR}{check}{ERROR:#}: {}\n",
            printable(of),
            printable(found)
        ));
        Ok(())
    }

    fn conclude(&self, output: &mut Output) -> Result<Exit, Failure> {
        if output.is_json() {
            output.json(&OutputLine::Summary(self))?;
        } else {
            output.line("log", printable(&self.log));
            output.line("entries", self.size);
            output.line("decisions", self.decisions);
            output.line("governing", self.governing);
            output.line("logged", self.logged);
            self.show_uncompared(output);
            output.text(&self.conclusion());
        }
        Ok(match (self.findings, self.is_compared()) {
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
        let younger = match (self.younger, &self.next) {
            (0, _) => "0".to_owned(),
            (younger, None) => format!(
                "{CAUTION}{younger} rows are not in the log as far as it was read: look again later{CAUTION:#}"
            ),
            (younger, Some(next)) => format!(
                "{CAUTION}{younger} rows are not in this log, which has ended: compare {} too{CAUTION:#}",
                printable(next)
            ),
        };
        output.line("younger", younger);
        if self.older > 0 {
            output.line(
                "older",
                format_args!(
                    "{CAUTION}{} rows are from before this log: compare the log that it continues{CAUTION:#}",
                    self.older
                ),
            );
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
        let missing = match (self.watched, self.filtered) {
            (true, false) => "and nothing of yours is missing".to_owned(),
            (true, true) => format!(
                "{CAUTION}what the export's filters leave out was not looked for, nor were governing changes{CAUTION:#}"
            ),
            (false, _) => format!("{CAUTION}without --watch-key nothing can be found missing{CAUTION:#}"),
        };
        format!("{GOOD}NOTHING FOUND{GOOD:#}: each row is its entry; {missing}\n")
    }
}
