//! The files beside a database. They are made for the owner of their directory, and no link is followed.
//!
//! The directory may belong to the server's user while root runs a command. A link there must not lead root to a file
//! that is elsewhere.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::Fault;

/// The database and the files beside it are for their owner alone.
const MODE: u32 = 0o600;
/// What SQLite writes beside a database.
const OF_SQLITE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The fault that a file beside a database cannot be used.
pub(super) fn unusable(name: &str, why: &io::Error) -> Fault {
    Fault::new(format!("database: the file {name} cannot be used: {why}"))
}

/// The directory that the database is in.
pub(super) fn directory(path: &str) -> &Path {
    let parent = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Gives a file that this process has made to the owner of its directory, where that is another: root alone can.
pub(in crate::store) fn adopt(file: &File, directory: &Path) {
    let owners = directory.metadata().and_then(|wanted| file.metadata().map(|own| (wanted, own)));
    if let Ok((wanted, own)) = owners
        && wanted.uid() != own.uid()
    {
        // A user who is not root cannot, and has no need to.
        let _ = fchown(file, Some(wanted.uid()), Some(wanted.gid()));
    }
}

/// Makes a file. None if there is one of that name, or a link.
pub(super) fn make(name: &str) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(name) {
        Ok(made) => {
            adopt(&made, directory(name));
            Ok(Some(made))
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens a file to write, and makes it if it is not there. One that is there keeps its owner.
pub(super) fn open(name: &str) -> io::Result<File> {
    loop {
        if let Some(made) = make(name)? {
            return Ok(made);
        }
        match existing(name, OpenOptions::new().read(true).write(true)) {
            // Another process has deleted it.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            opened => return opened,
        }
    }
}

/// Opens a file to read.
pub(super) fn read(name: &str) -> io::Result<File> {
    existing(name, OpenOptions::new().read(true))
}

fn existing(name: &str, options: &mut OpenOptions) -> io::Result<File> {
    // A pipe would be waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = options.custom_flags(flags.bits().cast_signed()).open(name);
    let file = opened.map_err(|e| match e.raw_os_error() {
        Some(code) if code == Errno::LOOP.raw_os_error() => refused("it is a symbolic link"),
        _ => e,
    })?;
    must_be_plain(&file.metadata()?)?;
    Ok(file)
}

/// Refuses a link in the place of what SQLite writes beside the database at `path`. As root it would give what is there
/// to the owner of the database.
pub(super) fn must_lead_nowhere(path: &str) -> Result<(), Fault> {
    for suffix in OF_SQLITE {
        let name = format!("{path}{suffix}");
        match fs::symlink_metadata(&name).and_then(|found| must_be_plain(&found)) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(unusable(&name, &e)),
            _ => {}
        }
    }
    Ok(())
}

fn must_be_plain(found: &Metadata) -> io::Result<()> {
    match found.nlink() {
        _ if found.is_symlink() => Err(refused("it is a symbolic link")),
        _ if !found.is_file() => Err(refused("it is not a regular file")),
        // It was deleted since it was opened.
        0 => Err(ErrorKind::NotFound.into()),
        1 => Ok(()),
        names => Err(refused(&format!("it has {names} names (hard links)"))),
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::other(format!("{why}; remove it: it must be a regular file with one name"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};
    use std::path::PathBuf;
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::store::sqlite::owner::Owner;
    use crate::store::sqlite::upkeep::{Holder, claim, snapshot};

    const KEPT: &str = "a file of root's\n";
    /// A user who is not root.
    const USER: u32 = 65_534;

    /// A directory, of another user if this one is root, with a database and a file elsewhere.
    struct Scene {
        folder: TempDir,
        path: String,
        elsewhere: PathBuf,
    }

    impl Scene {
        fn set() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let inner = folder.path().join("inner");
            fs::create_dir(&inner).unwrap();
            let is_root = rustix::process::geteuid().is_root();
            if is_root {
                chown(&inner, Some(USER), Some(USER)).unwrap();
            }
            let elsewhere = folder.path().join("elsewhere");
            fs::write(&elsewhere, KEPT).unwrap();
            let path = inner.join("mandate.db").to_str().unwrap().to_owned();
            rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (c)").unwrap();
            Self { folder, path, elsewhere }
        }

        /// Refuses to follow a link at the database's name with `suffix`, by every kind of link.
        fn refuses(&self, suffix: &str, work: &dyn Fn(&str) -> Result<(), Fault>) {
            let name = format!("{}{suffix}", self.path);
            let absent = self.folder.path().join("absent");
            let before = fs::metadata(&self.elsewhere).unwrap();
            let links: [(&dyn Fn() -> io::Result<()>, &str); 3] = [
                (&|| symlink(&self.elsewhere, &name), "it is a symbolic link"),
                (&|| symlink(&absent, &name), "it is a symbolic link"),
                (&|| fs::hard_link(&self.elsewhere, &name), "it has 2 names (hard links)"),
            ];
            for (link, why) in links {
                link().unwrap();
                let refused = work(&self.path).unwrap_err().to_string();
                assert!(refused.contains(&format!("the file {name} cannot be used: {why}")), "{refused}");
                let after = fs::metadata(&self.elsewhere).unwrap();
                assert_eq!(
                    (after.uid(), after.gid(), after.mode()),
                    (before.uid(), before.gid(), before.mode())
                );
                assert_eq!(fs::read_to_string(&self.elsewhere).unwrap(), KEPT, "{suffix}");
                assert!(!absent.exists(), "{suffix}");
                fs::remove_file(&name).unwrap();
            }
            work(&self.path).unwrap();
            let _ = fs::remove_file(&name);
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_lock_is_refused_and_what_it_leads_to_is_unchanged() {
        let scene = Scene::set();
        scene.refuses("-server", &|path| Owner::take(path, Duration::ZERO).map(drop));
        for holder in [Holder::Server, Holder::Alone] {
            scene.refuses(".lock", &|path| claim(path, holder).map(drop));
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_file_of_sqlites_is_refused_before_sqlite_opens_it() {
        let scene = Scene::set();
        for suffix in OF_SQLITE {
            scene.refuses(suffix, &|path| claim(path, Holder::Server).map(drop));
            scene.refuses(suffix, &|path| snapshot(path, |_| Ok(())));
        }
    }

    #[test]
    fn what_another_file_says_is_not_taken_for_the_name_of_an_owner() {
        let scene = Scene::set();
        symlink(&scene.elsewhere, format!("{}-server", scene.path)).unwrap();
        let held = claim(&scene.path, Holder::Alone).unwrap();
        let refused = claim(&scene.path, Holder::Server).unwrap_err().to_string();
        assert!(refused.contains("is taken by another process; "), "{refused}");
        drop(held);
    }

    #[test]
    fn a_file_that_is_made_is_the_directorys_owners_and_one_that_was_there_keeps_its_owner() {
        let scene = Scene::set();
        let name = format!("{}-server", scene.path);
        let owner = |of: &str| fs::metadata(of).unwrap().uid();
        drop(Owner::take(&scene.path, Duration::ZERO).unwrap());
        assert_eq!(owner(&name), owner(directory(&name).to_str().unwrap()));
        assert_eq!(fs::metadata(&name).unwrap().mode() & 0o777, MODE);
        fs::remove_file(&name).unwrap();
        fs::write(&name, "").unwrap();
        let own = owner(&name);
        drop(Owner::take(&scene.path, Duration::ZERO).unwrap());
        assert_eq!(owner(&name), own);
    }
}
