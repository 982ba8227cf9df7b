//! The governing changes of one's own environment, found by their tags: 1, 2, 3 … each once, and no more.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mandate_core::log::{Hash, WatchKey};
use serde::Serialize;

use crate::output::Output;
use crate::style::{CAUTION, ERROR};

/// How many numbers behind the last one are looked for.
const AHEAD: u64 = 1024;

/// The changes that a look has found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Changes {
    /// How many there are, from 1 on without a gap.
    pub(super) count: u64,
    /// The new ones, by number: where they are in the log.
    new: BTreeMap<u64, u64>,
    /// Numbers that the log lacks, although it has later ones.
    missing: Vec<u64>,
    /// Numbers that the log has twice.
    twice: BTreeSet<u64>,
    /// Found behind a gap.
    #[serde(skip)]
    pub(super) ahead: BTreeSet<u64>,
}

/// Looks for tags.
pub(super) struct Seeker<'a> {
    key: &'a WatchKey,
    /// The numbers of the tags that are looked for; the known ones too, so that a second entry is found.
    tags: HashMap<Hash, u64>,
    sought: u64,
    changes: Changes,
}

impl<'a> Seeker<'a> {
    /// Goes on behind `count` changes and those `ahead` that were found behind a gap.
    pub(super) fn new(key: &'a WatchKey, count: u64, ahead: &[u64]) -> Self {
        let changes = Changes { count, ahead: ahead.iter().copied().collect(), ..Changes::default() };
        let mut seeker = Self { key, tags: HashMap::new(), sought: 0, changes };
        let last = ahead.iter().max().copied().unwrap_or_default().max(count);
        seeker.seek_to(last.saturating_add(AHEAD));
        seeker
    }

    fn seek_to(&mut self, last: u64) {
        for number in self.sought.saturating_add(1)..=last {
            self.tags.insert(self.key.governing(number), number);
        }
        self.sought = self.sought.max(last);
    }

    /// Takes the tag of an entry.
    pub(super) fn take(&mut self, index: u64, tag: &Hash) {
        let Some(number) = self.tags.get(tag).copied() else { return };
        let changes = &mut self.changes;
        if number <= changes.count || !changes.ahead.insert(number) {
            changes.twice.insert(number);
            return;
        }
        changes.new.insert(number, index);
        while changes.ahead.remove(&changes.count.saturating_add(1)) {
            changes.count = changes.count.saturating_add(1);
        }
        self.seek_to(number.saturating_add(AHEAD));
    }

    /// What was found in the end.
    pub(super) fn end(self) -> Changes {
        let mut changes = self.changes;
        if let Some(last) = changes.ahead.last() {
            let all = changes.count.saturating_add(1)..*last;
            changes.missing = all.filter(|number| !changes.ahead.contains(number)).collect();
        }
        changes
    }
}

impl Changes {
    pub(super) fn are_whole(&self) -> bool {
        self.missing.is_empty() && self.twice.is_empty()
    }

    pub(super) fn print(&self, output: &mut Output) {
        output.line("governing", format_args!("{} changes of your environment", self.count));
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

    #[test]
    fn each_number_is_there_once_and_without_a_gap() {
        let key = WatchKey::new([1; 32]);
        let found = |known: u64, ahead: &[u64], numbers: &[u64]| {
            let mut seeker = Seeker::new(&key, known, ahead);
            for number in numbers {
                seeker.take(*number, &key.governing(*number));
                seeker.take(0, &WatchKey::new([2; 32]).governing(*number));
            }
            let changes = seeker.end();
            (changes.count, changes.missing, changes.twice.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(found(0, &[], &[]), (0, vec![], vec![]));
        assert_eq!(found(0, &[], &[2, 1, 3]), (3, vec![], vec![]));
        assert_eq!(found(3, &[], &[5]), (3, vec![4], vec![]));
        assert_eq!(found(3, &[5], &[4]), (5, vec![], vec![]));
        assert_eq!(found(3, &[5], &[5, 2]), (3, vec![4], vec![2, 5]));
        let many: Vec<_> = (1..=3000).collect();
        assert_eq!(found(0, &[], &many), (3000, vec![], vec![]));
    }
}
