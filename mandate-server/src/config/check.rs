//! Checks the value of each setting. A message says what would be accepted.

use std::net::{IpAddr, SocketAddr};

use hyper::Uri;
use hyper::http::uri::Scheme;
use ipnet::IpNet;
use tracing::level_filters::LevelFilter;
use url::{Host, Url};

use super::{LogFormat, MAX_DRAIN_DELAY_SECONDS, MAX_REVIEW_EXPIRY_SECONDS, MAX_ROTATION_DAYS, VERSION_PATH};
use crate::model::database::{POSTGRES, SQLITE};

pub(super) fn database(text: &str) -> Result<String, String> {
    let postgres =
        POSTGRES.iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
    match text.strip_prefix(SQLITE) {
        Some(path) if !path.is_empty() => Ok(text.to_owned()),
        None if postgres => Ok(text.to_owned()),
        // The text after a scheme may hold a password.
        _ => Err(format!(
            "must be {SQLITE} and the path of a file, such as {SQLITE}mandate.db, or the URL of a PostgreSQL database, such \
             as postgres://mandate@localhost/mandate; got {}",
            text.split_once("://")
                .map_or("a name without that".to_owned(), |(scheme, _)| format!("`{scheme}://…`"))
        )),
    }
}

/// The address of a listener. It must be on this machine unless it is `safe`: encrypted by this server or by a proxy.
pub(super) fn address(text: &str, safe: bool) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| format!("must be an IP address and a port, such as 127.0.0.1:8080; got `{text}`"))?;
    if address.ip().is_loopback() || safe {
        return Ok(address);
    }
    Err(format!(
        "{address} can be reached from other machines, and this listener would speak plain HTTP. Listen on loopback, \
         set tls_certificate and tls_key (for the API and the public listener), or let a proxy speak TLS in front of it \
         and say so with behind_proxy"
    ))
}

pub(super) fn base_url(text: &str) -> Result<String, String> {
    let problem = || {
        format!(
            "must be an https URL that ends in {VERSION_PATH}, such as https://api.example.com/v1; got {}",
            repeated(text)
        )
    };
    if text.ends_with(VERSION_PATH) && is_site(text) { with_port(text) } else { Err(problem()) }
}

/// A refused URL as a message repeats it. One that may hold a secret is not repeated.
fn repeated(text: &str) -> String {
    if text.contains(['@', '?']) {
        "one with a user or a query, which is not repeated here".to_owned()
    } else {
        format!("`{text}`")
    }
}

pub(super) fn site_url(text: &str) -> Result<String, String> {
    let problem = || {
        format!(
            "must be an https URL without a slash at its end, such as https://verdicts.example.com; got {}",
            repeated(text)
        )
    };
    if is_site(text) { with_port(text) } else { Err(problem()) }
}

/// The console's origin. A passkey is bound to the name in it, and there are none for the address of a host.
pub(super) fn console_url(text: &str) -> Result<String, String> {
    let url = site_url(text).ok().and_then(|text| Url::parse(&text).ok());
    let is_named = url.as_ref().is_some_and(|url| matches!(url.host(), Some(Host::Domain(_))));
    match url.filter(|_| is_named).map(|url| url.origin().ascii_serialization()) {
        Some(origin) if origin == text => Ok(origin),
        _ => Err(format!(
            "must be the origin of a site, https with the name of its host and nothing behind it, such as \
             https://console.example.com, or http://localhost:8083; got {}",
            repeated(text)
        )),
    }
}

/// The issuer of all tokens. Clients compare it character for character, and many normalise the one that they expect: so
/// only the normalised spelling is accepted.
pub(super) fn issuer_url(text: &str) -> Result<String, String> {
    let text = site_url(text)?;
    let normal = Url::parse(&text).map_err(|e| format!("must be an https URL: {e}; got `{text}`"))?;
    let normal = normal.as_str().trim_end_matches('/');
    if normal == text {
        return Ok(text);
    }
    Err(format!(
        "must be written as `{normal}`: it is the issuer of every token, which clients compare character for character; \
         got `{text}`"
    ))
}

/// The URL of the collector. Plain HTTP is accepted, since a collector is usually near. A user or a password is
/// refused, since it would be shown with the settings.
pub(super) fn otlp_endpoint(text: &str) -> Result<String, String> {
    let uri = text.parse::<Uri>().ok();
    let schemes = [&Scheme::HTTP, &Scheme::HTTPS];
    let is_http = uri.is_some_and(|uri| {
        uri.host().is_some_and(|host| !host.is_empty())
            && uri.scheme().is_some_and(|scheme| schemes.contains(&scheme))
    });
    if is_http && !text.contains(['?', '#', '@']) && !text.ends_with('/') && !text.ends_with("/v1/traces") {
        return Ok(text.to_owned());
    }
    // The refused text may hold a password, so it is not repeated.
    Err("must be an http or https URL without user, query, or a slash at its end, such as http://127.0.0.1:4318; \
         /v1/traces is added"
        .to_owned())
}

/// The share of requests for which a trace is made.
pub(super) fn sampling_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| format!("must be between 0 and 1; got `{text}`"))
}

/// Refuses port 0, on which nothing can listen.
fn with_port(text: &str) -> Result<String, String> {
    match text.parse::<Uri>().ok().and_then(|uri| uri.port_u16()) {
        Some(0) => Err(format!("must have a port from 1 to 65535; got `{text}`")),
        _ => Ok(text.to_owned()),
    }
}

/// Whether `text` is https, or http on this machine, without user, query, fragment, or a slash at its end.
fn is_site(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let Some(host) = uri.host().filter(|host| !host.is_empty()) else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let local = host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let secure = uri.scheme() == Some(&Scheme::HTTPS) || (uri.scheme() == Some(&Scheme::HTTP) && local);
    secure && !text.contains(['?', '#', '@']) && !text.ends_with('/')
}

pub(super) fn review_expiry(text: &str) -> Result<i64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=MAX_REVIEW_EXPIRY_SECONDS).contains(seconds));
    seconds.ok_or_else(|| format!("must be between 1 and {MAX_REVIEW_EXPIRY_SECONDS}; got `{text}`"))
}

pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().ok().filter(|network: &IpNet| network.addr() == network.network());
    network.ok_or_else(|| {
        format!(
            "must be networks in CIDR notation, each its first address and the bits of its prefix, such as 10.20.0.0/16 \
             or fd00:20::/32; got `{text}`"
        )
    })
}

pub(super) fn drain_delay(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= MAX_DRAIN_DELAY_SECONDS);
    seconds.ok_or_else(|| format!("must be at most {MAX_DRAIN_DELAY_SECONDS}; got `{text}`"))
}

/// How many days a signing key signs. None if it is rotated by command only.
pub(super) fn rotation_days(text: &str) -> Result<Option<u32>, String> {
    match text.parse() {
        Ok(0) => Ok(None),
        Ok(days) if days <= MAX_ROTATION_DAYS => Ok(Some(days)),
        _ => Err(format!("must be between 1 and {MAX_ROTATION_DAYS}, or 0 for never; got `{text}`")),
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("must be text or json; got `{text}`")),
    }
}

pub(super) fn log_level(text: &str) -> Result<LevelFilter, String> {
    text.parse().map_err(|_| format!("must be off, error, warn, info, debug or trace; got `{text}`"))
}
