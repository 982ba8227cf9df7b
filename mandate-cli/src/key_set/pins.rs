//! Pinned keys: each issuer's in its own file, which only `mandate jwks` changes.

use std::path::PathBuf;

use mandate_core::json::Object;
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::{EnvironmentKind, Timestamp};

use crate::directory;
use crate::exit::{Exit, Failure};
use crate::input::Source;

/// The longest file: a key set and its metadata.
const MAX_FILE_BYTES: usize = super::MAX_FILE_BYTES * 2;

/// The pinned keys of one issuer.
pub(crate) struct Pin {
    /// The issuer.
    pub(crate) issuer: String,
    /// When they were pinned.
    pub(crate) pinned_at: Timestamp,
    /// The keys.
    pub(crate) keys: KeySet,
}

/// A key's RFC 7638 thumbprint, for keys of any environment.
pub(crate) fn thumbprint(key: &VerificationKey) -> String {
    Kid::for_key(key.public_key(), EnvironmentKind::Production).as_str().to_owned()
}

fn folder() -> Result<PathBuf, Failure> {
    Ok(directory::config()?.join("pins"))
}

fn path(issuer: &str) -> Result<PathBuf, Failure> {
    Ok(folder()?.join(directory::file_name(issuer)))
}

/// The pinned keys of `issuer`.
pub(crate) fn find(issuer: &str) -> Result<Option<Pin>, Failure> {
    let path = path(issuer)?;
    if !path.exists() {
        return Ok(None);
    }
    let pin = read(path)?;
    if pin.issuer == issuer {
        return Ok(Some(pin));
    }
    Err(Failure::new(Exit::KeySet, format!("the file of `{issuer}`'s pins holds those of `{}`", pin.issuer)))
}

/// All pinned keys, by issuer.
pub(crate) fn all() -> Result<Vec<Pin>, Failure> {
    let mut pins = directory::files(&folder()?)?.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    pins.sort_by(|a: &Pin, b| a.issuer.cmp(&b.issuer));
    Ok(pins)
}

/// Pins `keys` for `issuer`, and replaces those pinned before.
pub(crate) fn write(issuer: &str, keys: &KeySet, pinned_at: Timestamp) -> Result<(), Failure> {
    let keys = keys.to_json();
    let issuer_text = serde_json::to_string(issuer).unwrap_or_default();
    let file = format!(r#"{{"issuer":{issuer_text},"pinned_at":"{pinned_at}","jwks":{keys}}}"#) + "\n";
    let path = path(issuer)?;
    directory::write(&path, file.as_bytes())
        .map_err(|e| Failure::new(Exit::Io, format!("the pins cannot be written: {}: {e}", path.display())))
}

/// Removes the pinned keys of `issuer`. Returns whether there were any.
pub(crate) fn remove(issuer: &str) -> Result<bool, Failure> {
    directory::remove(&path(issuer)?)
}

fn read(path: PathBuf) -> Result<Pin, Failure> {
    let source = Source::File(path);
    let text = source.read("the pinned keys", MAX_FILE_BYTES, Exit::KeySet)?;
    let parsed = || {
        let mut file = Object::parse(text.as_bytes())?;
        let issuer = file.require("issuer")?.string()?.into_owned();
        let pinned_at = Timestamp::parse(&file.require("pinned_at")?.string()?)?;
        let keys = KeySet::parse_archive(file.require("jwks")?.raw().as_bytes())?;
        file.finish()?;
        Ok(Pin { issuer, pinned_at, keys })
    };
    parsed().map_err(|e: mandate_core::Invalid| {
        Failure::new(Exit::KeySet, format!("the pinned keys are refused: {e}"))
            .note("read from", &source)
            .next("remove the file, and pin the issuer's keys again")
    })
}
