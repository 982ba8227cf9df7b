//! The site that a passkey belongs to.

use sha2::{Digest as _, Sha256};

use crate::error::Invalid;

/// The longest origin, in bytes: `https://`, a host of 253, `:` and a port.
pub const MAX_ORIGIN_BYTES: usize = 267;

/// The longest host name, in bytes (RFC 1035, section 2.3.4).
const MAX_HOST_BYTES: usize = 253;

/// The longest label of a host name, in bytes (RFC 1035, section 2.3.4).
const MAX_LABEL_BYTES: usize = 63;

/// The site that a passkey belongs to: its origin, and its id, which is the host of the origin.
///
/// ```
/// use mandate_core::people::RelyingParty;
/// let party = RelyingParty::of_origin("http://localhost:8444")?;
/// assert_eq!((party.origin(), party.id()), ("http://localhost:8444", "localhost"));
/// for refused in ["http://console.example", "https://console.example/", "https://192.0.2.1", "https://Console.example"] {
///     assert!(RelyingParty::of_origin(refused).is_err(), "{refused}");
/// }
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelyingParty {
    origin: String,
    id: String,
}

impl RelyingParty {
    /// The site of an origin, in the spelling that browsers use: `https://`, a host in lower case, and a port unless it is
    /// 443. On `localhost`, `http://` is accepted too. Passkeys do not exist on IP addresses.
    ///
    /// # Errors
    /// The origin has another form.
    pub fn of_origin(origin: &str) -> Result<Self, Invalid> {
        let wanted = "must be an origin as browsers write it: https:// and a host name in lower case, with a port unless it \
            is 443, and nothing behind it; or http://localhost with a port unless it is 80";
        let refused = || Invalid::value("origin", wanted, origin);
        let (is_secure, place) = match (origin.strip_prefix("https://"), origin.strip_prefix("http://")) {
            (Some(place), _) => (true, place),
            (None, Some(place)) => (false, place),
            (None, None) => return Err(refused()),
        };
        let (host, port) = place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)));
        let usual = if is_secure { 443 } else { 80 };
        let is_allowed = is_host(host)
            && (is_secure || host == "localhost")
            && port.is_none_or(|port| is_port(port, usual));
        if is_allowed { Ok(Self { origin: origin.to_owned(), id: host.to_owned() }) } else { Err(refused()) }
    }

    /// The origin, `https://console.example`.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The id, `console.example`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The SHA-256 of the id, with which the data of an authenticator begins.
    pub(super) fn id_hash(&self) -> [u8; 32] {
        Sha256::digest(&self.id).into()
    }
}

/// Whether `host` is a name of lower-case labels. Browsers read a host whose last label is a number as an IP address.
fn is_host(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    host.len() <= MAX_HOST_BYTES
        && host.split('.').all(is_label)
        && !last.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether `port` is a port in its one spelling, and not the one that browsers leave out.
fn is_port(port: &str, usual: u16) -> bool {
    port.parse::<u16>().is_ok_and(|number| number != 0 && number != usual && number.to_string() == port)
}
