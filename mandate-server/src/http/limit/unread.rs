//! Answers that their peers have not read yet. A peer that asks for long lists and does not read them fills the memory of
//! the server, so these answers are bounded for each key and over all. An answer counts from before its request is
//! handled, so that a key that asks for thousands of lists at once does not make all others wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What an answer counts for until it is rendered, in bytes: so 256 reads of one key are handled at a time.
const NOT_RENDERED: usize = 32 * 1024;
/// How much of the answers to one key may not be read yet, in bytes.
const MAX_OF_KEY: usize = 8 * 1024 * 1024;
/// How much of all answers but those that follow, in bytes: 64 MiB with them.
const MAX_OF_ALL: usize = 48 * 1024 * 1024;
/// How much more, in bytes, of the first answers to keys that have no other: so that those who do not read take it from
/// others only if they have very many keys. The first of these answers is given however long it is.
const MAX_OF_FIRST: usize = 16 * 1024 * 1024;

/// The bytes of the answers that are not read yet, of each key.
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

    /// Counts one more answer to the key, which is not rendered yet, unless that is too much.
    pub(in crate::http) fn admit(&self, key: i64) -> Option<UnreadAnswer> {
        let room = self.lock().take(key, NOT_RENDERED)?;
        Some(UnreadAnswer { answers: self.clone(), key, room, bytes: NOT_RENDERED })
    }
}

impl UnreadAnswer {
    /// Counts the answer with the bytes that it has, now that it is rendered, unless that is too much.
    pub(in crate::http) fn rendered(mut self, bytes: usize) -> Option<Self> {
        let room = {
            let mut unread = self.answers.lock();
            unread.give_back(self.key, self.room, self.bytes);
            unread.take(self.key, bytes)
        };
        self.bytes = if room.is_some() { bytes } else { 0 };
        self.room = room?;
        Some(self)
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

    /// Counts `bytes` to the key, unless that is too much.
    fn take(&mut self, key: i64, bytes: usize) -> Option<Room> {
        let room = self.room(key, bytes)?;
        let held = self.held(room);
        *held = held.saturating_add(bytes);
        let of_key = self.keys.entry(key).or_default();
        *of_key = of_key.saturating_add(bytes);
        Some(room)
    }

    fn give_back(&mut self, key: i64, room: Room, bytes: usize) {
        let held = self.held(room);
        *held = held.saturating_sub(bytes);
        let left = self.keys.get(&key).map_or(0, |of_key| of_key.saturating_sub(bytes));
        if left == 0 {
            self.keys.remove(&key);
        } else {
            self.keys.insert(key, left);
        }
    }
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        self.answers.lock().give_back(self.key, self.room, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn answer(answers: &UnreadAnswers, key: i64, bytes: usize) -> Option<UnreadAnswer> {
        answers.admit(key)?.rendered(bytes)
    }

    #[test]
    fn a_key_has_so_much_unread_and_no_more() {
        let answers = UnreadAnswers::default();
        let mut held: Vec<_> = (0..8).map(|_| answer(&answers, 1, MIB).unwrap()).collect();
        assert!(answers.admit(1).is_none());
        assert!(answer(&answers, 2, MIB).is_some(), "other keys are not affected");
        held.pop();
        assert!(answer(&answers, 1, MIB + 1).is_none() && answer(&answers, 1, MIB).is_some());
        assert!(answer(&answers, 3, 9 * MIB).is_some(), "one answer is always given");
    }

    #[test]
    fn a_key_has_so_many_reads_at_a_time() {
        let answers = UnreadAnswers::default();
        let held: Vec<_> = (0..1_500).filter_map(|_| answers.admit(1)).collect();
        assert_eq!(held.len(), MAX_OF_KEY / NOT_RENDERED);
        let mut held = held.into_iter().map(|answer| answer.rendered(1));
        assert!(held.next().unwrap().is_some() && answers.admit(1).is_some(), "a short answer makes room");
        assert!(answers.admit(2).is_some(), "other keys are not affected");
    }

    #[test]
    fn beyond_what_all_may_have_only_those_are_refused_that_have_some() {
        let answers = UnreadAnswers::default();
        let held: Vec<_> = (1..=48).map(|n| answer(&answers, n % 16, MIB).unwrap()).collect();
        assert!((0..16).all(|key| answers.admit(key).is_none()), "each of them has 3 MiB");
        let first = answer(&answers, 16, MIB).unwrap();
        assert!(answers.admit(16).is_none());
        drop((held, first));
        assert!(answers.lock().keys.is_empty() && answers.lock().all == 0, "nothing is left behind");
        assert_eq!(answers.lock().first, 0);
    }

    #[test]
    fn however_many_keys_there_are_what_they_have_is_bounded() {
        let answers = UnreadAnswers::default();
        let held: Vec<_> = (0..1_500).filter_map(|key| answer(&answers, key, MIB)).collect();
        let bytes: usize = held.iter().map(|answer| answer.bytes).sum();
        assert_eq!(bytes, 64 * MIB);
        assert!(answers.admit(2_000).is_none());
        drop(held);
        assert!(answers.admit(2_000).is_some());
    }
}
