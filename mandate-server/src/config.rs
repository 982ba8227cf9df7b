//! Settings, and the only reader of the environment and of configuration files.
//!
//! A flag wins over a `MANDATE_*` variable, that over the TOML file, that over the default. The master key is a secret
//! and comes from a variable or from a file of its own, never from the command line.

mod check;
mod descriptors;
mod flags;
mod joint;
mod master;
mod redacted;
mod settings;
mod sources;
mod variables;
mod written;

use std::fmt;
use std::path::PathBuf;

use figment::providers::{Env, Format as _, Serialized, Toml};
use figment::{Figment, Metadata, Source};
use zeroize::Zeroizing;

use crate::model::master_key::MasterKey;
use flags::COMMAND_LINE;
use written::{NAMES, Written};

pub use crate::traces::Collector;
pub use descriptors::Descriptors;
pub use flags::{Flags, ServerFlags};
pub use joint::{SettlementSetting, TlsFiles};
pub use master::{master_key, master_key_exposed, master_key_if_set, new_master_key};
pub use settings::{
    DEFAULT_REVIEW_EXPIRY_SECONDS, DEFAULT_SAMPLING_RATIO, LogFormat, MAX_DRAIN_DELAY_SECONDS,
    MAX_REVIEW_EXPIRY_SECONDS, MAX_ROTATION_DAYS, Settings,
};
pub use sources::{Setting, rendered, sources};
pub use variables::Unread;

/// The prefix of variables.
const VARIABLE_PREFIX: &str = "MANDATE_";
/// The variable that names the configuration file.
const CONFIG_VARIABLE: &str = "MANDATE_CONFIG";
/// The end of a base URL.
pub const VERSION_PATH: &str = "/v1";

/// What a server needs to start. The master key is never shown by `Debug`.
#[derive(Debug, Clone)]
pub struct Config {
    /// The settings.
    pub settings: Settings,
    /// The key that encrypts the private parts of the signing keys.
    pub master_key: MasterKey,
}

/// A setting that cannot be used: its name, where it came from, and what would be accepted.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigRefused {
    setting: String,
    source: String,
    problem: String,
}

impl fmt::Display for ConfigRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.setting, self.source, self.problem)
    }
}

impl std::error::Error for ConfigRefused {}

impl Settings {
    /// Gathers the settings from the flags, the environment, the file and the defaults.
    ///
    /// # Errors
    /// The file cannot be read, or the first setting that cannot be used.
    pub fn load(flags: &Flags) -> Result<Self, ConfigRefused> {
        let figment = Self::gather(flags)?;
        let written: Written = figment.extract().map_err(|e| ConfigRefused::from_figment(&figment, &e))?;
        written.check(&Origins(&figment))
    }

    fn gather(flags: &Flags) -> Result<Figment, ConfigRefused> {
        let mut figment = Figment::from(Serialized::defaults(Written::from(Self::default())));
        if let Some(path) = config_file(flags)? {
            figment = figment.merge(Toml::file_exact(path));
        }
        let figment = figment.merge(Env::prefixed(VARIABLE_PREFIX).only(NAMES)).merge(flags.clone());
        Ok(figment)
    }
}

/// Finds the source of each setting.
struct Origins<'a>(&'a Figment);

impl Origins<'_> {
    fn check<T>(
        &self,
        name: &str,
        text: &str,
        check: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigRefused> {
        check(text).map_err(|problem| self.refused(name, problem))
    }

    fn refused(&self, name: &str, problem: String) -> ConfigRefused {
        ConfigRefused { setting: name.to_owned(), source: origin(name, self.0.find_metadata(name)), problem }
    }
}

impl ConfigRefused {
    fn from_figment(figment: &Figment, error: &figment::Error) -> Self {
        let name = match &error.kind {
            figment::error::Kind::UnknownField(name, _) => name.clone(),
            _ => error.path.join("."),
        };
        let metadata = error.metadata.as_ref().or_else(|| figment.find_metadata(&name));
        let setting = if name.is_empty() { "configuration".to_owned() } else { name };
        Self { source: origin(&setting, metadata), setting, problem: error.kind.to_string() }
    }

    fn variable(name: &str, problem: impl Into<String>) -> Self {
        Self { setting: name.to_owned(), source: "environment variable".to_owned(), problem: problem.into() }
    }
}

fn origin(name: &str, metadata: Option<&Metadata>) -> String {
    match metadata {
        Some(Metadata { source: Some(Source::File(path)), .. }) => format!("file {}", path.display()),
        Some(metadata) if metadata.name == COMMAND_LINE => format!("flag --{}", name.replace('_', "-")),
        Some(metadata) if metadata.name.contains(VARIABLE_PREFIX) => {
            format!("environment variable {VARIABLE_PREFIX}{}", name.to_uppercase())
        }
        _ => "default".to_owned(),
    }
}

fn config_file(flags: &Flags) -> Result<Option<PathBuf>, ConfigRefused> {
    let (source, path) = match &flags.config {
        Some(path) => ("flag --config", path.clone()),
        None => match variable(CONFIG_VARIABLE)? {
            Some(path) => ("environment variable MANDATE_CONFIG", PathBuf::from(path.as_str())),
            None => return Ok(None),
        },
    };
    match std::fs::File::open(&path) {
        Ok(_) => Ok(Some(path)),
        Err(e) => Err(ConfigRefused {
            setting: "config".to_owned(),
            source: source.to_owned(),
            problem: format!("the file {} cannot be read: {e}", path.display()),
        }),
    }
}

/// The variable `name`; an empty one counts as absent.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
fn variable(name: &str) -> Result<Option<Zeroizing<String>>, ConfigRefused> {
    match std::env::var(name).map(Zeroizing::new) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(ConfigRefused::variable(name, "must be UTF-8")),
    }
}

/// Variables with this project's prefix that are not read.
#[must_use]
pub fn unread_variables() -> Vec<Unread> {
    variables::unread(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
}

/// The user before sudo, which sudo names in a variable.
#[must_use]
pub fn sudo_user() -> Option<String> {
    variable("SUDO_USER").ok().flatten().map(|name| name.to_string())
}

/// Whether Cargo has started this process.
#[must_use]
pub fn started_by_cargo() -> bool {
    variable("CARGO").is_ok_and(|value| value.is_some())
}

#[cfg(test)]
mod tests;
