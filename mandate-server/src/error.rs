//! The two ways in which a request fails: a refusal (4xx), which is an answer like any other, and a fault (5xx).

mod repeated;

use mandate_core::Invalid;

pub use repeated::Repeated;

/// The closed set of refusal codes of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The request is malformed, or cannot be carried out as it is.
    InvalidRequest,
    /// The key is missing or revoked.
    Unauthorized,
    /// The key is of the wrong class.
    Forbidden,
    /// There is no such object for this caller.
    NotFound,
    /// An agent of that name exists.
    NameTaken,
    /// The idempotency key was used with another request.
    IdempotencyConflict,
    /// The key has used up its rate.
    RateLimited,
}

impl Code {
    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::NameTaken | Self::IdempotencyConflict => 409,
            Self::RateLimited => 429,
        }
    }

    /// The code, as the error envelope carries it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::NameTaken => "name_taken",
            Self::IdempotencyConflict => "idempotency_conflict",
            Self::RateLimited => "rate_limited",
        }
    }
}

/// A 4xx: what the caller can correct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of refusal.
    pub code: Code,
    /// What is wrong and what would be accepted.
    pub message: String,
}

impl Refusal {
    /// A refusal with a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// 400 for the reason given.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message)
    }

    /// The one 404: it is the same for an absent object and for one that belongs to someone else.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "no such object")
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::invalid(invalid.to_string())
    }
}

/// A 5xx: what went wrong on this side, by what an operator can do about it. The text goes to the log, never to the
/// caller, and holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The database cannot be reached or opened, or the connection to it was lost. It may come back by itself.
    #[error("{0}")]
    Unavailable(String),
    /// The disk of the database, or of the exports, is full. Writing goes on when there is room again.
    #[error("{0}")]
    DiskFull(String),
    /// The disk of the database has failed. After a COMMIT that failed so, nothing is written until the server is
    /// restarted.
    #[error("{0}")]
    DiskFailed(String),
    /// The work waited too long for a thread of the store, or for a lock. Nothing happened.
    #[error("{0}")]
    Overdue(String),
    /// Too much waits already. Nothing happened.
    #[error("{0}")]
    Full(String),
    /// No key can sign: there is none of that kind, or it does not open under this server's master key.
    #[error("{0}")]
    NoSigningKey(String),
    /// The database lacks what an operator sets up: a partition, a grant, the role with its password, or the database itself.
    #[error("{0}")]
    Setup(String),
    /// The database has a schema that this program does not accept.
    #[error("{0}")]
    Schema(String),
    /// A stored value cannot be read or contradicts another: `mandate-server check` finds others.
    #[error("{0}")]
    Corrupt(String),
    /// The clock is behind its mark: the latest instant decided by, at most a second more. Nothing is decided by it.
    #[error(
        "the clock is {behind_millis} ms behind its mark (the latest instant decided by, at most a second more): nothing is decided until it has caught up, or `mandate-server clock accept` is run"
    )]
    ClockBehind {
        /// By how many milliseconds.
        behind_millis: i64,
    },
    /// Another process has the database's file.
    #[error("{0}")]
    InUse(String),
    /// An address cannot be listened on.
    #[error("{0}")]
    Listen(String),
    /// The provider that settles escrows does not answer, or not as it should. The instruction is sent again.
    #[error("{0}")]
    Provider(String),
    /// Anything else.
    #[error("{0}")]
    Internal(String),
}

impl Fault {
    /// A fault that no caller or operator has to tell from others, described by `what`, which must hold no secret.
    pub fn new(what: impl Into<String>) -> Self {
        Self::Internal(what.into())
    }

    /// A file beside the database that cannot be written, described by `what`, which must hold no secret.
    #[must_use]
    pub fn of_file(what: String, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::DiskFull(what),
            _ => Self::Internal(what),
        }
    }

    /// A stored value that cannot be read or contradicts another, described by `what`, which must hold no secret.
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }

    /// Whether it says nothing about the contents of the database: they could not be looked at.
    #[must_use]
    pub fn hides_the_database(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_)
                | Self::DiskFull(_)
                | Self::DiskFailed(_)
                | Self::Overdue(_)
                | Self::Full(_)
                | Self::Setup(_)
        )
    }

    /// Whether it comes from a condition that lasts, and so is the same for every request meanwhile.
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.hides_the_database() || matches!(self, Self::ClockBehind { .. } | Self::NoSigningKey(_))
    }

    /// The variant, as the field `kind` of a log line carries it, so that alerts can tell faults apart.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::DiskFull(_) => "disk_full",
            Self::DiskFailed(_) => "disk_failed",
            Self::Overdue(_) => "overdue",
            Self::Full(_) => "full",
            Self::NoSigningKey(_) => "no_signing_key",
            Self::Setup(_) => "setup",
            Self::Schema(_) => "schema",
            Self::Corrupt(_) => "corrupt",
            Self::ClockBehind { .. } => "clock_behind",
            Self::InUse(_) => "in_use",
            Self::Listen(_) => "listen",
            Self::Provider(_) => "provider",
            Self::Internal(_) => "internal",
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Sqlite;
        let what = format!("database: {error}");
        let extended = error.sqlite_error().map(|error| error.extended_code);
        if extended == Some(rusqlite::ffi::SQLITE_READONLY_ROLLBACK) {
            // Only a connection that may write can take back what a killed process left behind.
            return Self::Unavailable(format!(
                "{what}: a process was killed while it changed the file; start the server, or run `mandate-server migrate`, \
                 to take that change back"
            ));
        }
        if extended == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) {
            return Self::DiskFailed(format!(
                "{what}: there may be no room for the file beside the database whose name ends in -shm, which SQLite needs to \
                 read it"
            ));
        }
        match error.sqlite_error_code() {
            Some(Sqlite::DiskFull) => Self::DiskFull(what),
            Some(Sqlite::SystemIoFailure) => Self::DiskFailed(what),
            Some(Sqlite::DatabaseCorrupt | Sqlite::NotADatabase) => Self::Corrupt(what),
            Some(
                Sqlite::CannotOpen
                | Sqlite::DatabaseBusy
                | Sqlite::DatabaseLocked
                | Sqlite::FileLockingProtocolFailed
                | Sqlite::OutOfMemory
                | Sqlite::PermissionDenied
                | Sqlite::ReadOnly,
            ) => Self::Unavailable(what),
            _ => Self::Internal(what),
        }
    }
}

impl From<Invalid> for Fault {
    fn from(invalid: Invalid) -> Self {
        Self::Corrupt(format!("a stored value is not valid: {invalid}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn the_kind_of_a_fault_follows_from_the_error_of_the_database() {
        for (code, kind) in [
            (ffi::SQLITE_FULL, "disk_full"),
            (ffi::SQLITE_CORRUPT, "corrupt"),
            (ffi::SQLITE_NOTADB, "corrupt"),
            (ffi::SQLITE_BUSY, "unavailable"),
            (ffi::SQLITE_CANTOPEN, "unavailable"),
            (ffi::SQLITE_READONLY, "unavailable"),
            (ffi::SQLITE_READONLY_ROLLBACK, "unavailable"),
            (ffi::SQLITE_IOERR_SHMSIZE, "disk_failed"),
            (ffi::SQLITE_ERROR, "internal"),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(Fault::from(error).kind(), kind, "{code}");
        }
        for (kind, wanted) in [
            (std::io::ErrorKind::StorageFull, "disk_full"),
            (std::io::ErrorKind::QuotaExceeded, "disk_full"),
            (std::io::ErrorKind::PermissionDenied, "internal"),
        ] {
            assert_eq!(Fault::of_file("an export".to_owned(), &kind.into()).kind(), wanted);
        }
        let code = ffi::Error::new(ffi::SQLITE_IOERR_SHMSIZE);
        let fault = Fault::from(rusqlite::Error::SqliteFailure(code, None)).to_string();
        assert!(
            fault.contains("no room for the file beside the database whose name ends in -shm"),
            "{fault}"
        );
    }
}
