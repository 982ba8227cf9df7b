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

    /// What the export is said to leave out, so that it cannot be found missing. The operator writes the header.
    pub(super) fn not_looked_for(&self) -> Vec<&'static str> {
        let Some(header) = &self.header else { return Vec::new() };
        let has_period = header.since.is_some() || header.until.is_some();
        let left_out = [
            (!header.is_complete(), "missing decisions: the export has the filter verdict"),
            (header.agent.is_some(), "decisions of other agents: the export has the filter agent"),
            (!header.has_all_records(), "missing governing changes: the export has a filter"),
            (header.since.is_some(), "decisions before the first row of an agent: the export has since"),
            (header.until.is_some(), "decisions behind the last row of an agent: the export has until"),
            (has_period, "decisions of agents without a row: the export has since or until"),
        ];
        left_out.into_iter().filter_map(|(is_left_out, what)| is_left_out.then_some(what)).collect()
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
