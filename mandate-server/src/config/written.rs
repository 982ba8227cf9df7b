//! The settings as they are written, and their checks before use.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::{
    address, base_url, console_url, database, drain_delay, issuer_url, log_format, log_level, network,
    review_expiry, rotation_days, site_url,
};
use super::joint::{collector, pair, settlement};
use super::settings::{DEFAULT_SAMPLING_RATIO, MAX_UNDER_WAY};
use super::{ConfigRefused, Origins, Settings};

/// The settings as they were written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    database: String,
    api_address: String,
    public_address: String,
    ops_address: String,
    console_address: Option<String>,
    base_url: Option<String>,
    verdicts_url: Option<String>,
    docs_url: Option<String>,
    console_url: Option<String>,
    tls_certificate: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    public_tls_certificate: Option<PathBuf>,
    public_tls_key: Option<PathBuf>,
    console_tls_certificate: Option<PathBuf>,
    console_tls_key: Option<PathBuf>,
    drain_delay_seconds: u64,
    review_expiry_seconds: i64,
    webhook_networks: List,
    settlement: String,
    settlement_url: Option<String>,
    exports_directory: Option<PathBuf>,
    checkpoints_directory: Option<PathBuf>,
    signing_key_rotation_days: i64,
    behind_proxy: bool,
    otlp_endpoint: Option<String>,
    otlp_sampling_ratio: f64,
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

/// The names of all settings: those of the variables after the prefix, and of the keys in the file.
pub(super) const NAMES: &[&str] = &[
    "database",
    "api_address",
    "public_address",
    "ops_address",
    "console_address",
    "base_url",
    "verdicts_url",
    "docs_url",
    "console_url",
    "tls_certificate",
    "tls_key",
    "public_tls_certificate",
    "public_tls_key",
    "console_tls_certificate",
    "console_tls_key",
    "drain_delay_seconds",
    "review_expiry_seconds",
    "webhook_networks",
    "settlement",
    "settlement_url",
    "exports_directory",
    "checkpoints_directory",
    "signing_key_rotation_days",
    "behind_proxy",
    "otlp_endpoint",
    "otlp_sampling_ratio",
    "log_format",
    "log_level",
];

impl Written {
    pub(super) fn check(self, origins: &Origins<'_>) -> Result<Settings, ConfigRefused> {
        let proxied = self.behind_proxy;
        let tls = pair(["tls_certificate", "tls_key"], self.tls_certificate, self.tls_key, origins)?;
        let public = ["public_tls_certificate", "public_tls_key"];
        let public = pair(public, self.public_tls_certificate, self.public_tls_key, origins)?;
        let public_tls = public.or_else(|| tls.clone());
        let console = ["console_tls_certificate", "console_tls_key"];
        let console = pair(console, self.console_tls_certificate, self.console_tls_key, origins)?;
        let console_tls = console.or_else(|| tls.clone());
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
            console_address: self
                .console_address
                .map(|text| listen("console_address", &text, console_tls.is_some()))
                .transpose()?,
            base_url: url("base_url", self.base_url, base_url)?,
            verdicts_url: url("verdicts_url", self.verdicts_url, issuer_url)?,
            docs_url: url("docs_url", self.docs_url, site_url)?,
            console_url: url("console_url", self.console_url, console_url)?,
            tls,
            public_tls,
            console_tls,
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
            checkpoints_directory: self.checkpoints_directory,
            signing_key_rotation_days: origins.check(
                "signing_key_rotation_days",
                &self.signing_key_rotation_days.to_string(),
                rotation_days,
            )?,
            collector: collector(self.otlp_endpoint.as_deref(), self.otlp_sampling_ratio, origins)?,
            log_format: origins.check("log_format", &self.log_format, log_format)?,
            log_level: origins.check("log_level", &self.log_level, log_level)?,
        };
        settings.must_be_known(origins)?;
        Ok(settings)
    }
}

impl Settings {
    /// Refuses a listener that others reach, and whose URL is not given.
    fn must_be_known(&self, origins: &Origins<'_>) -> Result<(), ConfigRefused> {
        for (name, url, address) in [
            ("base_url", &self.base_url, Some(self.api_address)),
            ("verdicts_url", &self.verdicts_url, Some(self.public_address)),
            ("console_url", &self.console_url, self.console_address),
        ] {
            if let Some(address) = address.filter(|address| url.is_none() && !address.ip().is_loopback()) {
                let problem =
                    format!("is needed: clients cannot tell it from the listener's address, {address}");
                return Err(origins.refused(name, problem));
            }
        }
        Ok(())
    }
}

impl From<Settings> for Written {
    fn from(settings: Settings) -> Self {
        Self {
            database: settings.database,
            api_address: settings.api_address.to_string(),
            public_address: settings.public_address.to_string(),
            ops_address: settings.ops_address.to_string(),
            console_address: None,
            base_url: None,
            verdicts_url: None,
            docs_url: None,
            console_url: None,
            tls_certificate: None,
            tls_key: None,
            public_tls_certificate: None,
            public_tls_key: None,
            console_tls_certificate: None,
            console_tls_key: None,
            drain_delay_seconds: settings.drain_delay_seconds,
            review_expiry_seconds: settings.review_expiry_seconds,
            webhook_networks: List::Array(Vec::new()),
            settlement: "local".to_owned(),
            settlement_url: None,
            exports_directory: None,
            checkpoints_directory: None,
            signing_key_rotation_days: 0,
            behind_proxy: false,
            otlp_endpoint: None,
            otlp_sampling_ratio: DEFAULT_SAMPLING_RATIO,
            log_format: "text".to_owned(),
            log_level: settings.log_level.to_string(),
        }
    }
}
