//! The COMMIT of a batch: what may follow one that has failed, and what is logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use tracing::{debug, error};

use super::checkpoint::{self, Checkpoint};
use crate::error::Fault;

/// What a caller gets once nothing is written any more.
pub(super) fn stopped() -> Fault {
    Fault::DiskFailed("the store has stopped: the log says why. Then restart the server".to_owned())
}

/// What is logged of a WAL that cannot become shorter.
const NOT_CHECKPOINTED: &str = "the log cannot be checkpointed into the database";
/// The shortest time between two log lines about failing transactions, in seconds. Each request logs its own fault.
const LOG_SECONDS: u64 = 60;

/// Ends a transaction so that it is durable.
pub(in crate::store) type Commit = Box<dyn FnMut(&Connection) -> rusqlite::Result<()> + Send>;

/// As SQLite does it.
fn commit() -> Commit {
    Box::new(|connection| {
        checkpoint::failed();
        connection.execute_batch("COMMIT").map_err(|e| match checkpoint::failed() {
            Some(why) => rusqlite::Error::SqliteFailure(why, Some(format!("{NOT_CHECKPOINTED}: {why}"))),
            None => e,
        })
    })
}

/// How what is written comes onto the disk.
pub(in crate::store) struct Disk {
    pub(in crate::store) commit: Commit,
    pub(in crate::store) checkpoint: Checkpoint,
}

impl Disk {
    /// As SQLite does it.
    pub(in crate::store) fn new() -> Self {
        Self { commit: commit(), checkpoint: checkpoint::checkpoint() }
    }
}

/// Commits, until the disk fails.
pub(super) struct Committer {
    commit: Commit,
    stopped: Arc<AtomicBool>,
    logged: Option<Instant>,
}

impl Committer {
    /// One that sets `stopped` when nothing may be written any more.
    pub(super) fn new(commit: Commit, stopped: Arc<AtomicBool>) -> Self {
        Self { commit, stopped, logged: None }
    }

    /// Commits; says otherwise why not, and leaves nothing of the transaction behind.
    ///
    /// After an I/O error it is unknown what the kernel still holds of what was written: another fsync may succeed
    /// although it has dropped that. So nothing is written after it. A full disk is another matter: the write itself was
    /// refused, and the next one may find room.
    pub(super) fn commit(&mut self, connection: &Connection) -> Result<(), Fault> {
        if self.has_stopped() {
            // The disk has failed elsewhere, since the transaction began.
            roll_back(connection);
            return Err(stopped());
        }
        let Err(e) = (self.commit)(connection) else { return Ok(()) };
        if e.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
            stop(&self.stopped, "a transaction was committed", &e);
        } else {
            self.log("a transaction could not be committed", &e);
        }
        roll_back(connection);
        let what = format!("database: cannot commit: {e}");
        Err(match e.sqlite_error_code() {
            Some(ErrorCode::SystemIoFailure) => Fault::DiskFailed(what),
            Some(ErrorCode::DiskFull) => Fault::DiskFull(what),
            _ => Fault::Internal(what),
        })
    }

    /// Another server may have the database, or what is written would be lost: nothing is written any more. Logged once.
    pub(super) fn lost(&self) {
        if !self.stopped.swap(true, Ordering::AcqRel) {
            error!(
                "the database's file, its write-ahead log, or the file that locks it for this server was deleted or replaced while it ran: the store \
                 has stopped, and nothing is written any more; end all other servers on the database, then restart this one"
            );
        }
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Logs that something has failed, unless that was logged a short while ago.
    pub(super) fn log(&mut self, what: &str, why: &dyn std::fmt::Display) {
        if self.is_to_be_logged(Instant::now()) {
            error!(reason = %why, more_after_seconds = LOG_SECONDS, "{what}");
        } else {
            debug!(reason = %why, "{what}");
        }
    }

    fn is_to_be_logged(&mut self, now: Instant) -> bool {
        let interval = Duration::from_secs(LOG_SECONDS);
        let due = self.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= interval);
        if due {
            self.logged = Some(now);
        }
        due
    }
}

fn roll_back(connection: &Connection) {
    if let Err(e) = connection.execute_batch("ROLLBACK") {
        debug!(error = %e, "nothing was left to roll back");
    }
}

/// The disk has failed: nothing is written any more. Logged once.
pub(super) fn stop(stopped: &AtomicBool, during: &str, why: &rusqlite::Error) {
    if !stopped.swap(true, Ordering::AcqRel) {
        error!(
            error = %why,
            "the disk failed while {during}: the store has stopped, and nothing is written any more; look after the disk, \
             then restart the server"
        );
    }
}

/// Leaves the log as it is when the connection is closed: a checkpoint would write.
pub(super) fn leave(connection: &Connection) {
    if let Err(e) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
        debug!(error = %e, "the log will be checkpointed when the connection closes");
    }
}

#[cfg(test)]
mod tests;
