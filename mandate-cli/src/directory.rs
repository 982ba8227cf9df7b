//! Where this program keeps files of its own: what can be fetched again, and what must not be lost.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use etcetera::{BaseStrategy as _, choose_base_strategy};
use sha2::{Digest as _, Sha256};

use crate::environment::variable;
use crate::exit::{Exit, Failure};

/// The folder of this program, within those of the person.
const NAME: &str = "mandate";

/// For what can be fetched again; nothing when nobody's home is known, as in many a container.
pub(crate) fn cache() -> Result<Option<PathBuf>, Failure> {
    Ok(base()?.map(|base| base.cache_dir().join(NAME)))
}

/// For what the person has decided.
pub(crate) fn config() -> Result<PathBuf, Failure> {
    base()?.map(|base| base.config_dir().join(NAME)).ok_or_else(|| {
        Failure::new(Exit::Usage, "there is no home directory to keep this in")
            .next("set HOME, or XDG_CONFIG_HOME")
    })
}

fn base() -> Result<Option<impl etcetera::BaseStrategy>, Failure> {
    for name in ["HOME", "USERPROFILE"] {
        if variable(name)?.is_some() {
            return Ok(choose_base_strategy().ok());
        }
    }
    Ok(None)
}

/// A file's name for any text.
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

/// Writes the whole file or none of it, for its owner alone.
pub(crate) fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
