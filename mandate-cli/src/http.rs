//! The HTTP transport: which addresses may be reached, and with which limits.

mod error;
mod transport;
mod verbose;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use http::Uri;
use mandate_core::Timestamp;

pub(crate) use self::error::Error;
pub(crate) use self::transport::{REQUEST_TIMEOUT, Response, Transport, send};
pub(crate) use self::verbose::be_verbose;
use crate::environment::variable;
use crate::exit::Failure;
use crate::proxy::UsableProxy;

const INCOMPLETE: &str = "it must be a complete URL: https://, or on this machine http://";

/// An address that may be reached: https anywhere, http on loopback only; without user, password, query or
/// fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    text: String,
    plain: bool,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri = Uri::from_str(text).map_err(|e| {
            // Without a scheme, the parser would only report an invalid format.
            if text.contains("://") { format!("it is not a URL: {e}") } else { INCOMPLETE.to_owned() }
        })?;
        let (Some(authority), Some(host)) = (uri.authority(), uri.host().filter(|h| !h.is_empty())) else {
            return Err(INCOMPLETE.to_owned());
        };
        if authority.as_str().contains('@') || text.contains(['?', '#']) {
            return Err("it must have no user, password, query or fragment".to_owned());
        }
        let plain = match uri.scheme_str() {
            Some("https") => false,
            Some("http") if is_loopback(host) => true,
            Some("http") => return Err("http is accepted for this machine only; use https".to_owned()),
            _ => return Err(INCOMPLETE.to_owned()),
        };
        Ok(Self { text: text.trim_end_matches('/').to_owned(), plain })
    }
}

/// What to do where nothing speaks TLS.
pub(crate) const NO_TLS: &str =
    "the server there does not speak TLS: check scheme and port; http:// is for a service on this machine";

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Address {
    /// The address with `path`, which begins with a slash, appended.
    pub(crate) fn join(&self, path: &str) -> Self {
        Self { text: format!("{}{path}", self.text), plain: self.plain }
    }

    /// The address without `path`, if it ends with it.
    pub(crate) fn without(&self, path: &str) -> Option<Self> {
        Some(Self { text: self.text.strip_suffix(path)?.to_owned(), plain: self.plain })
    }

    /// The text, without a slash at its end.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is reached without TLS, on this machine.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// A client for this address. It does not follow redirects: neither a key nor the trust in a key set
    /// moves to an address that the caller has not named.
    ///
    /// # Errors
    ///
    /// The variable that names the proxy names none that can be used.
    pub(crate) fn transport(&self) -> Result<Transport, Failure> {
        Ok(Transport::new(self.plain, self.via()?))
    }

    /// The proxy for this address. A plain request must not leave the machine, so it never has one.
    fn via(&self) -> Result<Option<UsableProxy>, Failure> {
        if self.plain { Ok(None) } else { UsableProxy::find(&self.text) }
    }

    /// Why a request failed, to be appended to what was tried: the proxy, if there is one, and the error.
    pub(crate) fn why(&self, error: &Error) -> String {
        if let Some(places) = rootless(error) {
            return format!(": no root certificates were found {places}");
        }
        match self.via() {
            Ok(Some(via)) => format!(" through {via}: {error}"),
            _ => format!(": {error}"),
        }
    }

    /// What to do about `error`, if a proxy or missing root certificates may be the reason.
    pub(crate) fn advice(&self, error: &Error) -> Option<String> {
        if rootless(error).is_some() {
            let advice = "install root certificates, or set SSL_CERT_FILE to a PEM file of them";
            return Some(advice.to_owned());
        }
        let via = self.via().ok().flatten().filter(|_| !error.is_untrusted())?;
        Some(format!(
            "check {via}, and the address; NO_PROXY lists the hosts that are reached without a proxy"
        ))
    }
}

/// The time in a `Date` header (RFC 9110, section 5.6.7), exact to a second.
pub(crate) fn date(text: &str) -> Option<Timestamp> {
    let since_epoch = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_seconds(i64::try_from(since_epoch.as_secs()).ok()?))
}

/// The pause that a `Retry-After` header asks for at `now`: a number of seconds, or the time at which it ends
/// (RFC 9110, section 10.2.3). A time in the past asks for none.
pub(crate) fn pause(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let left = date(text)?.millis().saturating_sub(now.millis());
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

/// Where root certificates were looked for, if `error` says that there are none.
fn rootless(error: &Error) -> Option<String> {
    if !error.is_without_roots() {
        return None;
    }
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(|name| {
        let place = variable(name).ok().flatten()?;
        Some(format!("at {} ({name})", place.as_str()))
    });
    let places = named.collect::<Vec<_>>().join(", or ");
    Some(if places.is_empty() { "on this machine".to_owned() } else { places })
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_stays_on_the_machine() {
        for text in [
            "https://api.example.com/v1",
            "https://10.0.0.1:8443",
            "http://127.0.0.1:8080/v1",
            "http://127.9.9.9",
            "http://[::1]:1/v1",
            "http://localhost:3000",
        ] {
            assert!(text.parse::<Address>().is_ok(), "{text}");
        }
        for text in [
            "http://api.example.com/v1",
            "http://127.0.0.1.example.com",
            "http://127.0.0.1@example.com",
            "http://localhost.example.com",
            "http://0.0.0.0",
            "http://[::ffff:127.0.0.1]",
            "http://[::]",
            "https://user:secret@example.com",
            "https://example.com/?a=b",
            "https://example.com/#a",
            "https://:8080/v1",
            "ftp://example.com",
            "file:///etc/passwd",
            "example.com",
            "/v1",
            "",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_scheme_is_reported() {
        for text in ["127.0.0.1:8080/v1", "localhost:8080/v1", "api.example.com/v1", "/v1", ""] {
            assert_eq!(text.parse::<Address>(), Err(INCOMPLETE.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_pause_is_a_number_of_seconds_or_the_time_of_its_end() {
        let now = date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let seconds = |text| pause(text, now).map(|pause| pause.as_secs());
        assert_eq!(seconds("0"), Some(0));
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:40 GMT"), Some(3));
        assert_eq!(seconds("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        for text in ["", "-1", "1.5", "soon", "08:49:40"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_slash_at_the_end_makes_no_difference() {
        let address: Address = "https://example.com/v1/".parse().unwrap();
        assert_eq!(address.join("/agents").as_str(), "https://example.com/v1/agents");
    }
}
