//! What an error of the database means for the transaction that met it.

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::error::Fault;

/// What is to be done about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// The transaction is gone, by the database's own word, and may go well when it is run again.
    Again,
    /// The same, where another transaction has held a lock for longer than this transaction waits.
    Held,
    /// The connection is of no use any more. Before COMMIT was sent the transaction is gone; after that its outcome is
    /// unknown.
    Reconnect,
    /// Nothing helps.
    None,
}

/// An error, told without the values that it may hold.
#[derive(Debug)]
pub(super) struct DatabaseError {
    pub(super) recovery: Recovery,
    pub(super) fault: Fault,
}

impl DatabaseError {
    /// The connection is lost, or of no use any more.
    pub(super) fn lost(why: &str) -> Self {
        Self { recovery: Recovery::Reconnect, fault: Fault::Unavailable(format!("database: {why}")) }
    }

    /// Nothing helps.
    pub(super) fn other(why: impl Into<String>) -> Self {
        Self { recovery: Recovery::None, fault: Fault::new(why) }
    }
}

impl From<Fault> for DatabaseError {
    fn from(fault: Fault) -> Self {
        Self { recovery: Recovery::None, fault }
    }
}

impl From<Error> for DatabaseError {
    fn from(error: Error) -> Self {
        let told = match error.as_db_error() {
            // Its detail repeats values of rows.
            Some(told) => format!("database: {} ({})", told.message(), told.code().code()),
            None => match std::error::Error::source(&error) {
                Some(source) => format!("database: {error}: {source}"),
                None => format!("database: {error}"),
            },
        };
        let recovery = match error.as_db_error() {
            Some(told) => recovery(told),
            None => Recovery::Reconnect,
        };
        let fault = match error.code() {
            Some(code) if *code == SqlState::DISK_FULL => Fault::DiskFull(told),
            Some(code) if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code) => {
                Fault::Corrupt(told)
            }
            _ if recovery == Recovery::Reconnect => Fault::Unavailable(told),
            _ => Fault::Internal(told),
        };
        Self { recovery, fault }
    }
}

fn recovery(error: &DbError) -> Recovery {
    let code = error.code();
    if *code == SqlState::LOCK_NOT_AVAILABLE {
        return Recovery::Held;
    }
    let again = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
    // A row whose place in a partitioned table was found before a partition was attached; no constraint is named then.
    let displaced = *code == SqlState::CHECK_VIOLATION && error.constraint().is_none();
    if again.contains(code) || displaced {
        return Recovery::Again;
    }
    // A server that has become a standby; a plan that was made before the schema changed; a statement that the pooler
    // in between has forgotten.
    let useless = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::TOO_MANY_CONNECTIONS,
    ];
    // Who it is, and which database: nothing that passes.
    if matches!(code.code().get(..2), Some("28" | "3D")) {
        return Recovery::None;
    }
    let gone = matches!(code.code().get(..2), Some("08" | "57")) && *code != SqlState::QUERY_CANCELED;
    let fatal = matches!(error.severity(), "FATAL" | "PANIC");
    if useless.contains(code) || gone || fatal { Recovery::Reconnect } else { Recovery::None }
}
