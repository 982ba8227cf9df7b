//! Answers that are rendered and that their peers have not read yet. A peer that asks for long lists and does not read
//! them fills the memory of the server, so they are bounded for each key and over all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much may be rendered and not read of the answers to one key, in bytes.
const MAX_OF_KEY: usize = 8 * 1024 * 1024;
/// How much of all answers but those that follow, in bytes: 64 MiB with them.
const MAX_OF_ALL: usize = 48 * 1024 * 1024;
/// How much more, in bytes, of the first answers to keys that have no other: so that those who do not read take it from
/// others only if they have very many keys. The first of these answers is given however long it is.
const MAX_OF_FIRST: usize = 16 * 1024 * 1024;

/// The bytes that are rendered and not read, of each key.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnreadAnswers(Arc<Mutex<Unread>>);

#[derive(Debug, Default)]
struct Unread {
    all: usize,
    /// In the reserve for first answers.
    first: usize,
    keys: HashMap<i64, usize>,
}

/// Where an answer is counted, beside its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    All,
    First,
}

/// Counts the bytes of one answer until it is dropped.
#[derive(Debug)]
pub(in crate::http) struct UnreadAnswer {
    answers: UnreadAnswers,
    key: i64,
    room: Room,
    bytes: usize,
}

impl UnreadAnswers {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the key may have another answer rendered.
    pub(in crate::http) fn admit(&self, key: i64) -> bool {
        self.lock().room(key, 1).is_some()
    }

    /// Counts an answer of `bytes` to the key, unless that is too much.
    pub(in crate::http) fn acquire(&self, key: i64, bytes: usize) -> Option<UnreadAnswer> {
        let mut unread = self.lock();
        let room = unread.room(key, bytes)?;
        let held = unread.held(room);
        *held = held.saturating_add(bytes);
        let of_key = unread.keys.entry(key).or_default();
        *of_key = of_key.saturating_add(bytes);
        Some(UnreadAnswer { answers: self.clone(), key, room, bytes })
    }
}

impl Unread {
    /// Where an answer of `bytes` to the key can be counted.
    fn room(&self, key: i64, bytes: usize) -> Option<Room> {
        let of_key = self.keys.get(&key).copied().unwrap_or_default();
        let fits = |held: usize, most| held.saturating_add(bytes) <= most;
        if fits(of_key, MAX_OF_KEY) && fits(self.all, MAX_OF_ALL) {
            return Some(Room::All);
        }
        (of_key == 0 && (self.first == 0 || fits(self.first, MAX_OF_FIRST))).then_some(Room::First)
    }

    fn held(&mut self, room: Room) -> &mut usize {
        match room {
            Room::All => &mut self.all,
            Room::First => &mut self.first,
        }
    }
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        let mut unread = self.answers.lock();
        let held = unread.held(self.room);
        *held = held.saturating_sub(self.bytes);
        let left = unread.keys.get(&self.key).map_or(0, |of_key| of_key.saturating_sub(self.bytes));
        if left == 0 {
            unread.keys.remove(&self.key);
        } else {
            unread.keys.insert(self.key, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn a_key_has_so_much_unread_and_no_more() {
        let answers = UnreadAnswers::default();
        let mut held: Vec<_> = (0..8).map(|_| answers.acquire(1, MIB).unwrap()).collect();
        assert!(!answers.admit(1) && answers.acquire(1, 1).is_none());
        assert!(answers.admit(2) && answers.acquire(2, MIB).is_some(), "other keys are not affected");
        held.pop();
        assert!(
            answers.admit(1) && answers.acquire(1, MIB + 1).is_none() && answers.acquire(1, MIB).is_some()
        );
        assert!(answers.acquire(3, 9 * MIB).is_some(), "one answer is always given");
    }

    #[test]
    fn beyond_what_all_may_have_only_those_are_refused_that_have_some() {
        let answers = UnreadAnswers::default();
        let held: Vec<_> = (1..=48).map(|n| answers.acquire(n % 16, MIB).unwrap()).collect();
        assert!((0..16).all(|key| !answers.admit(key)), "each of them has 3 MiB");
        let first = answers.acquire(16, MIB).unwrap();
        assert!(!answers.admit(16));
        drop((held, first));
        assert!(answers.lock().keys.is_empty() && answers.lock().all == 0, "nothing is left behind");
        assert_eq!(answers.lock().first, 0);
    }

    #[test]
    fn however_many_keys_there_are_what_they_have_is_bounded() {
        let answers = UnreadAnswers::default();
        let held: Vec<_> = (0..1_500).filter_map(|key| answers.acquire(key, MIB)).collect();
        let bytes: usize = held.iter().map(|answer| answer.bytes).sum();
        assert_eq!(bytes, 64 * MIB);
        assert!(!answers.admit(2_000) && answers.acquire(2_000, 1).is_none());
        drop(held);
        assert!(answers.admit(2_000));
    }
}
