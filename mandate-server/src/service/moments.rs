//! The time and the ids of decisions, and of all that changes what decides. A script asks for them after it has locked the
//! agent's row, never before.
//!
//! On SQLite the time is the server's. On PostgreSQL it is the database's, read by a statement after the one that locks.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mandate_core::{DecisionId, Timestamp};
use serde_json::json;
use tracing::warn;

use super::audit::{self, Deed, Operator};
use crate::clock::{Clock, Ids};
use crate::error::Fault;
use crate::model::idempotency::KEPT_SECONDS;
use crate::store::sql::{clock as marked, servers};
use crate::store::tx::{Backend, Tx};

/// How far the clock may be behind the high-water mark for decisions to be made by it, in milliseconds.
pub const BEHIND_MILLIS: i64 = 5_000;
/// From how far on a step of the clock ahead of the machine's uptime holds the forgetting of kept answers, in milliseconds.
const STEP_MILLIS: i64 = 5_000;
/// From how far on a start ahead of the mark does so, in milliseconds: an hour.
const LATE_START_MILLIS: i64 = 60 * 60 * 1_000;
/// How long it is held, in milliseconds of uptime: as long as answers are kept.
const HOLD_MILLIS: i64 = KEPT_SECONDS * 1_000;

/// Gives the time and ids.
pub struct Moments {
    clock: Arc<dyn Clock>,
    ids: Arc<Ids>,
    /// The newest decision of all, where one server owns the database.
    newest: Mutex<Option<[u8; 16]>>,
    /// The clock less the uptime, when they were last compared.
    booted_at: AtomicI64,
    /// The uptime until which no kept answer is forgotten.
    held_until: AtomicI64,
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Moments")
    }
}

impl Moments {
    /// Moments by `clock`, with ids from `ids`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, ids: Arc<Ids>) -> Self {
        let booted_at = clock.now().millis().saturating_sub(clock.uptime_millis());
        let (booted_at, held_until) = (AtomicI64::new(booted_at), AtomicI64::new(i64::MIN));
        Self { clock, ids, newest: Mutex::new(None), booted_at, held_until }
    }

    /// The server's clock.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// What draws ids.
    #[must_use]
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// The time of a change. The rows that it concerns are held.
    ///
    /// # Errors
    /// The database fails.
    pub fn now(&self, tx: &mut Tx<'_>) -> Result<Timestamp, Fault> {
        now(tx, &*self.clock)
    }

    /// The time by which a decision is made. The agent's row is held.
    ///
    /// # Errors
    /// The clock is behind the high-water mark, or the database fails.
    pub fn deciding(&self, tx: &mut Tx<'_>) -> Result<Timestamp, Fault> {
        let (now, mark) = (self.now(tx)?, marked::mark(tx)?);
        must_not_be_behind(now, mark)?;
        Ok(now)
    }

    /// By how many milliseconds the clock is behind the high-water mark, where that is too far to decide by it.
    ///
    /// # Errors
    /// The database fails.
    pub fn behind(&self, tx: &mut Tx<'_>) -> Result<Option<i64>, Fault> {
        Ok(behind_millis(self.now(tx)?, marked::mark(tx)?))
    }

    /// Raises the high-water mark for a decision made at `now`, as the last thing in its transaction.
    ///
    /// # Errors
    /// The database fails.
    pub fn decided(&self, tx: &mut Tx<'_>, now: Timestamp) -> Result<(), Fault> {
        match marked::raised(marked::mark(tx)?, now) {
            Some(to) => marked::raise(tx, to),
            None => Ok(()),
        }
    }

    /// The id of a decision at `now`, greater than that of its agent's `last` one; where one server owns the database,
    /// greater than any.
    #[must_use]
    pub fn decision(&self, last: Option<DecisionId>, now: Timestamp) -> DecisionId {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.map(DecisionId::to_bytes);
        let id = self.ids.after(last.max(*newest), now);
        if let Some(newest) = &mut *newest {
            *newest = id;
        }
        DecisionId::from_bytes(id)
    }

    /// From now on each decision's id is greater than all others', and than `newest`.
    pub fn follow(&self, newest: Option<DecisionId>) {
        let newest = newest.map_or([0; 16], DecisionId::to_bytes);
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(newest);
    }

    /// Holds the forgetting of kept answers if the server starts long after the last decision: either it was not running, or
    /// the clock is ahead.
    ///
    /// # Errors
    /// The database fails.
    pub fn begin(&self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        // The clock may have been corrected by the database's since it was looked at first: that is no step.
        let booted_at = self.clock.now().millis().saturating_sub(self.clock.uptime_millis());
        self.booted_at.store(booted_at, Ordering::SeqCst);
        let (now, mark) = (self.now(tx)?, marked::mark(tx)?);
        if mark > Timestamp::from_millis(0) && now.millis_since(mark) > LATE_START_MILLIS {
            self.hold();
        }
        Ok(())
    }

    /// The instant by which kept answers expire: the present one, or the beginning of time while the clock is not trusted for
    /// that, since it was set ahead.
    #[must_use]
    pub fn forgetting(&self) -> Timestamp {
        let (now, uptime) = (self.clock.now(), self.clock.uptime_millis());
        let booted_at = now.millis().saturating_sub(uptime);
        let before = self.booted_at.swap(booted_at, Ordering::SeqCst);
        if booted_at.saturating_sub(before) > STEP_MILLIS {
            self.hold();
        }
        if uptime < self.held_until.load(Ordering::SeqCst) { Timestamp::from_millis(0) } else { now }
    }

    fn hold(&self) {
        let until = self.clock.uptime_millis().saturating_add(HOLD_MILLIS);
        if self.held_until.swap(until, Ordering::SeqCst) < self.clock.uptime_millis() {
            warn!(
                "the clock is further ahead than expected: answers kept for retries are kept for 24 hours more"
            );
        }
    }
}

/// The time, and the high-water mark.
///
/// # Errors
/// The database fails.
pub fn show(tx: &mut Tx<'_>, clock: &dyn Clock) -> Result<(Timestamp, Timestamp), Fault> {
    Ok((now(tx, clock)?, marked::mark(tx)?))
}

fn now(tx: &mut Tx<'_>, clock: &dyn Clock) -> Result<Timestamp, Fault> {
    match tx.backend() {
        Backend::Sqlite => Ok(clock.now()),
        Backend::Postgres => Ok(clock.database(servers::now(tx)?)),
    }
}

/// Sets the mark to the clock, and gives both.
///
/// # Errors
/// The database fails.
pub fn accept(tx: &mut Tx<'_>, clock: &dyn Clock, by: &Operator) -> Result<(Timestamp, Timestamp), Fault> {
    let (now, mark) = show(tx, clock)?;
    marked::accept(tx, now)?;
    let details = json!({ "from": mark, "to": now });
    let deed =
        Deed { action: "clock.accept", organization: None, environment: None, subject: "clock", details };
    audit::write(tx, by, &deed)?;
    Ok((now, now))
}

/// Refuses to decide at `now`, where decisions up to `mark` may have been made.
///
/// # Errors
/// The clock is behind.
pub fn must_not_be_behind(now: Timestamp, mark: Timestamp) -> Result<(), Fault> {
    match behind_millis(now, mark) {
        Some(behind_millis) => Err(Fault::ClockBehind { behind_millis }),
        None => Ok(()),
    }
}

/// By how many milliseconds the clock is behind the mark, where that is too far to decide by it.
#[must_use]
pub fn behind_millis(now: Timestamp, mark: Timestamp) -> Option<i64> {
    Some(mark.millis_since(now)).filter(|behind| *behind > BEHIND_MILLIS)
}
