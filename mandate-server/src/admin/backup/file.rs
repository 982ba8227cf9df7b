//! Files that get their name only when they are complete.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::admin::terminal;
use crate::error::Fault;
use crate::service::exports::Sha256Hex;

/// How much is read at a time, in bytes.
const CHUNK_BYTES: usize = 1024 * 1024;
/// How the name of a file begins that is not complete.
const UNFINISHED: &str = ".mandate-unfinished-";
/// How many characters `tempfile` draws behind it.
const RANDOM_CHARACTERS: usize = 6;

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(format!("{} cannot be used: {error}", path.display()))
}

/// The directory of a file.
pub(in crate::admin) fn directory(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// An empty file beside `to`, readable by its owner alone. It is deleted unless it gets a name. What killed processes
/// have left beside `to` is deleted first.
pub(super) fn unfinished(to: &Path) -> Result<NamedTempFile, Fault> {
    let directory = directory(to);
    unfinished_in(&directory).map_err(|e| unusable(&directory, &e))
}

/// The same, in a directory.
pub(in crate::admin) fn unfinished_in(directory: &Path) -> std::io::Result<NamedTempFile> {
    sweep(directory)?;
    loop {
        let file = NamedTempFile::with_prefix_in(UNFINISHED, directory)?;
        // The lock says that a process is at work on it. A sweep may have come before the lock.
        if file.as_file().try_lock().is_ok() && file.path().exists() {
            return Ok(file);
        }
    }
}

/// Whether `unfinished` is the only file in its directory that a process works on. A command that begins later finds this
/// one at work.
fn is_alone(unfinished: &NamedTempFile) -> Result<bool, Fault> {
    let directory = directory(unfinished.path());
    sweep(&directory).map(|at_work| at_work <= 1).map_err(|e| unusable(&directory, &e))
}

/// Deletes the unfinished files in a directory that no process works on, and what SQLite left beside them. Returns how
/// many files are worked on.
fn sweep(directory: &Path) -> std::io::Result<usize> {
    let (mut left, mut at_work) = (BTreeMap::<String, Vec<PathBuf>>::new(), 0);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let random = name.to_str().and_then(|name| name.strip_prefix(UNFINISHED)?.get(..RANDOM_CHARACTERS));
        if let Some(random) = random {
            left.entry(random.to_owned()).or_default().push(entry.path());
        }
    }
    for (random, paths) in left {
        match File::open(directory.join(format!("{UNFINISHED}{random}"))) {
            // The lock is released with the process that had it.
            Ok(file) if file.try_lock().is_err() => {
                at_work += 1;
                continue;
            }
            Err(e) if e.kind() != ErrorKind::NotFound => continue,
            _ => {}
        }
        for path in paths {
            clear(&path)?;
        }
    }
    Ok(at_work)
}

/// Makes a file's content durable. Returns its SHA-256 and size.
pub(super) fn synced(file: &NamedTempFile) -> Result<(String, u64), Fault> {
    file.as_file().sync_all().map_err(|e| unusable(file.path(), &e))?;
    digest(file.path())
}

/// The SHA-256 of a file, and its size.
pub(super) fn digest(path: &Path) -> Result<(String, u64), Fault> {
    copied(path, &mut std::io::sink())
}

/// Copies a file. Returns the SHA-256 and size of the copy.
pub(super) fn copied(from: &Path, to: &mut dyn std::io::Write) -> Result<(String, u64), Fault> {
    let mut file = File::open(from).map_err(|e| unusable(from, &e))?;
    let (mut hash, mut bytes, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK_BYTES]);
    loop {
        let read = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(unusable(from, &e)),
        };
        let piece = chunk.get(..read).unwrap_or_default();
        hash.update(piece);
        to.write_all(piece).map_err(|e| Fault::new(format!("the copy cannot be written: {e}")))?;
        bytes += u64::try_from(read).unwrap_or(0);
    }
    Ok((Sha256Hex(hash.finalize().into()).to_string(), bytes))
}

/// Gives a file its name, unless the name is in use.
pub(super) fn name(file: NamedTempFile, to: &Path) -> Result<(), Fault> {
    file.persist_noclobber(to).map_err(|e| unusable(to, &e.error))?;
    sync_directory(to)
}

/// Writes a small file, whole or not at all.
pub(super) fn write(to: &Path, text: &[u8]) -> Result<(), Fault> {
    let mut file = unfinished(to)?;
    let written = file.write_all(text).and_then(|()| file.as_file().sync_all());
    written.map_err(|e| unusable(to, &e))?;
    name(file, to)
}

/// The bytes of a small file, if it is there.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, Fault> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unusable(path, &e)),
    }
}

/// Deletes a file that an interrupted command left, and says so.
fn clear(path: &Path) -> std::io::Result<()> {
    fs::remove_file(path)?;
    terminal::note(&format!("deleted {}, which an interrupted command left", path.display()));
    Ok(())
}

/// Deletes the manifest of a backup that never got its name, unless another process may be about to give it that. The
/// caller has an unfinished file beside it.
pub(super) fn clear_orphan(manifest: &Path, backup: &Path, unfinished: &NamedTempFile) -> Result<(), Fault> {
    // In this order: one that is no longer at work has given its backup the name.
    let is_alone = is_alone(unfinished)?;
    if !manifest.exists() {
        return Ok(());
    }
    if backup.exists() {
        return Err(Fault::new(format!("{} exists; name another file", backup.display())));
    }
    if !is_alone {
        let message = "exists without its backup, and another command is at work in its directory; retry when that has ended";
        return Err(Fault::new(format!("{} {message}", manifest.display())));
    }
    clear(manifest).map_err(|e| unusable(manifest, &e))
}

/// Deletes a file that is not needed. A failure is ignored: no caller could act on it.
pub(super) fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

/// Makes the names in the directory of `path` durable.
pub(super) fn sync_directory(path: &Path) -> Result<(), Fault> {
    sync(&directory(path))
}

/// Makes the names in a directory durable.
pub(in crate::admin) fn sync(directory: &Path) -> Result<(), Fault> {
    File::open(directory).and_then(|opened| opened.sync_all()).map_err(|e| unusable(directory, &e))
}
