//! The master key: from its variable, or from a file that only the operator can read.

use std::os::unix::fs::PermissionsExt as _;

use zeroize::Zeroizing;

use super::{ConfigRefused, variable};
use crate::model::master_key::MasterKey;

/// The variable that holds the master key.
pub(super) const MASTER_KEY_VARIABLE: &str = "MANDATE_MASTER_KEY";
/// The variable that names the file of the new master key.
pub(super) const NEW_MASTER_KEY_FILE_VARIABLE: &str = "MANDATE_NEW_MASTER_KEY_FILE";
/// The variable that names the file of the master key.
pub(super) const MASTER_KEY_FILE_VARIABLE: &str = "MANDATE_MASTER_KEY_FILE";
/// The permissions that let other users than the owner access a file.
const OTHERS: u32 = 0o077;

/// Reads the master key from its variable or its file.
///
/// # Errors
/// There is none, there are two, or the text is not a key. The message never repeats any of it.
pub fn master_key() -> Result<MasterKey, ConfigRefused> {
    master_key_if_set()?.ok_or_else(|| ConfigRefused::variable(MASTER_KEY_VARIABLE, NO_MASTER_KEY))
}

/// Reads the master key from its variable or its file, if either is set.
///
/// # Errors
/// There are two, or the text is not a key. The message never repeats any of it.
pub fn master_key_if_set() -> Result<Option<MasterKey>, ConfigRefused> {
    let (setting, text) = match (variable(MASTER_KEY_VARIABLE)?, variable(MASTER_KEY_FILE_VARIABLE)?) {
        (Some(key), None) => (MASTER_KEY_VARIABLE, key),
        (None, Some(path)) => (MASTER_KEY_FILE_VARIABLE, read_master_key(MASTER_KEY_FILE_VARIABLE, &path)?),
        (Some(_), Some(_)) => {
            let problem = format!("is set, and so is {MASTER_KEY_FILE_VARIABLE}; set one of them");
            return Err(ConfigRefused::variable(MASTER_KEY_VARIABLE, problem));
        }
        (None, None) => return Ok(None),
    };
    parse_master_key(setting, &text).map(Some)
}

/// Reads the master key that is to replace `old`, from its file.
///
/// # Errors
/// There is none, the text is not a key, or it is `old` again. The message never repeats any of it.
pub fn new_master_key(old: &MasterKey) -> Result<MasterKey, ConfigRefused> {
    let setting = NEW_MASTER_KEY_FILE_VARIABLE;
    let unset = || ConfigRefused::variable(setting, "is not set; it names the file of the new master key");
    let path = variable(setting)?.ok_or_else(unset)?;
    let new = parse_master_key(setting, &read_master_key(setting, &path)?)?;
    if new.is(old) {
        let problem = format!(
            "the file {} holds the present master key, that of {MASTER_KEY_VARIABLE} or {MASTER_KEY_FILE_VARIABLE}; a new \
             one is needed: (umask 077; openssl rand -hex 32 > new-master.key)",
            path.as_str()
        );
        return Err(ConfigRefused::variable(setting, problem));
    }
    Ok(new)
}

/// What is wrong with the file of the master key, if others than its owner can read it.
#[must_use]
pub fn master_key_exposed() -> Option<String> {
    let path = variable(MASTER_KEY_FILE_VARIABLE).ok().flatten()?;
    let mode = std::fs::metadata(path.as_str()).ok()?.permissions().mode();
    let exposed = mode & OTHERS != 0;
    exposed.then(|| format!("{} can be read by others than its owner; chmod 600 it", path.as_str()))
}

fn parse_master_key(setting: &str, text: &str) -> Result<MasterKey, ConfigRefused> {
    MasterKey::parse(text.trim_end_matches(['\r', '\n']))
        .map_err(|_| ConfigRefused::variable(setting, "the master key must be 64 hexadecimal characters"))
}

const NO_MASTER_KEY: &str = "is not set, nor is MANDATE_MASTER_KEY_FILE. The signing keys are encrypted under the \
master key; without it no verdict can be signed. Make one once, and keep it safe and apart from the database:\n
    (umask 077; openssl rand -hex 32 > mandate-master.key)
    export MANDATE_MASTER_KEY_FILE=mandate-master.key";

fn read_master_key(setting: &str, path: &str) -> Result<Zeroizing<String>, ConfigRefused> {
    let read = std::fs::read_to_string(path).map(Zeroizing::new);
    read.map_err(|e| ConfigRefused::variable(setting, format!("the file {path} cannot be read: {e}")))
}
