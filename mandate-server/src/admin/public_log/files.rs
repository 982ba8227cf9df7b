//! A log as files, under the names that the public listener uses.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use mandate_core::EnvironmentKind;
use mandate_core::log::Tile;
use tempfile::NamedTempFile;

use crate::error::Fault;
use crate::service::public_log::{append, keys, operated, serve};
use crate::store::upkeep;

/// Writes the published part of a log, the newest or the one of this number: its checkpoint behind its tiles, and of a log that
/// has ended the key of the next one. Full tiles that are there stay. Gives how many entries there are and how many files were
/// written; none without a checkpoint. The key is first: it says whose files these are.
pub(super) fn write(
    database: &str,
    (kind, number): (EnvironmentKind, Option<u64>),
    directory: &Path,
) -> Result<Option<(u64, u64)>, Fault> {
    upkeep::snapshot(database, |tx| {
        let (log, checkpoint) = operated::published(tx, kind, number)?;
        let Some(checkpoint) = checkpoint else { return Ok(None) };
        let (size, mut written) = (checkpoint.checkpoint().size(), 0);
        let key = format!("{}\n", log.verifier_key);
        must_be_of(directory, &key)?;
        put(&directory.join("key"), key.as_bytes())?;
        for tile in Tile::between(0, size) {
            let place = directory.join(tile.path());
            if tile.is_full() && place.exists() {
                continue;
            }
            put(&place, &serve::read_tile(tx, &log, tile)?)?;
            written += 1;
        }
        let keys = append::key_lines(&log.key_entries, size);
        put(&directory.join("keys"), keys.as_bytes())?;
        put(&directory.join("checkpoint"), checkpoint.to_string().as_bytes())?;
        written += 3;
        if let Some(next) = serve::next(tx, (kind, keys::number(&log.origin)))? {
            put(&directory.join("next"), next.as_bytes())?;
            written += 1;
        }
        Ok(Some((size, written)))
    })
}

/// Refuses a directory with the files of another log: full tiles that are there are kept.
fn must_be_of(directory: &Path, key: &str) -> Result<(), Fault> {
    let path = directory.join("key");
    match fs::read(&path) {
        Ok(found) if found == key.as_bytes() => Ok(()),
        Ok(_) => Err(Fault::new(format!(
            "{} has the files of another log; name another directory, or that log with --number",
            directory.display()
        ))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Fault::of_file(format!("{} cannot be read: {e}", path.display()), &e)),
    }
}

/// Writes a file that is there whole or not at all. A link that is there stays, and so do the permissions of a file. What is no
/// regular file (a device, a pipe) is written into.
fn put(path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    write_at(path, bytes)
        .map_err(|e| Fault::of_file(format!("{} cannot be written: {e}", path.display()), &e))
}

fn write_at(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    if fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink()) && !path.exists() {
        // The link's own file: it is replaced below.
        fs::File::create(path)?;
    }
    let (path, permissions) = match fs::metadata(path) {
        Ok(there) if there.is_file() => (fs::canonicalize(path)?, there.permissions()),
        Ok(_) => return fs::write(path, bytes),
        // A static host runs as another user.
        Err(e) if e.kind() == ErrorKind::NotFound => (path.to_owned(), Permissions::from_mode(0o644)),
        Err(e) => return Err(e),
    };
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(&path))?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(permissions)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn what_is_there_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        put(&at("new/key"), b"one").unwrap();
        assert_eq!(mode("new/key"), 0o644);
        // A file of certain readers.
        fs::write(at("target"), "before").unwrap();
        fs::set_permissions(at("target"), Permissions::from_mode(0o600)).unwrap();
        symlink("target", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        for (link, target) in [("link", "target"), ("dangling", "nowhere")] {
            put(&at(link), b"after").unwrap();
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink(), "{link}");
            assert_eq!(fs::read(at(target)).unwrap(), b"after");
        }
        assert_eq!(mode("target"), 0o600);
        // A pipe, as a device would be.
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let pipe = at("pipe");
        let reader = thread::spawn(move || fs::read(pipe).unwrap());
        put(&at("pipe"), b"into it").unwrap();
        assert!(!fs::metadata(at("pipe")).unwrap().is_file());
        assert_eq!(reader.join().unwrap(), b"into it");
    }

    #[test]
    fn a_directory_has_the_files_of_one_log() {
        let folder = tempfile::tempdir().unwrap();
        must_be_of(folder.path(), "one\n").unwrap();
        put(&folder.path().join("key"), b"one\n").unwrap();
        must_be_of(folder.path(), "one\n").unwrap();
        let refused = must_be_of(folder.path(), "two\n").unwrap_err().to_string();
        assert!(refused.contains("another log"), "{refused}");
    }
}
