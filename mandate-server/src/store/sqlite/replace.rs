//! Another file in the place of a database: a crash at any instant leaves the old one or the new one, each with its log.
//!
//! The new file is whole and synced before it has the name `<database>.restoring-<time>`. From then on the new database
//! is the one that counts. What was there is renamed, then the names are synced, then the new file gets the database's
//! name: no log ever is beside a database that is not its own. The next process that claims a database and finds a file
//! of that name ends what was begun.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::beside::directory;
use crate::error::Fault;

/// What follows the database's name in that of the file which is to take its place; the time comes after it.
const PENDING: &str = ".restoring-";
/// The same for what was there before.
const ASIDE: &str = ".replaced-";
/// What SQLite keeps beside a database, and the database itself, which goes first: without it nothing reads the rest.
const BESIDE: [&str; 3] = ["", "-wal", "-shm"];

/// What changes names, one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    Rename { from: &'a Path, to: &'a Path },
    Sync(&'a Path),
}

fn take(step: Step<'_>) -> io::Result<()> {
    match step {
        Step::Rename { from, to } => fs::rename(from, to),
        Step::Sync(directory) => File::open(directory)?.sync_all(),
    }
}

/// The name of a whole, synced file that is to take the place of the database at `path`.
pub(in crate::store) fn pending_name(path: &str, time: &str) -> PathBuf {
    PathBuf::from(format!("{path}{PENDING}{time}"))
}

/// Whether a file waits to take the place of the database at `path`.
pub(super) fn is_pending(path: &str) -> Result<bool, Fault> {
    Ok(pending(path)?.is_some())
}

/// Puts the file that waits in the place of the database, if there is one. Says where that is now which was there before.
/// The caller has the database alone.
pub(in crate::store) fn finish(path: &str) -> Result<Option<PathBuf>, Fault> {
    finish_by(path, &mut take)
}

fn finish_by(path: &str, take: &mut dyn FnMut(Step<'_>) -> io::Result<()>) -> Result<Option<PathBuf>, Fault> {
    let Some((fresh, time)) = pending(path)? else { return Ok(None) };
    let aside = format!("{path}{ASIDE}{time}");
    let mut take = |step: Step<'_>| {
        take(step).map_err(|e| {
            Fault::new(format!(
                "database: {path} is not restored yet ({e}); the next process that opens it continues"
            ))
        })
    };
    for suffix in BESIDE {
        let (from, to) =
            (PathBuf::from(format!("{path}{suffix}")), PathBuf::from(format!("{aside}{suffix}")));
        if !is_there(&from)? {
            continue;
        }
        if is_there(&to)? {
            let (from, to) = (from.display(), to.display());
            return Err(Fault::new(format!(
                "database: {from} cannot be set aside, since {to} is there already"
            )));
        }
        take(Step::Rename { from: &from, to: &to })?;
    }
    // Otherwise the new name could be on disk before the old log has left its place.
    take(Step::Sync(directory(path)))?;
    take(Step::Rename { from: &fresh, to: Path::new(path) })?;
    take(Step::Sync(directory(path)))?;
    let aside = PathBuf::from(aside);
    Ok(is_there(&aside)?.then_some(aside))
}

/// The file that waits, and the time in its name.
fn pending(path: &str) -> Result<Option<(PathBuf, String)>, Fault> {
    let unusable =
        |e: io::Error| Fault::new(format!("database: the directory of {path} cannot be read: {e}"));
    let file = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let entries = match fs::read_dir(directory(path)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(unusable)?,
    };
    let mut found = None;
    for entry in entries {
        let entry = entry.map_err(unusable)?;
        let name = entry.file_name();
        let time = name.to_str().and_then(|name| name.strip_prefix(file)?.strip_prefix(PENDING));
        let Some(time) = time else { continue };
        if found.replace((entry.path(), time.to_owned())).is_some() {
            let message = "two files wait to take its place; leave the one that was meant";
            return Err(Fault::new(format!("database: {path}: {message}: see {file}{PENDING}*")));
        }
    }
    Ok(found)
}

fn is_there(path: &Path) -> Result<bool, Fault> {
    path.try_exists().map_err(|e| {
        Fault::new(format!("database: it cannot be read whether {} exists: {e}", path.display()))
    })
}

#[cfg(test)]
mod tests;
