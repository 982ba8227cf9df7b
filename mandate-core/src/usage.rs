//! What the engine must know of an agent's past: ten instants and one sum.

use serde::Serialize;

use crate::amount::Total;
use crate::error::Invalid;
use crate::json::Object;
use crate::time::Timestamp;

/// How many requests an agent may make within [`VELOCITY_WINDOW_SECONDS`]. The next one is denied.
pub const VELOCITY_REQUESTS: u32 = 10;
/// The length of the velocity window, in seconds.
pub const VELOCITY_WINDOW_SECONDS: i64 = 60;
/// How far ahead of the clock the instant of an earlier request may lie and still count, in seconds.
///
/// A service refuses to decide while its clock is further than this behind an instant by which it decided. An instant further
/// ahead can therefore only be there after an operator accepted the clock that is behind, because the one before had been
/// ahead: it must not deny requests until the clock reaches it again.
pub const VELOCITY_AHEAD_SECONDS: i64 = 5;
const KEPT: usize = VELOCITY_REQUESTS as usize;

/// The ten latest requests of an agent: enough to decide whether the next is the eleventh within the window. Latest by their
/// time, not by their arrival. What it counts is a function of the instants that were recorded, in the order in which they
/// were: anyone who has them can compute it again.
///
/// ```
/// use mandate_core::{RecentRequests, Timestamp};
/// let mut recent = RecentRequests::default();
/// for second in 0..10 {
///     recent.record(Timestamp::from_seconds(second));
/// }
/// assert_eq!(recent.count_at(Timestamp::from_seconds(59)), 10);
/// assert_eq!(recent.count_at(Timestamp::from_seconds(60)), 9);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecentRequests(Vec<Timestamp>);

impl RecentRequests {
    /// Adds a request made at `at`. Forgets instants more than [`VELOCITY_AHEAD_SECONDS`] ahead of it, then the earliest
    /// beyond ten.
    ///
    /// ```
    /// use mandate_core::{RecentRequests, Timestamp};
    /// let mut recent = RecentRequests::default();
    /// (0..25).for_each(|second| recent.record(Timestamp::from_seconds(second)));
    /// assert_eq!(recent.count_at(Timestamp::from_seconds(25)), 10);
    /// ```
    pub fn record(&mut self, at: Timestamp) {
        self.0.truncate(self.0.partition_point(|kept| !is_ahead(*kept, at)));
        self.0.insert(self.0.partition_point(|kept| *kept <= at), at);
        if self.0.len() > KEPT {
            self.0.remove(0);
        }
    }

    /// How many of the known requests are in the 60 seconds before `now`: 0 to 10.
    ///
    /// An instant up to [`VELOCITY_AHEAD_SECONDS`] after `now` counts too, so that a clock that steps back a little opens
    /// nothing.
    ///
    /// ```
    /// use mandate_core::{RecentRequests, Timestamp};
    /// let mut recent = RecentRequests::default();
    /// recent.record(Timestamp::from_millis(1_000));
    /// assert_eq!(recent.count_at(Timestamp::from_millis(60_999)), 1);
    /// assert_eq!(recent.count_at(Timestamp::from_millis(61_000)), 0);
    /// assert_eq!(recent.count_at(Timestamp::from_millis(0)), 1);
    /// ```
    #[must_use]
    pub fn count_at(&self, now: Timestamp) -> u32 {
        let window = VELOCITY_WINDOW_SECONDS.saturating_mul(1000);
        let ended = self.0.partition_point(|kept| now.millis_since(*kept) >= window);
        let ahead = self.0.partition_point(|kept| !is_ahead(*kept, now));
        u32::try_from(ahead.saturating_sub(ended)).unwrap_or(u32::MAX)
    }

    /// The instants as bytes to store: 8 for each (milliseconds, most significant byte first), oldest first.
    ///
    /// ```
    /// use mandate_core::{RecentRequests, Timestamp};
    /// let mut recent = RecentRequests::default();
    /// recent.record(Timestamp::from_millis(258));
    /// assert_eq!(recent.to_bytes(), [0, 0, 0, 0, 0, 0, 1, 2]);
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|at| at.millis().to_be_bytes()).collect()
    }

    /// Reads what [`RecentRequests::to_bytes`] wrote.
    ///
    /// ```
    /// use mandate_core::{RecentRequests, Timestamp};
    /// let recent = RecentRequests::from_bytes(&[0, 0, 0, 0, 0, 0, 1, 2])?;
    /// assert_eq!(recent.count_at(Timestamp::from_millis(258)), 1);
    /// assert!(RecentRequests::from_bytes(&[0; 7]).is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The bytes are not a whole number of instants, or more than ten.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Invalid> {
        let (instants, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || instants.len() > KEPT {
            return Err(Invalid::new("recent requests", "must be at most ten instants of 8 bytes"));
        }
        let instants = instants.iter().map(|bytes| Timestamp::from_millis(i64::from_be_bytes(*bytes)));
        let mut recent: Vec<_> = instants.collect();
        recent.sort_unstable();
        Ok(Self(recent))
    }
}

/// Whether `at` lies so far after `now` that it does not count.
fn is_ahead(at: Timestamp, now: Timestamp) -> bool {
    at.millis_since(now) > VELOCITY_AHEAD_SECONDS.saturating_mul(1000)
}

/// The engine's inputs beside mandate and request. Kept with each decision, so that anyone can compute it again.
///
/// ```
/// use mandate_core::{Basis, RecentRequests, Timestamp, Total};
/// let (recent, now) = (RecentRequests::default(), Timestamp::from_seconds(1_772_362_800));
/// let basis = Basis { spent: Total::parse("700")?, recent_requests: recent.count_at(now) };
/// assert_eq!(basis.recent_requests, 0);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Basis {
    /// The sum of the agent's `allow` decisions in the request's currency in this calendar month (UTC).
    pub spent: Total,
    /// How many earlier requests of the agent lie in the 60 seconds before this one, where 10 means 10 or more. One up to
    /// [`VELOCITY_AHEAD_SECONDS`] after it counts too: a clock stepped back.
    pub recent_requests: u32,
}

impl Basis {
    /// Reads the `basis` of a decision.
    ///
    /// ```
    /// use mandate_core::{Basis, json::Object};
    /// let basis = Basis::read(Object::parse(br#"{"spent": 700.5, "recent_requests": 3}"#)?)?;
    /// assert_eq!((basis.spent.to_string().as_str(), basis.recent_requests), ("700.5", 3));
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// A field is missing or has another type.
    pub fn read(mut basis: Object<'_>) -> Result<Self, Invalid> {
        let spent = basis.require("spent")?.total()?;
        let field = basis.require("recent_requests")?;
        let recent_requests = u32::try_from(field.integer()?)
            .map_err(|_| Invalid::value(field.path(), "must be a count", field.raw()))?;
        Ok(Self { spent, recent_requests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn the_window_is_open_at_its_far_end() {
        let mut recent = RecentRequests::default();
        recent.record(Timestamp::from_millis(1_000));
        assert_eq!(recent.count_at(Timestamp::from_millis(60_999)), 1);
        assert_eq!(recent.count_at(Timestamp::from_millis(61_000)), 0);
    }

    #[test]
    fn an_instant_counts_up_to_five_seconds_ahead_of_the_clock() {
        let mut recent = RecentRequests::default();
        recent.record(Timestamp::from_millis(100_000));
        assert_eq!(recent.count_at(Timestamp::from_millis(95_000)), 1, "a small step back opens nothing");
        assert_eq!(recent.count_at(Timestamp::from_millis(94_999)), 0, "a clock was accepted");
        let mut nearer = recent.clone();
        nearer.record(Timestamp::from_millis(95_000));
        assert_eq!(nearer.count_at(Timestamp::from_millis(100_000)), 2);
        recent.record(Timestamp::from_millis(94_999));
        assert_eq!(recent.count_at(Timestamp::from_millis(100_000)), 1, "what was ahead is forgotten");
    }

    /// A clock that mostly goes on, and now and then steps.
    fn instants() -> impl Strategy<Value = Vec<i64>> {
        let step = prop_oneof![
            6 => 0_i64..3_000,
            3 => prop_oneof![Just(0), Just(4_999), Just(5_000), Just(5_001), Just(59_999), Just(60_000)],
            3 => prop_oneof![Just(-2), Just(-2_000), Just(-5_000), Just(-5_001), Just(-60_000)],
            1 => prop_oneof![Just(3_600_000), Just(-3_600_000)],
        ];
        vec(step, 1..80).prop_map(|steps| {
            let mut now = 1_800_000_000_000;
            steps
                .into_iter()
                .map(|step| {
                    now += step;
                    now
                })
                .collect()
        })
    }

    proptest! {
        /// Computed from all instants at once, with no state: an instant is gone once a later request was made more than 5
        /// seconds before it; of the others the ten latest are known.
        #[test]
        fn a_count_can_be_computed_again_from_the_instants_alone(instants in instants()) {
            let mut recent = RecentRequests::default();
            let mut stepped_back = false;
            let mut latest = i64::MIN;
            for (number, &now) in instants.iter().enumerate() {
                let mut known: Vec<i64> = Vec::new();
                for &at in &instants[..number] {
                    known.retain(|earlier| earlier - at <= 5_000);
                    known.push(at);
                    known.sort_unstable();
                    known.drain(..known.len().saturating_sub(10));
                }
                let count = known.iter().filter(|at| now - **at < 60_000 && **at - now <= 5_000).count();
                let found = recent.count_at(Timestamp::from_millis(now));
                prop_assert_eq!(usize::try_from(found).unwrap(), count);
                stepped_back |= latest > now;
                latest = latest.max(now);
                if !stepped_back {
                    // With a clock that only goes on it is the number of requests in the 60 seconds before.
                    let before = instants[..number].iter().filter(|at| now - **at < 60_000).count();
                    prop_assert_eq!(count, before.min(10));
                }
                recent.record(Timestamp::from_millis(now));
                prop_assert_eq!(&RecentRequests::from_bytes(&recent.to_bytes()).unwrap(), &recent);
            }
        }
    }

    #[test]
    fn an_earlier_request_that_arrives_later_pushes_no_other_out() {
        let mut recent = RecentRequests::default();
        (0..20)
            .for_each(|number| recent.record(Timestamp::from_seconds(if number % 2 == 0 { 60 } else { 56 })));
        assert_eq!(recent.count_at(Timestamp::from_seconds(117)), 10);
        let unordered = [60_000_i64, 56_000].map(i64::to_be_bytes).concat();
        let mut read = RecentRequests::from_bytes(&unordered).unwrap();
        (0..9).for_each(|_| read.record(Timestamp::from_seconds(60)));
        assert_eq!(read.count_at(Timestamp::from_seconds(117)), 10);
    }

    #[test]
    fn the_newest_ten_are_kept_and_come_back_from_bytes() {
        let mut recent = RecentRequests::default();
        (0..25).for_each(|second| recent.record(Timestamp::from_seconds(second)));
        assert_eq!(recent.count_at(Timestamp::from_seconds(25)), 10);
        assert_eq!(recent.count_at(Timestamp::from_seconds(75)), 9);
        assert_eq!(RecentRequests::from_bytes(&recent.to_bytes()).unwrap(), recent);
        assert!(
            RecentRequests::from_bytes(&[0; 7]).is_err() && RecentRequests::from_bytes(&[0; 88]).is_err()
        );
    }
}
