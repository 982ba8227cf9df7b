//! What the entries of a kind of log say, to find each row's. Of each entry 25 bytes are held in memory.

use mandate_core::log::{Entry, Hash};

/// How much of a name is compared, to find what is said under it.
const NAME: usize = 8;
/// How much is compared of the hash of what is said.
const SAID: usize = 16;

/// Entries by their names, in the order of the names: a decision's is its token, and a governing record's its random bytes.
pub(super) struct Logged {
    entries: Vec<([u8; NAME], [u8; SAID])>,
    found: Vec<bool>,
    /// How many rows had an entry that could not be looked for.
    passed: i64,
}

/// An entry as it is compared.
pub(super) struct Named {
    name: [u8; NAME],
    said: [u8; SAID],
}

impl Named {
    /// What is compared of an entry: all of its bytes, or its name alone.
    pub(super) fn of(entry: &Entry, is_whole: bool) -> Option<Self> {
        let (Entry::Decision { token: name, .. } | Entry::Governing { random: name, .. }) = entry else {
            return None;
        };
        Some(if is_whole {
            Self { name: part(name), said: part(&entry.leaf()) }
        } else {
            Self::unopened(name)
        })
    }

    /// What is compared where only the name can be made again.
    pub(super) fn unopened(name: &Hash) -> Self {
        Self { name: part(name), said: part(&Hash::sha256(name.as_bytes())) }
    }
}

impl Logged {
    pub(super) fn new(entries: Vec<Named>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().map(|Named { name, said }| (name, said)).collect();
        entries.sort_unstable();
        let found = vec![false; entries.len()];
        Self { entries, found, passed: 0 }
    }

    /// How often there is an entry of this name, and whether one of them says this.
    pub(super) fn find(&mut self, Named { name, said }: &Named) -> (usize, bool) {
        let first = self.entries.partition_point(|(entry, _)| entry < name);
        let (mut count, mut same) = (0, false);
        for ((_, says), found) in
            self.entries.iter().zip(&mut self.found).skip(first).take_while(|((entry, _), _)| entry == name)
        {
            (count, *found) = (count + 1, true);
            same |= says == said;
        }
        (count, same)
    }

    /// Notes a row that cannot be read. It has one of the entries.
    pub(super) fn pass(&mut self) {
        self.passed += 1;
    }

    pub(super) fn without_a_row(&self) -> i64 {
        let without = self.found.iter().filter(|found| !**found).count();
        i64::try_from(without).unwrap_or(i64::MAX).saturating_sub(self.passed)
    }
}

fn part<const BYTES: usize>(hash: &Hash) -> [u8; BYTES] {
    hash.as_bytes().first_chunk().copied().unwrap_or([0; BYTES])
}
