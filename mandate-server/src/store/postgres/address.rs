//! The address of a PostgreSQL database as `--database` names it, and how to connect to it.

use std::fmt;
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use form_urlencoded::Serializer;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::breaker::Breaker;
use super::database_error::{DatabaseError, Recovery};
use super::room::Room;
use super::tls::{self, Trust};
use crate::error::Fault;
use crate::model::database::redacted;

/// The `application_name` of each connection, as `pg_stat_activity` lists it.
const APPLICATION: &str = "mandate-server";
/// How long one host may take to connect: TCP, TLS and authentication together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one host is tried alone before the next is tried in parallel.
const HEAD_START: Duration = Duration::from_secs(1);
/// How long sent data may stay unacknowledged before the connection is given up.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(6);
/// After how long without traffic TCP probes the peer, and at what interval.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// A database and how to connect to it. Its password is never shown.
pub(super) struct Address {
    /// One configuration for each host, in the order of the URL.
    hosts: Vec<Config>,
    /// The index of the host that answered last: it is tried first.
    last: AtomicUsize,
    connector: MakeRustlsConnect,
    /// Whether the database can be reached.
    pub(super) breaker: Breaker,
    /// Which threads have connections.
    pub(super) room: Room,
    /// How often a connection got no answer in time.
    pub(super) unresponsive: watch::Sender<usize>,
    /// Whether statements are prepared once for each connection.
    pub(super) prepares: bool,
    redacted: String,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted)
    }
}

/// The parameters of a URL that are this program's, not the library's.
#[derive(Default)]
struct OwnParameters {
    trust: Option<Trust>,
    disabled: bool,
    preferred: bool,
    roots: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    unprepared: bool,
}

impl Address {
    /// Reads a URL: `postgres://user:password@host:port/name?sslmode=…`, with the parameters of libpq.
    ///
    /// # Errors
    /// The text is no such URL, a parameter is unknown, or the trusted certificates cannot be read. The
    /// message does not repeat the text: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Arc<Self>, Fault> {
        let (own, rest) = OwnParameters::take(url)?;
        let unusable = |e: tokio_postgres::Error| {
            // The source names the parameter; neither message repeats a value.
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
            // Of several hosts, the one that accepts writes.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let prepares = !own.unprepared;
        let (mode, roots, identity) = own.security(&config)?;
        config.ssl_mode(mode);
        let connector = MakeRustlsConnect::new(tls::client(&roots, identity.as_ref())?);
        let (hosts, last) = (apart(&config), AtomicUsize::new(0));
        Ok(Arc::new(Self {
            connector,
            prepares,
            redacted: redacted(url),
            hosts,
            last,
            breaker: Breaker::default(),
            room: Room::default(),
            unresponsive: watch::Sender::new(0),
        }))
    }

    /// Tries the hosts one after another, each with its own time limit, the one that answered last first. The
    /// next host is tried when one has failed or has been silent for a while. Returns the first success.
    ///
    /// # Errors
    /// All hosts failed. Of their errors, one that may be temporary is returned.
    pub(super) async fn connect<T>(
        &self,
        attempt: impl AsyncFn(&Config) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let first = self.last.load(Ordering::Relaxed);
        let mut hosts = self.hosts.iter().enumerate().cycle().skip(first).take(self.hosts.len());
        let (attempt, mut failed, mut trying) = (&attempt, None, FuturesUnordered::new());
        loop {
            let ended = match hosts.next() {
                Some((place, host)) => {
                    trying.push(async move { (place, within_time(attempt(host)).await) });
                    // A slow host may still answer while the next one is tried.
                    timeout(HEAD_START, trying.next()).await.ok().flatten()
                }
                None => match trying.next().await {
                    Some(ended) => Some(ended),
                    None => break,
                },
            };
            match ended {
                Some((place, Ok(connected))) => {
                    self.last.store(place, Ordering::Relaxed);
                    return Ok(connected);
                }
                Some((_, Err(error))) if failed.is_none() || error.recovery == Recovery::Reconnect => {
                    failed = Some(error);
                }
                Some(_) | None => {}
            }
        }
        Err(failed.unwrap_or_else(|| DatabaseError::lost("the URL names no host")))
    }

    #[cfg(test)]
    fn config(&self) -> &Config {
        &self.hosts[0]
    }

    pub(super) fn connector(&self) -> MakeRustlsConnect {
        self.connector.clone()
    }
}

/// Runs an attempt at one host within the time limit of a host.
async fn within_time<T>(attempt: impl Future<Output = Result<T, DatabaseError>>) -> Result<T, DatabaseError> {
    let late = |_| Err(DatabaseError::lost("it cannot be connected to in time"));
    timeout(CONNECT_TIMEOUT, attempt).await.unwrap_or_else(late)
}

impl OwnParameters {
    /// Splits this program's parameters off a URL.
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
                ("sslcert", path) => own.certificate = Some(path.to_owned()),
                ("sslkey", path) => own.key = Some(path.to_owned()),
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

    /// How strict TLS is, and by what this program is known. If the URL does not say, a database on another machine must be
    /// verified in full.
    fn security(self, config: &Config) -> Result<(SslMode, tls::Roots, Option<tls::Identity>), Fault> {
        let identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(tls::Identity { certificate, key }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(Fault::new("database: sslcert needs sslkey, the certificate's key"));
            }
            (None, Some(_)) => {
                return Err(Fault::new("database: sslkey needs sslcert, the key's certificate"));
            }
        };
        let near = config.get_hostaddrs().is_empty() && config.get_hosts().iter().all(is_near);
        let (mode, trust) = match (self.trust, self.disabled, self.preferred) {
            (Some(trust), ..) => (SslMode::Require, trust),
            (None, true, _) => (SslMode::Disable, Trust::Anything),
            (None, false, true) => (SslMode::Prefer, Trust::Anything),
            (None, false, false) if near => (SslMode::Prefer, Trust::Anything),
            (None, false, false) => (SslMode::Require, Trust::Name),
        };
        Ok((mode, tls::Roots { trust, file: self.roots }, identity))
    }
}

/// One configuration for each host. A name and an address at the same index belong together. So does the port
/// at that index, or the only port.
fn apart(all: &Config) -> Vec<Config> {
    let (names, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    let alone = |place: usize| {
        let mut one = Config::new();
        let _ = names.get(place).map(|name| match name {
            Host::Tcp(name) => one.host(name),
            Host::Unix(path) => one.host_path(path),
        });
        let _ = addresses.get(place).map(|address| one.hostaddr(*address));
        let _ = ports.get(place).or(ports.first()).map(|port| one.port(*port));
        let _ = all.get_user().map(|user| one.user(user));
        let _ = all.get_password().map(|password| one.password(password));
        let _ = all.get_dbname().map(|name| one.dbname(name));
        let _ = all.get_options().map(|options| one.options(options));
        let _ = all.get_application_name().map(|name| one.application_name(name));
        let _ = all.get_connect_timeout().map(|limit| one.connect_timeout(*limit));
        let _ = all.get_tcp_user_timeout().map(|limit| one.tcp_user_timeout(*limit));
        let _ = all.get_keepalives_interval().map(|every| one.keepalives_interval(every));
        let _ = all.get_keepalives_retries().map(|count| one.keepalives_retries(count));
        one.keepalives(all.get_keepalives()).keepalives_idle(all.get_keepalives_idle());
        one.ssl_mode(all.get_ssl_mode()).ssl_negotiation(all.get_ssl_negotiation());
        one.target_session_attrs(all.get_target_session_attrs()).channel_binding(all.get_channel_binding());
        one
    };
    (0..names.len().max(addresses.len())).map(alone).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("postgres://u:secret@h:5432/d", "postgres://u:***@h:5432/d"),
            ("postgresql://u:se@cret@h/d?sslmode=require", "postgresql://u:***@h/d?sslmode=require"),
            ("postgres:///d?host=/run/pg&password=secret", "postgres:///d?host=/run/pg&password=***"),
            ("postgres://u@h1,h2:5433/d", "postgres://u@h1,h2:5433/d"),
            ("postgres://h/d", "postgres://h/d"),
        ] {
            assert_eq!(redacted(url), shown);
        }
        let address = Address::parse("postgres://u:secret@localhost/d?password=secret").unwrap();
        assert!(!format!("{address:?} {address}").contains("secret"));
        for bad in [
            "postgres://u:secret@h:port/d",
            "postgres://u:secret@h/d?sslmode=secret",
            "postgres://u:secret@h/d?unknown=secret",
            "postgres://u:secret@h/d?statement_cache=secret",
            "postgres://u:secret@h/d?sslrootcert=/nowhere/at/all",
            "postgres://u:secret@h/d?sslcert=/nowhere/at/all&sslkey=/nowhere/at/all",
            "postgres://u:secret@h/d?sslkey=/nowhere/at/all",
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
        let ways = address.hosts.iter().map(|way| (way.get_hosts().to_vec(), way.get_ports().to_vec()));
        let host = |name: &str| vec![Host::Tcp(name.to_owned())];
        assert_eq!(ways.collect::<Vec<_>>(), [(host("h1"), vec![5432]), (host("h2"), vec![5433])]);
    }
}
