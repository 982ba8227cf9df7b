//! Settings, and the only reader of the environment and of configuration files.
//!
//! A flag wins over a `MANDATE_*` variable, that over the TOML file, that over the default. The master key is a secret
//! and comes from a variable or from a file of its own, never from the command line.

mod check;
mod flags;
mod joint;
mod master;
mod shown;
mod sources;
mod variables;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use figment::providers::{Env, Format as _, Serialized, Toml};
use figment::{Figment, Metadata, Source};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use zeroize::Zeroizing;

use crate::service::signing::MasterKey;
use check::{
    address, base_url, database, drain_delay, log_format, log_level, network, review_expiry, rotation_days,
    site_url,
};
use flags::COMMAND_LINE;
use joint::{pair, settlement};

pub use flags::{Flags, ServerFlags};
pub use joint::{SettlementSetting, TlsFiles};
pub use master::{master_key, master_key_exposed, master_key_if_set, new_master_key};
pub use sources::{Setting, shown, sources};
pub use variables::Unread;

/// What the names of variables begin with.
const VARIABLE_PREFIX: &str = "MANDATE_";
/// The variable that names the configuration file.
const CONFIG_VARIABLE: &str = "MANDATE_CONFIG";
/// What a base URL ends with.
pub const VERSION_PATH: &str = "/v1";
/// How a database is named that is a file.
pub const SQLITE: &str = "sqlite://";
/// How a PostgreSQL database is named.
const POSTGRES: [&str; 2] = ["postgres://", "postgresql://"];
/// How long a person has to answer a review, in seconds: 24 hours.
pub const DEFAULT_REVIEW_EXPIRY_SECONDS: i64 = 24 * 60 * 60;
/// The longest that requests are still taken when the server is to stop, in seconds: 10 minutes.
pub const MAX_DRAIN_DELAY_SECONDS: u64 = 10 * 60;
/// The longest that a review may wait, in seconds: 366 days.
pub const MAX_REVIEW_EXPIRY_SECONDS: i64 = 366 * 24 * 60 * 60;

/// The longest time between two rotations of a signing key, in days: ten years.
pub const MAX_ROTATION_DAYS: u32 = 3_650;

/// Requests that are under way behind the gate at a time. It is no setting: the store's queue is as long.
const MAX_UNDER_WAY: usize = 4096;

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Every setting but the master key, checked. Of a database's name `Debug` shows no password.
#[derive(Clone)]
pub struct Settings {
    /// The database, `sqlite://PATH` or `postgres://…`.
    pub database: String,
    /// Where the API listens; port 0 takes a free one.
    pub api_address: SocketAddr,
    /// Where the public listener listens.
    pub public_address: SocketAddr,
    /// Where the ops listener listens.
    pub ops_address: SocketAddr,
    /// The API's address as clients see it. Absent: the listener's.
    pub base_url: Option<String>,
    /// The issuer of tokens. Absent: the public listener's address.
    pub verdicts_url: Option<String>,
    /// Where the contract is published. Absent: the public listener's address.
    pub docs_url: Option<String>,
    /// What the API's listener speaks TLS with. Absent: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// What the public listener speaks TLS with. Absent: the same.
    pub public_tls: Option<TlsFiles>,
    /// Whether all connections come from a proxy that speaks TLS.
    pub behind_proxy: bool,
    /// How long requests are still taken after the server has begun to say that it is not ready, in seconds.
    pub drain_delay_seconds: u64,
    /// How long a review waits, in seconds.
    pub review_expiry_seconds: i64,
    /// Requests that are under way behind the gate at a time; those beyond are told to come again.
    pub max_under_way: usize,
    /// Whether webhooks may be on this machine, over plain HTTP. Only the developer mode says so: no flag, variable or
    /// file does.
    pub loopback_webhooks: bool,
    /// Networks that webhooks may be in although they are not public.
    pub webhook_networks: Vec<IpNet>,
    /// Who moves the funds of escrows.
    pub settlement: SettlementSetting,
    /// Where exports are kept. Absent: beside the database.
    pub exports_directory: Option<PathBuf>,
    /// After how many days signing keys are rotated. Absent: by the operator's command only.
    pub signing_key_rotation_days: Option<u32>,
    /// How the log is written.
    pub log_format: LogFormat,
    /// What is logged.
    pub log_level: LevelFilter,
}

/// What a server needs to start. The master key is never shown by `Debug`.
#[derive(Debug, Clone)]
pub struct Config {
    /// The settings.
    pub settings: Settings,
    /// What the private parts of the signing keys are encrypted under.
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

impl Default for Settings {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            database: format!("{SQLITE}mandate.db"),
            api_address: loopback(8080),
            public_address: loopback(8081),
            ops_address: loopback(9090),
            base_url: None,
            verdicts_url: None,
            docs_url: None,
            tls: None,
            public_tls: None,
            behind_proxy: false,
            drain_delay_seconds: 0,
            review_expiry_seconds: DEFAULT_REVIEW_EXPIRY_SECONDS,
            max_under_way: MAX_UNDER_WAY,
            loopback_webhooks: false,
            webhook_networks: Vec::new(),
            settlement: SettlementSetting::Local,
            exports_directory: None,
            signing_key_rotation_days: None,
            log_format: LogFormat::Text,
            log_level: LevelFilter::INFO,
        }
    }
}

/// The settings as they were written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    database: String,
    api_address: String,
    public_address: String,
    ops_address: String,
    base_url: Option<String>,
    verdicts_url: Option<String>,
    docs_url: Option<String>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    public_tls_certificate: Option<PathBuf>,
    public_tls_key: Option<PathBuf>,
    drain_delay_seconds: u64,
    review_expiry_seconds: i64,
    webhook_networks: List,
    settlement: String,
    settlement_url: Option<String>,
    exports_directory: Option<PathBuf>,
    signing_key_rotation_days: i64,
    behind_proxy: bool,
    log_format: String,
    log_level: String,
}

/// Several values: an array in a file, separated by commas in a variable.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum List {
    Text(String),
    Array(Vec<String>),
}

impl List {
    fn values(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => text.split(',').map(str::trim).filter(|value| !value.is_empty()).collect(),
            Self::Array(values) => values.iter().map(String::as_str).collect(),
        }
    }
}

/// The names of all settings: of the variables behind the prefix, and of the keys in the file.
const NAMES: &[&str] = &[
    "database",
    "api_address",
    "public_address",
    "ops_address",
    "base_url",
    "verdicts_url",
    "docs_url",
    "tls_certificate",
    "tls_key",
    "public_tls_certificate",
    "public_tls_key",
    "drain_delay_seconds",
    "review_expiry_seconds",
    "webhook_networks",
    "settlement",
    "settlement_url",
    "exports_directory",
    "signing_key_rotation_days",
    "behind_proxy",
    "log_format",
    "log_level",
];

impl Settings {
    /// Where exports are kept: beside the database, under its name and `-exports`, unless the operator says otherwise.
    /// Where the database is no file: in the working directory.
    #[must_use]
    pub fn exports_directory(&self) -> PathBuf {
        let name = self.database.strip_prefix(SQLITE).unwrap_or("mandate");
        let beside = || PathBuf::from(format!("{name}-exports"));
        self.exports_directory.clone().unwrap_or_else(beside)
    }

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

impl Written {
    fn check(self, origins: &Origins<'_>) -> Result<Settings, ConfigRefused> {
        let proxied = self.behind_proxy;
        let tls = pair(["tls_certificate", "tls_key"], self.tls_certificate, self.tls_key, origins)?;
        let public = ["public_tls_certificate", "public_tls_key"];
        let public = pair(public, self.public_tls_certificate, self.public_tls_key, origins)?;
        let public_tls = public.or_else(|| tls.clone());
        let listen =
            |name, text: &str, tls: bool| origins.check(name, text, |text| address(text, proxied || tls));
        let url = |name, text: Option<String>, check: fn(&str) -> Result<String, String>| {
            text.map(|text| origins.check(name, &text, check)).transpose()
        };
        let settings = Settings {
            database: origins.check("database", &self.database, database)?,
            api_address: listen("api_address", &self.api_address, tls.is_some())?,
            public_address: listen("public_address", &self.public_address, public_tls.is_some())?,
            ops_address: listen("ops_address", &self.ops_address, false)?,
            base_url: url("base_url", self.base_url, base_url)?,
            verdicts_url: url("verdicts_url", self.verdicts_url, site_url)?,
            docs_url: url("docs_url", self.docs_url, site_url)?,
            tls,
            public_tls,
            behind_proxy: proxied,
            drain_delay_seconds: origins.check(
                "drain_delay_seconds",
                &self.drain_delay_seconds.to_string(),
                drain_delay,
            )?,
            review_expiry_seconds: origins.check(
                "review_expiry_seconds",
                &self.review_expiry_seconds.to_string(),
                review_expiry,
            )?,
            max_under_way: MAX_UNDER_WAY,
            loopback_webhooks: false,
            webhook_networks: self
                .webhook_networks
                .values()
                .into_iter()
                .map(|text| origins.check("webhook_networks", text, network))
                .collect::<Result<_, _>>()?,
            settlement: settlement(&self.settlement, self.settlement_url.as_deref(), origins)?,
            exports_directory: self.exports_directory,
            signing_key_rotation_days: origins.check(
                "signing_key_rotation_days",
                &self.signing_key_rotation_days.to_string(),
                rotation_days,
            )?,
            log_format: origins.check("log_format", &self.log_format, log_format)?,
            log_level: origins.check("log_level", &self.log_level, log_level)?,
        };
        for (name, url, address) in [
            ("base_url", &settings.base_url, settings.api_address),
            ("verdicts_url", &settings.verdicts_url, settings.public_address),
        ] {
            if url.is_none() && !address.ip().is_loopback() {
                let problem =
                    format!("is needed: clients cannot tell it from the listener's address, {address}");
                return Err(origins.refused(name, problem));
            }
        }
        Ok(settings)
    }
}

impl From<Settings> for Written {
    fn from(settings: Settings) -> Self {
        Self {
            database: settings.database,
            api_address: settings.api_address.to_string(),
            public_address: settings.public_address.to_string(),
            ops_address: settings.ops_address.to_string(),
            base_url: None,
            verdicts_url: None,
            docs_url: None,
            tls_certificate: None,
            tls_key: None,
            public_tls_certificate: None,
            public_tls_key: None,
            drain_delay_seconds: settings.drain_delay_seconds,
            review_expiry_seconds: settings.review_expiry_seconds,
            webhook_networks: List::Array(Vec::new()),
            settlement: "local".to_owned(),
            settlement_url: None,
            exports_directory: None,
            signing_key_rotation_days: 0,
            behind_proxy: false,
            log_format: "text".to_owned(),
            log_level: settings.log_level.to_string(),
        }
    }
}

/// Tells where each setting came from.
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

/// The variables that look as if they were meant for this server, and are read by nobody.
#[must_use]
pub fn unread_variables() -> Vec<Unread> {
    variables::unread(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
}

/// Who became this user through sudo, which says so in a variable.
#[must_use]
pub fn sudo_user() -> Option<String> {
    variable("SUDO_USER").ok().flatten().map(|name| name.to_string())
}

/// Whether Cargo has started this program.
#[must_use]
pub fn started_by_cargo() -> bool {
    variable("CARGO").is_ok_and(|value| value.is_some())
}

#[cfg(test)]
mod tests;
