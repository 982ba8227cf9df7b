//! The two things that a pure function cannot have: the time and randomness. Each has a real and a test source.

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use mandate_core::Timestamp;
use tokio::sync::watch;

/// Ends when a time has come.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Says what time it is.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;

    /// Waits until it is `at`. The caller looks at the clock again: it may have been set.
    fn sleep_until(&self, at: Timestamp) -> Sleep<'_>;

    /// What another machine's clock shows, to be compared with this one: `shown`, unless this clock differs from the
    /// world's time.
    fn elsewhere(&self, shown: Timestamp) -> Timestamp {
        shown
    }
}

/// Brings random bytes fit for keys.
pub trait Entropy: Send + Sync + 'static {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        let millis = u64::try_from(at.millis_since(self.now())).unwrap_or_default();
        Box::pin(tokio::time::sleep(Duration::from_millis(millis)))
    }
}

/// The operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    #[allow(
        clippy::disallowed_methods,
        clippy::panic,
        reason = "the one place that draws; without randomness nothing is safe"
    )]
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(e) = getrandom::fill(bytes) {
            panic!("the operating system gives no random bytes: {e}");
        }
    }
}

/// A clock that moves only when a test moves it.
#[derive(Debug)]
pub struct TestClock {
    shown: watch::Sender<Timestamp>,
    /// By how many seconds it is ahead of all others.
    ahead: AtomicI64,
}

impl TestClock {
    /// A clock that shows `at`.
    #[must_use]
    pub fn at(at: Timestamp) -> Self {
        Self { shown: watch::Sender::new(at), ahead: AtomicI64::new(0) }
    }

    /// Moves the clock by `seconds`, which may be negative, and the world's time with it.
    pub fn advance(&self, seconds: i64) {
        self.shown.send_modify(|now| *now = now.plus_seconds(seconds));
    }

    /// Moves the clock by `seconds`, which may be negative, and nothing else: it is wrong then.
    pub fn err(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::SeqCst);
        self.advance(seconds);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.shown.borrow()
    }

    fn elsewhere(&self, _: Timestamp) -> Timestamp {
        self.now().plus_seconds(-self.ahead.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        let (mut now, began) = (self.shown.subscribe(), self.now());
        Box::pin(async move {
            // A machine's clock that is set back delays no task either. The clock outlives who waits for it.
            let _ = now.wait_for(|now| *now >= at || *now < began).await;
        })
    }
}

/// From how far on a clock that is off is warned of, in milliseconds.
pub const SKEW_WARNS_MILLIS: i64 = 1_000;
/// How far a clock may be off for decisions to be dated by it, in milliseconds.
pub const SKEW_BEARABLE_MILLIS: i64 = 5_000;

/// How far the machine's clock is off by the database's, as it was last compared.
#[derive(Debug, Default)]
pub struct Skew(AtomicI64);

impl Skew {
    /// Notes that another clock showed `told` at some moment between `before` and `after`. Says by how many milliseconds
    /// this one is ahead for certain, behind where that is negative: how long the answer was on its way is not counted.
    pub fn note(&self, before: Timestamp, told: Timestamp, after: Timestamp) -> i64 {
        let ahead = Self::between(before, told, after);
        self.0.store(ahead, Ordering::SeqCst);
        ahead
    }

    /// What [`Skew::note`] says, of a comparison that is of use for one decision alone.
    #[must_use]
    pub fn between(before: Timestamp, told: Timestamp, after: Timestamp) -> i64 {
        before.millis_since(told).max(0) + after.millis_since(told).min(0)
    }

    /// By how many milliseconds the clock is ahead for certain; behind where it is negative.
    #[must_use]
    pub fn ahead_millis(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether decisions may be dated by the clock.
    #[must_use]
    pub fn is_bearable(&self) -> bool {
        self.ahead_millis().abs() <= SKEW_BEARABLE_MILLIS
    }
}

/// Bits of an id that hold the time.
const MILLIS_BITS: u32 = 48;
/// Random bytes of an id.
const RANDOM_BYTES: usize = 10;
/// Ids whose random bytes are drawn at a time: to ask the operating system costs more than they do.
const DRAWN: usize = 100;

/// Draws ids that only grow: time first, random below, and one more than the last where the clock stood or went back.
pub struct Ids {
    entropy: std::sync::Arc<dyn Entropy>,
    drawn: Mutex<Drawn>,
}

/// The last id, and the random bytes of the next ones.
struct Drawn {
    last: u128,
    random: Vec<[u8; RANDOM_BYTES]>,
}

impl Ids {
    /// Ids whose random part comes from `entropy`.
    #[must_use]
    pub fn new(entropy: std::sync::Arc<dyn Entropy>) -> Self {
        Self { entropy, drawn: Mutex::new(Drawn { last: 0, random: Vec::new() }) }
    }

    /// The 128 bits of the next id, for something created at `now`.
    pub fn next(&self, now: Timestamp) -> [u8; 16] {
        let mut drawn = self.drawn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let random = drawn.random.pop().unwrap_or_else(|| {
            let mut fresh = [[0; RANDOM_BYTES]; DRAWN];
            self.entropy.fill(fresh.as_flattened_mut());
            let [first, others @ ..] = fresh;
            drawn.random.extend(others);
            first
        });
        // The lower 48 bits of the milliseconds, and the random ones.
        let millis = u128::from(now.millis().cast_unsigned() & ((1 << MILLIS_BITS) - 1));
        let id = random.iter().fold(millis, |id, byte| id << 8 | u128::from(*byte));
        drawn.last = id.max(drawn.last.saturating_add(1));
        drawn.last.to_be_bytes()
    }
}

impl std::fmt::Debug for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ids")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_clock_is_off_by_what_the_way_of_the_answer_does_not_explain() {
        let skew = Skew::default();
        let at = Timestamp::from_millis;
        for (before, told, after, ahead) in [
            (100, 100, 100, 0),
            (100, 150, 200, 0),
            (100, 100, 9_000, 0),
            (100, 40, 110, 60),
            (100, 170, 110, -60),
            (70_000, 10_000, 70_200, 60_000),
            (10_000, 70_000, 10_200, -59_800),
        ] {
            assert_eq!(skew.note(at(before), at(told), at(after)), ahead);
            assert_eq!(skew.ahead_millis(), ahead);
            assert_eq!(skew.is_bearable(), ahead.abs() <= SKEW_BEARABLE_MILLIS);
        }
    }

    #[test]
    fn ids_ascend_even_if_the_clock_stops_or_goes_back() {
        let ids = Ids::new(Arc::new(SystemEntropy));
        let mut last = [0; 16];
        for millis in [1000, 1000, 1000, 1001, 400, 1002] {
            let next = ids.next(Timestamp::from_millis(millis));
            assert!(next > last);
            last = next;
        }
        assert_eq!(mandate_core::DecisionId::from_bytes(last).created_at().millis(), 1002);
    }
}
