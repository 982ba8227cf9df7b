//! Profiles: an address and a key under a name, in a file that only its owner can read.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use mandate_core::api_key::ApiKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::environment::{self, variable};
use crate::exit::{Exit, Failure};

/// The directory in that of the user's settings.
const DIRECTORY: &str = "mandate";
const FILE: &str = "profiles.json";
/// The most that is read of the file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The longest name.
const MAX_NAME: usize = 64;

/// The file's content.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Profiles {
    /// The one that is used when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// All, by name.
    #[serde(default)]
    pub(crate) profiles: BTreeMap<String, Profile>,
}

/// An address and the key for it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Profile {
    /// The service's address, which ends in `/v1`.
    pub(crate) base_url: String,
    key: Zeroizing<String>,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

impl Profile {
    pub(crate) fn new(base_url: String, key: &ApiKey) -> Self {
        Self { base_url, key: Zeroizing::new(key.expose().to_owned()) }
    }

    /// The key.
    pub(crate) fn key(&self, name: &str) -> Result<ApiKey, Failure> {
        ApiKey::parse(&self.key).map_err(|e| {
            Failure::new(Exit::Unauthorized, format!("the key of the profile `{name}` is refused: {e}"))
                .next(format_args!("mandate login {name}"))
        })
    }
}

impl Profiles {
    /// Reads the file; without one there are no profiles.
    pub(crate) fn load() -> Result<Self, Failure> {
        let Some(path) = path()? else { return Ok(Self::default()) };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(unreadable(&path, &e)),
        };
        must_be_private(&path, &file)?;
        let mut text = Zeroizing::new(String::new());
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|e| unreadable(&path, &e))?;
        serde_json::from_str(&text).map_err(|e| unreadable(&path, &e))
    }

    /// Writes the file anew, readable by its owner alone from its first byte on.
    pub(crate) fn save(&self) -> Result<PathBuf, Failure> {
        let Some(path) = path()? else {
            return Err(Failure::new(Exit::Io, "there is no home directory to keep profiles in")
                .next("set MANDATE_CONFIG_DIR to a directory of your own"));
        };
        let text = serde_json::to_string_pretty(self).map(Zeroizing::new);
        let text = text.map_err(|e| Failure::new(Exit::Io, e.to_string()))?;
        let [part] = environment::random::<1>()?;
        let draft = path.with_extension(format!("{}-{part}", std::process::id()));
        let written = private_directory(path.parent().unwrap_or(Path::new(".")))
            .and_then(|()| private_file(&draft))
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&draft, &path));
        match written {
            Ok(()) => Ok(path),
            Err(e) => {
                let _ = fs::remove_file(&draft);
                Err(Failure::new(Exit::Io, format!("{} cannot be written: {e}", path.display())))
            }
        }
    }

    /// The profile called `name`.
    pub(crate) fn named(&self, name: &str) -> Result<&Profile, Failure> {
        self.profiles.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let advice = match known.as_slice() {
                [] => "there is none yet; mandate login makes one".to_owned(),
                known => format!("there are {}; mandate login {name} makes another", known.join(", ")),
            };
            Failure::new(Exit::Usage, format!("there is no profile `{name}`")).next(advice)
        })
    }

    /// The name of the profile that counts: the one that was `asked` for, that of the environment, or the current one.
    pub(crate) fn chosen(&self, asked: Option<&str>) -> Result<Option<String>, Failure> {
        if let Some(name) = asked {
            return Ok(Some(name.to_owned()));
        }
        let named = variable("MANDATE_PROFILE")?.map(|name| name.to_string());
        Ok(named.or_else(|| self.current.clone()))
    }
}

/// A profile's name: letters, digits, and a few signs that need no quotes.
pub(crate) fn name(text: &str) -> Result<String, &'static str> {
    let fits = (1..=MAX_NAME).contains(&text.len()) && !text.starts_with('-');
    if fits && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b)) {
        Ok(text.to_owned())
    } else {
        Err("must be 1 to 64 letters, digits, `.`, `_` and `-`, the first no `-`")
    }
}

/// Where the file is: in `MANDATE_CONFIG_DIR`, or where the user's settings are kept. Nothing without a home.
fn path() -> Result<Option<PathBuf>, Failure> {
    let directory = match variable("MANDATE_CONFIG_DIR")? {
        Some(named) => Some(PathBuf::from(named.as_str())),
        None => etcetera::choose_base_strategy().ok().map(|homes| homes.config_dir().join(DIRECTORY)),
    };
    Ok(directory.map(|directory| directory.join(FILE)))
}

fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Io, format!("the profiles in {} cannot be read: {why}", path.display()))
        .next("mend the file, or remove it and log in again")
}

#[cfg(unix)]
fn must_be_private(path: &Path, file: &File) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    /// Read, write and execute for group and others.
    const OTHERS: u32 = 0o077;
    let mode = file.metadata().map_err(|e| unreadable(path, &e))?.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let path = path.display();
    Err(Failure::new(
        Exit::Unauthorized,
        format!("the profiles in {path} are open to other users (mode {:03o})", mode & 0o777),
    )
    .next(format_args!("chmod 600 {path}; if others may have read it, have its keys revoked")))
}

#[cfg(unix)]
fn private_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(unix)]
fn private_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn must_be_private(_: &Path, _: &File) -> Result<(), Failure> {
    Ok(())
}

#[cfg(not(unix))]
fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

#[cfg(not(unix))]
fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}
