//! Tells of another server on the same database.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;

/// What stands behind the database's name in that of the file that a server holds locked. The database file itself is
/// not to be opened beside SQLite: to close it again would give up SQLite's own locks.
const SUFFIX: &str = "-server";
const MODE: u32 = 0o600;

/// Held for as long as a server works on a database.
#[derive(Debug)]
pub(crate) struct Presence(Option<File>);

impl Presence {
    /// Takes the place of the server at the database `path`.
    pub(super) fn take(path: &str) -> std::io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(MODE);
        let file = options.open(format!("{path}{SUFFIX}"))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(Some(file))),
            Err(TryLockError::WouldBlock) => Ok(Self(None)),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Whether no other server was there.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.is_some()
    }
}
