//! The settings, checked, and their defaults.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use tracing::level_filters::LevelFilter;

use super::{Collector, SettlementSetting, TlsFiles};
use crate::model::database::SQLITE;

/// How long a person has to answer a review, in seconds: 24 hours.
pub const DEFAULT_REVIEW_EXPIRY_SECONDS: i64 = 24 * 60 * 60;
/// The longest that requests are still taken when the server is to stop, in seconds: 10 minutes.
pub const MAX_DRAIN_DELAY_SECONDS: u64 = 10 * 60;
/// The longest that a review may wait, in seconds: 366 days.
pub const MAX_REVIEW_EXPIRY_SECONDS: i64 = 366 * 24 * 60 * 60;
/// The longest time between two rotations of a signing key, in days: ten years.
pub const MAX_ROTATION_DAYS: u32 = 3_650;
/// Of requests that belong to no trace yet, the share that begins one.
pub const DEFAULT_SAMPLING_RATIO: f64 = 0.1;
/// Requests that are under way behind the gate at a time. It is no setting: the store's queue is as long.
pub(super) const MAX_UNDER_WAY: usize = 4096;

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
    /// How many requests run at a time after the key check. Others get a 503 with `Retry-After`.
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
    /// The collector of traces. Absent: no traces are made.
    pub collector: Option<Collector>,
    /// How the log is written.
    pub log_format: LogFormat,
    /// What is logged.
    pub log_level: LevelFilter,
}

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
            collector: None,
            log_format: LogFormat::Text,
            log_level: LevelFilter::INFO,
        }
    }
}

impl Settings {
    /// Where exports are kept: beside the database, under its name and `-exports`, unless the operator says otherwise.
    /// Where the database is no file: in the working directory.
    #[must_use]
    pub fn exports_directory(&self) -> PathBuf {
        let name = self.database.strip_prefix(SQLITE).unwrap_or("mandate");
        let beside = || PathBuf::from(format!("{name}-exports"));
        self.exports_directory.clone().unwrap_or_else(beside)
    }
}
