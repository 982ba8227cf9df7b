//! What an error of the database means for its transaction.

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::error::Fault;

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// The database has rolled the transaction back. Running it again may succeed.
    Again,
    /// As `Again`, because another transaction held a lock for too long.
    Locked,
    /// The connection cannot be used any more. Before COMMIT was sent, the transaction is gone; after that,
    /// its outcome is unknown.
    Reconnect,
    /// Trying again does not help.
    None,
}

/// An error, reported without the values that it may hold.
#[derive(Debug)]
pub(super) struct DatabaseError {
    pub(super) recovery: Recovery,
    pub(super) fault: Fault,
    /// Whether the database has ended a statement that took too long.
    pub(super) timed_out: bool,
    /// Whether the database grants no more connections.
    pub(super) is_refused: bool,
}

impl DatabaseError {
    /// The connection is lost or cannot be used any more.
    pub(super) fn lost(why: &str) -> Self {
        let fault = Fault::Unavailable(format!("database: {why}"));
        Self { recovery: Recovery::Reconnect, fault, timed_out: false, is_refused: false }
    }

    /// The same error where a statement that took too long has waited for a row that another transaction holds.
    pub(super) fn at_a_held_row(self) -> Self {
        if !self.timed_out {
            return self;
        }
        let fault = Fault::Overdue("database: a statement waited too long for a row".to_owned());
        Self { recovery: Recovery::Locked, fault, ..self }
    }

    /// Trying again does not help.
    pub(super) fn other(why: impl Into<String>) -> Self {
        Self::from(Fault::new(why))
    }
}

impl From<Fault> for DatabaseError {
    fn from(fault: Fault) -> Self {
        Self { recovery: Recovery::None, fault, timed_out: false, is_refused: false }
    }
}

impl From<Error> for DatabaseError {
    fn from(error: Error) -> Self {
        let message = match error.as_db_error() {
            Some(error) if is_unplaced(error) => format!(
                "database: {} has no partition for this time: run `mandate-server migrate` with the role that owns the tables",
                error.table().unwrap_or("a table")
            ),
            // The detail repeats values of rows: it is left out.
            Some(error) => format!("database: {} ({})", error.message(), error.code().code()),
            None => match std::error::Error::source(&error) {
                Some(source) => format!("database: {error}: {source}"),
                None => format!("database: {error}"),
            },
        };
        let recovery = match error.as_db_error() {
            Some(error) => recovery(error),
            None => Recovery::Reconnect,
        };
        let fault = match error.as_db_error() {
            Some(error) if is_unplaced(error) => Fault::Setup(message),
            Some(error) => fault(error.code(), recovery, message),
            None => Fault::Unavailable(message),
        };
        let timed_out = error.code() == Some(&SqlState::QUERY_CANCELED);
        let is_refused = error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS);
        Self { recovery, fault, timed_out, is_refused }
    }
}

/// The fault of an error with this code.
fn fault(code: &SqlState, recovery: Recovery, message: String) -> Fault {
    if *code == SqlState::INSUFFICIENT_PRIVILEGE || is_setup(code) {
        Fault::Setup(message)
    } else if *code == SqlState::DISK_FULL {
        Fault::DiskFull(message)
    } else if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code) {
        Fault::Corrupt(message)
    } else if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN].contains(code) {
        Fault::Schema(message)
    } else if recovery == Recovery::Locked {
        Fault::Overdue(message)
    } else if recovery == Recovery::Reconnect {
        Fault::Unavailable(message)
    } else {
        Fault::Internal(message)
    }
}

/// Whether the credentials are wrong, or the database is unknown.
fn is_setup(code: &SqlState) -> bool {
    matches!(code.code().get(..2), Some("28" | "3D"))
}

/// Whether a row belongs to a month without a partition. Any other such error names a constraint.
fn is_unplaced(error: &DbError) -> bool {
    *error.code() == SqlState::CHECK_VIOLATION && error.constraint().is_none()
}

fn recovery(error: &DbError) -> Recovery {
    let code = error.code();
    if *code == SqlState::LOCK_NOT_AVAILABLE {
        return Recovery::Locked;
    }
    let again = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
    if again.contains(code) {
        return Recovery::Again;
    }
    // The server has become a standby, a plan is older than the schema, or a pooler has forgotten a prepared
    // statement.
    let useless = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::TOO_MANY_CONNECTIONS,
    ];
    // Until an operator changes it.
    if is_setup(code) {
        return Recovery::None;
    }
    let gone = matches!(code.code().get(..2), Some("08" | "57")) && *code != SqlState::QUERY_CANCELED;
    let fatal = matches!(error.severity(), "FATAL" | "PANIC");
    if useless.contains(code) || gone || fatal { Recovery::Reconnect } else { Recovery::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_fault_follows_from_the_code_of_the_database() {
        for (code, recovery, kind, lasts) in [
            ("42501", Recovery::None, "setup", true),
            ("42501", Recovery::Reconnect, "setup", true),
            ("28000", Recovery::None, "setup", true),
            ("28P01", Recovery::None, "setup", true),
            ("3D000", Recovery::None, "setup", true),
            ("53100", Recovery::None, "disk_full", true),
            ("57P01", Recovery::Reconnect, "unavailable", true),
            ("XX001", Recovery::None, "corrupt", false),
            ("42P01", Recovery::None, "schema", false),
            ("42703", Recovery::None, "schema", false),
            ("57014", Recovery::None, "internal", false),
        ] {
            let fault = fault(&SqlState::from_code(code), recovery, String::new());
            assert_eq!((fault.kind(), fault.lasts()), (kind, lasts), "{code}");
            assert_eq!(fault.hides_the_database(), lasts, "{code}");
        }
    }
}
