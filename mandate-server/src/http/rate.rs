//! How many requests a key may make in any 60 seconds.
//!
//! Requests are counted by the second. The window is the present second and the 60 before it, so that it covers every
//! interval of 60 seconds that ends now: never are more than the rate admitted in any of them. The price is that a
//! request stays counted for up to a second longer than it must.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;
use mandate_core::Timestamp;

/// The length of the window, in seconds.
const WINDOW_SECONDS: usize = 60;
/// The present second and the window before it.
const SLOTS: usize = WINDOW_SECONDS + 1;
/// Keys whose requests are counted; the one idle for longest is forgotten beyond that. A key takes about 300 bytes.
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// The windows of all keys.
pub(crate) struct Rates {
    windows: Mutex<LruCache<i64, Window>>,
}

/// A key has used up its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    /// After how many seconds a request will be admitted, if none is made until then.
    pub(crate) retry_after_seconds: u32,
}

impl Rates {
    pub(crate) fn new() -> Self {
        Self { windows: Mutex::new(LruCache::sparse(MAX_KEYS)) }
    }

    /// Counts a request of `key` at `now`, unless the key has made `rate` requests in the window. What is not admitted
    /// does not count.
    pub(crate) fn admit(&self, key: i64, rate: u32, now: Timestamp) -> Result<(), Exceeded> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.get_or_insert_mut(key, || Window::at(now.seconds())).admit(rate, now.seconds())
    }
}

/// The requests of one key, by the second.
struct Window {
    /// The newest second.
    second: i64,
    /// Requests admitted in that second, in the one before it, and so on.
    counts: [u32; SLOTS],
    total: u32,
}

impl Window {
    fn at(second: i64) -> Self {
        Self { second, counts: [0; SLOTS], total: 0 }
    }

    fn admit(&mut self, rate: u32, second: i64) -> Result<(), Exceeded> {
        self.advance(second);
        if self.total >= rate {
            return Err(Exceeded { retry_after_seconds: self.seconds_until_below(rate) });
        }
        if let Some(newest) = self.counts.first_mut() {
            *newest += 1;
        }
        self.total += 1;
        Ok(())
    }

    /// Forgets what is older than the window. A clock that was set back forgets nothing: what was counted then counts
    /// as if it were made now.
    fn advance(&mut self, second: i64) {
        let steps = usize::try_from(second.saturating_sub(self.second)).unwrap_or(0).min(SLOTS);
        self.second = second;
        if steps == 0 {
            return;
        }
        self.counts.rotate_right(steps % SLOTS);
        for count in self.counts.iter_mut().take(steps) {
            self.total -= *count;
            *count = 0;
        }
    }

    /// How long it takes until enough has left the window, oldest first.
    fn seconds_until_below(&self, rate: u32) -> u32 {
        let mut left = self.total;
        let seconds = self.counts.iter().rev().take_while(|count| {
            let full = left >= rate;
            left -= **count;
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
        assert_eq!(rates.windows.lock().unwrap().len(), MAX_KEYS.get());
        assert_eq!(rates.admit(most, 1, at(0)), exceeded(61), "the newest is remembered");
        assert_eq!(rates.admit(0, 1, at(0)), Ok(()), "the oldest is forgotten");
    }

    /// No interval of 60 seconds ever holds more than the rate, and who waits as told is admitted.
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
