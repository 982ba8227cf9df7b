//! A log as files, under the names that the public listener uses.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use mandate_core::EnvironmentKind;
use mandate_core::log::Tile;
use tempfile::NamedTempFile;

use crate::error::Fault;
use crate::service::public_log::{keys, operated, serve};
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
        put(&directory.join("checkpoint"), checkpoint.to_string().as_bytes())?;
        written += 2;
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

/// Writes a file that is there whole or not at all.
fn put(path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    let write = || {
        let directory = path.parent().unwrap_or(path);
        fs::create_dir_all(directory)?;
        let mut file = NamedTempFile::new_in(directory)?;
        file.write_all(bytes)?;
        // A static host runs as another user.
        fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        file.persist(path)?;
        Ok(())
    };
    write()
        .map_err(|e: std::io::Error| Fault::of_file(format!("{} cannot be written: {e}", path.display()), &e))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

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
