//! Compares the rows of an export with the entries of the log, in both directions.

use std::collections::{BTreeMap, HashMap, HashSet};

use mandate_core::AgentId;
use mandate_core::log::{Entry, Hash, WatchKey};

use super::Finding;
use super::rows::{Row, Rows};
use crate::export::LoggedRow;

/// What was compared in the end.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) logged: u64,
    pub(super) younger: u64,
    /// Rows from before the log, which continues an older one.
    pub(super) older: u64,
    pub(super) findings: Vec<Finding>,
}

/// A tag of the environment that the export has no row for.
#[derive(Debug, Clone)]
struct Lacking {
    of: String,
    why: &'static str,
}

pub(super) struct Comparison<'a> {
    rows: &'a Rows,
    watch_key: Option<&'a WatchKey>,
    /// By what an entry is found: the tag with the watch key, otherwise the token or the random bytes.
    by_handle: HashMap<Hash, usize>,
    /// Which row was found in which entry.
    found: Vec<Option<u64>>,
    /// Tags that must not be in the log, as far as the export says.
    lacking: HashMap<Hash, Lacking>,
    /// Whether the log continues an older one, which has earlier rows.
    continues: bool,
    ended: Ended,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(rows: &'a Rows, watch_key: Option<&'a WatchKey>) -> Self {
        let ended = Ended { findings: rows.refused.clone(), ..Ended::default() };
        let found = vec![None; rows.all.len()];
        let mut comparison = Self {
            rows,
            watch_key,
            by_handle: HashMap::new(),
            found,
            lacking: HashMap::new(),
            continues: false,
            ended,
        };
        for (place, row) in rows.all.iter().enumerate() {
            let handle = watch_key.map_or_else(|| row.logged.handle(), |key| row.logged.tag(key));
            if row.logged.record.is_none() {
                comparison.of_row(row, None, "blind", "the row has no blind: make a new export");
            }
            if comparison.by_handle.insert(handle, place).is_some() {
                comparison.of_row(row, None, "twice", "another row is for the same entry");
            }
        }
        if let Some(key) = watch_key {
            let (lacking, gaps) = lacking(rows, key);
            comparison.lacking = lacking;
            comparison.ended.findings.extend(gaps);
        }
        comparison
    }

    fn of_row(&mut self, row: &Row, index: Option<u64>, check: &'static str, found: &str) {
        let (line, of, found) = (Some(row.line), row.name(), found.to_string());
        self.ended.findings.push(Finding { line, index, check, of, found });
    }

    /// Takes an entry of the log.
    pub(super) fn take(&mut self, index: u64, bytes: &[u8]) {
        let Ok(entry) = Entry::parse(bytes) else { return };
        let (tag, handle) = match &entry {
            Entry::Decision { tag, token, .. } => (tag, token),
            Entry::Governing { tag, random, .. } => (tag, random),
            Entry::Key(_) => return,
            Entry::OlderLog(_) => {
                self.continues |= index == 0;
                return;
            }
        };
        let handle = if self.watch_key.is_some() { tag } else { handle };
        if let Some(place) = self.by_handle.get(handle).copied() {
            self.matched(place, index, &entry);
        } else if let Some(Lacking { of, why }) = self.lacking.get(tag).cloned() {
            self.ended.findings.push(Finding {
                line: None,
                index: Some(index),
                check: "missing",
                of,
                found: why.to_owned(),
            });
        }
    }

    fn matched(&mut self, place: usize, index: u64, entry: &Entry) {
        let Some((row, found)) = self.rows.all.get(place).zip(self.found.get_mut(place)) else { return };
        if let Some(first) = found.replace(index) {
            return self.of_row(row, Some(index), "twice", &format!("entry {first} is of it too"));
        }
        if row.logged.record.is_none() {
            return;
        }
        if row.logged.is(entry) {
            self.ended.logged = self.ended.logged.saturating_add(1);
        } else {
            self.of_row(row, Some(index), "entry", differs(row, entry));
        }
    }

    /// At the end of the log: rows that it lacks. `due` is the instant before which it must have them.
    pub(super) fn end(mut self, due: Option<i64>) -> Ended {
        let rows = self.rows;
        // The first and the last of each agent's decisions, and of the governing changes, that the log has.
        let mut spans = HashMap::<Option<&AgentId>, (u64, u64)>::new();
        for (row, _) in rows.all.iter().zip(&self.found).filter(|(_, found)| found.is_some()) {
            let (of, number) = row.number();
            let (first, last) = spans.entry(of).or_insert((number, number));
            (*first, *last) = ((*first).min(number), (*last).max(number));
        }
        let lacks = std::mem::take(&mut self.found);
        for (row, _) in rows.all.iter().zip(lacks).filter(|(_, found)| found.is_none()) {
            let (of, number) = row.number();
            let span = spans.get(&of);
            let is_due = row.at().zip(due).is_some_and(|(at, due)| at.seconds() < due);
            if self.continues && span.is_none_or(|(first, _)| number < *first) {
                self.ended.older = self.ended.older.saturating_add(1);
            } else if span.is_some_and(|(_, last)| number < *last) {
                self.of_row(row, None, "not_logged", "the log lacks it, although it has later ones");
            } else if is_due {
                self.of_row(row, None, "not_logged", "the log lacks it, a day after it was decided");
            } else {
                self.ended.younger = self.ended.younger.saturating_add(1);
            }
        }
        self.ended
    }
}

/// What of a row differs from its entry.
fn differs(row: &Row, entry: &Entry) -> &'static str {
    match (&row.logged.row, entry) {
        (LoggedRow::Decision { token, .. }, Entry::Decision { token: logged, .. }) if token != logged => {
            "the log has another token for it"
        }
        (LoggedRow::Governing { random, .. }, Entry::Governing { random: logged, .. })
            if random != logged =>
        {
            "the log has other random bytes for it"
        }
        (LoggedRow::Decision { .. }, Entry::Decision { .. })
        | (LoggedRow::Governing { .. }, Entry::Governing { .. }) => {
            "the log has another record of it: the row was changed"
        }
        _ => "the log has an entry of another type for it",
    }
}

/// How many numbers are looked for that the export lacks between those that it has: a made-up number must not take all memory.
const MAX_LACKING: usize = 1_000_000;

/// The tags that the log must not have, as far as the export says: in gaps, and behind the end. Gaps that are too long to be
/// looked for whole are findings.
fn lacking(rows: &Rows, key: &WatchKey) -> (HashMap<Hash, Lacking>, Vec<Finding>) {
    let (mut lacking, mut gaps) = (HashMap::new(), Vec::new());
    if !rows.is_complete() {
        return (lacking, gaps);
    }
    let mut room = MAX_LACKING;
    let mut within = |of: &str, numbers: &HashSet<u64>| {
        let (absent, rest) = absent(numbers, rows, &mut room);
        if rest > 0 {
            let found = format!("{rest} more numbers are absent than are looked for");
            gaps.push(Finding { line: None, index: None, check: "gap", of: of.to_owned(), found });
        }
        absent
    };
    let (mut agents, mut numbers) = (BTreeMap::<&AgentId, HashSet<u64>>::new(), HashSet::new());
    for row in &rows.all {
        match &row.logged.row {
            LoggedRow::Decision { agent, sequence, .. } => {
                agents.entry(agent).or_default().insert(*sequence);
            }
            LoggedRow::Governing { number, agent, .. } => {
                numbers.insert(*number);
                // An agent that is named here may have no decision.
                if let Some(agent) = agent {
                    agents.entry(agent).or_default();
                }
            }
        }
    }
    for (agent, sequences) in agents {
        for (sequence, why) in within(agent.as_str(), &sequences) {
            let of = format!("{agent} sequence {sequence}");
            lacking.insert(key.decision(agent, sequence), Lacking { of, why });
        }
    }
    if rows.is_whole() {
        for (number, why) in within("governing changes", &numbers) {
            lacking.insert(key.governing(number), Lacking { of: format!("change {number}"), why });
        }
    }
    (lacking, gaps)
}

/// The numbers that are absent between the first and the last, at most as many as there is room for, and the one behind the
/// last; and how many more are absent.
fn absent(numbers: &HashSet<u64>, rows: &Rows, room: &mut usize) -> (Vec<(u64, &'static str)>, u64) {
    let last = numbers.iter().max().copied();
    let first = match (rows.since(), numbers.iter().min()) {
        // Where the export begins later, what was before is not missing.
        (Some(_), Some(first)) => *first,
        (Some(_), None) => return (Vec::new(), 0),
        (None, _) => 1,
    };
    let last = last.unwrap_or(0);
    let has = u64::try_from(numbers.len()).unwrap_or(u64::MAX);
    let all = last.saturating_add(1).saturating_sub(first).saturating_sub(has);
    let gaps = (first..last).filter(|number| !numbers.contains(number)).take(*room);
    let gaps: Vec<_> =
        gaps.map(|number| (number, "the export lacks it, although it has later ones")).collect();
    *room = room.saturating_sub(gaps.len());
    let rest = all.saturating_sub(u64::try_from(gaps.len()).unwrap_or(u64::MAX));
    let behind =
        "the export lacks it: it is younger than the export, or was left out at its end; see --checkpoint";
    let behind = (!rows.is_ended()).then_some((last.saturating_add(1), behind));
    (gaps.into_iter().chain(behind).collect(), rest)
}
