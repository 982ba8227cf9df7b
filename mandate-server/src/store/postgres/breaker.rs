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
    away: Option<Away>,
    /// Whether a thread tries to reach it again.
    trying: bool,
}

#[derive(Debug)]
struct Away {
    since: Instant,
    /// When the last attempt failed, and why.
    failed: Instant,
    why: Fault,
}

/// What a thread without a connection does next.
#[derive(Debug)]
pub(super) enum Turn<'a> {
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
    pub(super) fn is_away(&self) -> bool {
        self.state().away.is_some()
    }

    /// The turn of a thread without a connection.
    pub(super) fn turn(&self) -> Turn<'_> {
        let mut state = self.state();
        let began = Instant::now();
        let Some(away) = &state.away else {
            return Turn::Try(Attempt { breaker: self, began, alone: false });
        };
        let is_over = away.since.elapsed() >= PATIENCE;
        if state.trying || away.failed.elapsed() < if is_over { REST } else { PAUSE } {
            return if is_over { Turn::Refused(away.why.clone()) } else { Turn::Wait };
        }
        state.trying = true;
        Turn::Try(Attempt { breaker: self, began, alone: true })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt<'_> {
    /// The database was reached.
    pub(super) fn succeeded(self) {
        if let Some(away) = self.breaker.state().away.take() {
            info!(seconds = away.since.elapsed().as_secs(), "the database is back");
        }
    }

    /// It was not reached. Returns whether it has been away for so long that jobs fail.
    pub(super) fn failed(self, why: &Fault) -> bool {
        let mut state = self.breaker.state();
        let (failed, why) = (Instant::now(), why.clone());
        let since = state.away.as_ref().map(|away| away.since);
        if since.is_none() {
            warn!(kind = why.kind(), reason = %why, "the database cannot be connected to");
        }
        let since = since.unwrap_or(self.began);
        state.away = Some(Away { since, failed, why });
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
        let (Turn::Try(first), Turn::Try(second)) = (breaker.turn(), breaker.turn()) else {
            panic!("while it can be reached, all connect")
        };
        let away = Fault::Unavailable("away".to_owned());
        assert!(!first.failed(&away));
        assert!(!second.failed(&away));
        assert!(breaker.is_away() && matches!(breaker.turn(), Turn::Wait), "a pause after an attempt");
        std::thread::sleep(PAUSE);
        let Turn::Try(one) = breaker.turn() else { panic!("one tries again") };
        assert!(matches!(breaker.turn(), Turn::Wait), "and the others wait");
        drop(one);
        let Turn::Try(one) = breaker.turn() else { panic!("an attempt that ended without an outcome") };
        one.succeeded();
        assert!(!breaker.is_away() && matches!(breaker.turn(), Turn::Try(_)));
    }

    #[test]
    fn a_database_that_stays_away_is_given_up() {
        let Some(since) = Instant::now().checked_sub(PATIENCE) else { return };
        let breaker = Breaker::default();
        let why = Fault::Unavailable("away".to_owned());
        breaker.state().away = Some(Away { since, failed: Instant::now(), why: why.clone() });
        assert!(matches!(breaker.turn(), Turn::Refused(fault) if fault == why));
        std::thread::sleep(REST);
        let Turn::Try(one) = breaker.turn() else { panic!("one tries") };
        assert!(matches!(breaker.turn(), Turn::Refused(_)), "the others are not kept waiting");
        assert!(one.failed(&why));
    }
}
