//! Limits lines of the log about a condition that lasts: a full disk, a database that is away.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two lines about the same condition.
const INTERVAL: Duration = Duration::from_secs(1);
/// The same for what a server does by itself: lines about requests say more.
const BACKGROUND: Duration = Duration::from_secs(10);

/// Counts what is too frequent for a line each.
#[derive(Debug)]
pub struct Repeated {
    interval: Duration,
    conditions: Mutex<BTreeMap<&'static str, Condition>>,
}

#[derive(Debug)]
struct Condition {
    logged: Instant,
    unlogged: u64,
}

impl Default for Repeated {
    fn default() -> Self {
        Self { interval: INTERVAL, conditions: Mutex::default() }
    }
}

impl Repeated {
    /// For what a server does by itself.
    #[must_use]
    pub fn in_background() -> Self {
        Self { interval: BACKGROUND, ..Self::default() }
    }

    /// Whether a line about `condition` is due. If so, returns how often it was met without one since the last line.
    pub fn due(&self, condition: &'static str) -> Option<u64> {
        self.due_at(condition, Instant::now())
    }

    fn due_at(&self, condition: &'static str, now: Instant) -> Option<u64> {
        let mut conditions = self.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        match conditions.get_mut(condition) {
            Some(known) if now.saturating_duration_since(known.logged) < self.interval => {
                known.unlogged += 1;
                None
            }
            known => {
                let unlogged = known.map_or(0, |known| known.unlogged);
                conditions.insert(condition, Condition { logged: now, unlogged: 0 });
                Some(unlogged)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_has_a_line_a_second_with_a_count() {
        let (repeated, start) = (Repeated::default(), Instant::now());
        let at = |condition, millis| repeated.due_at(condition, start + Duration::from_millis(millis));
        assert_eq!(at("disk_full", 0), Some(0));
        assert_eq!(at("disk_full", 10), None);
        assert_eq!(at("unavailable", 20), Some(0), "another condition has a line of its own");
        assert_eq!(at("disk_full", 999), None);
        assert_eq!(at("disk_full", 1_000), Some(2));
        assert_eq!(at("disk_full", 2_500), Some(0));
    }
}
