//! Answers that are rendered and that their peers have not read yet. A peer that asks for long lists and does not read
//! them fills the memory of the server: they are bounded for each key, for each environment and over all.
//!
//! An environment has few reads at a time, as have all together. Further ones wait here, so that neither the reads of
//! others, nor what a server asks its database itself (for a key, for its readiness), wait behind them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reads that are handled at a time: twice as many as the database has connections for reads.
const READS: usize = 8;
/// Reads of one environment, those that wait for one of [`READS`] included.
const READS_OF_ENVIRONMENT: usize = 16;
/// How much may be rendered and not read of the answers to one key, in bytes.
const MAX_OF_KEY: usize = 8 * 1024 * 1024;
/// The same of the answers to all keys of one environment: an organization makes keys of agents by itself, and must not take
/// the room of others with them.
const MAX_OF_ENVIRONMENT: usize = 16 * 1024 * 1024;
/// How much of all answers but those that follow, in bytes: 64 MiB with them.
const MAX_OF_ALL: usize = 48 * 1024 * 1024;
/// How much more, in bytes, of the first answers to keys that have no other: so that those who do not read take it from
/// others only if they have very many keys. The first of these answers is given however long it is.
const MAX_OF_FIRST: usize = 16 * 1024 * 1024;

/// The bytes that are rendered and not read, and the reads under way.
#[derive(Debug, Clone)]
pub(crate) struct UnreadAnswers {
    unread: Arc<Mutex<Unread>>,
    reads: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Unread {
    all: usize,
    /// In the reserve for first answers.
    first: usize,
    /// Of each key that has some.
    keys: HashMap<i64, usize>,
    /// Of each environment that has some.
    of_environments: HashMap<i64, usize>,
    /// The places for reads of each environment that has one.
    environments: HashMap<i64, Arc<Semaphore>>,
}

/// Where an answer is counted, beside its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    All,
    First,
}

/// A read of a key, which has one of its environment's places and one of all until it is dropped.
#[derive(Debug)]
pub(in crate::http) struct Read {
    answers: UnreadAnswers,
    environment: i64,
    key: i64,
    places: Vec<OwnedSemaphorePermit>,
}

/// Counts the bytes of one answer until it is dropped.
#[derive(Debug)]
pub(in crate::http) struct UnreadAnswer {
    answers: UnreadAnswers,
    environment: i64,
    key: i64,
    room: Room,
    bytes: usize,
}

impl Default for UnreadAnswers {
    fn default() -> Self {
        Self { unread: Arc::default(), reads: Arc::new(Semaphore::new(READS)) }
    }
}

impl UnreadAnswers {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one of the environment's places, then for one of all. Refuses the read if the key may not have another
    /// answer rendered.
    pub(in crate::http) async fn begin(&self, environment: i64, key: i64) -> Option<Read> {
        let mut read = Read { answers: self.clone(), environment, key, places: Vec::new() };
        let of_environment = self.lock().of_environment(environment);
        for places in [of_environment, Arc::clone(&self.reads)] {
            read.places.extend(places.acquire_owned().await);
        }
        let has_room = self.lock().room(environment, key, 1).is_some();
        // Not while the lock is held: a read that is dropped takes it.
        has_room.then_some(read)
    }
}

impl Read {
    /// Counts the rendered answer of `bytes`, unless that is too much.
    pub(in crate::http) fn rendered(&self, bytes: usize) -> Option<UnreadAnswer> {
        let mut unread = self.answers.lock();
        let Self { environment, key, .. } = *self;
        let room = unread.room(environment, key, bytes)?;
        let held = unread.held(room);
        *held = held.saturating_add(bytes);
        add(&mut unread.keys, key, bytes);
        add(&mut unread.of_environments, environment, bytes);
        Some(UnreadAnswer { answers: self.answers.clone(), environment, key, room, bytes })
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        self.places.clear();
        self.answers.lock().forget(self.environment);
    }
}

impl Unread {
    /// Where an answer of `bytes` to the key of that environment can be counted.
    fn room(&self, environment: i64, key: i64, bytes: usize) -> Option<Room> {
        let of_key = self.keys.get(&key).copied().unwrap_or_default();
        let of_environment = self.of_environments.get(&environment).copied().unwrap_or_default();
        let fits = |held: usize, most| held.saturating_add(bytes) <= most;
        if of_environment > 0 && !fits(of_environment, MAX_OF_ENVIRONMENT) {
            return None;
        }
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

    fn of_environment(&mut self, environment: i64) -> Arc<Semaphore> {
        let places = || Arc::new(Semaphore::new(READS_OF_ENVIRONMENT));
        Arc::clone(self.environments.entry(environment).or_insert_with(places))
    }

    /// Drops the places of an environment that has no read.
    fn forget(&mut self, environment: i64) {
        if self.environments.get(&environment).is_some_and(|places| Arc::strong_count(places) == 1) {
            self.environments.remove(&environment);
        }
    }
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        let mut unread = self.answers.lock();
        let held = unread.held(self.room);
        *held = held.saturating_sub(self.bytes);
        take(&mut unread.keys, self.key, self.bytes);
        take(&mut unread.of_environments, self.environment, self.bytes);
    }
}

fn add(counts: &mut HashMap<i64, usize>, of: i64, bytes: usize) {
    let count = counts.entry(of).or_default();
    *count = count.saturating_add(bytes);
}

/// The opposite. What has none is not kept.
fn take(counts: &mut HashMap<i64, usize>, of: i64, bytes: usize) {
    if let Some(count) = counts.get_mut(&of) {
        *count = count.saturating_sub(bytes);
        if *count == 0 {
            counts.remove(&of);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    const MIB: usize = 1024 * 1024;

    /// A read of the key, in an environment of its own, that has an answer of so many bytes.
    async fn answer(answers: &UnreadAnswers, key: i64, bytes: usize) -> Option<UnreadAnswer> {
        answers.begin(key, key).await?.rendered(bytes)
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
        assert!(answers.begin(1, 1).await.is_none());
        assert!(answer(&answers, 2, MIB).await.is_some(), "other keys are not affected");
        held.pop();
        assert!(answer(&answers, 1, MIB + 1).await.is_none());
        assert!(answer(&answers, 1, MIB).await.is_some());
        assert!(answer(&answers, 3, 9 * MIB).await.is_some(), "one answer is always given");
    }

    /// Whether a read of this environment waits.
    fn waits(answers: &UnreadAnswers, environment: i64) -> bool {
        let mut next = Box::pin(answers.begin(environment, 1));
        next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn further_reads_of_an_environment_wait_here_and_few_of_all_are_under_way() {
        let answers = UnreadAnswers::default();
        let mut reads = Vec::new();
        for key in 1..=8 {
            reads.push(answers.begin(1, key).await.unwrap());
        }
        let mut waiting: Vec<_> = (9..=17).map(|key| Box::pin(answers.begin(1, key))).collect();
        for next in &mut waiting {
            assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        // The last one has no place of its environment yet, and this one comes first.
        let mut other = Box::pin(answers.begin(2, 20));
        assert!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        reads.clear();
        let served: Vec<_> = futures_util::future::join_all(waiting.drain(..8)).await;
        assert!(waits(&answers, 3), "eight are under way");
        drop(served);
        let other = other.await.unwrap();
        let last = waiting.remove(0).await.unwrap();
        drop((other, last));
        assert!(answers.lock().environments.is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn beyond_what_all_may_have_only_those_are_refused_that_have_some() {
        let answers = UnreadAnswers::default();
        let held = many(&answers, (1..=48).map(|n| n % 16)).await;
        for key in 0..16 {
            assert!(answers.begin(key, key).await.is_none(), "each of them has 3 MiB");
        }
        let first = answer(&answers, 16, MIB).await.unwrap();
        assert!(answers.begin(16, 16).await.is_none());
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
        assert!(answers.begin(2_000, 2_000).await.is_none());
        drop(held);
        assert!(answers.begin(2_000, 2_000).await.is_some());
    }

    #[tokio::test]
    async fn the_keys_of_one_environment_leave_room_to_others() {
        let answers = UnreadAnswers::default();
        let mut held = Vec::new();
        for key in 0..1_500 {
            if let Some(read) = answers.begin(1, key).await {
                held.extend(read.rendered(MIB / 2));
            }
        }
        assert_eq!(held.iter().map(|answer| answer.bytes).sum::<usize>(), 16 * MIB);
        assert!(answers.begin(2, 2_000).await.unwrap().rendered(8 * MIB).is_some());
        drop(held);
        assert!(answers.begin(1, 1).await.is_some());
        assert!(answers.lock().of_environments.is_empty(), "nothing is left behind");
    }
}
