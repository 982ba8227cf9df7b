//! The settings that the command line accepts.

use std::path::PathBuf;

use figment::providers::Serialized;
use figment::value::{Dict, Map};
use figment::{Metadata, Profile, Provider};
use serde::Serialize;

/// The name of the command line as a source.
pub(super) const COMMAND_LINE: &str = "command line";

/// The settings of every command. All are optional: variables, the file and the defaults supply the others.
#[derive(Debug, Clone, Default, Serialize, clap::Args)]
#[expect(clippy::doc_markdown, reason = "the words are help for a terminal")]
pub struct Flags {
    /// Read settings from this TOML file [env: MANDATE_CONFIG]
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// The database: sqlite://PATH, or postgres://… [env: MANDATE_DATABASE] [default: sqlite://mandate.db]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,

    #[command(flatten)]
    #[serde(flatten)]
    pub server: ServerFlags,
}

/// The settings of a server that listens.
#[derive(Debug, Clone, Default, Serialize, clap::Args)]
#[expect(clippy::doc_markdown, reason = "the words are help for a terminal")]
pub struct ServerFlags {
    /// The address of the API listener [env: MANDATE_API_ADDRESS] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_address: Option<String>,

    /// The address of the public listener, with the key set [env: MANDATE_PUBLIC_ADDRESS] [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_address: Option<String>,

    /// The address of the ops listener, with liveness and readiness [env: MANDATE_OPS_ADDRESS] [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_address: Option<String>,

    /// The address of the console's listener, for people [env: MANDATE_CONSOLE_ADDRESS] [default: no console]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_address: Option<String>,

    /// The API's address as clients see it; ends in /v1 [env: MANDATE_BASE_URL] [default: from the listener]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,

    /// The issuer of signed tokens, where the key set is published [env: MANDATE_VERDICTS_URL] [default: from the
    /// listener]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdicts_url: Option<String>,

    /// The URL of the OpenAPI document [env: MANDATE_DOCS_URL] [default: from the listener]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docs_url: Option<String>,

    /// The console's origin as people see it, which passkeys are bound to [env: MANDATE_CONSOLE_URL] [default: from the
    /// listener]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_url: Option<String>,

    /// Use TLS with this certificate chain, in PEM [env: MANDATE_TLS_CERTIFICATE]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,

    /// The certificate's private key, in PEM [env: MANDATE_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,

    /// Another certificate for the public listener [env: MANDATE_PUBLIC_TLS_CERTIFICATE] [default: the API's]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_tls_certificate: Option<PathBuf>,

    /// That certificate's private key [env: MANDATE_PUBLIC_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_tls_key: Option<PathBuf>,

    /// Another certificate for the console's listener [env: MANDATE_CONSOLE_TLS_CERTIFICATE] [default: the API's]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_tls_certificate: Option<PathBuf>,

    /// That certificate's private key [env: MANDATE_CONSOLE_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_tls_key: Option<PathBuf>,

    /// How long the server still accepts requests after it has reported that it is not ready, before it stops, so that load
    /// balancers notice [env: MANDATE_DRAIN_DELAY_SECONDS] [default: 0]
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_delay_seconds: Option<u64>,

    /// How long a review waits for a person [env: MANDATE_REVIEW_EXPIRY_SECONDS] [default: 86400]
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review_expiry_seconds: Option<i64>,

    /// Allow webhooks in this network although it is not public; repeatable
    /// [env: MANDATE_WEBHOOK_NETWORKS, separated by commas]
    #[arg(long = "webhook-network", alias = "webhook-networks", value_name = "CIDR")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhook_networks: Vec<String>,

    /// How the funds of escrows are moved: local or http [env: MANDATE_SETTLEMENT] [default: local]
    #[arg(long, value_name = "ADAPTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settlement: Option<String>,

    /// The URL to which http settlement posts its instructions [env: MANDATE_SETTLEMENT_URL]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settlement_url: Option<String>,

    /// The directory of exports [env: MANDATE_EXPORTS_DIRECTORY] [default: beside the database]
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exports_directory: Option<PathBuf>,

    /// The directory of the public logs' last signed checkpoints [env: MANDATE_CHECKPOINTS_DIRECTORY] [default: beside a
    /// database that is a file]
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints_directory: Option<PathBuf>,

    /// Rotate signing keys after this many days; 0: by command only [env: MANDATE_SIGNING_KEY_ROTATION_DAYS] [default: 0]
    #[arg(long, value_name = "DAYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signing_key_rotation_days: Option<u32>,

    /// Allow plain HTTP beyond this machine, since a proxy in front uses TLS [env: MANDATE_BEHIND_PROXY]
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub behind_proxy: bool,

    /// Send traces to this collector, over OTLP/HTTP [env: MANDATE_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_endpoint: Option<String>,

    /// The share of requests without a trace that begin one [env: MANDATE_OTLP_SAMPLING_RATIO]
    /// [default: 0.1]
    #[arg(long, value_name = "RATIO")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_sampling_ratio: Option<f64>,

    /// The format of the log: text or json [env: MANDATE_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<String>,

    /// The level of the log: off, error, warn, info, debug or trace [env: MANDATE_LOG_LEVEL] [default: info]
    #[arg(long, value_name = "LEVEL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
}

/// The flags as a source of settings.
impl Provider for Flags {
    fn metadata(&self) -> Metadata {
        Metadata::named(COMMAND_LINE)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Serialized::defaults(self).data()
    }
}
