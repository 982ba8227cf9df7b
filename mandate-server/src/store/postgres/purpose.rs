//! What a transaction is for, and its time limits.
//!
//! The limits are set in each transaction, with its BEGIN: a pooler in front of the database may give every
//! transaction another connection.

use std::time::Duration;

/// A transaction that writes. A read after a lock sees everything that was committed before the lock was
/// taken. A statement may take 5 seconds, 3 of them to get a lock. The database ends a transaction whose
/// server is silent for 5 seconds. A commit is on disk, and on the standby where the database waits for one.
const BEGIN_WRITING: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = on; \
     SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '3s'; \
     SET LOCAL idle_in_transaction_session_timeout = '5s'";
/// How long an answer may take in it, in seconds.
const WRITING_SECONDS: u64 = 6;

/// A transaction that reads one snapshot. An export writes a file between its statements.
const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '10s'; \
     SET LOCAL idle_in_transaction_session_timeout = '60s'";
/// How long an answer may take in it, in seconds.
const READING_SECONDS: u64 = 11;
/// How long an answer may take once another connection to the same host was silent for too long.
pub(super) const DOUBTFUL: Duration = Duration::from_secs(WRITING_SECONDS);

/// An operator's command that reads the whole database from one snapshot. It has no time limit.
const BEGIN_LOOKING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; \
     SET LOCAL idle_in_transaction_session_timeout = 0";

/// What happens when a lock is not granted in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Locks {
    /// The transaction is run again.
    Wait,
    /// The transaction is given up.
    Leave,
}

/// How the transaction of a successful script ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Commit,
    Rollback,
}

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To change data.
    Write,
    /// To answer from one snapshot.
    Read,
    /// To read everything, for an operator.
    Look,
}

impl Purpose {
    /// The statement that begins it.
    pub(super) fn begin(self) -> &'static str {
        match self {
            Self::Write => BEGIN_WRITING,
            Self::Read => BEGIN_READING,
            Self::Look => BEGIN_LOOKING,
        }
    }

    /// How long an answer may take before the connection counts as lost.
    pub(super) fn patience(self) -> Option<Duration> {
        match self {
            Self::Write => Some(Duration::from_secs(WRITING_SECONDS)),
            Self::Read => Some(Duration::from_secs(READING_SECONDS)),
            Self::Look => None,
        }
    }
}
