//! One breaker for all connections of a server: while the database is away, one thread at a time tries to reach it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::error::Fault;

/// How long jobs wait for a database that has just become unreachable. After that they fail at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts while jobs wait.
const PAUSE: Duration = Duration::from_millis(128);
/// The pause between two attempts once jobs fail at once.
const REST: Duration = Duration::from_millis(500);

/// Whether the database can be reached, as the attempts of all threads have shown.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// None while the database can be reached.
    outage: Option<Outage>,
    /// Whether a thread tries to reach it again.
    trying: bool,
}

/// A time in which the database cannot be reached.
#[derive(Debug)]
struct Outage {
    since: Instant,
    /// When the last attempt failed, and why.
    failed: Instant,
    why: Fault,
}

/// What a thread without a connection does next.
#[derive(Debug)]
pub(super) enum NextStep<'a> {
    /// It tries to connect.
    Try(Attempt<'a>),
    /// It asks again a moment later.
    Wait,
    /// It gives up: the database has been away for too long.
    Refused(Fault),
}

/// An attempt to connect.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    breaker: &'a Breaker,
    began: Instant,
    /// Whether others wait for its outcome.
    alone: bool,
}

impl Breaker {
    /// Whether the database could not be reached.
    pub(super) fn is_open(&self) -> bool {
        self.state().outage.is_some()
    }

    /// The next step of a thread without a connection.
    pub(super) fn next_step(&self) -> NextStep<'_> {
        let mut state = self.state();
        let began = Instant::now();
        let Some(outage) = &state.outage else {
            return NextStep::Try(Attempt { breaker: self, began, alone: false });
        };
        let is_over = outage.since.elapsed() >= PATIENCE;
        if state.trying || outage.failed.elapsed() < if is_over { REST } else { PAUSE } {
            return if is_over { NextStep::Refused(outage.why.clone()) } else { NextStep::Wait };
        }
        state.trying = true;
        NextStep::Try(Attempt { breaker: self, began, alone: true })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt<'_> {
    /// The database was reached.
    pub(super) fn succeeded(self) {
        if let Some(outage) = self.breaker.state().outage.take() {
            info!(seconds = outage.since.elapsed().as_secs(), "the database is back");
        }
    }

    /// It was not reached. Returns whether it has been away for so long that jobs fail.
    pub(super) fn failed(self, why: &Fault) -> bool {
        let mut state = self.breaker.state();
        let (failed, why) = (Instant::now(), why.clone());
        let since = state.outage.as_ref().map(|outage| outage.since);
        if since.is_none() {
            warn!(kind = why.kind(), reason = %why, "the database cannot be connected to");
        }
        let since = since.unwrap_or(self.began);
        state.outage = Some(Outage { since, failed, why });
        since.elapsed() >= PATIENCE
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.alone {
            self.breaker.state().trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_the_database_is_away_one_thread_tries() {
        let breaker = Breaker::default();
        let (NextStep::Try(first), NextStep::Try(second)) = (breaker.next_step(), breaker.next_step()) else {
            panic!("while it can be reached, all connect")
        };
        let away = Fault::Unavailable("away".to_owned());
        assert!(!first.failed(&away));
        assert!(!second.failed(&away));
        assert!(
            breaker.is_open() && matches!(breaker.next_step(), NextStep::Wait),
            "a pause after an attempt"
        );
        std::thread::sleep(PAUSE);
        let NextStep::Try(one) = breaker.next_step() else { panic!("one tries again") };
        assert!(matches!(breaker.next_step(), NextStep::Wait), "and the others wait");
        drop(one);
        let NextStep::Try(one) = breaker.next_step() else {
            panic!("an attempt that ended without an outcome")
        };
        one.succeeded();
        assert!(!breaker.is_open() && matches!(breaker.next_step(), NextStep::Try(_)));
    }

    #[test]
    fn a_database_that_stays_away_is_given_up() {
        let Some(since) = Instant::now().checked_sub(PATIENCE) else { return };
        let breaker = Breaker::default();
        let why = Fault::Unavailable("away".to_owned());
        breaker.state().outage = Some(Outage { since, failed: Instant::now(), why: why.clone() });
        assert!(matches!(breaker.next_step(), NextStep::Refused(fault) if fault == why));
        std::thread::sleep(REST);
        let NextStep::Try(one) = breaker.next_step() else { panic!("one tries") };
        assert!(matches!(breaker.next_step(), NextStep::Refused(_)), "the others are not kept waiting");
        assert!(one.failed(&why));
    }
}
