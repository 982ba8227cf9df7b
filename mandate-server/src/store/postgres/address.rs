//! Where a PostgreSQL database is, as `--database` names it, and how it is reached.

use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use form_urlencoded::Serializer;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::tls::{self, Trust};
use crate::error::Fault;

/// How a connection is named in the server's own list of them.
const APPLICATION: &str = "mandate-server";
/// How long TCP and what is above it may take to be there.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long what was sent may be without an acknowledgement before the connection is given up.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(6);
/// After how long without a word it is asked whether the other end is there, and how often.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// A database, and the way to it. Its password is not shown.
pub(super) struct Address {
    config: Config,
    connector: MakeRustlsConnect,
    /// Whether statements are prepared once in each connection.
    pub(super) prepares: bool,
    shown: String,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// What stands in a URL for this program, and not for the library that connects.
#[derive(Default)]
struct Own {
    trust: Option<Trust>,
    disabled: bool,
    preferred: bool,
    roots: Option<String>,
    unprepared: bool,
}

impl Address {
    /// Reads a URL: `postgres://user:password@host:port/name?sslmode=…`, with the parameters of libpq.
    ///
    /// # Errors
    /// It is no such URL, a parameter is unknown, or the certificates that are to be trusted cannot be read. The text
    /// itself is not repeated: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Arc<Self>, Fault> {
        let (own, rest) = Own::take(url)?;
        let unusable = |e: tokio_postgres::Error| {
            // Its source names the parameter; neither repeats a value.
            let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            Fault::new(format!("database: the URL cannot be used: {why}"))
        };
        let mut config = Config::from_str(&rest).map_err(unusable)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Fault::new("database: the URL names no host"));
        }
        config.application_name(APPLICATION).connect_timeout(CONNECT_TIMEOUT);
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
        config
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE)
            .keepalives_retries(KEEPALIVE_RETRIES);
        if config.get_hosts().len() > 1 {
            // Of several, the one that can be written to.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let prepares = !own.unprepared;
        let (mode, roots) = own.security(&config);
        config.ssl_mode(mode);
        let connector = MakeRustlsConnect::new(tls::client(&roots)?);
        Ok(Arc::new(Self { connector, prepares, shown: shown(url), config }))
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn connector(&self) -> MakeRustlsConnect {
        self.connector.clone()
    }
}

impl Own {
    /// Takes this program's parameters out of a URL.
    fn take(url: &str) -> Result<(Self, String), Fault> {
        let mut own = Self::default();
        let Some((before, query)) = url.split_once('?') else { return Ok((own, url.to_owned())) };
        let (mut rest, mut left) = (Serializer::new(String::new()), 0);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("sslmode", "disable") => own.disabled = true,
                ("sslmode", "prefer") => own.preferred = true,
                ("sslmode", "require") => own.trust = Some(Trust::Anything),
                ("sslmode", "verify-ca") => own.trust = Some(Trust::Authority),
                ("sslmode", "verify-full") => own.trust = Some(Trust::Name),
                ("sslmode", _) => {
                    let words = "disable, prefer, require, verify-ca or verify-full";
                    return Err(Fault::new(format!("database: sslmode must be {words}")));
                }
                ("sslrootcert", "system") => own.roots = None,
                ("sslrootcert", path) => own.roots = Some(path.to_owned()),
                ("statement_cache", "on") => own.unprepared = false,
                ("statement_cache", "off") => own.unprepared = true,
                ("statement_cache", _) => {
                    return Err(Fault::new("database: statement_cache must be on or off"));
                }
                _ => {
                    rest.append_pair(&name, &value);
                    left += 1;
                }
            }
        }
        let rest = rest.finish();
        Ok((own, if left == 0 { before.to_owned() } else { format!("{before}?{rest}") }))
    }

    /// How far TLS goes. Where the URL does not say: to the end where the database is on another machine.
    fn security(self, config: &Config) -> (SslMode, tls::Roots) {
        let near = config.get_hostaddrs().is_empty() && config.get_hosts().iter().all(is_near);
        let (mode, trust) = match (self.trust, self.disabled, self.preferred) {
            (Some(trust), ..) => (SslMode::Require, trust),
            (None, true, _) => (SslMode::Disable, Trust::Anything),
            (None, false, true) => (SslMode::Prefer, Trust::Anything),
            (None, false, false) if near => (SslMode::Prefer, Trust::Anything),
            (None, false, false) => (SslMode::Require, Trust::Name),
        };
        (mode, tls::Roots { trust, file: self.roots })
    }
}

/// Whether a host is this machine.
fn is_near(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

/// The URL without a password, to be told.
pub(in crate::store) fn shown(url: &str) -> String {
    let (before, query) = url.split_once('?').map_or((url, None), |(before, query)| (before, Some(query)));
    let (scheme, rest) = before.split_once("://").unwrap_or(("", before));
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, rest),
    };
    let user = user.map(|user| match user.split_once(':') {
        Some((user, _)) => format!("{user}:***@"),
        None => format!("{user}@"),
    });
    let mut told = format!("{scheme}://{}{place}", user.unwrap_or_default());
    let pairs = query.map(|query| form_urlencoded::parse(query.as_bytes()).into_owned());
    for (number, (name, value)) in pairs.into_iter().flatten().enumerate() {
        let value = if name == "password" { "***" } else { &value };
        told.push(if number == 0 { '?' } else { '&' });
        told.extend([&*name, "=", value]);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, told) in [
            ("postgres://u:secret@h:5432/d", "postgres://u:***@h:5432/d"),
            ("postgresql://u:se@cret@h/d?sslmode=require", "postgresql://u:***@h/d?sslmode=require"),
            ("postgres:///d?host=/run/pg&password=secret", "postgres:///d?host=/run/pg&password=***"),
            ("postgres://u@h1,h2:5433/d", "postgres://u@h1,h2:5433/d"),
            ("postgres://h/d", "postgres://h/d"),
        ] {
            assert_eq!(shown(url), told);
        }
        let address = Address::parse("postgres://u:secret@localhost/d?password=secret").unwrap();
        assert!(!format!("{address:?} {address}").contains("secret"));
        for bad in [
            "postgres://u:secret@h:port/d",
            "postgres://u:secret@h/d?sslmode=secret",
            "postgres://u:secret@h/d?unknown=secret",
            "postgres://u:secret@h/d?statement_cache=secret",
            "postgres://u:secret@h/d?sslrootcert=/nowhere/at/all",
        ] {
            let why = Address::parse(bad).unwrap_err().to_string();
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn what_is_on_another_machine_is_reached_over_verified_tls_unless_the_url_says_otherwise() {
        for (url, mode) in [
            ("postgres://localhost/d", SslMode::Prefer),
            ("postgres://127.0.0.1/d", SslMode::Prefer),
            ("postgres:///d?host=/run/postgresql", SslMode::Prefer),
            ("postgres://db.example.com/d", SslMode::Require),
            ("postgres://localhost,db.example.com/d", SslMode::Require),
            ("postgres://db.example.com/d?sslmode=prefer", SslMode::Prefer),
            ("postgres://db.example.com/d?sslmode=disable", SslMode::Disable),
            ("postgres://localhost/d?sslmode=verify-full", SslMode::Require),
        ] {
            assert_eq!(Address::parse(url).unwrap().config().get_ssl_mode(), mode, "{url}");
        }
    }

    #[test]
    fn of_several_hosts_the_one_that_can_be_written_to_is_meant() {
        let address = Address::parse("postgres://u@h1,h2:5433/d?statement_cache=off").unwrap();
        assert_eq!(address.config().get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert!(!address.prepares);
    }
}
