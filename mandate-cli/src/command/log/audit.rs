//! `mandate log audit`: compares an export with the log, row by row and, with the watch key, tag by tag.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod compare;
mod rows;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use self::compare::Comparison;
use self::rows::Rows;
use super::proof::PROMISED_SECONDS;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::input::Source as File;
use crate::output::Output;
use crate::public_log::entries::Entries;
use crate::public_log::place::LogArgs;
use crate::public_log::source::Source;
use crate::public_log::trust::{TrustArgs, cosigned_at};
use crate::public_log::watch_key;
use crate::style::{CAUTION, ERROR, GOOD, printable};
use crate::value::source;

/// The longest file of a checkpoint.
const MAX_CHECKPOINT_BYTES: usize = mandate_core::log::MAX_NOTE_BYTES;

/// Compare an export with the public log: every row is an entry, and nothing of yours is missing
///
/// Reads the log up to one checkpoint, checks that all entries lead to its root, and compares. Each row of the export that the
/// log has must be the same as its entry: the token, and the whole record as it was when it was decided. With --watch-key it
/// looks the other way too: every decision of your agents and every governing change in the log must be in the export, each
/// number once, and the number behind the last must not be there: nothing is missing at the end, no agent is hidden.
///
/// A log that is in use has entries that are younger than the export. Fetch a checkpoint before you ask for the export
/// (`mandate log checkpoint -o FILE`) and pass it here: what the log had then, the export must have. Rows that are younger than
/// the checkpoint are counted. A row older than a day that is not in the log is a finding. A log that continues an older one
/// lacks what that has: these rows are counted too; compare the older log's files, with its own key, and each row must be in one
/// of them. Signatures and verdicts are for
/// `mandate audit`: run both. The memory it takes grows with the export, about 300 bytes a decision.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate log checkpoint --issuer https://verdicts.example.com -o before.checkpoint
  mandate export download \"$(mandate export create --jq .export)\" -o export.ndjson
  mandate log audit export.ndjson --issuer https://verdicts.example.com \\
      --checkpoint before.checkpoint --watch-key watch.key

Exit codes:
  0 nothing found    23 findings, or no export    51 the log is not what it has signed    2 usage
  36, 37 log not reachable    3 file cannot be read")]
pub(crate) struct AuditLog {
    /// The export in NDJSON, or `-` for standard input
    #[arg(value_name = "EXPORT|-", value_parser = source)]
    export: File,
    /// The file of your environment's watch key; without it nothing can be found missing
    #[arg(long, value_name = "FILE")]
    watch_key: Option<PathBuf>,
    /// Compare with the log as of this checkpoint [default: the newest]
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
    /// Rows that are younger than the checkpoint.
    younger: u64,
    /// Rows from before the log, where it continues an older one.
    older: u64,
    /// Whether it was looked for what is missing.
    watched: bool,
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
        let bytes = match &self.checkpoint {
            Some(path) => {
                let text =
                    File::File(path.clone()).read("the checkpoint", MAX_CHECKPOINT_BYTES, Exit::NotProved)?;
                text.into_bytes()
            }
            None => source.checkpoint()?,
        };
        let (_, accepted) = trust.read(&bytes).map_err(|e| e.of("the checkpoint"))?;
        let checkpoint = &accepted.checkpoint;
        let rows = Rows::read(&self.export)?;
        // Of a checkpoint that was kept only a witness says when it was.
        let as_of = match (&self.checkpoint, cosigned_at(&accepted)) {
            (_, Some(seconds)) => Some(seconds),
            (None, None) => Some(environment::now().seconds()),
            (Some(_), None) => None,
        };
        let due = as_of.map(|seconds| seconds.saturating_sub(PROMISED_SECONDS));
        let mut summary = Summary {
            log: checkpoint.origin().to_owned(),
            size: checkpoint.size(),
            decisions: rows.decisions,
            governing: rows.governing,
            watched: watch_key.is_some(),
            ..Summary::default()
        };
        let mut comparison = Comparison::new(&rows, watch_key.as_ref());
        let entries = Entries { source: &source, checkpoint };
        entries.scan(0, |index, bytes| {
            comparison.take(index, bytes);
            Ok(())
        })?;
        let ended = comparison.end(due);
        (summary.logged, summary.younger, summary.older) = (ended.logged, ended.younger, ended.older);
        for finding in &ended.findings {
            summary.print(finding, output)?;
        }
        summary.conclude(output)
    }
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
            output.line("younger", self.younger);
            if self.older > 0 {
                output.line(
                    "older",
                    format_args!("{CAUTION}{} rows are from before this log: compare the log that it continues{CAUTION:#}", self.older),
                );
            }
            let text = match (self.findings, self.watched) {
                (0, true) => format!(
                    "{GOOD}NOTHING FOUND{GOOD:#}: each row is its entry, and nothing of yours is missing\n"
                ),
                (0, false) => format!(
                    "{GOOD}NOTHING FOUND{GOOD:#}: each row is its entry; {CAUTION}without --watch-key nothing can be found missing{CAUTION:#}\n"
                ),
                (findings, _) => {
                    let checks: Vec<_> =
                        self.by_check.iter().map(|(check, count)| format!("{check} {count}")).collect();
                    format!("{ERROR}{findings} FINDINGS{ERROR:#}: {}\n", checks.join(", "))
                }
            };
            output.text(&text);
        }
        Ok(if self.findings == 0 { Exit::Success } else { Exit::Findings })
    }
}
