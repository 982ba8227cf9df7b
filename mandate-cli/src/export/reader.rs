//! Reads an export once: its start here, its decisions in blocks for other threads.

use std::collections::VecDeque;
use std::io;

use indicatif::{ProgressBar, ProgressStyle};
use mandate_core::export::Content;

use super::sorted::Sorted;
use super::{Entry, Header, Mandates, PersonRecord};
use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::lines::{Line, Lines, unreadable};

/// About how many bytes of lines a worker gets at a time.
const BLOCK_BYTES: usize = 128 * 1024;

/// A line, and for a trailer's line the hash of what came before.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) line: Line,
    /// The SHA-256 of all bytes before a trailer.
    pub(crate) before: Option<String>,
}

/// What comes before the decisions.
#[derive(Debug, Default)]
pub(crate) struct Prologue {
    pub(crate) header: Option<Header>,
    pub(crate) mandates: Mandates,
    /// The governing records that people's answers rest on.
    pub(crate) people: Vec<PersonRecord>,
    /// The number of the newest governing record; 0 without any.
    pub(crate) newest: u64,
}

/// Lines in the order of the source, or sorted.
enum Written {
    AsTheyStand(Lines),
    InOrder(Sorted),
}

/// An export that is being read.
pub(crate) struct Reader {
    lines: Written,
    content: Content,
    waiting: VecDeque<Raw>,
    progress: ProgressBar,
}

impl Reader {
    /// Opens the export. Progress is shown on a terminal.
    pub(crate) fn open(source: &Source) -> Result<Self, Failure> {
        Ok(Self::of(Written::AsTheyStand(Lines::open(source, "the export")?), source))
    }

    /// Opens an export. With `sort`, its lines may be in any order.
    pub(crate) fn open_in_order(source: &Source, sort: bool) -> Result<Self, Failure> {
        if sort { Ok(Self::of(Written::InOrder(Sorted::open(source)?), source)) } else { Self::open(source) }
    }

    fn of(lines: Written, source: &Source) -> Self {
        let length = match source {
            Source::File(path) => std::fs::metadata(path).ok().map(|m| m.len()).filter(|length| *length > 0),
            Source::Stdin => None,
        };
        let template = if length.is_some() {
            "{bar:40} {percent}% {binary_bytes_per_sec} {eta}"
        } else {
            "{binary_bytes} {binary_bytes_per_sec}"
        };
        let progress = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
        if let Ok(style) = ProgressStyle::with_template(template) {
            progress.set_style(style);
        }
        Self { lines, content: Content::default(), waiting: VecDeque::new(), progress }
    }

    /// The progress bar. It must be cleared before anything else is printed.
    pub(crate) fn progress(&self) -> ProgressBar {
        self.progress.clone()
    }

    /// Reads up to the first decision.
    pub(crate) fn prologue(&mut self, source: &Source) -> Result<Prologue, Failure> {
        let (mut header, mut mandates, mut people, mut is_first) = (None, Vec::new(), Vec::new(), true);
        let (mut newest, mut refused) = (0, VecDeque::new());
        while let Some(raw) = self.next().map_err(|e| unreadable("the export", source, &e))? {
            match Entry::read(&raw.line.bytes) {
                Ok(Entry::Export(first)) if is_first => header = Some(first),
                Ok(Entry::Mandate(mandate)) => {
                    mandates.push((raw.line.number, *mandate));
                }
                Err(e) if is_first => {
                    return Err(Failure::new(Exit::Findings, format!("{source} is no export: {e}"))
                        .next("pass what `mandate export download` wrote, in NDJSON"));
                }
                Ok(Entry::Governing(number, record)) if !is_first => {
                    newest = newest.max(number);
                    people.extend(record);
                }
                // Refused again later, line by line. The records behind it count.
                Err(_) if raw.line.bytes.starts_with(br#"{"governing""#) => refused.push_back(raw),
                // Decisions and misplaced lines are checked later, line by line.
                _ => {
                    refused.push_back(raw);
                    break;
                }
            }
            is_first = false;
        }
        self.waiting = refused;
        if is_first {
            return Err(Failure::new(Exit::Findings, format!("{source} is no export: it is empty"))
                .next("pass what `mandate export download` wrote, in NDJSON"));
        }
        Ok(Prologue { header, mandates: Mandates::of_lines(mandates), people, newest })
    }

    fn next(&mut self) -> io::Result<Option<Raw>> {
        if let Some(raw) = self.waiting.pop_front() {
            return Ok(Some(raw));
        }
        let (content, progress) = (&mut self.content, &self.progress);
        let progressed = |bytes: usize| progress.inc(u64::try_from(bytes).unwrap_or(0));
        let line = match &mut self.lines {
            Written::AsTheyStand(lines) => lines.next(|bytes| {
                content.take(bytes);
                progressed(bytes.len());
            })?,
            Written::InOrder(sorted) => {
                let line = sorted.next()?;
                progressed(line.as_ref().map_or(0, |line| line.bytes.len().saturating_add(1)));
                line
            }
        };
        Ok(line.map(|line| Raw { line, before: self.content.sha256_before() }))
    }

    /// The next lines. Empty at the end.
    pub(crate) fn block(&mut self) -> io::Result<Vec<Raw>> {
        let (mut block, mut bytes) = (Vec::new(), 0_usize);
        while bytes < BLOCK_BYTES {
            let Some(raw) = self.next()? else { break };
            bytes = bytes.saturating_add(raw.line.bytes.len()).saturating_add(1);
            block.push(raw);
        }
        Ok(block)
    }

    /// The remaining blocks.
    pub(crate) fn blocks(mut self) -> impl Iterator<Item = io::Result<Vec<Raw>>> + Send {
        std::iter::from_fn(move || match self.block() {
            Ok(block) if block.is_empty() => None,
            block => Some(block),
        })
    }
}
