//! The directories of this program: a cache for what can be fetched again, and configuration that must not be
//! lost.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
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

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Writes the whole file or nothing, readable by its owner alone.
pub(crate) fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    create(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Makes a directory and its parents, accessible by their owner alone.
#[cfg(unix)]
pub(crate) fn create(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
pub(crate) fn create(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)
}

/// Makes files created with `options` accessible by their owner alone.
#[cfg(unix)]
pub(crate) fn private(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600);
}

#[cfg(not(unix))]
pub(crate) fn private(_: &mut OpenOptions) {}
