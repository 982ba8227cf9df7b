//! Settings that depend on each other.

use std::path::PathBuf;

use super::check::{otlp_endpoint, sampling_ratio, site_url};
use super::{Collector, ConfigRefused, Origins};

/// How the funds of escrows are moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettlementSetting {
    /// By the record alone: an instruction is settled when it is recorded.
    Local,
    /// By a provider, which receives instructions at this URL.
    Http(String),
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by its chain up to one that clients trust.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A certificate and its key: both, or neither.
pub(super) fn pair(
    names: [&str; 2],
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    origins: &Origins<'_>,
) -> Result<Option<TlsFiles>, ConfigRefused> {
    let [certificate_name, key_name] = names;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err(origins.refused(key_name, format!("is needed where {certificate_name} is set")))
        }
        (None, Some(_)) => {
            Err(origins.refused(certificate_name, format!("is needed where {key_name} is set")))
        }
    }
}

/// The collector of traces, if there is one.
pub(super) fn collector(
    endpoint: Option<&str>,
    ratio: f64,
    origins: &Origins<'_>,
) -> Result<Option<Collector>, ConfigRefused> {
    let sampling_ratio = origins.check("otlp_sampling_ratio", &ratio.to_string(), sampling_ratio)?;
    let endpoint = endpoint.map(|text| origins.check("otlp_endpoint", text, otlp_endpoint)).transpose()?;
    Ok(endpoint.map(|endpoint| Collector { endpoint, sampling_ratio }))
}

/// How the funds are moved, and by which provider.
pub(super) fn settlement(
    adapter: &str,
    url: Option<&str>,
    origins: &Origins<'_>,
) -> Result<SettlementSetting, ConfigRefused> {
    let refused = |name, problem: &str| Err(origins.refused(name, problem.to_owned()));
    match (adapter, url) {
        ("local", None) => Ok(SettlementSetting::Local),
        ("http", Some(url)) => origins.check("settlement_url", url, site_url).map(SettlementSetting::Http),
        ("local", Some(_)) => refused("settlement_url", "is of no use where settlement is local"),
        ("http", None) => refused("settlement_url", "is needed where settlement is http"),
        _ => refused("settlement", &format!("must be local or http; got `{adapter}`")),
    }
}
