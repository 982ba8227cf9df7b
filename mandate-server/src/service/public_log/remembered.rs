//! The last signed checkpoint of each log: in the database, in a file outside of it, and in the server's memory, since a database
//! that was restored does not know what was published after its backup.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use mandate_core::EnvironmentKind;
use mandate_core::log::SignedCheckpoint;
use tempfile::NamedTempFile;

use super::seen::Seen;
use super::{keys, publish};
use crate::error::Fault;
use crate::store::sql::public_log::PublicLog;
use crate::store::tx::Tx;

/// The files: `sandbox` is of the first log of that kind, `sandbox-2` of the second.
#[derive(Debug, Clone)]
pub struct Remembered {
    directory: Option<PathBuf>,
    seen: Seen,
}

impl Remembered {
    /// Those in `directory`, which is made when the first is written. Without one only the database remembers, and this server
    /// while it runs.
    #[must_use]
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, seen: Seen::default() }
    }

    /// The last checkpoint that was signed for a log: the greater one of the database's and the file's.
    ///
    /// # Errors
    /// The file cannot be read, or one of them is damaged.
    pub fn last(&self, log: &PublicLog) -> Result<Option<SignedCheckpoint>, Fault> {
        let (known, written) = (publish::last(log)?, self.in_file(log)?);
        let size = |last: &SignedCheckpoint| last.checkpoint().size();
        // Of one size, the database's has the cosignatures.
        Ok(if written.as_ref().map(size) > known.as_ref().map(size) { written } else { known })
    }

    /// The checkpoint in the file of a log.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn in_file(&self, log: &PublicLog) -> Result<Option<SignedCheckpoint>, Fault> {
        self.path(log).map_or(Ok(None), |path| read(&path))
    }

    /// The newest log of a kind that has a file: its number, and its last checkpoint.
    ///
    /// # Errors
    /// The directory or the file cannot be read.
    pub fn newest(&self, kind: EnvironmentKind) -> Result<Option<(u64, SignedCheckpoint)>, Fault> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let unreadable = |e: &std::io::Error| unusable("read", directory, e);
        let files = match fs::read_dir(directory) {
            Ok(files) => files,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(unreadable(&e)),
        };
        let mut newest = None;
        for file in files {
            let name = file.map_err(|e| unreadable(&e))?.file_name();
            newest = newest.max(name.to_str().and_then(|name| number_of(name, kind)));
        }
        let Some(number) = newest else { return Ok(None) };
        Ok(read(&directory.join(name(kind, number)))?.map(|last| (number, last)))
    }

    /// Why the newest log in a database must not grow: another has begun in its place, or it does not have what was signed.
    ///
    /// # Errors
    /// The directory, a file or the database cannot be read, or one of them is damaged.
    pub fn contradicts(&self, tx: &mut Tx<'_>, log: &PublicLog) -> Result<Option<String>, Fault> {
        let later = self.newest(log.kind)?.filter(|(number, _)| *number > keys::number(&log.origin));
        if let Some((_, later)) = later {
            let later = later.checkpoint().origin();
            return Ok(Some(format!("{later} was published in place of this log: it was restored")));
        }
        let (known, written) = (publish::last(log)?, self.in_file(log)?);
        let is_known = |written: &SignedCheckpoint| {
            known.as_ref().is_some_and(|known| known.checkpoint() == written.checkpoint())
        };
        for last in written.filter(|written| !is_known(written)).iter().chain(&known) {
            if let Some(why) = publish::behind(tx, log, last)? {
                return Ok(Some(why));
            }
        }
        let forgotten = self.forgotten(tx, log)?;
        if let Some(known) = known.filter(|_| forgotten.is_none()) {
            self.seen.see(log.kind, &known);
        }
        Ok(forgotten)
    }

    /// The same by what this server has seen alone.
    ///
    /// # Errors
    /// The database fails, or is damaged.
    pub fn forgotten(&self, tx: &mut Tx<'_>, log: &PublicLog) -> Result<Option<String>, Fault> {
        self.seen.contradicts(tx, log)
    }

    /// Writes down what was signed, before it is published. A server that was slow takes nothing back.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn remember(&self, log: &PublicLog, signed: &SignedCheckpoint) -> Result<(), Fault> {
        self.seen.see(log.kind, signed);
        let Some(path) = self.path(log) else { return Ok(()) };
        let size = signed.checkpoint().size();
        let is_older = |last: SignedCheckpoint| {
            last.checkpoint().origin() != log.origin || last.checkpoint().size() < size
        };
        if read(&path)?.is_none_or(is_older) { put(&path, signed) } else { Ok(()) }
    }

    /// Has the file say again what it said before a checkpoint was signed that all witnesses have refused, and forgets that one. If
    /// the file says something else by now, it stays.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn put_back(
        &self,
        log: &PublicLog,
        refused: &SignedCheckpoint,
        before: Option<&SignedCheckpoint>,
    ) -> Result<(), Fault> {
        self.seen.forget(log.kind, refused);
        let Some(path) = self.path(log) else { return Ok(()) };
        if read(&path)?.as_ref() != Some(refused) {
            return Ok(());
        }
        match before {
            Some(before) => put(&path, before),
            None => fs::remove_file(&path).map_err(|e| unusable("removed", &path, &e)),
        }
    }

    fn path(&self, log: &PublicLog) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(name(log.kind, keys::number(&log.origin))))
    }
}

/// The name of the file of log number `number` of a kind.
fn name(kind: EnvironmentKind, number: u64) -> String {
    if number == 1 { kind.as_str().to_owned() } else { format!("{kind}-{number}") }
}

fn number_of(file: &str, kind: EnvironmentKind) -> Option<u64> {
    let number = match file.strip_prefix(kind.as_str())? {
        "" => 1,
        rest => rest.strip_prefix('-')?.parse().ok()?,
    };
    (name(kind, number) == file).then_some(number)
}

fn read(path: &Path) -> Result<Option<SignedCheckpoint>, Fault> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unusable("read", path, &e)),
    };
    let parsed = SignedCheckpoint::parse(&bytes);
    parsed.map(Some).map_err(|e| Fault::corrupt(format!("the last checkpoint in {}: {e}", path.display())))
}

fn put(path: &Path, signed: &SignedCheckpoint) -> Result<(), Fault> {
    write(path, signed.to_string().as_bytes()).map_err(|e| unusable("written", path, &e))
}

/// A file that is there whole, or as it was before.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory)?;
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    fs::File::open(directory)?.sync_all()
}

fn unusable(done: &str, path: &Path, error: &std::io::Error) -> Fault {
    Fault::of_file(format!("the last checkpoint in {} cannot be {done}: {error}", path.display()), error)
}
