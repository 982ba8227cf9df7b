//! The time and randomness, which a pure function cannot have. Each has a real source and one for tests.

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use mandate_core::Timestamp;
use tokio::sync::watch;
use zeroize::Zeroizing;

/// A future that ends at a time.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A clock.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;

    /// Waits until `at`. The caller reads the clock again afterwards, since it may have been set.
    fn sleep_until(&self, at: Timestamp) -> Sleep<'_>;

    /// The time of the database's clock. This is `shown`, except under a test clock, which moves the database's
    /// clock too.
    fn database(&self, shown: Timestamp) -> Timestamp {
        shown
    }

    /// The time since the machine was started, in milliseconds. It includes suspension, and no operator can set it.
    fn uptime_millis(&self) -> i64;
}

/// A source of random bytes that are good enough for keys.
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

    fn uptime_millis(&self) -> i64 {
        let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        up.tv_sec.saturating_mul(1000).saturating_add(up.tv_nsec / 1_000_000)
    }
}

/// A server's clock, corrected by its last measured difference to the database's clock. So all servers on one
/// database use the same time.
pub struct CorrectedClock {
    own: Arc<dyn Clock>,
    skew: Arc<Skew>,
}

impl CorrectedClock {
    /// The clock `own`, corrected by `skew`.
    #[must_use]
    pub fn new(own: Arc<dyn Clock>, skew: Arc<Skew>) -> Self {
        Self { own, skew }
    }
}

impl std::fmt::Debug for CorrectedClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CorrectedClock").field("skew", &self.skew).finish_non_exhaustive()
    }
}

impl Clock for CorrectedClock {
    fn now(&self) -> Timestamp {
        let now = self.own.now();
        Timestamp::from_millis(now.millis().saturating_sub(self.skew.ahead_millis()))
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        self.own.sleep_until(Timestamp::from_millis(at.millis().saturating_add(self.skew.ahead_millis())))
    }

    fn database(&self, shown: Timestamp) -> Timestamp {
        self.own.database(shown)
    }

    fn uptime_millis(&self) -> i64 {
        self.own.uptime_millis()
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
    /// By how many seconds it is ahead of all other clocks.
    ahead: AtomicI64,
    /// The seconds that have passed, which the machine's uptime includes.
    passed: AtomicI64,
}

impl TestClock {
    /// A clock that shows `at`.
    #[must_use]
    pub fn at(at: Timestamp) -> Self {
        Self { shown: watch::Sender::new(at), ahead: AtomicI64::new(0), passed: AtomicI64::new(0) }
    }

    /// Lets `seconds` pass. If they are negative, the clock is set back.
    pub fn advance(&self, seconds: i64) {
        self.passed.fetch_add(seconds.max(0), Ordering::SeqCst);
        self.step(seconds);
    }

    /// Sets this clock and the database's ahead by `seconds`, or back if they are negative. No time passes.
    pub fn step(&self, seconds: i64) {
        self.shown.send_modify(|now| *now = now.plus_seconds(seconds));
    }

    /// Sets this clock alone ahead by `seconds`, or back if they are negative. Then it is wrong.
    pub fn err(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::SeqCst);
        self.step(seconds);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *self.shown.borrow()
    }

    fn database(&self, _: Timestamp) -> Timestamp {
        self.now().plus_seconds(-self.ahead.load(Ordering::SeqCst))
    }

    fn uptime_millis(&self) -> i64 {
        self.passed.load(Ordering::SeqCst).saturating_mul(1000)
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        let (mut now, began) = (self.shown.subscribe(), self.now());
        Box::pin(async move {
            // As with the machine's clock, setting it back delays no task. The clock outlives its waiters.
            let _ = now.wait_for(|now| *now >= at || *now < began).await;
        })
    }
}

/// A difference to the database's clock beyond this is logged, in milliseconds.
pub const SKEW_WARNS_MILLIS: i64 = 1_000;

/// The last measured difference between the machine's clock and the database's.
#[derive(Debug, Default)]
pub struct Skew(AtomicI64);

impl Skew {
    /// Notes that the database's clock was at `shown` at some moment between `before` and `after`. A difference
    /// that the round trip can explain does not count. So a process that was suspended meanwhile measures none.
    pub fn note(&self, before: Timestamp, shown: Timestamp, after: Timestamp) {
        let ahead = before.millis_since(shown).max(0) + after.millis_since(shown).min(0);
        self.0.store(ahead, Ordering::SeqCst);
    }

    /// By how many milliseconds the clock is ahead. Negative if it is behind.
    #[must_use]
    pub fn ahead_millis(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Bits of an id that hold the time.
const MILLIS_BITS: u32 = 48;
/// Bits of an id that are random.
const RANDOM_BITS: u32 = 128 - MILLIS_BITS;
/// Random bytes of an id.
const RANDOM_BYTES: usize = 10;
/// How many ids are drawn at once, since a call of the operating system is expensive.
const DRAWN: usize = 100;

/// Draws ids: 48 bits of time in milliseconds, and 80 random ones.
pub struct Ids {
    entropy: Arc<dyn Entropy>,
    drawn: Mutex<Drawn>,
}

/// The last id in order, and the random bytes of the next ones.
struct Drawn {
    last: u128,
    random: Vec<[u8; RANDOM_BYTES]>,
}

impl Ids {
    /// Ids whose random part comes from `entropy`.
    #[must_use]
    pub fn new(entropy: Arc<dyn Entropy>) -> Self {
        Self { entropy, drawn: Mutex::new(Drawn { last: 0, random: Vec::new() }) }
    }

    /// The 128 bits of an id of `now`. It is in no order with other ids.
    pub fn fresh(&self, now: Timestamp) -> [u8; 16] {
        at(now, self.drawn().random(&*self.entropy)).to_be_bytes()
    }

    /// The 128 bits of an id that is greater than `last`. It has the time `now` if that is later than the time of
    /// `last`. Otherwise it is `last` plus a random step of 1 to 2³², so that ids do not run ahead of the clock
    /// under load.
    pub fn after(&self, last: Option<[u8; 16]>, now: Timestamp) -> [u8; 16] {
        let random = self.drawn().random(&*self.entropy);
        behind(last.map_or(0, u128::from_be_bytes), now, random).to_be_bytes()
    }

    /// The 128 bits of an id for something created at `now`. It is greater than all earlier results of this function.
    pub fn next(&self, now: Timestamp) -> [u8; 16] {
        let mut drawn = self.drawn();
        let random = drawn.random(&*self.entropy);
        drawn.last = behind(drawn.last, now, random);
        drawn.last.to_be_bytes()
    }

    /// 32 random bytes, good enough for keys.
    pub fn random(&self) -> Zeroizing<[u8; 32]> {
        let mut random = Zeroizing::new([0; 32]);
        self.entropy.fill(&mut *random);
        random
    }

    /// From now on each result of [`Self::next`] is greater than `newest` too.
    pub fn follow(&self, newest: [u8; 16]) {
        let mut drawn = self.drawn();
        drawn.last = drawn.last.max(u128::from_be_bytes(newest));
    }

    fn drawn(&self) -> std::sync::MutexGuard<'_, Drawn> {
        self.drawn.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drawn {
    fn random(&mut self, entropy: &dyn Entropy) -> [u8; RANDOM_BYTES] {
        self.random.pop().unwrap_or_else(|| {
            let mut fresh = [[0; RANDOM_BYTES]; DRAWN];
            entropy.fill(fresh.as_flattened_mut());
            let [first, others @ ..] = fresh;
            self.random.extend(others);
            first
        })
    }
}

/// The lower 48 bits of the milliseconds, and the random ones.
fn at(now: Timestamp, random: [u8; RANDOM_BYTES]) -> u128 {
    let millis = u128::from(now.millis().cast_unsigned() & ((1 << MILLIS_BITS) - 1));
    random.iter().fold(millis, |id, byte| id << 8 | u128::from(*byte))
}

/// The next id after `last`: of the present millisecond if that is later, else a random step away.
fn behind(last: u128, now: Timestamp, random: [u8; RANDOM_BYTES]) -> u128 {
    let fresh = at(now, random);
    if fresh >> RANDOM_BITS > last >> RANDOM_BITS {
        return fresh;
    }
    let [.., a, b, c, d] = random;
    last.saturating_add(u128::from(u32::from_be_bytes([a, b, c, d])) + 1)
}

impl std::fmt::Debug for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ids")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(id: [u8; 16]) -> i64 {
        mandate_core::DecisionId::from_bytes(id).created_at().millis()
    }

    #[test]
    fn a_clock_is_corrected_by_what_the_database_showed() {
        let (skew, at) = (Arc::new(Skew::default()), Timestamp::from_millis);
        let own = Arc::new(TestClock::at(at(1_000_000)));
        let clock = CorrectedClock::new(Arc::<TestClock>::clone(&own), Arc::clone(&skew));
        for (before, shown, after, ahead) in [
            (100, 100, 100, 0),
            (100, 150, 200, 0),
            (100, 100, 9_000, 0),
            (100, 40, 110, 60),
            (100, 170, 110, -60),
            (70_000, 10_000, 70_200, 60_000),
            (10_000, 70_000, 10_200, -59_800),
        ] {
            skew.note(at(before), at(shown), at(after));
            assert_eq!(skew.ahead_millis(), ahead);
            assert_eq!(clock.now().millis(), own.now().millis() - ahead);
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
        assert_eq!(millis(last), 1002);
        let stored = ids.fresh(Timestamp::from_millis(5000));
        ids.follow(stored);
        ids.follow(last);
        let next = ids.next(Timestamp::from_millis(1003));
        assert!(next > stored && millis(next) == 5000);
    }

    #[test]
    fn an_id_is_behind_the_last_by_its_time_or_by_a_small_step() {
        let (ids, at) = (Ids::new(Arc::new(SystemEntropy)), Timestamp::from_millis);
        let last = ids.after(None, at(5_000));
        assert_eq!(millis(last), 5_000);
        let later = ids.after(Some(last), at(5_001));
        assert_eq!(millis(later), 5_001);
        let number = u128::from_be_bytes;
        for now in [5_000, 4_999, 0] {
            let next = ids.after(Some(last), at(now));
            let step = number(next) - number(last);
            assert!((1..=1 << 32).contains(&step), "{step}");
        }
        assert_eq!(millis(ids.fresh(at(7))), 7);
        // A hundred thousand ids of one millisecond are still of it.
        let mut last = ids.after(None, at(1));
        for _ in 0..100_000 {
            last = ids.after(Some(last), at(1));
        }
        assert!(millis(last) <= 2);
    }
}
