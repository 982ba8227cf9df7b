//! The lock of the one server that owns a database.
//!
//! It is a lock of the operating system on a file beside the database, which the death of the process releases. The
//! database file itself is not to be opened beside SQLite: to close it again would give up SQLite's own locks.

use std::fs::{File, Metadata, TryLockError};
use std::io::ErrorKind;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::warn;

use super::beside;
use crate::error::Fault;

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(100);
/// The suffix of the file, after the database's name.
const SUFFIX: &str = "-server";
/// The suffix of SQLite's write-ahead log.
const LOG_SUFFIX: &str = "-wal";
/// A process that has not written itself down.
const UNKNOWN: &str = "another process";
/// The longest text that is read from it, in bytes.
const MAX_TEXT: u64 = 512;

/// Held for as long as a server, or a command that needs the database for itself, works on it.
#[derive(Debug)]
pub struct Owner {
    path: String,
    /// Dropping it gives the lock up.
    lock: File,
    /// The file that is locked.
    locked: Known,
}

/// A file as it was found under its name.
#[derive(Debug, Clone)]
struct Known {
    name: String,
    /// Its file system, and its number there.
    identity: (u64, u64),
}

/// The files that make a database this process's: its lock, the database itself, and its write-ahead log.
#[derive(Debug, Clone)]
pub(super) struct Files(Arc<[Known; 3]>);

impl Known {
    fn of(name: &str, found: &Metadata) -> Self {
        Self { name: name.to_owned(), identity: (found.dev(), found.ino()) }
    }

    /// Whether it has the name still: a link to it has not. What cannot be looked at is taken to be there.
    fn is_found(&self) -> bool {
        match std::fs::symlink_metadata(&self.name) {
            Ok(found) => (found.dev(), found.ino()) == self.identity,
            Err(e) => e.kind() != ErrorKind::NotFound,
        }
    }
}

impl Files {
    /// Whether others find the same files. Where the lock was deleted or replaced, they take the database without waiting;
    /// where the database or its write-ahead log was, what is written is in a file that no other program finds.
    pub(super) fn are_found(&self) -> bool {
        self.0.iter().all(Known::is_found)
    }
}

impl Owner {
    /// Takes the database at `path`. Waits for `patience` while another process has it.
    ///
    /// # Errors
    /// Another process has it still; the fault names it. Or the file cannot be used.
    pub(in crate::store) fn take(path: &str, patience: Duration) -> Result<Self, Fault> {
        let name = format!("{path}{SUFFIX}");
        let unusable = |e| beside::unusable(&name, &e);
        let began = Instant::now();
        let mut waited = false;
        loop {
            let mut file = beside::open(&name).map_err(unusable)?;
            match file.try_lock() {
                Ok(()) => {
                    let locked = Known::of(&name, &file.metadata().map_err(unusable)?);
                    if locked.is_found() {
                        write(&mut file, "").map_err(unusable)?;
                        return Ok(Self { path: path.to_owned(), lock: file, locked });
                    }
                    // Deleted or replaced since it was opened. Others lock the file that has the name now.
                    continue;
                }
                Err(TryLockError::Error(e)) => return Err(unusable(e)),
                Err(TryLockError::WouldBlock) => {}
            }
            let owner = read(&mut file);
            if began.elapsed() >= patience {
                return Err(Fault::InUse(format!(
                    "database: {path} belongs to {owner}; one SQLite file serves one process: stop that one first, or \
                     use PostgreSQL for several servers"
                )));
            }
            if !waited {
                warn!(database = path, %owner, seconds = patience.as_secs(), "the database is in use: waiting for its end");
                waited = true;
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Writes down what this process does with the database.
    pub(in crate::store) fn say(&mut self, what: &str) -> Result<(), Fault> {
        write(&mut self.lock, &format!(", which {what}"))
            .map_err(|e| beside::unusable(&format!("{}{SUFFIX}", self.path), &e))
    }

    /// The files to look for, once the database has been read: its write-ahead log is there as long as it is open.
    pub(super) fn files(&self) -> Result<Files, Fault> {
        let known = |name: String| -> Result<Known, Fault> {
            let found = std::fs::symlink_metadata(&name).map_err(|e| beside::unusable(&name, &e))?;
            Ok(Known::of(&name, &found))
        };
        let (database, log) = (known(self.path.clone())?, known(format!("{}{LOG_SUFFIX}", self.path))?);
        Ok(Files(Arc::new([self.locked.clone(), database, log])))
    }

    /// The path of the database.
    pub(in crate::store) fn path(&self) -> &str {
        &self.path
    }
}

/// The process that owns the database at `path`, as it wrote itself down.
pub(super) fn written_down(path: &str) -> String {
    let file = beside::read(&format!("{path}{SUFFIX}"));
    file.map_or_else(|_| UNKNOWN.to_owned(), |mut file| read(&mut file))
}

/// Who has the lock, as it wrote itself down.
fn read(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(MAX_TEXT).read_to_string(&mut text));
    let text = text.trim();
    if read.is_err() || text.is_empty() { UNKNOWN.to_owned() } else { text.to_owned() }
}

/// Writes this process down, and what it does.
fn write(file: &mut File, what: &str) -> std::io::Result<()> {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "process {} on host {host}{what}", std::process::id())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use mandate_tests::wait::{DEADLINE, until};

    use super::*;

    /// How many files this process has open under that name.
    fn opened(name: &str) -> usize {
        let files = fs::read_dir("/proc/self/fd").unwrap();
        files
            .filter(|file| {
                fs::read_link(file.as_ref().unwrap().path()).is_ok_and(|of| of.to_str() == Some(name))
            })
            .count()
    }

    #[test]
    fn a_lock_that_is_replaced_while_it_is_waited_for_is_not_taken_for_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mandate.db").to_str().unwrap().to_owned();
        let name = format!("{path}{SUFFIX}");
        let first = Owner::take(&path, Duration::ZERO).unwrap();
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || Owner::take(&path, Duration::from_secs(1))
        });
        until(DEADLINE, "another waits", || (opened(&name) == 2).then_some(()));
        fs::remove_file(&name).unwrap();
        let second = Owner::take(&path, Duration::ZERO).unwrap();
        drop(first);
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), "in_use");
        assert!(second.locked.is_found());
        drop(second);
        Owner::take(&path, Duration::ZERO).unwrap();
    }
}
