//! The rows of an export that the log must have.

use mandate_core::{AgentId, Timestamp};

use super::Finding;
use crate::exit::{Exit, Failure};
use crate::export::{Entry, Header, Logged, LoggedRow};
use crate::input::Source;
use crate::lines::{Lines, unreadable};

/// A row and its line.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) line: u64,
    pub(super) logged: Logged,
}

/// All rows of an export.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) header: Option<Header>,
    pub(super) all: Vec<Row>,
    pub(super) decisions: u64,
    pub(super) governing: u64,
    /// Lines that cannot be compared.
    pub(super) refused: Vec<Finding>,
}

impl Rows {
    pub(super) fn read(source: &Source) -> Result<Self, Failure> {
        let mut lines = Lines::open(source, "the export")?;
        let mut rows = Self::default();
        while let Some(line) = lines.next(|_| {}).map_err(|e| unreadable("the export", source, &e))? {
            if line.number == 1 {
                rows.header = Some(header(source, &line.bytes)?);
                continue;
            }
            match Logged::read(&line.bytes) {
                _ if line.too_long => rows.refuse(line.number, &"a line that is too long to be read"),
                Ok(Some(logged)) => rows.add(line.number, logged),
                // Mandates and the trailer are not in the log.
                Ok(None) => {}
                Err(e) => rows.refuse(line.number, &e),
            }
        }
        if rows.header.is_none() {
            return Err(Failure::new(Exit::Findings, format!("{source} is no export: it is empty")));
        }
        Ok(rows)
    }

    fn add(&mut self, line: u64, logged: Logged) {
        let count = match logged.row {
            LoggedRow::Decision { .. } => &mut self.decisions,
            LoggedRow::Governing { .. } => &mut self.governing,
        };
        *count = count.saturating_add(1);
        self.all.push(Row { line, logged });
    }

    fn refuse(&mut self, line: u64, why: &dyn ToString) {
        let (of, found) = (String::new(), why.to_string());
        self.refused.push(Finding { line: Some(line), log: None, index: None, check: "line", of, found });
    }

    /// Whether the export has all of its environment up to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.header.as_ref().is_some_and(|header| header.verdict.is_none() && header.agent.is_none())
    }

    /// Whether it has every decision of an agent, from the first row to the last.
    pub(super) fn is_complete(&self) -> bool {
        self.header.as_ref().is_some_and(Header::is_complete)
    }

    /// The instant at which it begins, if it is not at the beginning.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.header.as_ref().and_then(|header| header.since)
    }

    /// Whether it ends before the present.
    pub(super) fn is_ended(&self) -> bool {
        self.header.as_ref().is_some_and(|header| header.until.is_some())
    }
}

fn header(source: &Source, line: &[u8]) -> Result<Header, Failure> {
    let why = match Entry::read(line) {
        Ok(Entry::Export(header)) => return Ok(header),
        Ok(_) => "its first line is no header".to_owned(),
        Err(e) => e.to_string(),
    };
    Err(Failure::new(Exit::Findings, format!("{source} is no export: {why}"))
        .next("pass what `mandate export download` wrote, in NDJSON"))
}

impl Row {
    /// The number of the row among its agent's decisions, or among the governing changes.
    pub(super) fn number(&self) -> (Option<&AgentId>, u64) {
        match &self.logged.row {
            LoggedRow::Decision { agent, sequence, .. } => (Some(agent), *sequence),
            LoggedRow::Governing { number, .. } => (None, *number),
        }
    }

    /// When it was decided, or came about.
    pub(super) fn at(&self) -> Option<Timestamp> {
        match &self.logged.row {
            LoggedRow::Decision { decided_at, .. } => Some(*decided_at),
            LoggedRow::Governing { at, .. } => *at,
        }
    }

    /// What the row is about, for a finding.
    pub(super) fn name(&self) -> String {
        match &self.logged.row {
            LoggedRow::Decision { id, agent, sequence, .. } => format!("{id} {agent} sequence {sequence}"),
            LoggedRow::Governing { number, kind, .. } => format!("change {number} {kind}"),
        }
    }
}
