//! When a delivery is attempted again.
//!
//! Attempts are made at about 0 s, 5 s, 30 s, 2 min, 10 min, 30 min and 1 h, then every 2 h, and a last time just before
//! 24 h have passed. The step in this schedule follows from the elapsed time, not from the number of attempts: missed
//! attempts are not made up for.

use mandate_core::Timestamp;

use crate::service::deliveries::LONGEST_WAIT_SECONDS;

/// How long attempts go on, in seconds.
pub const PERIOD_SECONDS: i64 = 24 * 60 * 60;
/// When the first attempts are due, in seconds from the start.
const FIRST_SECONDS: [i64; 7] = [0, 5, 30, 2 * 60, 10 * 60, 30 * 60, 60 * 60];
/// The interval after these, in seconds.
const THEN_EVERY_SECONDS: i64 = 2 * 60 * 60;
/// When the last attempt is due, in seconds from the start: with its random delay and the time that it takes, it ends
/// before the period does.
const LAST_SECONDS: i64 = PERIOD_SECONDS - 10 * 60;
const _: () = assert!(THEN_EVERY_SECONDS + THEN_EVERY_SECONDS / JITTER_PART <= LONGEST_WAIT_SECONDS);
/// The shortest time between two attempts, in seconds.
const LEAST_SECONDS: i64 = 5;
/// The largest random delay, as a part of the time since the previous attempt: a tenth. It spreads retries of
/// attempts that failed together.
const JITTER_PART: i64 = 10;

/// When the next attempt is due after one that ended at `now`; the attempts began at `since`. None if it was
/// the last one.
///
/// `random` is evenly distributed over all its values.
#[must_use]
pub fn next_attempt(since: Timestamp, now: Timestamp, random: u64) -> Option<Timestamp> {
    // A clock that was set back neither brings attempts forward nor delays them by as much.
    let passed = now.millis_since(since).max(0);
    if passed >= LAST_SECONDS * 1000 {
        return None;
    }
    let (last, next) = around(passed);
    let wait = (next - passed).max(LEAST_SECONDS * 1000);
    let jitter = scaled(random, (next - last) / JITTER_PART);
    Some(Timestamp::from_millis(now.millis() + wait + jitter))
}

/// Whether the time for attempts that began at `since` is over.
#[must_use]
pub fn is_over(since: Timestamp, now: Timestamp) -> bool {
    now.millis_since(since) >= PERIOD_SECONDS * 1000
}

/// The steps of the schedule around `passed`, in milliseconds. A step counts as before itself.
fn around(passed: i64) -> (i64, i64) {
    let mut last = 0;
    for next in FIRST_SECONDS.map(|seconds| seconds * 1000) {
        if next > passed {
            return (last, next);
        }
        last = next;
    }
    let step = THEN_EVERY_SECONDS * 1000;
    let last = last + (passed - last) / step * step;
    (last, (last + step).min(LAST_SECONDS * 1000))
}

/// `random`, scaled to at least 0 and less than `bound`.
fn scaled(random: u64, bound: i64) -> i64 {
    let scaled = (u128::from(random) * u128::from(bound.unsigned_abs())) >> u64::BITS;
    i64::try_from(scaled).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// When a receiver that never acknowledges is tried, in seconds from the start.
    fn schedule(random: u64) -> Vec<f64> {
        let since = Timestamp::from_millis(1_000_000);
        let mut tried = vec![since];
        while let Some(next) = next_attempt(since, *tried.last().unwrap(), random) {
            tried.push(next);
        }
        #[expect(clippy::cast_precision_loss, reason = "a day of milliseconds is exact")]
        tried.iter().map(|at| at.millis_since(since) as f64 / 1000.0).collect()
    }

    #[test]
    fn attempts_are_made_at_the_stated_times() {
        let hours = (3..=23).step_by(2).map(|hour| f64::from(hour * 3600));
        let last = 24.0 * 3600.0 - 600.0;
        let exact = [0.0, 5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0].into_iter().chain(hours).chain([last]);
        let exact: Vec<_> = exact.collect();
        assert_eq!(schedule(0), exact);
        let latest = schedule(u64::MAX);
        assert_eq!(latest.len(), exact.len());
        assert!(latest.last().unwrap() + 10.0 < 24.0 * 3600.0, "the last one ends within the 24 hours");
        let mut before = 0.0;
        for (late, exact) in latest.into_iter().zip(exact) {
            assert!(late >= exact && late <= exact + (exact - before) / 10.0, "{late} for {exact}");
            before = exact;
        }
    }

    proptest! {
        #[test]
        fn each_attempt_is_later_and_none_is_after_the_end(
            since in 0_i64..=4_000_000_000_000,
            passed in prop_oneof![-100_000_000_i64..=100_000_000, 85_000_000_i64..=86_500_000],
            random: u64,
        ) {
            let (since, now) = (Timestamp::from_millis(since), Timestamp::from_millis(since + passed));
            let end = since.plus_seconds(PERIOD_SECONDS);
            match next_attempt(since, now, random) {
                Some(next) => {
                    prop_assert!(next.millis_since(now) >= LEAST_SECONDS * 1000);
                    prop_assert!(next.millis_since(now) <= THEN_EVERY_SECONDS * 1100);
                    prop_assert!(next < end && !is_over(since, next));
                }
                None => prop_assert!(now.plus_seconds(10 * 60) >= end),
            }
        }

        #[test]
        fn more_randomness_is_never_earlier(passed in 0_i64..=86_400_000, less: u64, more: u64) {
            let since = Timestamp::from_millis(0);
            let next = |random| next_attempt(since, Timestamp::from_millis(passed), random);
            if let (Some(early), Some(late)) = (next(less.min(more)), next(less.max(more))) {
                prop_assert!(early <= late);
            }
        }
    }
}
