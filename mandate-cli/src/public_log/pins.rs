//! The keys of logs that were pinned: each log's in its own file, which only `mandate log key` changes.

use std::path::PathBuf;

use mandate_core::Timestamp;
use mandate_core::json::Object;
use mandate_core::log::{KeyKind, VerifierKey};

use super::place::Place;
use super::trust;
use crate::directory;
use crate::exit::{Exit, Failure};
use crate::input::Source;

const MAX_FILE_BYTES: usize = 16 * 1024;

/// The pinned key of a log.
#[derive(Debug, Clone)]
pub(crate) struct Pin {
    /// The log's address.
    pub(crate) log: String,
    pub(crate) pinned_at: Timestamp,
    pub(crate) key: VerifierKey,
}

fn folder() -> Result<PathBuf, Failure> {
    Ok(directory::config()?.join("log-pins"))
}

fn path(log: &str) -> Result<PathBuf, Failure> {
    Ok(folder()?.join(directory::file_name(log)))
}

/// The pinned key of the log at `place`. A folder has none: it is a copy, and does not say of what.
pub(crate) fn find(place: &Place) -> Result<Option<Pin>, Failure> {
    let Place::Url(address) = place else { return Ok(None) };
    let Some(folder) = directory::config_if_any()? else { return Ok(None) };
    let path = folder.join("log-pins").join(directory::file_name(address.as_str()));
    if !path.exists() {
        return Ok(None);
    }
    let pin = read(path)?;
    if pin.log == address.as_str() {
        return Ok(Some(pin));
    }
    Err(Failure::new(Exit::Io, format!("the file of {address}'s pinned key holds that of {}", pin.log)))
}

/// All pinned keys, by address.
pub(crate) fn all() -> Result<Vec<Pin>, Failure> {
    let mut pins = directory::files(&folder()?)?.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    pins.sort_by(|a: &Pin, b| a.log.cmp(&b.log));
    Ok(pins)
}

/// Pins a key, and replaces the one pinned before.
pub(crate) fn write(pin: &Pin) -> Result<(), Failure> {
    let file = serde_json::json!({
        "log": pin.log, "pinned_at": pin.pinned_at.to_string(), "key": pin.key.to_string(),
    });
    let path = path(&pin.log)?;
    directory::write(&path, format!("{file}\n").as_bytes())
        .map_err(|e| Failure::new(Exit::Io, format!("the key cannot be pinned: {}: {e}", path.display())))
}

/// Removes a pinned key. Returns whether there was one.
pub(crate) fn remove(log: &str) -> Result<bool, Failure> {
    directory::remove(&path(log)?)
}

fn read(path: PathBuf) -> Result<Pin, Failure> {
    let source = Source::File(path);
    let text = source.read("the pinned key", MAX_FILE_BYTES, Exit::Io)?;
    let parsed = || {
        let invalid = |e: mandate_core::Invalid| e.to_string();
        let mut file = Object::parse(text.as_bytes()).map_err(invalid)?;
        let mut member = |name| file.require(name).and_then(|field| field.string()).map_err(invalid);
        let log = member("log")?.into_owned();
        let pinned_at = Timestamp::parse(&member("pinned_at")?).map_err(invalid)?;
        let key = trust::parse(&member("key")?, KeyKind::Note)?;
        Ok(Pin { log, pinned_at, key })
    };
    parsed().map_err(|why: String| {
        Failure::new(Exit::Io, format!("the pinned key is refused: {why}"))
            .note("read from", &source)
            .next("remove the file, and pin the key again")
    })
}
