//! Where events may be sent: the form of a webhook's URL, and which addresses are public.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mandate_core::Invalid;
use url::{Host, SyntaxViolation, Url};

/// The longest URL, in characters.
pub const MAX_URL_CHARS: usize = 2048;

/// How far deliveries go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// To public addresses, over TLS.
    Public,
    /// To this machine as well, and there also over plain HTTP: for developers.
    Loopback,
}

/// Reads a webhook's URL; gives it normalised, so that what is shown is where events go.
///
/// What a lenient reader would repair is refused. A host that is a name is not looked up: what it stands for can change
/// with each connection. A message never repeats the URL, which may hold a secret.
///
/// # Errors
/// The text is not a URL, is too long, holds credentials or a fragment, is not https, or names an address that is not
/// public, each beyond what `reach` allows.
pub fn parse(text: &str, reach: Reach) -> Result<String, Invalid> {
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
        Some(found) => return refused(&format!("must be a URL as it stands: {found}")),
        None => {}
    }
    if url.fragment().is_some() {
        return refused("must not hold a fragment, `#` and what follows");
    }
    let allowed_here = reach == Reach::Loopback && is_loopback(&host);
    if url.scheme() != "https" && !(url.scheme() == "http" && allowed_here) {
        return refused("must be an https URL");
    }
    if !is_public(&host) && !allowed_here {
        return refused(
            "must have a host that is public: an address of a private network, or of this machine, is not",
        );
    }
    if url.as_str().len() > MAX_URL_CHARS { too_long() } else { Ok(url.into()) }
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => is_localhost(name),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

fn is_public(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => !is_localhost(name),
        Host::Ipv4(address) => is_public_address(IpAddr::V4(*address)),
        Host::Ipv6(address) => is_public_address(IpAddr::V6(*address)),
    }
}

/// Whether a name stands for this machine (RFC 6761, section 6.3).
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether an address can be that of a stranger's server: globally reachable in the IANA registries of special-purpose
/// addresses (RFC 6890), and no other address in disguise.
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

const fn v4(a: u8, b: u8, c: u8) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, 0)
}

const fn v6(a: u16, b: u16) -> Ipv6Addr {
    Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)
}

/// IPv4 networks that are not public, each with the bits of its prefix.
const NOT_PUBLIC_V4: [(Ipv4Addr, u32); 15] = [
    (v4(0, 0, 0), 8),       // this network
    (v4(10, 0, 0), 8),      // private
    (v4(100, 64, 0), 10),   // shared behind a provider
    (v4(127, 0, 0), 8),     // loopback
    (v4(169, 254, 0), 16),  // link-local, where clouds keep their metadata
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
mod tests {
    use super::*;

    fn refusal(text: &str, reach: Reach) -> Option<String> {
        parse(text, reach).err().map(|e| e.to_string())
    }

    #[test]
    fn an_https_url_is_taken_and_shown_as_it_will_be_used() {
        for (text, shown) in [
            ("https://hooks.example/in?k=v", "https://hooks.example/in?k=v"),
            ("https://Hooks.Example:443", "https://hooks.example/"),
            ("https://hooks.example:8443/a/../b", "https://hooks.example:8443/b"),
            ("https://93.184.216.34/", "https://93.184.216.34/"),
            ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
            ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ] {
            assert_eq!(parse(text, Reach::Public).as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn what_is_not_plainly_an_https_url_is_refused() {
        for (text, problem) in [
            ("", "url must be an absolute https URL: "),
            ("hooks.example/in", "url must be an absolute https URL: "),
            ("https://", "url must be an absolute https URL: "),
            ("https://[::1", "url must be an absolute https URL: "),
            ("mailto:a@b.example", "url must be an https URL with a host"),
            ("http://hooks.example/", "url must be an https URL"),
            ("ftp://hooks.example/", "url must be an https URL"),
            ("https://user@hooks.example/", "url must not hold a user name or a password"),
            ("https://@hooks.example/", "url must not hold a user name or a password"),
            ("https://:s3cret@hooks.example/", "url must not hold a user name or a password"),
            ("https://hooks.example/#part", "url must not hold a fragment"),
            ("https://hooks.example/#", "url must not hold a fragment"),
            (" https://hooks.example/", "url must be a URL as it stands: "),
            ("https://hooks.exa\nmple/", "url must be a URL as it stands: "),
            (r"https:\\hooks.example\", "url must be a URL as it stands: "),
            ("https:hooks.example", "url must be a URL as it stands: "),
            ("https://hooks.example/a b", "url must be a URL as it stands: "),
        ] {
            let refused = refusal(text, Reach::Public).unwrap();
            assert!(refused.starts_with(problem), "{text}: {refused}");
            assert!(!refused.contains("s3cret"), "{refused}");
        }
        let long = |length: usize| format!("https://h.example/{}", "x".repeat(length - 18));
        assert_eq!(refusal(&long(MAX_URL_CHARS), Reach::Public), None);
        let too_long = "url must be at most 2048 characters long";
        assert_eq!(refusal(&long(MAX_URL_CHARS + 1), Reach::Public).as_deref(), Some(too_long));
        let growing = format!("https://h.example/{}", "ü".repeat(400));
        assert_eq!(refusal(&growing, Reach::Public).as_deref(), Some(too_long), "six characters each");
    }

    #[test]
    fn an_address_that_is_not_public_is_refused_in_every_spelling() {
        for host in [
            "0.0.0.0",
            "0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.1",
            "127.255.255.254",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "0x7f000001",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "①②⑦.0.0.1",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "[::]",
            "[::1]",
            "[::127.0.0.1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:8.8.8.8]",
            "[::ffff:0:127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::1]",
            "[100::1]",
            "[2001::1]",
            "[2001:20::1]",
            "[2001:db8::1]",
            "[2002:7f00:1::]",
            "[3fff::1]",
            "[5f00::1]",
            "[fc00::1]",
            "[fd12:3456::1]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
        ] {
            let refused = refusal(&format!("https://{host}/"), Reach::Public).unwrap();
            assert!(refused.starts_with("url must have a host that is public"), "{host}: {refused}");
        }
        for host in ["8.8.8.8", "100.63.255.255", "172.32.0.1", "[2001:4860:4860::8888]", "localhost.example"]
        {
            assert_eq!(refusal(&format!("https://{host}/"), Reach::Public), None, "{host}");
        }
    }

    #[test]
    fn developers_reach_this_machine_and_no_other_private_one() {
        for host in ["127.0.0.1:9000", "127.8.8.8", "[::1]:9000", "localhost:9000", "a.localhost"] {
            for scheme in ["http", "https"] {
                assert_eq!(refusal(&format!("{scheme}://{host}/"), Reach::Loopback), None, "{host}");
            }
        }
        for url in
            ["http://hooks.example/", "http://10.0.0.1/", "http://[::ffff:127.0.0.1]/", "ftp://localhost/"]
        {
            assert_eq!(refusal(url, Reach::Loopback).as_deref(), Some("url must be an https URL"), "{url}");
        }
        assert!(refusal("https://10.0.0.1/", Reach::Loopback).unwrap().contains("host that is public"));
    }
}
