//! The directories of this program: a cache for what can be fetched again, and configuration that must not be
//! lost.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use etcetera::{BaseStrategy as _, choose_base_strategy};
use sha2::{Digest as _, Sha256};

use crate::environment::variable;
use crate::exit::{Exit, Failure};

/// The name of this program's directory within the user's.
const NAME: &str = "mandate";

/// The cache directory. None without a home directory, as in many containers.
pub(crate) fn cache() -> Result<Option<PathBuf>, Failure> {
    Ok(base()?.map(|base| base.cache_dir().join(NAME)))
}

/// The configuration directory.
pub(crate) fn config() -> Result<PathBuf, Failure> {
    config_if_any()?.ok_or_else(|| {
        Failure::new(Exit::Usage, "there is no home directory to keep this in")
            .next("set HOME, or MANDATE_CONFIG_DIR")
    })
}

/// The same, if it is known: from `MANDATE_CONFIG_DIR`, or in the user's home.
pub(crate) fn config_if_any() -> Result<Option<PathBuf>, Failure> {
    match variable("MANDATE_CONFIG_DIR")? {
        Some(named) => Ok(Some(PathBuf::from(named.as_str()))),
        None => Ok(base()?.map(|base| base.config_dir().join(NAME))),
    }
}

fn base() -> Result<Option<impl etcetera::BaseStrategy>, Failure> {
    for name in ["HOME", "USERPROFILE"] {
        if variable(name)?.is_some() {
            return Ok(choose_base_strategy().ok());
        }
    }
    Ok(None)
}

/// A file name for any text.
pub(crate) fn file_name(text: &str) -> String {
    format!("{}.json", hex(&Sha256::digest(text)))
}

/// The files in a folder whose names are from [`file_name`]. None where there is no such folder.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |e: io::Error| Failure::new(Exit::Io, format!("{}: {e}", folder.display()));
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unreadable)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    Ok(files)
}

/// Removes a file. Returns whether there was one.
pub(crate) fn remove(path: &Path) -> Result<bool, Failure> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Failure::new(Exit::Io, format!("{}: {e}", path.display()))),
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Writes the whole file or nothing, readable by its owner alone.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    create(folder)?;
    replace(path, content, |_| Ok(()))
}

/// Writes to the path that an option names, as a shell would: a link is followed and stays, a file keeps its owner and its
/// mode, and a device or a pipe is written into. A file is written whole or not at all; a new one is readable by its owner
/// alone.
pub(crate) fn write_to(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // A link to a file that is not there yet names the file to make.
    options.write(true).create(path.is_symlink());
    private(&mut options);
    let mut there = match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return write(path, content),
        there => there?,
    };
    let found = there.metadata()?;
    if !found.is_file() {
        return there.write_all(content);
    }
    let path = fs::canonicalize(path)?;
    // What a link leads to may have been changed meanwhile, by a user who may not write there.
    if !is_at(&there, &path) {
        return Err(io::Error::other("it was replaced meanwhile"));
    }
    replace(&path, content, |file| keep(file, &found))
}

/// Whether `path` still names this file.
#[cfg(unix)]
pub(crate) fn is_at(file: &fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let place = |meta: fs::Metadata| (meta.dev(), meta.ino());
    file.metadata().ok().map(place) == fs::metadata(path).ok().map(place)
}

#[cfg(not(unix))]
pub(crate) fn is_at(_: &fs::File, path: &Path) -> bool {
    path.exists()
}

/// Puts a file in the place of the one at `path`, once it is on disk.
fn replace(path: &Path, content: &[u8], prepare: impl FnOnce(&fs::File) -> io::Result<()>) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    prepare(file.as_file())?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Gives a file the owner, if this user may, and the mode of another.
#[cfg(unix)]
fn keep(file: &fs::File, of: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, fchown};
    let _ = fchown(file, Some(of.uid()), Some(of.gid()));
    file.set_permissions(of.permissions())
}

#[cfg(not(unix))]
fn keep(file: &fs::File, of: &fs::Metadata) -> io::Result<()> {
    file.set_permissions(of.permissions())
}

/// Makes a directory and its parents, accessible by their owner alone.
#[cfg(unix)]
pub(crate) fn create(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
pub(crate) fn create(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// Makes files created with `options` accessible by their owner alone.
#[cfg(unix)]
pub(crate) fn private(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600);
}

#[cfg(not(unix))]
pub(crate) fn private(_: &mut OpenOptions) {}
