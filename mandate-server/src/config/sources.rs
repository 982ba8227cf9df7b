//! Every setting with its value and its source, in a readable form.

use serde::Serialize;
use serde_json::Value;

use super::master::{MASTER_KEY_FILE_VARIABLE, MASTER_KEY_VARIABLE};
use super::{ConfigRefused, Descriptors, Flags, NAMES, Settings, origin, variable};
use crate::model::database;

/// The one setting that may contain a secret.
const DATABASE: &str = "database";
/// The one setting that is never shown.
const MASTER_KEY: &str = "master_key";
const HIDDEN: &str = "(hidden)";
/// How many files the process may have open.
const OPEN_FILES: &str = "open_files";

/// A setting in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name, as in the file.
    pub name: &'static str,
    /// Its value. None if it is not set and has no default.
    pub value: Option<Value>,
    /// Where it comes from.
    pub source: String,
}

impl Setting {
    /// Whether it can be written into a file: it is no secret, and not derived from the process's limits.
    #[must_use]
    pub fn is_for_a_file(&self) -> bool {
        NAMES.contains(&self.name)
    }
}

/// All checked settings in the order of the documentation, then the master key without its value, then what follows from
/// the limits of the process.
///
/// # Errors
/// One of them cannot be used.
pub fn sources(flags: &Flags) -> Result<Vec<Setting>, ConfigRefused> {
    Settings::load(flags)?;
    let figment = Settings::gather(flags)?;
    let setting = |name: &&'static str| {
        let value = figment.extract_inner::<Value>(name).ok().filter(|value| !value.is_null());
        let value = value.map(|value| if *name == DATABASE { without_password(value) } else { value });
        let source = match value {
            Some(_) => origin(name, figment.find_metadata(name)),
            None => "not set".to_owned(),
        };
        Setting { name, value, source }
    };
    let mut settings: Vec<_> = NAMES.iter().map(setting).collect();
    // The file is not read: a user who may see the settings need not be able to read the key.
    let (value, source) = match (variable(MASTER_KEY_VARIABLE)?, variable(MASTER_KEY_FILE_VARIABLE)?) {
        (Some(_), _) => (Some(HIDDEN.into()), format!("environment variable {MASTER_KEY_VARIABLE}")),
        (None, Some(path)) => (Some(HIDDEN.into()), format!("file {}", path.as_str())),
        (None, None) => (None, "not set".to_owned()),
    };
    settings.push(Setting { name: MASTER_KEY, value, source });
    settings.extend(derived());
    Ok(settings)
}

/// What follows from the limits of the process.
fn derived() -> impl Iterator<Item = Setting> {
    let descriptors = Descriptors::available();
    let (value, source) =
        (Some(descriptors.open_files.into()), "hard limit of the process (ulimit -Hn)".to_owned());
    let bounds = descriptors.derived().into_iter().map(|(name, most)| {
        let source = format!("derived from {OPEN_FILES}");
        Setting { name, value: Some(most.into()), source }
    });
    std::iter::once(Setting { name: OPEN_FILES, value, source }).chain(bounds)
}

/// The URL of a database without its password.
fn without_password(name: Value) -> Value {
    name.as_str().map(|name| database::redacted(name).into()).unwrap_or(name)
}

/// A value as it would be typed.
#[must_use]
pub fn rendered(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
