//! A log as files, under the names that the public listener uses.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use mandate_core::EnvironmentKind;
use mandate_core::log::Tile;

use crate::admin::backup::file;
use crate::error::Fault;
use crate::service::public_log::{append, keys, operated, serve};
use crate::store::upkeep;

/// Writes the published part of a log, the newest or the one of this number: its checkpoint behind its tiles, and of a log that
/// has ended the key of the next one. Gives how many entries there are and how many files were written; none without a checkpoint.
/// The key is first: it says whose files these are.
///
/// What is there is compared, and written again where it is not as it should be: a command that was killed, or a disk that lost
/// what was not durable, leaves nothing that the next one does not repair.
pub(super) fn write(
    database: &str,
    (kind, number): (EnvironmentKind, Option<u64>),
    directory: &Path,
) -> Result<Option<(u64, u64)>, Fault> {
    upkeep::snapshot(database, |tx| {
        let (log, checkpoint) = operated::published(tx, kind, number)?;
        let Some(checkpoint) = checkpoint else { return Ok(None) };
        let size = checkpoint.checkpoint().size();
        let key = format!("{}\n", log.verifier_key);
        must_be_of(directory, &key)?;
        let mut files = Files::new(directory);
        files.put("key", key.as_bytes())?;
        for tile in Tile::between(0, size) {
            files.put(&tile.path(), &serve::read_tile(tx, &log, tile)?)?;
        }
        files.put("keys", append::key_lines(&log.key_entries, size).as_bytes())?;
        // The checkpoint says that all of this is there.
        files.sync()?;
        files.put("checkpoint", checkpoint.to_string().as_bytes())?;
        if let Some(next) = serve::next(tx, (kind, keys::number(&log.origin)))? {
            files.put("next", next.as_bytes())?;
        }
        files.sync()?;
        Ok(Some((size, files.written)))
    })
}

/// The files of a log.
struct Files<'a> {
    directory: &'a Path,
    /// The directories whose names may not be durable yet.
    unsynced: BTreeSet<PathBuf>,
    /// How many files were written.
    written: u64,
}

impl<'a> Files<'a> {
    fn new(directory: &'a Path) -> Self {
        let is_missing = |directory: &&Path| !directory.as_os_str().is_empty() && !directory.exists();
        let made = directory.ancestors().take_while(is_missing);
        Self { directory, unsynced: made.map(file::directory).collect(), written: 0 }
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        let path = self.directory.join(name);
        if let Some(written) = put(&path, bytes)? {
            self.unsynced.insert(file::directory(&written));
            self.written += 1;
        }
        // Also where the file was there: the command that wrote it may have been killed.
        let directories = path.ancestors().skip(1).take_while(|one| one.starts_with(self.directory));
        self.unsynced.extend(directories.map(Path::to_owned));
        Ok(())
    }

    /// Makes the names of the files durable.
    fn sync(&mut self) -> Result<(), Fault> {
        std::mem::take(&mut self.unsynced).iter().try_for_each(|directory| file::sync(directory))
    }
}

/// Refuses a directory with the files of another log: they would be written over.
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

/// Writes a file, unless it is there with this content. It is there whole and durable, or as it was before. A link that is there
/// stays, and so do the permissions of a file. What is no regular file (a device, a pipe) is written into. Gives the file that was
/// written; none if it was there.
fn put(path: &Path, bytes: &[u8]) -> Result<Option<PathBuf>, Fault> {
    write_at(path, bytes)
        .map_err(|e| Fault::of_file(format!("{} cannot be written: {e}", path.display()), &e))
}

fn write_at(path: &Path, bytes: &[u8]) -> std::io::Result<Option<PathBuf>> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    if fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink()) && !path.exists() {
        // The link's own file: it is replaced below.
        File::create(path)?;
    }
    let (path, permissions) = match fs::metadata(path) {
        Ok(there) if there.is_file() => {
            let length = u64::try_from(bytes.len()).ok();
            if Some(there.len()) == length && fs::read(path).is_ok_and(|found| found == bytes) {
                return Ok(None);
            }
            (fs::canonicalize(path)?, there.permissions())
        }
        Ok(_) => return fs::write(path, bytes).map(|()| Some(path.to_owned())),
        // A static host runs as another user.
        Err(e) if e.kind() == ErrorKind::NotFound => (path.to_owned(), Permissions::from_mode(0o644)),
        Err(e) => return Err(e),
    };
    let mut file = file::unfinished_in(&file::directory(&path))?;
    file.write_all(bytes)?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(Some(path))
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
    fn a_file_that_is_not_as_it_should_be_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("new/log");
        let path = directory.join("tile/0/000");
        let put = || {
            let mut files = Files::new(&directory);
            files.put("tile/0/000", b"content").unwrap();
            files.sync().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"content");
            files.written
        };
        assert_eq!([put(), put()], [1, 0]);
        for left in ["", "con", "CONTENT", "content and more"] {
            fs::write(&path, left).unwrap();
            assert_eq!([put(), put()], [1, 0], "{left}");
        }
        // What a killed command has left beside it.
        fs::write(path.with_file_name(".mandate-unfinished-Ab3dE6"), "con").unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(put(), 1);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
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
