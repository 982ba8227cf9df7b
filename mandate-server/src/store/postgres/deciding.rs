//! Whether a batch worker can decide: whether it has a connection, and its transactions commit.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A batch worker that has committed within this time is not asked to show that it can.
const RECENT: Duration = Duration::from_secs(1);

/// Takes the locks that a batch takes on tables, so that it fails where a batch would wait. Of partitioned tables, a batch
/// locks the partition of this month alone.
pub(super) const PROVE: &str = "/* deciding.prove */ LOCK TABLE ONLY decisions, ONLY events, agents, clock, deliveries, idempotency, reviews, usage \
     IN ROW EXCLUSIVE MODE";
/// How long it may take, connecting included.
pub(super) const PROVING: Duration = Duration::from_secs(5);

/// What a batch worker has managed to do.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Since when it has had work without a commit.
    since: Option<Instant>,
    /// When it last committed.
    committed: Option<Instant>,
}

impl Progress {
    /// There is work.
    pub(super) fn begin(&self) {
        self.state().since.get_or_insert_with(Instant::now);
    }

    /// A transaction has committed.
    pub(super) fn committed(&self) {
        *self.state() = State { since: None, committed: Some(Instant::now()) };
    }

    /// Whether one has committed just now, and nothing has waited since.
    pub(super) fn is_recent(&self) -> bool {
        let state = self.state();
        state.since.is_none() && state.committed.is_some_and(|at| at.elapsed() < RECENT)
    }

    /// For how long there has been work without a commit.
    pub(super) fn stuck(&self) -> Duration {
        self.state().since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_work_without_a_commit_is_stuck() {
        let progress = Progress::default();
        assert_eq!((progress.stuck(), progress.is_recent()), (Duration::ZERO, false));
        progress.begin();
        std::thread::sleep(Duration::from_millis(2));
        progress.begin();
        assert!(progress.stuck() >= Duration::from_millis(2), "the first work counts");
        progress.committed();
        assert_eq!((progress.stuck(), progress.is_recent()), (Duration::ZERO, true));
    }
}
