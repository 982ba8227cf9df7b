//! Tells of another server on the same database.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;

/// What stands behind the database's name in that of the file that a server holds locked. The database file itself is
/// not to be opened beside SQLite: to close it again would give up SQLite's own locks.
const SUFFIX: &str = "-server";
const MODE: u32 = 0o600;

/// Held for as long as a server works on a database.
#[derive(Debug)]
pub(crate) struct Presence {
    held: Option<File>,
    among_others: bool,
}

impl Presence {
    /// Takes the place of the server at the database `path`.
    pub(super) fn take(path: &str) -> std::io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(MODE);
        let file = options.open(format!("{path}{SUFFIX}"))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { held: Some(file), among_others: false }),
            Err(TryLockError::WouldBlock) => Ok(Self { held: None, among_others: false }),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// A place among others, where that is as it should be: nobody is told of it.
    pub(in crate::store) fn among_others() -> Self {
        Self { held: None, among_others: true }
    }

    /// Whether another server was there, and nobody may have meant it.
    pub(crate) fn is_doubled(&self) -> bool {
        self.held.is_none() && !self.among_others
    }
}
