//! The governing changes of one's own environment, found by their tags: 1, 2, 3 … each once, and no more.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mandate_core::log::{Entry, Hash, WatchKey};
use serde::Serialize;

use crate::output::Output;
use crate::style::{CAUTION, ERROR};

/// How many numbers behind the last one are looked for.
const AHEAD: u64 = 1024;
/// Up to which number the first one of a log is looked for that continues an older one.
const MAX_FIRST: u64 = 100_000;

/// Which changes of the holder of a watch key a log has, from one look to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    /// Which watch key it was.
    pub(super) key: Hash,
    /// The first number that the log has. None: it continues an older one, and has none yet.
    pub(super) first: Option<u64>,
    /// Up to which number there is no gap. None: the log continues an older one, of which this is not known.
    pub(super) count: Option<u64>,
    /// Those that were found behind a gap.
    pub(super) ahead: BTreeSet<u64>,
}

impl Known {
    /// Whether it is what was found with this watch key.
    pub(super) fn is_of(&self, key: &WatchKey) -> bool {
        self.key == mark(key)
    }

    /// The last number that was found.
    pub(super) fn last(&self) -> Option<u64> {
        self.count.max(self.ahead.last().copied())
    }
}

/// The changes that a look has found.
#[derive(Debug, Serialize)]
pub(super) struct Changes {
    /// The last number up to which there is no gap.
    count: u64,
    /// The first number that this log has, where it continues an older one.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<u64>,
    /// The new ones, by number: where they are in the log.
    new: BTreeMap<u64, u64>,
    /// Numbers that the log lacks, although it has later ones.
    missing: Vec<u64>,
    /// Numbers that the log has twice.
    twice: BTreeSet<u64>,
    #[serde(skip)]
    pub(super) known: Known,
}

/// Looks for tags.
pub(super) struct Seeker<'a> {
    key: &'a WatchKey,
    /// The numbers of the tags that are looked for; the known ones too, so that a second entry is found.
    tags: HashMap<Hash, u64>,
    sought: u64,
    known: Known,
    new: BTreeMap<u64, u64>,
    twice: BTreeSet<u64>,
}

/// What says which watch key it is: the tag of a number that no change has.
pub(super) fn mark(key: &WatchKey) -> Hash {
    key.governing(0)
}

impl<'a> Seeker<'a> {
    /// Goes on in a log behind what is known of it.
    pub(super) fn resumed(key: &'a WatchKey, known: Known) -> Self {
        let last = match (known.first, known.count) {
            (None, None) => MAX_FIRST,
            _ => known.last().unwrap_or_default().saturating_add(AHEAD),
        };
        let (new, twice) = (BTreeMap::new(), BTreeSet::new());
        let mut seeker = Self { key, tags: HashMap::new(), sought: 0, known, new, twice };
        seeker.seek_to(last);
        seeker
    }

    /// Begins at the beginning of a log.
    pub(super) fn fresh(key: &'a WatchKey) -> Self {
        let known = Known { key: mark(key), first: Some(1), count: Some(0), ahead: BTreeSet::new() };
        Self::resumed(key, known)
    }

    /// Says that the log continues an older one, which had the changes up to `count`, if that is known. It is said before any
    /// change.
    pub(super) fn continues(&mut self, count: Option<u64>) {
        let known = Known { first: None, count, ..self.known.clone() };
        *self = Self::resumed(self.key, known);
    }

    /// Which watch key it is.
    pub(super) fn mark(&self) -> Hash {
        self.known.key
    }

    fn seek_to(&mut self, last: u64) {
        for number in self.sought.saturating_add(1)..=last {
            self.tags.insert(self.key.governing(number), number);
        }
        self.sought = self.sought.max(last);
    }

    /// Takes an entry.
    pub(super) fn take(&mut self, index: u64, entry: &Entry) {
        let Entry::Governing { tag, .. } = entry else { return };
        let Some(number) = self.tags.get(tag).copied() else { return };
        let Known { first, count, ahead, .. } = &self.known;
        let is_known = (first.is_some() && *count >= Some(number)) || ahead.contains(&number);
        if is_known || self.new.contains_key(&number) {
            self.twice.insert(number);
            return;
        }
        self.new.insert(number, index);
        self.seek_to(number.saturating_add(AHEAD));
    }

    /// What was found in the end.
    pub(super) fn end(self) -> Changes {
        let Self { mut known, new, twice, .. } = self;
        if known.first.is_none()
            && let Some((lowest, _)) = new.first_key_value()
        {
            // What was in the older log is not in this one. A log that was restored goes on with earlier numbers.
            let first = known.count.map_or(*lowest, |count| count.saturating_add(1).min(*lowest));
            (known.first, known.count) = (Some(first), Some(first.saturating_sub(1)));
        }
        let mut missing = Vec::new();
        if known.first.is_some() {
            let mut count = known.count.unwrap_or_default();
            known.ahead.extend(new.keys());
            while known.ahead.remove(&count.saturating_add(1)) {
                count = count.saturating_add(1);
            }
            known.count = Some(count);
            if let Some(last) = known.ahead.last() {
                missing = (count.saturating_add(1)..*last).filter(|n| !known.ahead.contains(n)).collect();
            }
        }
        let (count, first) = (known.count.unwrap_or_default(), known.first.filter(|first| *first > 1));
        Changes { count, first, new, missing, twice, known }
    }
}

impl Changes {
    pub(super) fn are_whole(&self) -> bool {
        self.missing.is_empty() && self.twice.is_empty()
    }

    /// Whether no entry fits the watch key, in this log or in those that it continues.
    pub(super) fn are_none(&self) -> bool {
        self.known.last().unwrap_or_default() == 0
    }

    pub(super) fn print(&self, output: &mut Output) {
        let count = self.count;
        match self.first {
            _ if self.are_none() => {
                output.line("governing", format_args!("{CAUTION}no entry fits the watch key{CAUTION:#}"));
            }
            Some(first) => output.line(
                "governing",
                format_args!(
                    "{count} changes of your environment, those before number {first} in an older log"
                ),
            ),
            None => output.line("governing", format_args!("{count} changes of your environment")),
        }
        for (number, index) in &self.new {
            output.line("change", format_args!("{CAUTION}number {number}{CAUTION:#}, entry {index}"));
        }
        for number in &self.missing {
            output.line(
                "missing",
                format_args!("{ERROR}number {number}{ERROR:#}, although later ones are there"),
            );
        }
        for number in &self.twice {
            output.line("twice", format_args!("{ERROR}number {number}{ERROR:#}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &WatchKey, number: u64) -> Entry {
        let other = Hash::sha256(b"");
        Entry::Governing { tag: key.governing(number), random: other, record: other }
    }

    fn found(mut seeker: Seeker<'_>, numbers: &[u64]) -> (u64, Vec<u64>, Vec<u64>) {
        let key = seeker.key;
        for number in numbers {
            seeker.take(*number, &entry(key, *number));
            seeker.take(0, &entry(&WatchKey::new([2; 32]), *number));
        }
        let changes = seeker.end();
        (changes.count, changes.missing, changes.twice.into_iter().collect())
    }

    #[test]
    fn each_number_is_there_once_and_without_a_gap() {
        let key = WatchKey::new([1; 32]);
        let found = |known: u64, ahead: &[u64], numbers: &[u64]| {
            let ahead = ahead.iter().copied().collect();
            let known = Known { key: mark(&key), first: Some(1), count: Some(known), ahead };
            found(Seeker::resumed(&key, known), numbers)
        };
        assert_eq!(found(0, &[], &[]), (0, vec![], vec![]));
        assert_eq!(found(0, &[], &[2, 1, 3]), (3, vec![], vec![]));
        assert_eq!(found(3, &[], &[5]), (3, vec![4], vec![]));
        assert_eq!(found(3, &[5], &[4]), (5, vec![], vec![]));
        assert_eq!(found(3, &[5], &[5, 2]), (3, vec![4], vec![2, 5]));
        let many: Vec<_> = (1..=3000).collect();
        assert_eq!(found(0, &[], &many), (3000, vec![], vec![]));
    }

    #[test]
    fn a_log_that_continues_another_begins_at_the_first_number_that_it_has() {
        let key = WatchKey::new([1; 32]);
        let found = |count: Option<u64>, numbers: &[u64]| {
            let mut seeker = Seeker::fresh(&key);
            seeker.continues(count);
            found(seeker, numbers)
        };
        // Nothing is known of the older log.
        assert_eq!(found(None, &[]), (0, vec![], vec![]));
        assert_eq!(found(None, &[70_001, 70_000, 70_003]), (70_001, vec![70_002], vec![]));
        // It had three: the fourth is next, or, where it was restored, an earlier one again.
        assert_eq!(found(Some(3), &[]), (3, vec![], vec![]));
        assert_eq!(found(Some(3), &[4, 5]), (5, vec![], vec![]));
        assert_eq!(found(Some(3), &[6]), (3, vec![4, 5], vec![]));
        assert_eq!(found(Some(3), &[2, 3, 4, 4]), (4, vec![], vec![4]));
    }
}
