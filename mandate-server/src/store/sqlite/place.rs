//! Where a database is: one name for each file, whichever way it was spelled.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::beside::directory;
use crate::error::Fault;

/// How many links may lead to a database, one to the next: as many as Linux follows.
const MAX_LINKS: usize = 40;

/// The absolute path of a database without links in it, whether there is such a file yet or not. All that is beside
/// a database goes by this name, as SQLite's own files do: its log, its locks, and what takes its place. So a file that has
/// another name too is refused.
pub(in crate::store) fn resolve(path: &str) -> Result<String, Fault> {
    let unusable = |why: String| Fault::new(format!("database: {path} cannot be used: {why}"));
    let resolved = follow(Path::new(path)).map_err(|e| unusable(e.to_string()))?;
    // A folder has many. Opening it reports what is wrong.
    let names = resolved.metadata().map_or(1, |found| if found.is_file() { found.nlink() } else { 1 });
    if names > 1 {
        return Err(unusable(format!(
            "its file has {names} names (hard links), and each would have a log and locks of its own; remove the others, \
             which `find / -xdev -samefile {}` lists",
            resolved.display()
        )));
    }
    resolved.into_os_string().into_string().map_err(|_| unusable("its name is not UTF-8".to_owned()))
}

fn follow(path: &Path) -> std::io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let text = path.to_str().ok_or_else(|| std::io::Error::other("its name is not UTF-8"))?;
        let directory = match fs::canonicalize(directory(text)) {
            // Opening the file reports what is wrong.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return std::path::absolute(&path),
            directory => directory?,
        };
        let file = path.file_name().map(|name| directory.join(name));
        let file = file.ok_or_else(|| std::io::Error::other("it names no file"))?;
        match fs::read_link(&file) {
            Ok(target) => path = directory.join(target),
            Err(_) => return Ok(file),
        }
    }
    Err(std::io::Error::other("too many symbolic links"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Holder;
    use crate::store::sqlite::upkeep::claim;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_database_has_one_name_however_it_is_spelled() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("real/inner")).unwrap();
        symlink("real", root.join("short")).unwrap();
        symlink("real/mandate.db", root.join("link.db")).unwrap();
        symlink("../link.db", root.join("real/again.db")).unwrap();
        let expected = root.join("real/mandate.db").to_str().unwrap().to_owned();
        let spellings = [
            "real/mandate.db",
            "short/mandate.db",
            "short/../real/inner/../mandate.db",
            "link.db",
            "real/again.db",
        ];
        for there in [false, true] {
            for spelling in spellings {
                let resolved = resolve(root.join(spelling).to_str().unwrap()).unwrap();
                assert_eq!(resolved, expected, "{spelling}, there: {there}");
            }
            fs::write(&expected, "").unwrap();
        }
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        let refused = resolve(folder.path().join("a").to_str().unwrap()).unwrap_err().to_string();
        assert!(refused.ends_with("too many symbolic links"), "{refused}");
    }

    #[test]
    fn a_link_does_not_get_around_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("mandate.db"), folder.path().join("link.db"));
        fs::write(&real, "").unwrap();
        symlink(&real, &link).unwrap();
        let name = |path: &Path| format!("sqlite://{}", path.display());
        let held = crate::store::upkeep::claim(&name(&real), Holder::Server).unwrap();
        let refused = crate::store::upkeep::claim(&name(&link), Holder::Alone).unwrap_err().to_string();
        assert!(refused.ends_with("is in use by another process: wait until that has ended"), "{refused}");
        drop(held);
        drop(claim(&resolve(link.to_str().unwrap()).unwrap(), Holder::Alone).unwrap());
        // A second name of the file itself cannot be followed.
        let name_of_its_own = folder.path().join("other.db");
        fs::hard_link(&real, &name_of_its_own).unwrap();
        for path in [&real, &link, &name_of_its_own] {
            let refused = crate::store::upkeep::claim(&name(path), Holder::Server).unwrap_err().to_string();
            assert!(refused.contains("cannot be used: its file has 2 names (hard links)"), "{refused}");
        }
        fs::remove_file(&name_of_its_own).unwrap();
        drop(crate::store::upkeep::claim(&name(&real), Holder::Server).unwrap());
    }
}
