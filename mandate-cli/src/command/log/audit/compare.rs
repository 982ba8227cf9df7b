//! Compares the rows of an export with the entries of the log, in both directions.

use std::collections::{BTreeMap, HashMap, HashSet};

use mandate_core::AgentId;
use mandate_core::log::{Accepted, Entry, Hash, WatchKey};

use super::Finding;
use super::rows::{Row, Rows};
use crate::command::log::proof::PROMISED_SECONDS;
use crate::export::LoggedRow;
use crate::public_log::trust::cosigned_at;

/// What was compared in the end.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) logged: u64,
    pub(super) younger: u64,
    /// Rows that may be in an older log that cannot be read.
    pub(super) older: u64,
    pub(super) findings: Vec<Finding>,
    /// These rows, each with the reason.
    pub(super) uncompared: Vec<Finding>,
}

/// Why rows that the logs lack were not compared.
pub(super) struct Reasons {
    /// Younger ones than what was read.
    pub(super) younger: String,
    /// Older ones, where an older log cannot be read.
    pub(super) older: Option<String>,
}

/// Where an entry is.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    /// Which of the older logs. None: the log itself.
    older: Option<usize>,
    index: u64,
}

/// A state of the log that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    pub(super) size: u64,
    /// The instant before which it must have a row. None: nothing says of when the state is.
    due: Option<i64>,
}

impl Reach {
    /// The state of a checkpoint, as of when its witnesses saw it, or else `as_of`.
    pub(super) fn of(accepted: &Accepted, as_of: Option<i64>) -> Self {
        let as_of = cosigned_at(accepted).or(as_of);
        let due = as_of.map(|seconds| seconds.saturating_sub(PROMISED_SECONDS));
        Self { size: accepted.checkpoint.size(), due }
    }

    /// An older log was read to its end.
    fn has(self, found: Option<At>) -> bool {
        found.is_some_and(|at| at.older.is_some() || at.index < self.size)
    }
}

/// The first and the last of each agent's decisions, and of the governing changes, that a state of the log has.
type Spans<'a> = HashMap<Option<&'a AgentId>, (u64, u64)>;

/// A tag of the environment that the export has no row for.
#[derive(Debug, Clone)]
struct Lacking {
    of: String,
    why: &'static str,
}

pub(super) struct Comparison<'a> {
    rows: &'a Rows,
    watch_key: Option<&'a WatchKey>,
    /// By which tag an entry is found, with the watch key.
    by_tag: HashMap<Hash, usize>,
    /// By which token or random bytes it is found, whatever its tag.
    by_handle: HashMap<Hash, usize>,
    /// How many rows were found by their tags.
    tagged: usize,
    /// Rows that the log has under other tags, with the entries.
    elsewhere: Vec<(usize, At)>,
    /// Which row was found in which entry.
    found: Vec<Option<At>>,
    /// Tags that must not be in the log, as far as the export says.
    lacking: HashMap<Hash, Lacking>,
    /// The origins of the older logs that were read. Entries are of the last one.
    older: Vec<String>,
    ended: Ended,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(rows: &'a Rows, watch_key: Option<&'a WatchKey>) -> Self {
        let ended = Ended { findings: rows.refused.clone(), ..Ended::default() };
        let found = vec![None; rows.all.len()];
        let mut comparison = Self {
            rows,
            watch_key,
            by_tag: HashMap::new(),
            by_handle: HashMap::new(),
            tagged: 0,
            elsewhere: Vec::new(),
            found,
            lacking: HashMap::new(),
            older: Vec::new(),
            ended,
        };
        for (place, row) in rows.all.iter().enumerate() {
            if row.logged.record.is_none() {
                comparison.of_row(row, None, "blind", "the row has no blind: make a new export");
            }
            let tag = watch_key.map(|key| comparison.by_tag.insert(row.logged.tag(key), place));
            let same = comparison.by_handle.insert(row.logged.handle(), place);
            if same.or(tag.flatten()).is_some() {
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

    fn of_row(&mut self, row: &Row, at: Option<At>, check: &'static str, found: &str) {
        self.ended
            .findings
            .push(Finding { line: Some(row.line), ..self.finding(row.name(), at, check, found) });
    }

    fn finding(&self, of: String, at: Option<At>, check: &'static str, found: &str) -> Finding {
        let log = at.and_then(|at| at.older).and_then(|older| self.older.get(older).cloned());
        Finding { line: None, log, index: at.map(|at| at.index), check, of, found: found.to_owned() }
    }

    /// From now on entries are of this older log.
    pub(super) fn begin(&mut self, older: &str) {
        self.older.push(older.to_owned());
    }

    /// Where an entry of the log is that is read now.
    fn at(&self, index: u64) -> At {
        At { older: self.older.len().checked_sub(1), index }
    }

    /// Takes an entry of the log. `must_be_exported`: the export must have it, if it is of the holder of the watch key.
    pub(super) fn take(&mut self, index: u64, bytes: &[u8], must_be_exported: bool) {
        let Ok(entry) = Entry::parse(bytes) else { return };
        let (tag, handle) = match &entry {
            Entry::Decision { tag, token, .. } => (tag, token),
            Entry::Governing { tag, random, .. } => (tag, random),
            Entry::Key(_) | Entry::OlderLog(_) => return,
        };
        let at = self.at(index);
        let by_tag = self.by_tag.get(tag).copied();
        if let Some(place) = by_tag {
            self.tagged = self.tagged.saturating_add(1);
            self.matched(place, at, &entry);
        } else if let Some(place) = self.by_handle.get(handle).copied() {
            if self.watch_key.is_some() {
                self.elsewhere.push((place, at));
            } else {
                self.matched(place, at, &entry);
            }
        } else if !must_be_exported {
            // It came after the export was asked for, or may have.
        } else if let Some(Lacking { of, why }) = self.lacking.get(tag).cloned() {
            let finding = self.finding(of, Some(at), "missing", why);
            self.ended.findings.push(finding);
        }
    }

    fn matched(&mut self, place: usize, at: At, entry: &Entry) {
        let Some((row, found)) = self.rows.all.get(place).zip(self.found.get_mut(place)) else { return };
        if let Some(first) = found.replace(at) {
            let log = first.older.and_then(|older| self.older.get(older));
            let of = log.map_or_else(String::new, |log| format!(" of {log}"));
            return self.of_row(row, Some(at), "twice", &format!("entry {}{of} is of it too", first.index));
        }
        if row.logged.record.is_none() {
            return;
        }
        if row.logged.is(entry) {
            self.ended.logged = self.ended.logged.saturating_add(1);
        } else {
            self.of_row(row, Some(at), "entry", differs(row, entry));
        }
    }

    /// Whether the rows are there, and none of them under the watch key.
    pub(super) fn is_of_another_key(&self) -> bool {
        self.tagged == 0 && !self.elsewhere.is_empty()
    }

    /// At the end: rows that the logs lack in one of the states that were read, the last of which is the newest.
    pub(super) fn end(mut self, reached: &[Reach], reasons: &Reasons) -> Ended {
        let rows = self.rows;
        for (place, at) in std::mem::take(&mut self.elsewhere) {
            let Some((row, found)) = rows.all.get(place).zip(self.found.get_mut(place)) else { continue };
            if found.replace(at).is_none() {
                self.of_row(row, Some(at), "tag", "the log has it under the tag of another agent or number");
            }
        }
        let found = std::mem::take(&mut self.found);
        let states: Vec<_> = reached.iter().map(|reach| (*reach, spans(rows, &found, *reach))).collect();
        for (row, found) in rows.all.iter().zip(found) {
            // It may be in the older log that cannot be read.
            let older = |spans: &Spans<'_>| reasons.older.as_deref().filter(|_| is_before(row, spans));
            let mut lacks =
                states.iter().filter(|(reach, spans)| !reach.has(found) && older(spans).is_none());
            if let Some(why) = lacks.find_map(|(reach, spans)| why(row, *reach, spans)) {
                self.of_row(row, found, "not_logged", why);
            } else if found.is_some() {
                // It came to the log later than the export was asked for.
            } else if let Some(why) = states.last().and_then(|(_, spans)| older(spans)) {
                self.ended.older = self.ended.older.saturating_add(1);
                self.uncompared(row, "older", why);
            } else {
                self.ended.younger = self.ended.younger.saturating_add(1);
                self.uncompared(row, "younger", &reasons.younger);
            }
        }
        self.ended
    }

    fn uncompared(&mut self, row: &Row, check: &'static str, why: &str) {
        let finding = Finding { line: Some(row.line), ..self.finding(row.name(), None, check, why) };
        self.ended.uncompared.push(finding);
    }
}

/// Whether a row is of before what the logs have.
fn is_before(row: &Row, spans: &Spans<'_>) -> bool {
    let (of, number) = row.number();
    spans.get(&of).is_none_or(|(first, _)| number < *first)
}

/// Why a state of the log must have a row that it lacks.
fn why(row: &Row, reach: Reach, spans: &Spans<'_>) -> Option<&'static str> {
    let (of, number) = row.number();
    if spans.get(&of).is_some_and(|(_, last)| number < *last) {
        Some("the log lacks it, although it has later ones")
    } else if row.at().zip(reach.due).is_some_and(|(at, due)| at.seconds() < due) {
        Some("the log lacks it, a day after it was decided")
    } else {
        None
    }
}

fn spans<'a>(rows: &'a Rows, found: &[Option<At>], reach: Reach) -> Spans<'a> {
    let mut spans = Spans::new();
    for (row, _) in rows.all.iter().zip(found).filter(|(_, found)| reach.has(**found)) {
        let (of, number) = row.number();
        let (first, last) = spans.entry(of).or_insert((number, number));
        (*first, *last) = ((*first).min(number), (*last).max(number));
    }
    spans
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
/// looked for whole are findings. Governing changes are all in an export of any period; the decisions of an agent only between
/// its first row and its last.
fn lacking(rows: &Rows, key: &WatchKey) -> (HashMap<Hash, Lacking>, Vec<Finding>) {
    let (mut lacking, mut gaps) = (HashMap::new(), Vec::new());
    let Some(header) = rows.header.as_ref().filter(|header| header.is_complete()) else {
        return (lacking, gaps);
    };
    let mut room = MAX_LACKING;
    let mut within = |of: &str, numbers: &HashSet<u64>, ends| {
        let (absent, rest) = absent(numbers, ends, &mut room);
        if rest > 0 {
            let found = format!("{rest} more numbers are absent than are looked for");
            gaps.push(Finding { line: None, log: None, index: None, check: "gap", of: of.to_owned(), found });
        }
        absent
    };
    let (agents, numbers) = numbers(rows);
    for (agent, sequences) in agents {
        if header.agent.as_ref().is_some_and(|own| own != agent) {
            continue;
        }
        let ends = Ends { begins: header.since.is_none(), ends: header.until.is_none() };
        for (sequence, why) in within(agent.as_str(), &sequences, ends) {
            let of = format!("{agent} sequence {sequence}");
            lacking.insert(key.decision(agent, sequence), Lacking { of, why });
        }
    }
    if header.has_all_records() {
        for (number, why) in within("governing changes", &numbers, Ends { begins: true, ends: true }) {
            lacking.insert(key.governing(number), Lacking { of: format!("change {number}"), why });
        }
    }
    (lacking, gaps)
}

/// The sequences of each agent that the export has or names, and the numbers of its governing changes.
fn numbers(rows: &Rows) -> (BTreeMap<&AgentId, HashSet<u64>>, HashSet<u64>) {
    let (mut agents, mut numbers) = (BTreeMap::<_, HashSet<_>>::new(), HashSet::new());
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
    (agents, numbers)
}

/// Which ends of a row of numbers the export must have.
#[derive(Clone, Copy)]
struct Ends {
    begins: bool,
    ends: bool,
}

/// The numbers that are absent between the first and the last, at most as many as there is room for, and the one behind the
/// last; and how many more are absent.
fn absent(
    numbers: &HashSet<u64>,
    Ends { begins, ends }: Ends,
    room: &mut usize,
) -> (Vec<(u64, &'static str)>, u64) {
    let first = match numbers.iter().min() {
        _ if begins => 1,
        // Where the export begins later, what was before is not missing.
        Some(first) => *first,
        None => return (Vec::new(), 0),
    };
    let last = numbers.iter().max().copied().unwrap_or(0);
    let has = u64::try_from(numbers.len()).unwrap_or(u64::MAX);
    let all = last.saturating_add(1).saturating_sub(first).saturating_sub(has);
    let gaps = (first..last).filter(|number| !numbers.contains(number)).take(*room);
    let gaps: Vec<_> =
        gaps.map(|number| (number, "the export lacks it, although it has later ones")).collect();
    *room = room.saturating_sub(gaps.len());
    let rest = all.saturating_sub(u64::try_from(gaps.len()).unwrap_or(u64::MAX));
    let behind =
        "the export lacks it: it is younger than the export, or was left out at its end; see --checkpoint";
    let behind = ends.then_some((last.saturating_add(1), behind));
    (gaps.into_iter().chain(behind).collect(), rest)
}
