//! The checked settings, and their defaults.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use tracing::level_filters::LevelFilter;

use super::{Collector, SettlementSetting, TlsFiles};
use crate::model::database::SQLITE;

/// How long a person has to answer a review, in seconds: 24 hours.
pub const DEFAULT_REVIEW_EXPIRY_SECONDS: i64 = 24 * 60 * 60;
/// The longest drain delay, in seconds: 10 minutes.
pub const MAX_DRAIN_DELAY_SECONDS: u64 = 10 * 60;
/// The longest that a review may wait, in seconds: 366 days.
pub const MAX_REVIEW_EXPIRY_SECONDS: i64 = 366 * 24 * 60 * 60;
/// The longest time between two rotations of a signing key, in days: ten years.
pub const MAX_ROTATION_DAYS: u32 = 3_650;
/// The default share of requests without a trace that begin one.
pub const DEFAULT_SAMPLING_RATIO: f64 = 0.1;
/// How many requests may run at a time after the gate. This is no setting, since the store's queue has the same length.
pub(super) const MAX_UNDER_WAY: usize = 4096;

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object in each line.
    Json,
}

/// Every checked setting but the master key. `Debug` shows no password of a database.
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
    /// Where the console listens. Absent: there is none on this server.
    pub console_address: Option<SocketAddr>,
    /// The API's address as clients see it. Absent: the listener's.
    pub base_url: Option<String>,
    /// The issuer of tokens. Absent: the public listener's address.
    pub verdicts_url: Option<String>,
    /// Where the contract is published. Absent: the public listener's address.
    pub docs_url: Option<String>,
    /// The console's origin as people see it. Absent: of the console's listener, if it is on this machine.
    pub console_url: Option<String>,
    /// The TLS certificate of the API's listener. Absent: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The TLS certificate of the public listener. Absent: the API's.
    pub public_tls: Option<TlsFiles>,
    /// The TLS certificate of the console's listener. Absent: the API's.
    pub console_tls: Option<TlsFiles>,
    /// Whether all connections come from a proxy that uses TLS.
    pub behind_proxy: bool,
    /// How long requests are still accepted after the server has reported that it is not ready, in seconds.
    pub drain_delay_seconds: u64,
    /// How long a review waits, in seconds.
    pub review_expiry_seconds: i64,
    /// How many requests run at a time after the key check. Others get a 503 with `Retry-After`.
    pub max_under_way: usize,
    /// Whether webhooks may be on this machine, over plain HTTP. Only `dev` sets it: no flag, variable or file can.
    pub loopback_webhooks: bool,
    /// Networks that webhooks may be in although they are not public.
    pub webhook_networks: Vec<IpNet>,
    /// How the funds of escrows are moved.
    pub settlement: SettlementSetting,
    /// Where exports are kept. Absent: beside the database.
    pub exports_directory: Option<PathBuf>,
    /// Where the last signed checkpoints of the public logs are kept. Absent: beside a database that is a file.
    pub checkpoints_directory: Option<PathBuf>,
    /// After how many days signing keys are rotated. Absent: by the operator's command only.
    pub signing_key_rotation_days: Option<u32>,
    /// The collector of traces. Absent: no traces are made.
    pub collector: Option<Collector>,
    /// The format of the log.
    pub log_format: LogFormat,
    /// The level of the log.
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
            console_address: None,
            base_url: None,
            verdicts_url: None,
            docs_url: None,
            console_url: None,
            tls: None,
            public_tls: None,
            console_tls: None,
            behind_proxy: false,
            drain_delay_seconds: 0,
            review_expiry_seconds: DEFAULT_REVIEW_EXPIRY_SECONDS,
            max_under_way: MAX_UNDER_WAY,
            loopback_webhooks: false,
            webhook_networks: Vec::new(),
            settlement: SettlementSetting::Local,
            exports_directory: None,
            checkpoints_directory: None,
            signing_key_rotation_days: None,
            collector: None,
            log_format: LogFormat::Text,
            log_level: LevelFilter::INFO,
        }
    }
}

impl Settings {
    /// The directory of exports. By default it is beside the database and has the database's name with `-exports`.
    /// If the database is no file, it is in the working directory.
    #[must_use]
    pub fn exports_directory(&self) -> PathBuf {
        let name = self.database.strip_prefix(SQLITE).unwrap_or("mandate");
        let beside = || PathBuf::from(format!("{name}-exports"));
        self.exports_directory.clone().unwrap_or_else(beside)
    }

    /// The directory of the last signed checkpoints of the public logs. By default it is beside the database and has the
    /// database's name with `-checkpoints`. If the database is no file, there is none by default.
    #[must_use]
    pub fn checkpoints_directory(&self) -> Option<PathBuf> {
        let beside = || Some(PathBuf::from(format!("{}-checkpoints", self.database.strip_prefix(SQLITE)?)));
        self.checkpoints_directory.clone().or_else(beside)
    }
}
