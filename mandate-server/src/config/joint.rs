//! Settings that make sense together only.

use std::path::PathBuf;

use super::check::site_url;
use super::{ConfigRefused, Origins, SettlementSetting};

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and behind it those that lead to one that clients trust.
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

/// Who moves the funds, and where.
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
