//! What a transaction is for, and the bounds that go with it.
//!
//! The bounds are set in each transaction, with its BEGIN: a pooler between this program and the database may give every
//! transaction another connection.

use std::time::Duration;

/// A transaction that writes. What is read after a lock is what was committed before it was taken. A statement may take 5
/// seconds, a lock 3 of them; a server that says nothing for 5 seconds in the midst of one has no locks any more. What is
/// committed is on the disk, and on the standby where the database waits for one.
const BEGIN_WRITING: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = on; \
     SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '3s'; \
     SET LOCAL idle_in_transaction_session_timeout = '5s'";
/// How long an answer may take in one, in seconds.
const WRITING_SECONDS: u64 = 6;

/// A transaction that reads, over one snapshot. An export writes a file between its statements.
const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '10s'; \
     SET LOCAL idle_in_transaction_session_timeout = '60s'";
/// How long an answer may take in one, in seconds.
const READING_SECONDS: u64 = 11;
/// After how long without an answer one is given up where another connection to the same host has been.
pub(super) const DOUBTFUL: Duration = Duration::from_secs(WRITING_SECONDS);

/// An operator's command that reads the whole database, over one snapshot: it takes what it takes.
const BEGIN_LOOKING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0; \
     SET LOCAL idle_in_transaction_session_timeout = 0";

/// What is done about a lock that was not had in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Locks {
    /// The transaction is run again.
    Wait,
    /// It is given up.
    Leave,
}

/// How the transaction of a script that has succeeded ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Commit,
    Rollback,
}

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To change something.
    Write,
    /// To answer from one snapshot.
    Read,
    /// To read everything, for an operator.
    Look,
}

impl Purpose {
    /// What it begins with.
    pub(super) fn begin(self) -> &'static str {
        match self {
            Self::Write => BEGIN_WRITING,
            Self::Read => BEGIN_READING,
            Self::Look => BEGIN_LOOKING,
        }
    }

    /// How long an answer may take before the connection is held to be lost.
    pub(super) fn patience(self) -> Option<Duration> {
        match self {
            Self::Write => Some(Duration::from_secs(WRITING_SECONDS)),
            Self::Read => Some(Duration::from_secs(READING_SECONDS)),
            Self::Look => None,
        }
    }
}
