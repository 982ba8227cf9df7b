//! Detects another server on the same database.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;

/// The suffix of the file that a server keeps locked, after the database's name. The database file itself is
/// not to be opened beside SQLite: to close it again would give up SQLite's own locks.
const SUFFIX: &str = "-server";
const MODE: u32 = 0o600;

/// Held for as long as a server works on a database.
#[derive(Debug)]
pub(super) struct Presence {
    file: File,
    taken: bool,
}

impl Presence {
    /// Takes the place of the server at the database `path`, if no other has it.
    pub(super) fn take(path: &str) -> std::io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(MODE);
        let mut presence = Self { file: options.open(format!("{path}{SUFFIX}"))?, taken: false };
        presence.try_again()?;
        Ok(presence)
    }

    /// Takes the place, if it is free by now; says whether it is taken.
    pub(super) fn try_again(&mut self) -> std::io::Result<bool> {
        self.taken |= match self.file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(e)) => return Err(e),
        };
        Ok(self.taken)
    }

    /// Whether another server was there.
    pub(super) fn is_doubled(&self) -> bool {
        !self.taken
    }
}
