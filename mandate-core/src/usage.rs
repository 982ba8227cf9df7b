//! What the engine needs to know about an agent's past: ten instants and one sum.

use serde::Serialize;

use crate::amount::Total;
use crate::error::Invalid;
use crate::json::Object;
use crate::time::Timestamp;

/// How many requests an agent may make in one [`VELOCITY_WINDOW_SECONDS`]; the next is denied.
pub const VELOCITY_REQUESTS: u32 = 10;
/// The length of the velocity window, in seconds.
pub const VELOCITY_WINDOW_SECONDS: i64 = 60;
const KEPT: usize = VELOCITY_REQUESTS as usize;

/// The ten latest requests of an agent: enough to decide whether the next is the eleventh within the window. Latest by their
/// time, not by their arrival: of several servers one may have a clock that is behind.
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
    /// Adds a request made at `at`, and forgets the earliest beyond ten.
    ///
    /// ```
    /// use mandate_core::{RecentRequests, Timestamp};
    /// let mut recent = RecentRequests::default();
    /// (0..25).for_each(|second| recent.record(Timestamp::from_seconds(second)));
    /// assert_eq!(recent.count_at(Timestamp::from_seconds(25)), 10);
    /// ```
    pub fn record(&mut self, at: Timestamp) {
        self.0.insert(self.0.partition_point(|kept| *kept <= at), at);
        if self.0.len() > KEPT {
            self.0.remove(0);
        }
    }

    /// How many of the known requests lie in the 60 seconds before `now`: 0 to 10.
    ///
    /// An instant after `now` (a clock was set back) counts, so that no jump of a clock opens the window.
    ///
    /// ```
    /// use mandate_core::{RecentRequests, Timestamp};
    /// let mut recent = RecentRequests::default();
    /// recent.record(Timestamp::from_millis(1_000));
    /// assert_eq!(recent.count_at(Timestamp::from_millis(60_999)), 1);
    /// assert_eq!(recent.count_at(Timestamp::from_millis(61_000)), 0);
    /// ```
    #[must_use]
    pub fn count_at(&self, now: Timestamp) -> u32 {
        let within = |at: &&Timestamp| now.millis_since(**at) < VELOCITY_WINDOW_SECONDS.saturating_mul(1000);
        u32::try_from(self.0.iter().filter(within).count()).unwrap_or(u32::MAX)
    }

    /// The instants as bytes to be stored: 8 each (milliseconds, most significant first), oldest first.
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
    /// Not a whole number of instants, or more than ten.
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
    /// The sum of the agent's `allow` decisions in the request's currency, this calendar month (UTC).
    pub spent: Total,
    /// How many requests of the agent lie in the 60 seconds before this one, where 10 means 10 or more.
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
    /// A field is missing or of another type.
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

    #[test]
    fn the_window_is_open_at_its_far_end() {
        let mut recent = RecentRequests::default();
        recent.record(Timestamp::from_millis(1_000));
        assert_eq!(recent.count_at(Timestamp::from_millis(60_999)), 1);
        assert_eq!(recent.count_at(Timestamp::from_millis(61_000)), 0);
        assert_eq!(recent.count_at(Timestamp::from_millis(0)), 1, "a clock set back opens nothing");
    }

    #[test]
    fn an_earlier_request_that_arrives_later_pushes_no_other_out() {
        let mut recent = RecentRequests::default();
        (0..20)
            .for_each(|number| recent.record(Timestamp::from_seconds(if number % 2 == 0 { 60 } else { 0 })));
        assert_eq!(recent.count_at(Timestamp::from_seconds(60)), 10);
        let unordered = [60_000_i64, 0].map(i64::to_be_bytes).concat();
        let mut read = RecentRequests::from_bytes(&unordered).unwrap();
        (0..9).for_each(|_| read.record(Timestamp::from_seconds(60)));
        assert_eq!(read.count_at(Timestamp::from_seconds(60)), 10);
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
