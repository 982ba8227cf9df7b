//! Draws the times and ids of decisions, and of every change that later decisions depend on. A script draws them
//! after it has locked the agent's row, never before.
//!
//! On SQLite the time is the server's. On PostgreSQL it is the database's, read by a statement that follows the lock.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mandate_core::{DecisionId, EventId, MandateId, Timestamp};
use serde_json::json;
use tracing::warn;

use super::audit::{self, AuditEntry, Operator};
use crate::clock::{Clock, Ids};
use crate::error::{Fault, Refusal};
use crate::model::call::ScriptError;
use crate::model::idempotency::KEPT_SECONDS;
use crate::store::sql::{clock as marked, events, exports, mandates, retention, servers};
use crate::store::tx::{Backend, Tx};

/// How far the clock may be behind the high-water mark before nothing is decided any more, in milliseconds.
pub const BEHIND_MILLIS: i64 = 5_000;
/// A clock that gains more than this on the machine's uptime suspends the deletion of kept answers, in milliseconds.
const STEP_MILLIS: i64 = 5_000;
/// A start later than this after the mark does so too, in milliseconds: an hour.
const LATE_START_MILLIS: i64 = 60 * 60 * 1_000;
/// How long the deletion is suspended, in milliseconds of uptime: as long as answers are kept.
const SUSPENDED_MILLIS: i64 = KEPT_SECONDS * 1_000;
/// How often the rest of a suspension is written down, in milliseconds: ten minutes.
const KEEP_MILLIS: i64 = 10 * 60 * 1_000;

/// Draws times and ids.
pub struct Moments {
    clock: Arc<dyn Clock>,
    ids: Arc<Ids>,
    /// The newest decision of all, where one server owns the database.
    newest: Mutex<Option<[u8; 16]>>,
    /// The end of the last month whose rows are deleted, in milliseconds.
    closed_until: AtomicI64,
    /// The clock less the uptime, when they were last compared.
    booted_at: AtomicI64,
    /// The uptime until which no kept answer is deleted.
    suspended_until: AtomicI64,
    /// How much of that was left when it was written down last, so that a restart does not end it.
    suspension_kept: AtomicI64,
    /// Whether the clock was behind its mark when they were last compared.
    is_behind: AtomicBool,
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Moments")
    }
}

impl Moments {
    /// Draws times from `clock`, and ids from `ids`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, ids: Arc<Ids>) -> Self {
        let booted_at = clock.now().millis().saturating_sub(clock.uptime_millis());
        let (booted_at, suspended_until) = (AtomicI64::new(booted_at), AtomicI64::new(i64::MIN));
        let (suspension_kept, is_behind) = (AtomicI64::new(0), AtomicBool::new(false));
        let (newest, closed_until) = (Mutex::new(None), AtomicI64::new(0));
        Self { clock, ids, newest, closed_until, booted_at, suspended_until, suspension_kept, is_behind }
    }

    /// The server's clock.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The source of ids.
    #[must_use]
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// The time of a change. The rows concerned are locked.
    ///
    /// # Errors
    /// The database fails.
    pub fn now(&self, tx: &mut Tx<'_>) -> Result<Timestamp, Fault> {
        now(tx, &*self.clock)
    }

    /// The time of a decision. The agent's row is locked.
    ///
    /// # Errors
    /// The clock is behind the high-water mark, or the database fails.
    pub fn deciding(&self, tx: &mut Tx<'_>) -> Result<Timestamp, Fault> {
        let (now, mark) = (self.now(tx)?, marked::mark(tx)?);
        must_not_be_behind(now, mark)?;
        self.leave_closed(retention::behind(tx)?);
        Ok(now)
    }

    /// By how many milliseconds the clock is behind the high-water mark. None while it may be used for decisions.
    ///
    /// # Errors
    /// The database fails.
    pub fn behind(&self, tx: &mut Tx<'_>) -> Result<Option<i64>, Fault> {
        Ok(behind_millis(self.now(tx)?, marked::mark(tx)?))
    }

    /// The id of a decision at `now`. It is greater than that of the agent's `last` decision, and greater than all
    /// if one server owns the database. It is in no closed month: a clock that was set back into one and accepted would have
    /// the month be closed again.
    #[must_use]
    pub fn decision(&self, last: Option<DecisionId>, now: Timestamp) -> DecisionId {
        let now = now.max(Timestamp::from_millis(self.closed_until.load(Ordering::SeqCst)));
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.map(DecisionId::to_bytes);
        let id = self.ids.after(last.max(*newest), now);
        if let Some(newest) = &mut *newest {
            *newest = id;
        }
        DecisionId::from_bytes(id)
    }

    /// The id of an event of what happened at `at`, drawn once everything else is written. It is greater than all that
    /// are stored in the environment: on PostgreSQL another server may have drawn them, by a clock that was set back
    /// since.
    ///
    /// # Errors
    /// The database fails.
    pub fn event(&self, tx: &mut Tx<'_>, environment: i64, at: Timestamp) -> Result<EventId, Fault> {
        if tx.backend() == Backend::Sqlite {
            return Ok(self.event_after(None, at));
        }
        let (newest, shown) = events::newest(tx, environment)?;
        Ok(self.event_after(newest, at.max(self.clock.database(shown))))
    }

    /// The id of an event at `at`, greater than `newest` and than all that this server has drawn.
    #[must_use]
    pub fn event_after(&self, newest: Option<[u8; 16]>, at: Timestamp) -> EventId {
        self.ids.follow(newest.unwrap_or_default());
        EventId::from_bytes(self.ids.next(at))
    }

    /// The id of a mandate that is written at `now`, greater than all that are stored in the environment.
    ///
    /// # Errors
    /// The database fails.
    pub fn mandate(&self, tx: &mut Tx<'_>, environment: i64, now: Timestamp) -> Result<MandateId, Fault> {
        if tx.backend() == Backend::Postgres {
            self.ids.follow(mandates::newest(tx, environment)?.unwrap_or_default());
        }
        Ok(MandateId::from_bytes(self.ids.next(now)))
    }

    /// From now on each decision's id is greater than all earlier ones, and greater than `newest`. All other ids are
    /// greater than `others`.
    pub fn follow(&self, newest: Option<DecisionId>, others: Option<[u8; 16]>) {
        self.ids.follow(others.unwrap_or_default());
        let newest = newest.map_or([0; 16], DecisionId::to_bytes);
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(newest);
    }

    /// From now on each decision's id is `behind` or later, the first id after all closed months.
    pub fn leave_closed(&self, behind: Option<DecisionId>) {
        let until = behind.map_or(0, |behind| behind.created_at().millis());
        self.closed_until.fetch_max(until, Ordering::SeqCst);
    }

    /// Suspends the deletion of kept answers if the server starts long after the last decision. Either it was not
    /// running, or the clock is ahead. A suspension goes on after a restart. Logs a warning if the clock is behind.
    ///
    /// # Errors
    /// The database fails.
    pub fn begin(&self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        // The database's clock may have corrected this one since it was first read. That is no step.
        let booted_at = self.clock.now().millis().saturating_sub(self.clock.uptime_millis());
        self.booted_at.store(booted_at, Ordering::SeqCst);
        let (now, mark) = (self.now(tx)?, marked::mark(tx)?);
        let held = marked::held(tx)?;
        self.suspension_kept.store(held, Ordering::SeqCst);
        if held > 0 {
            self.suspended_until.store(self.clock.uptime_millis().saturating_add(held), Ordering::SeqCst);
        }
        if mark > Timestamp::from_millis(0) && now.millis_since(mark) > LATE_START_MILLIS {
            self.suspend();
        }
        self.warn_if_behind(now, mark);
        Ok(())
    }

    /// Compares the clock with its mark, and logs a warning when it has fallen behind.
    ///
    /// # Errors
    /// The database fails.
    pub fn compare(&self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        let (now, mark) = (self.now(tx)?, marked::mark(tx)?);
        self.warn_if_behind(now, mark);
        Ok(())
    }

    fn warn_if_behind(&self, now: Timestamp, mark: Timestamp) {
        let refused = must_not_be_behind(now, mark).err();
        let was_behind = self.is_behind.swap(refused.is_some(), Ordering::SeqCst);
        if let Some(fault) = refused.filter(|_| !was_behind) {
            warn!(kind = fault.kind(), reason = %fault, "authorizations, approvals and new escrows are refused");
        }
    }

    /// For how many more milliseconds of uptime the deletion is suspended, if that is to be written down: it is new, or
    /// much less than what was written. Before it is what was written.
    #[must_use]
    pub fn hold_to_keep(&self) -> Option<(i64, i64)> {
        let (until, kept) =
            (self.suspended_until.load(Ordering::SeqCst), self.suspension_kept.load(Ordering::SeqCst));
        let left = until.saturating_sub(self.clock.uptime_millis()).max(0);
        let is_less = kept.saturating_sub(left) >= KEEP_MILLIS || left == 0 && kept > 0;
        (left > kept || is_less).then_some((kept, left))
    }

    /// Writes down what [`Self::hold_to_keep`] says. A longer suspension of another server stays.
    ///
    /// # Errors
    /// The database fails.
    pub fn keep_hold(tx: &mut Tx<'_>, (kept, left): (i64, i64)) -> Result<(), Fault> {
        marked::hold(tx, kept, left)
    }

    /// Notes that it was written.
    pub fn hold_is_kept(&self, left: i64) {
        self.suspension_kept.store(left, Ordering::SeqCst);
    }

    /// The instant by which kept answers expire. It is the present time, or 1970 while the deletion is suspended
    /// because the clock may be ahead.
    #[must_use]
    pub fn forgetting(&self) -> Timestamp {
        let (now, uptime) = (self.clock.now(), self.clock.uptime_millis());
        let booted_at = now.millis().saturating_sub(uptime);
        let before = self.booted_at.swap(booted_at, Ordering::SeqCst);
        if booted_at.saturating_sub(before) > STEP_MILLIS {
            self.suspend();
        }
        if uptime < self.suspended_until.load(Ordering::SeqCst) { Timestamp::from_millis(0) } else { now }
    }

    fn suspend(&self) {
        let until = self.clock.uptime_millis().saturating_add(SUSPENDED_MILLIS);
        if self.suspended_until.swap(until, Ordering::SeqCst) < self.clock.uptime_millis() {
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

/// Sets the mark to the clock, which is behind it. Returns both, and the number of exports whose period is open again.
///
/// # Errors
/// The clock is not behind, so that decisions are made, or the database fails.
pub fn accept(
    tx: &mut Tx<'_>,
    clock: &dyn Clock,
    by: &Operator,
) -> Result<(Timestamp, Timestamp, usize), ScriptError> {
    let (now, mark) = show(tx, clock)?;
    if behind_millis(now, mark).is_none() {
        let message =
            format!("the clock is not behind: it shows {now}, and its mark is {mark}; nothing to accept");
        return Err(Refusal::invalid(message).into());
    }
    marked::accept(tx, now)?;
    let reopened = exports::reopen(tx, now)?;
    let details = json!({ "from": mark, "to": now, "exports_reopened": reopened });
    let entry = AuditEntry {
        action: "clock.accept",
        organization: None,
        environment: None,
        subject: "clock",
        details,
    };
    audit::write(tx, by, &entry)?;
    Ok((now, now, reopened))
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

/// By how many milliseconds the clock is behind the mark. None while it may be used for decisions.
#[must_use]
pub fn behind_millis(now: Timestamp, mark: Timestamp) -> Option<i64> {
    Some(mark.millis_since(now)).filter(|behind| *behind > BEHIND_MILLIS)
}
