//! Whether a batch worker can decide: whether it has a connection, and its transactions commit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mandate_core::Timestamp;

use super::super::Decider;
use super::super::sql::servers;
use super::super::tx::Tx;
use super::connection::Step;
use super::maintenance::{PARTITIONED, first_id};
use super::session::PostgresSession;
use crate::error::Fault;

/// A batch worker that has committed within this time is not asked to show that it can.
const RECENT: Duration = Duration::from_secs(1);
/// For how long after a batch has failed no proof shows that batches are decided. A proof tries less than a batch does.
const DOUBTED: Duration = Duration::from_secs(10);

/// How long a proof waits for a lock: longer than others hold the row of the clock until their COMMIT is on disk.
const SHORTLY: &str = "SET LOCAL lock_timeout = '1s'";
/// Takes the locks that a batch takes on tables, so that it fails where a batch would wait. Of partitioned tables, a batch
/// locks the partition of this month alone. The row of the clock is needed by every batch, once a second at least. It is let go
/// at once, so that no proof waits for another's COMMIT.
const PROVE: &str = "/* deciding.prove */ LOCK TABLE environments, mandates, subscriptions IN ACCESS SHARE MODE; \
     LOCK TABLE ONLY decisions, ONLY events, agents, clock, deliveries, idempotency, log_pending, reviews, usage, webhooks \
     IN ROW EXCLUSIVE MODE; SAVEPOINT row; SELECT 1 FROM clock FOR NO KEY UPDATE; ROLLBACK TO SAVEPOINT row";
/// How long it may take, connecting included.
pub(super) const PROVING: Duration = Duration::from_secs(5);

/// Takes the locks of a batch, briefly. What it does is to be committed.
pub(super) fn prove(session: &mut PostgresSession<'_>, decider: &dyn Decider) -> Result<(), Fault> {
    session.later(Step::plain(SHORTLY));
    session.later(Step::plain(PROVE));
    session.wrote = true;
    let shown = servers::now(&mut Tx::new(session))?;
    session.later(Step::Plain(reach_partitions(decider.database(shown)).into()));
    session.send(Vec::new()).map(|_| ())
}

/// Locks the partitions of this month as a batch does, and fails if there is none. The role of a server has no right to name
/// them. So a row is sent there through its table; it is refused behind the lock, since nearly all of it is missing, and
/// nothing is written.
fn reach_partitions(now: Timestamp) -> String {
    let id = first_id(now);
    let reach = PARTITIONED.map(|table| {
        let key = table.trim_end_matches('s');
        format!(
            "BEGIN INSERT INTO {table} (environment, {key}) VALUES (0, '{id}'); EXCEPTION WHEN not_null_violation THEN NULL; END;"
        )
    });
    format!("/* deciding.reach_partitions */ DO $$ BEGIN {} END $$", reach.concat())
}

/// When a batch last failed in a way that will meet others: a proof after it got no lock either, the database lacks what it
/// needs, or the disk is full. All batch workers share it.
#[derive(Debug, Clone, Default)]
pub(super) struct LastFailure(Arc<Mutex<Option<Instant>>>);

impl LastFailure {
    fn set(&self, at: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn is_recent(&self) -> bool {
        let at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| at.elapsed() < DOUBTED)
    }
}

/// What a batch worker has managed to do.
#[derive(Debug, Default)]
pub(super) struct Progress {
    state: Mutex<State>,
    failure: LastFailure,
}

#[derive(Debug, Default)]
struct State {
    /// Since when it has had work without a commit.
    since: Option<Instant>,
    /// When it last committed.
    committed: Option<Instant>,
}

impl Progress {
    /// Of a batch worker that shares `failure` with others.
    pub(super) fn new(failure: LastFailure) -> Self {
        Self { failure, ..Self::default() }
    }

    /// There is work.
    pub(super) fn begin(&self) {
        self.state().since.get_or_insert_with(Instant::now);
    }

    /// A batch has been decided and committed.
    pub(super) fn decided(&self) {
        self.failure.set(None);
        self.committed();
    }

    /// A batch has failed, as others will.
    pub(super) fn failed(&self) {
        self.failure.set(Some(Instant::now()));
    }

    /// A transaction with the locks of a batch has committed.
    pub(super) fn proved(&self) {
        if !self.failure.is_recent() {
            self.committed();
        }
    }

    fn committed(&self) {
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        progress.proved();
        assert_eq!((progress.stuck(), progress.is_recent()), (Duration::ZERO, true));
    }

    #[test]
    fn a_proof_shows_nothing_just_after_a_batch_has_failed() {
        let failure = LastFailure::default();
        let [failed, other] = [(); 2].map(|()| Progress::new(failure.clone()));
        for progress in [&failed, &other] {
            progress.begin();
        }
        std::thread::sleep(Duration::from_millis(1));
        failed.failed();
        for progress in [&failed, &other] {
            progress.proved();
            assert!(progress.stuck() > Duration::ZERO && !progress.is_recent());
        }
        other.decided();
        failed.proved();
        assert!(failed.is_recent() && other.is_recent());
        failure.set(Instant::now().checked_sub(DOUBTED));
        failed.begin();
        failed.proved();
        assert_eq!(failed.stuck(), Duration::ZERO, "a server without requests recovers");
    }
}
