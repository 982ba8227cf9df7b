//! The COMMIT of a batch: what may follow one that has failed, and what is told of it.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, ffi};
use tracing::{debug, error};

/// What a caller hears once nothing is written any more.
pub(super) const STOPPED: &str = "the store has stopped after a failure of its disk; restart the server";
/// What is told of a log that stays as long as it is.
const NOT_FOLDED: &str = "the log cannot be folded into the database";
/// How often it is told in the log that transactions fail, in seconds. A fault is logged with its request all the same.
const TELL_SECONDS: u64 = 60;

/// Ends a transaction so that it is durable.
pub(in crate::store) type Commit = Box<dyn FnMut(&Connection) -> rusqlite::Result<()> + Send>;

/// Pages that the log may have before it is folded in.
const FOLDED_PAGES: c_int = 1000;

thread_local! {
    /// Why the log could not be folded in. SQLite tells of a COMMIT only that what follows it has failed.
    static UNFOLDED: Cell<Option<ffi::Error>> = const { Cell::new(None) };
}

/// As SQLite does it.
pub(in crate::store) fn commit() -> Commit {
    Box::new(|connection| {
        UNFOLDED.take();
        connection.execute_batch("COMMIT").map_err(|e| match UNFOLDED.take() {
            Some(why) => rusqlite::Error::SqliteFailure(why, Some(format!("{NOT_FOLDED}: {why}"))),
            None => e,
        })
    })
}

/// Folds the log into the database file once it is long, as SQLite does by itself; but SQLite passes over a failing disk then.
/// Here the COMMIT that it follows, on the same thread, is told to have failed, and the store stops. Whatever else is in the
/// way, the next COMMIT tries again.
pub(super) fn fold(wal: &mut Wal, pages: c_int) -> rusqlite::Result<()> {
    if pages < FOLDED_PAGES {
        return Ok(());
    }
    match wal.checkpoint() {
        Err(e) if e.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
            UNFOLDED.set(e.sqlite_error().copied());
            Err(e)
        }
        _ => Ok(()),
    }
}

/// Commits, until the disk fails.
pub(super) struct Committer {
    commit: Commit,
    stopped: Arc<AtomicBool>,
    told: Option<Instant>,
}

impl Committer {
    /// One that sets `stopped` when nothing may be written any more.
    pub(super) fn new(commit: Commit, stopped: Arc<AtomicBool>) -> Self {
        Self { commit, stopped, told: None }
    }

    /// Commits; says otherwise why not, and leaves nothing of the transaction behind.
    ///
    /// After an I/O error it is unknown what the kernel still holds of what was written: another fsync may succeed
    /// although it has dropped that. So nothing is written after it. A full disk is another matter: the write itself was
    /// refused, and the next one may find room.
    pub(super) fn commit(&mut self, connection: &Connection) -> Result<(), String> {
        let Err(e) = (self.commit)(connection) else { return Ok(()) };
        if e.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
            self.stop(connection, &e);
        } else {
            self.tell("a transaction could not be committed", &e);
        }
        if let Err(e) = connection.execute_batch("ROLLBACK") {
            debug!(error = %e, "nothing was left to roll back");
        }
        Err(format!("database: cannot commit: {e}"))
    }

    fn stop(&self, connection: &Connection, why: &rusqlite::Error) {
        self.stopped.store(true, Ordering::Release);
        error!(
            error = %why,
            "the disk failed while a transaction was committed: the store has stopped, and nothing is written any more; \
             look after the disk, then restart the server"
        );
        // To fold the log in at the end would be to write.
        if let Err(e) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            debug!(error = %e, "the log will be folded in at the end");
        }
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Logs that something has failed, unless that was logged a short while ago.
    pub(super) fn tell(&mut self, what: &str, why: &dyn std::fmt::Display) {
        if self.is_to_be_told(Instant::now()) {
            error!(reason = %why, more_after_seconds = TELL_SECONDS, "{what}");
        } else {
            debug!(reason = %why, "{what}");
        }
    }

    fn is_to_be_told(&mut self, now: Instant) -> bool {
        let interval = Duration::from_secs(TELL_SECONDS);
        let due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= interval);
        if due {
            self.told = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests;
