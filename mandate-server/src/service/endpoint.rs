//! Where events may be sent: valid webhook URLs, and public addresses.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use mandate_core::Invalid;
use url::{Host, SyntaxViolation, Url};

/// The longest URL, in characters.
pub const MAX_URL_CHARS: usize = 2048;

/// Which addresses may be reached besides public ones over TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// This machine, also over plain HTTP: for developers.
    pub loopback: bool,
    /// The networks that the operator allows.
    pub networks: Vec<IpNet>,
}

impl EgressPolicy {
    /// Public addresses only.
    pub const PUBLIC: Self = Self { loopback: false, networks: Vec::new() };

    /// Whether a connection may be made to `address`.
    ///
    /// An allowed network includes its own addresses only: none that is mapped, translated or tunnelled into
    /// another address family.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        is_public_address(address)
            || self.loopback && address.is_loopback()
            || self.networks.iter().any(|network| network.contains(&address))
    }

    /// Whether a connection may be made to `address`, which `name` resolves to now.
    #[must_use]
    pub fn allows_for(&self, name: &str, address: IpAddr) -> bool {
        self.allows(address) && (address.is_loopback() || !is_localhost(name))
    }

    fn allows_host(&self, host: &Host<&str>) -> bool {
        match host {
            Host::Domain(name) => !is_localhost(name) || self.allows(Ipv4Addr::LOCALHOST.into()),
            Host::Ipv4(address) => self.allows(IpAddr::V4(*address)),
            Host::Ipv6(address) => self.allows(IpAddr::V6(*address)),
        }
    }
}

/// Reads a webhook's URL and normalises it, so that the URL that is shown is the one that is used.
///
/// An URL that a lenient reader would repair is refused. A host name is not looked up: its addresses can
/// change with each connection. Messages never repeat the URL, which may hold a secret.
///
/// # Errors
/// The text is not a URL, is too long, holds credentials or a fragment, is not https, or names an address
/// that is not public and that `egress` does not allow.
pub fn parse(text: &str, egress: &EgressPolicy) -> Result<Url, Invalid> {
    let refused = |problem: &str| Err(Invalid::new("url", problem));
    let too_long = || Err(Invalid::new("url", format!("must be at most {MAX_URL_CHARS} characters long")));
    if text.chars().count() > MAX_URL_CHARS {
        return too_long();
    }
    let violation = Cell::new(None);
    let noted = |found| violation.set(Some(found));
    let url = match Url::options().syntax_violation_callback(Some(&noted)).parse(text) {
        Ok(url) => url,
        Err(e) => return refused(&format!("must be an absolute https URL: {e}")),
    };
    let Some(host) = url.host() else { return refused("must be an https URL with a host") };
    match violation.get() {
        Some(SyntaxViolation::EmbeddedCredentials) => {
            return refused("must not hold a user name or a password");
        }
        Some(found) => return refused(&format!("must be a URL that needs no repair: {found}")),
        None => {}
    }
    if !is_as_written(text, &host) {
        return refused(
            "must have its host in the form in which it is looked up: without percent-encoding, without characters that \
             are replaced by others, an IPv4 address as four decimal numbers",
        );
    }
    if url.fragment().is_some() {
        return refused("must not hold a fragment, `#` and what follows");
    }
    let plain = url.scheme() == "http" && egress.loopback && is_loopback(&host);
    if url.scheme() != "https" && !plain {
        return refused("must be an https URL");
    }
    if url.port() == Some(0) {
        return refused("must have a port from 1 to 65535; nothing can listen on port 0");
    }
    if !egress.allows_host(&host) {
        return refused(
            "must have a host that is public: an address of a private network, or of this machine, is not",
        );
    }
    if url.as_str().len() > MAX_URL_CHARS { too_long() } else { Ok(url) }
}

/// Whether `text` spells the host as it was parsed, apart from case: so all readers see the same host. An
/// internationalised name may be in its Unicode form too (RFC 5891), and an IPv6 address in any form.
fn is_as_written(text: &str, host: &Host<&str>) -> bool {
    let authority = text.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let port = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let written = port.map_or(authority, |(written, _)| written).to_lowercase();
    match host {
        Host::Domain(name) => written == **name || written == url::quirks::domain_to_unicode(name),
        Host::Ipv4(address) => written == address.to_string(),
        Host::Ipv6(_) => written.starts_with('['),
    }
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => is_localhost(name),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

/// Whether a name resolves to this machine (RFC 6761, section 6.3).
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether an address can belong to a server on the internet: it is globally reachable in the IANA registries
/// of special-purpose addresses (RFC 6890), does not embed another address, and is not a cloud's own.
#[must_use]
pub fn is_public_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NOT_PUBLIC_V4.iter().any(|(network, bits)| {
            let differing = address.to_bits() ^ network.to_bits();
            differing.leading_zeros() >= *bits
        }),
        IpAddr::V6(address) => {
            let within = |(network, bits): &(Ipv6Addr, u32)| {
                let differing = address.to_bits() ^ network.to_bits();
                differing.leading_zeros() >= *bits
            };
            within(&GLOBAL_UNICAST) && !NOT_PUBLIC_V6.iter().any(within)
        }
    }
}

/// Where Azure answers every machine of its network from inside: keys, credentials and the state of the machine. The
/// address is in no registry of special-purpose ones.
const AZURE_PLATFORM: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

const fn v4(a: u8, b: u8, c: u8) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, 0)
}

const fn v6(a: u16, b: u16) -> Ipv6Addr {
    Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)
}

/// IPv4 networks that are not public, with their prefix lengths.
const NOT_PUBLIC_V4: [(Ipv4Addr, u32); 16] = [
    (v4(0, 0, 0), 8),       // this network
    (v4(10, 0, 0), 8),      // private
    (v4(100, 64, 0), 10),   // shared behind a provider
    (v4(127, 0, 0), 8),     // loopback
    (v4(169, 254, 0), 16),  // link-local, where clouds keep their metadata
    (AZURE_PLATFORM, 32),   // metadata of a cloud
    (v4(172, 16, 0), 12),   // private
    (v4(192, 0, 0), 24),    // protocol assignments
    (v4(192, 0, 2), 24),    // documentation
    (v4(192, 88, 99), 24),  // relays of 6to4
    (v4(192, 168, 0), 16),  // private
    (v4(198, 18, 0), 15),   // benchmarks
    (v4(198, 51, 100), 24), // documentation
    (v4(203, 0, 113), 24),  // documentation
    (v4(224, 0, 0), 4),     // multicast
    (v4(240, 0, 0), 4),     // reserved, broadcast
];

/// The only IPv6 addresses that can be public. Outside of it lie loopback, mapped, compatible and translated IPv4
/// (`::/96`, `::ffff:0:0/96`, `64:ff9b::/96`), unique-local, link-local, site-local and multicast ones.
const GLOBAL_UNICAST: (Ipv6Addr, u32) = (v6(0x2000, 0), 3);

/// IPv6 networks within [`GLOBAL_UNICAST`] that are not public.
const NOT_PUBLIC_V6: [(Ipv6Addr, u32); 4] = [
    (v6(0x2001, 0), 23),     // protocol assignments, Teredo among them
    (v6(0x2001, 0xdb8), 32), // documentation
    (v6(0x2002, 0), 16),     // 6to4: an IPv4 address in disguise
    (v6(0x3fff, 0), 20),     // documentation
];

#[cfg(test)]
pub(crate) mod tests;
