//! How many requests a key may make in any 60 seconds.
//!
//! Requests are counted by the second. The window is the current second and the 60 before it. It covers every
//! interval of 60 seconds that ends now, so none ever exceeds the rate. The price is that a request counts
//! for up to a second longer than necessary.
//!
//! Several servers on one database exchange their counts once a second: a round. What the others admit during
//! a round is not known here. So in each round a server admits only its share of what is left. Together they
//! admit at most one and a half times the rate, and one request more each.

mod shared;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use mandate_core::Timestamp;

pub(crate) use shared::Shared;

/// The length of the window, in seconds.
const WINDOW_SECONDS: usize = 60;
/// The current second and the window before it.
const SLOTS: usize = WINDOW_SECONDS + 1;
/// For how many keys requests are counted. Beyond that, the key that was idle the longest is dropped. A key
/// takes about 300 bytes.
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// After this many seconds the next round has certainly begun.
const NEXT_ROUND_SECONDS: u32 = 2;

/// The windows of all keys.
pub(crate) struct Rates {
    counts: Mutex<Counts>,
}

/// The requests that were counted: here, and by the other servers.
struct Counts {
    own: LruCache<i64, Window>,
    /// What the other servers have admitted, from their reports.
    others: HashMap<i64, Window>,
    /// The number of servers, this one included.
    servers: u32,
    /// The number of exchanges so far.
    round: u64,
}

/// A key has used up its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// After how many seconds a request will be admitted if there is none before.
    pub(crate) retry_after_seconds: u32,
}

impl Rates {
    pub(crate) fn new() -> Self {
        let own = LruCache::sparse(MAX_KEYS);
        Self { counts: Mutex::new(Counts { own, others: HashMap::new(), servers: 1, round: 0 }) }
    }

    /// Counts a request of `key` at `now`, unless the key has made `rate` requests in the window. A refused
    /// request does not count.
    pub(crate) fn admit(&self, key: i64, rate: u32, now: Timestamp) -> Result<(), Exceeded> {
        let mut counts = self.counts();
        let Counts { own, others, servers, round } = &mut *counts;
        let others = others.get_mut(&key).map(|window| {
            window.advance(now.seconds());
            &*window
        });
        let window = own.get_or_insert_mut(key, || Window::at(now.seconds()));
        window.admit(rate, now.seconds(), others, (*servers, *round))
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The requests of one key, by the second.
#[derive(Clone)]
struct Window {
    /// The newest second.
    second: i64,
    /// Requests admitted in that second, in the one before it, and so on.
    counts: [u32; SLOTS],
    total: u32,
    /// How many more may be admitted in this round, if there are other servers: the round and the number.
    share: (u64, u32),
}

impl Window {
    fn at(second: i64) -> Self {
        Self { second, counts: [0; SLOTS], total: 0, share: (u64::MAX, 0) }
    }

    fn admit(
        &mut self,
        rate: u32,
        second: i64,
        others: Option<&Self>,
        (servers, round): (u32, u64),
    ) -> Result<(), Exceeded> {
        self.advance(second);
        let total = self.total.saturating_add(others.map_or(0, |others| others.total));
        if total >= rate {
            return Err(Exceeded { retry_after_seconds: self.seconds_until_below(rate, total, others) });
        }
        if servers > 1 {
            if self.share.0 != round {
                self.share = (round, (rate - total).div_ceil(servers));
            }
            if self.share.1 == 0 {
                return Err(Exceeded { retry_after_seconds: NEXT_ROUND_SECONDS });
            }
            self.share.1 -= 1;
        }
        self.add(0, 1);
        Ok(())
    }

    /// Counts requests that were admitted `age` seconds before the newest. Those outside the window do not
    /// count.
    fn add(&mut self, age: usize, count: u32) {
        if let Some(counted) = self.counts.get_mut(age) {
            *counted = counted.saturating_add(count);
            self.total = self.total.saturating_add(count);
        }
    }

    /// Drops what is older than the window. If the clock was set back, nothing is dropped: earlier requests
    /// count as if they were made now.
    fn advance(&mut self, second: i64) {
        let steps = usize::try_from(second.saturating_sub(self.second)).unwrap_or(0).min(SLOTS);
        self.second = second;
        if steps == 0 {
            return;
        }
        self.counts.rotate_right(steps % SLOTS);
        for count in self.counts.iter_mut().take(steps) {
            self.total = self.total.saturating_sub(*count);
            *count = 0;
        }
    }

    /// How many seconds it takes until enough of `total` has left the window, oldest first.
    fn seconds_until_below(&self, rate: u32, total: u32, others: Option<&Self>) -> u32 {
        let mut left = total;
        let ages = (0..SLOTS).rev().map(|age| {
            let of = |window: &Self| window.counts.get(age).copied().unwrap_or_default();
            of(self).saturating_add(others.map_or(0, of))
        });
        let seconds = ages.take_while(|count| {
            let full = left >= rate;
            left = left.saturating_sub(*count);
            full
        });
        u32::try_from(seconds.count()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    fn exceeded(retry_after_seconds: u32) -> Result<(), Exceeded> {
        Err(Exceeded { retry_after_seconds })
    }

    #[test]
    fn the_window_slides() {
        let rates = Rates::new();
        for (millis, answer) in [
            (0, Ok(())),
            (999, Ok(())),
            (30_500, Ok(())),
            (30_999, exceeded(31)),
            (59_999, exceeded(2)),
            (60_000, exceeded(1)),
            (60_999, exceeded(1)),
            (61_000, Ok(())),
            (61_001, Ok(())),
            (61_002, exceeded(30)),
            (90_999, exceeded(1)),
            (91_000, Ok(())),
            (91_001, exceeded(31)),
            (1_000_000, Ok(())),
        ] {
            assert_eq!(rates.admit(1, 3, at(millis)), answer, "{millis}");
        }
    }

    #[test]
    fn keys_do_not_touch_each_other() {
        let rates = Rates::new();
        assert_eq!(rates.admit(1, 1, at(0)), Ok(()));
        assert_eq!(rates.admit(1, 1, at(0)), exceeded(61));
        assert_eq!(rates.admit(2, 1, at(0)), Ok(()));
    }

    #[test]
    fn another_rate_holds_at_once() {
        let rates = Rates::new();
        (0..3).for_each(|_| assert_eq!(rates.admit(1, 3, at(0)), Ok(())));
        assert_eq!(rates.admit(1, 2, at(1)), exceeded(61));
        assert_eq!(rates.admit(1, 4, at(2)), Ok(()));
        assert_eq!(rates.admit(2, 0, at(0)), exceeded(61), "a rate of 0 admits nothing");
    }

    #[test]
    fn a_clock_set_back_opens_nothing_and_closes_nothing_for_long() {
        let rates = Rates::new();
        assert_eq!(rates.admit(1, 1, at(500_000)), Ok(()));
        assert_eq!(rates.admit(1, 1, at(0)), exceeded(61));
        assert_eq!(rates.admit(1, 1, at(61_000)), Ok(()));
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let rates = Rates::new();
        let most = i64::try_from(MAX_KEYS.get()).unwrap();
        (0..=most).for_each(|key| assert_eq!(rates.admit(key, 1, at(0)), Ok(())));
        assert_eq!(rates.counts().own.len(), MAX_KEYS.get());
        assert_eq!(rates.admit(most, 1, at(0)), exceeded(61), "the newest is remembered");
        assert_eq!(rates.admit(0, 1, at(0)), Ok(()), "the oldest is forgotten");
    }

    /// No interval of 60 seconds ever holds more than the rate, and a request after `retry_after_seconds` is admitted.
    #[test]
    fn never_more_than_the_rate_in_any_60_seconds() {
        let (rates, rate) = (Rates::new(), 50);
        let (mut admitted, mut millis, mut seed) = (Vec::new(), 0, 7_u64);
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            millis += i64::try_from(seed >> 54).unwrap();
            match rates.admit(1, rate, at(millis)) {
                Ok(()) => admitted.push(millis),
                Err(exceeded) if seed.is_multiple_of(16) => {
                    millis += i64::from(exceeded.retry_after_seconds) * 1000;
                    assert_eq!(rates.admit(1, rate, at(millis)), Ok(()), "{millis}");
                    admitted.push(millis);
                }
                Err(_) => {}
            }
        }
        assert!(admitted.len() > 1000);
        let most = usize::try_from(rate).unwrap();
        assert!(admitted.windows(most + 1).all(|run| run[most] - run[0] >= 60_000));
    }
}
