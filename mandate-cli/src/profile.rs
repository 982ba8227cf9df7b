//! Profiles: an address and a key with a name, in a file that only its owner can read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use mandate_core::api_key::ApiKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::directory;
use crate::environment::variable;
use crate::exit::{Exit, Failure};

/// The file of the profiles, in the configuration directory.
const FILE: &str = "profiles.json";
/// A process locks this file while it changes the profiles.
const LOCK_FILE: &str = "profiles.lock";
/// The longest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// The variable that names a profile.
pub(crate) const PROFILE: &str = "MANDATE_PROFILE";
/// The longest name.
const MAX_NAME: usize = 64;

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Profiles {
    /// The profile that is used when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// All profiles, by name.
    #[serde(default)]
    pub(crate) profiles: BTreeMap<String, Profile>,
}

/// Held while the profiles are changed.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// An address and the key for it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Profile {
    /// The service's address, which ends in `/v1`.
    pub(crate) base_url: String,
    /// The issuer that the service named at the login, if it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) issuer: Option<String>,
    key: Zeroizing<String>,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

impl Profile {
    pub(crate) fn new(base_url: String, issuer: Option<String>, key: &ApiKey) -> Self {
        Self { base_url, issuer, key: Zeroizing::new(key.expose().to_owned()) }
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
    /// Reads the file. Without one there are no profiles.
    pub(crate) fn load() -> Result<Self, Failure> {
        let Some(path) = directory::config_if_any()?.map(|folder| folder.join(FILE)) else {
            return Ok(Self::default());
        };
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

    /// The same for a change. Other processes that make a change wait until the lock is dropped.
    pub(crate) fn for_change() -> Result<(Lock, Self), Failure> {
        let folder = directory::config()?;
        let path = folder.join(LOCK_FILE);
        let mut options = File::options();
        options.create(true).write(true).truncate(false);
        directory::private(&mut options);
        let locked = directory::create(&folder).and_then(|()| {
            let file = options.open(&path)?;
            file.lock()?;
            Ok(Lock { _file: file })
        });
        let lock = locked.map_err(|e| {
            Failure::new(Exit::Io, format!("the profiles cannot be locked with {}: {e}", path.display()))
        })?;
        Ok((lock, Self::load()?))
    }

    /// Writes the file again. Only its owner can read it, from the first byte on.
    pub(crate) fn save(&self, _: &Lock) -> Result<PathBuf, Failure> {
        let path = directory::config()?.join(FILE);
        let text = serde_json::to_string_pretty(self).map(Zeroizing::new);
        let text = text.map_err(|e| Failure::new(Exit::Io, e.to_string()))?;
        match directory::write(&path, text.as_bytes()) {
            Ok(()) => Ok(path),
            Err(e) => Err(Failure::new(Exit::Io, format!("{} cannot be written: {e}", path.display()))),
        }
    }

    /// The profile with this name.
    pub(crate) fn named(&self, name: &str) -> Result<&Profile, Failure> {
        self.profiles.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let advice = match known.as_slice() {
                [] => "there is none yet; mandate login makes one".to_owned(),
                known => format!("known: {}; mandate login {name} makes another", known.join(", ")),
            };
            Failure::new(Exit::Usage, format!("there is no profile `{name}`")).next(advice)
        })
    }

    /// The name of the profile that applies: the one `asked` for, the environment's, or the current one.
    pub(crate) fn chosen(&self, asked: Option<&str>) -> Result<Option<String>, Failure> {
        if let Some(name) = asked {
            return Ok(Some(name.to_owned()));
        }
        let named = variable(PROFILE)?.map(|name| name.to_string());
        Ok(named.or_else(|| self.current.clone()))
    }
}

/// The issuer of the profile that applies: the one `asked` for, the environment's, or the current one. None if the
/// environment names another service than the profile's.
pub(crate) fn issuer(asked: Option<&str>) -> Result<Option<String>, Failure> {
    let profiles = Profiles::load()?;
    let Some(name) = profiles.chosen(asked)? else { return Ok(None) };
    let profile = profiles.named(&name)?;
    let elsewhere = match asked {
        Some(_) => None,
        None => variable("MANDATE_BASE_URL")?.filter(|base| base.as_str() != profile.base_url),
    };
    Ok(if elsewhere.is_some() { None } else { profile.issuer.clone() })
}

/// The name of the profile that applies, if it knows no issuer.
pub(crate) fn without_issuer(asked: Option<&str>) -> Option<String> {
    let profiles = Profiles::load().ok()?;
    let name = profiles.chosen(asked).ok()??;
    profiles.profiles.get(&name).is_some_and(|profile| profile.issuer.is_none()).then_some(name)
}

/// The names of the profiles, for a shell that completes.
pub(crate) fn names() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let profiles = Profiles::load().unwrap_or_default().profiles;
        let candidate = |(name, profile): (String, Profile)| {
            CompletionCandidate::new(name).help(Some(profile.base_url.into()))
        };
        profiles.into_iter().map(candidate).collect()
    })
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

fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Io, format!("the profiles in {} cannot be read: {why}", path.display()))
        .next("correct the file, or remove it and log in again")
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

#[cfg(not(unix))]
fn must_be_private(_: &Path, _: &File) -> Result<(), Failure> {
    Ok(())
}
