//! Answers that are rendered and that their peers have not read yet. A peer that asks for long lists and does not read
//! them fills the memory of the server, so they are bounded for each key and over all. And a key has few reads at a time:
//! further ones wait for those before them, so that the reads of other keys need not.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reads of one key that are handled at a time: more than the database has connections for reads.
const READS_OF_KEY: usize = 16;
/// How much may be rendered and not read of the answers to one key, in bytes.
const MAX_OF_KEY: usize = 8 * 1024 * 1024;
/// How much of all answers but those that follow, in bytes: 64 MiB with them.
const MAX_OF_ALL: usize = 48 * 1024 * 1024;
/// How much more, in bytes, of the first answers to keys that have no other: so that those who do not read take it from
/// others only if they have very many keys. The first of these answers is given however long it is.
const MAX_OF_FIRST: usize = 16 * 1024 * 1024;

/// The bytes that are rendered and not read, and the reads under way, of each key.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnreadAnswers(Arc<Mutex<Unread>>);

#[derive(Debug, Default)]
struct Unread {
    all: usize,
    /// In the reserve for first answers.
    first: usize,
    keys: HashMap<i64, KeyState>,
}

#[derive(Debug)]
struct KeyState {
    unread: usize,
    places: Arc<Semaphore>,
}

/// Where an answer is counted, beside its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    All,
    First,
}

/// A read of a key, which has one of the key's places until it is dropped.
#[derive(Debug)]
pub(in crate::http) struct Read {
    answers: UnreadAnswers,
    key: i64,
    place: Option<OwnedSemaphorePermit>,
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

    /// Waits for one of the key's places. Refuses the read if the key may not have another answer rendered.
    pub(in crate::http) async fn begin(&self, key: i64) -> Option<Read> {
        let mut read = Read { answers: self.clone(), key, place: None };
        let places = Arc::clone(&self.lock().of_key(key).places);
        read.place = places.acquire_owned().await.ok();
        let has_room = self.lock().room(key, 1).is_some();
        // Not while the lock is held: a read that is dropped takes it.
        has_room.then_some(read)
    }
}

impl Read {
    /// Counts the rendered answer of `bytes`, unless that is too much.
    pub(in crate::http) fn rendered(&self, bytes: usize) -> Option<UnreadAnswer> {
        let mut unread = self.answers.lock();
        let room = unread.room(self.key, bytes)?;
        let held = unread.held(room);
        *held = held.saturating_add(bytes);
        let of_key = &mut unread.of_key(self.key).unread;
        *of_key = of_key.saturating_add(bytes);
        Some(UnreadAnswer { answers: self.answers.clone(), key: self.key, room, bytes })
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        self.place = None;
        self.answers.lock().forget(self.key);
    }
}

impl Unread {
    /// Where an answer of `bytes` to the key can be counted.
    fn room(&self, key: i64, bytes: usize) -> Option<Room> {
        let of_key = self.keys.get(&key).map_or(0, |of_key| of_key.unread);
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

    fn of_key(&mut self, key: i64) -> &mut KeyState {
        self.keys
            .entry(key)
            .or_insert_with(|| KeyState { unread: 0, places: Arc::new(Semaphore::new(READS_OF_KEY)) })
    }

    /// Drops what is known of a key that has nothing unread and no read.
    fn forget(&mut self, key: i64) {
        let is_idle = |of_key: &KeyState| of_key.unread == 0 && Arc::strong_count(&of_key.places) == 1;
        if self.keys.get(&key).is_some_and(is_idle) {
            self.keys.remove(&key);
        }
    }
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        let mut unread = self.answers.lock();
        let held = unread.held(self.room);
        *held = held.saturating_sub(self.bytes);
        let of_key = &mut unread.of_key(self.key).unread;
        *of_key = of_key.saturating_sub(self.bytes);
        unread.forget(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    const MIB: usize = 1024 * 1024;

    /// A read of the key that has an answer of so many bytes.
    async fn answer(answers: &UnreadAnswers, key: i64, bytes: usize) -> Option<UnreadAnswer> {
        answers.begin(key).await?.rendered(bytes)
    }

    async fn many(answers: &UnreadAnswers, keys: impl Iterator<Item = i64>) -> Vec<UnreadAnswer> {
        let mut held = Vec::new();
        for key in keys {
            held.extend(answer(answers, key, MIB).await);
        }
        held
    }

    #[tokio::test]
    async fn a_key_has_so_much_unread_and_no_more() {
        let answers = UnreadAnswers::default();
        let mut held = many(&answers, [1; 9].into_iter()).await;
        assert_eq!(held.len(), 8);
        assert!(answers.begin(1).await.is_none());
        assert!(answer(&answers, 2, MIB).await.is_some(), "other keys are not affected");
        held.pop();
        assert!(answer(&answers, 1, MIB + 1).await.is_none());
        assert!(answer(&answers, 1, MIB).await.is_some());
        assert!(answer(&answers, 3, 9 * MIB).await.is_some(), "one answer is always given");
    }

    #[tokio::test]
    async fn further_reads_of_a_key_wait_and_those_of_others_do_not() {
        let answers = UnreadAnswers::default();
        let mut reads = Vec::new();
        for _ in 0..READS_OF_KEY {
            reads.push(answers.begin(1).await.unwrap());
        }
        let mut next = Box::pin(answers.begin(1));
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(answers.begin(2).await.is_some());
        reads.pop();
        let next = next.await.unwrap();
        let gone = Box::pin(answers.begin(1));
        drop((reads, next, gone));
        assert!(answers.lock().keys.is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn beyond_what_all_may_have_only_those_are_refused_that_have_some() {
        let answers = UnreadAnswers::default();
        let held = many(&answers, (1..=48).map(|n| n % 16)).await;
        for key in 0..16 {
            assert!(answers.begin(key).await.is_none(), "each of them has 3 MiB");
        }
        let first = answer(&answers, 16, MIB).await.unwrap();
        assert!(answers.begin(16).await.is_none());
        drop((held, first));
        assert!(answers.lock().keys.is_empty() && answers.lock().all == 0, "nothing is left behind");
        assert_eq!(answers.lock().first, 0);
    }

    #[tokio::test]
    async fn however_many_keys_there_are_what_they_have_is_bounded() {
        let answers = UnreadAnswers::default();
        let held = many(&answers, 0..1_500).await;
        let bytes: usize = held.iter().map(|answer| answer.bytes).sum();
        assert_eq!(bytes, 64 * MIB);
        assert!(answers.begin(2_000).await.is_none());
        drop(held);
        assert!(answers.begin(2_000).await.is_some());
    }
}
