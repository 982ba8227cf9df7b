//! The proxy that requests go through: which variable names it, and which hosts are reached without it.

use std::fmt;
use std::str::FromStr as _;

use ureq::http::Uri;
use ureq::{Proxy, ProxyBuilder, ProxyProtocol};
use zeroize::Zeroizing;

use crate::environment::variable;
use crate::exit::{Exit, Failure};

/// The variables that name a proxy. The first that is set counts, and none behind it.
const NAMING: [&str; 6] =
    ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
/// The variables that list the hosts which are reached without it. The first that is set counts.
const SPARING: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// A proxy that can be spoken to, and the variable that names it. It is shown without user and password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Via {
    variable: &'static str,
    proxy: Proxy,
}

impl Via {
    /// The proxy on the way to `address`, if there is to be one.
    ///
    /// # Errors
    ///
    /// When the variable that counts names something else than an HTTP proxy: to go without it is nobody's wish.
    pub(crate) fn find(address: &str) -> Result<Option<Self>, Failure> {
        let Some((variable, text)) = first(&NAMING)? else { return Ok(None) };
        if first(&SPARING)?.is_some_and(|(_, hosts)| is_spared(&hosts, address)) {
            return Ok(None);
        }
        let proxy = read(&text).map_err(|why| {
            Failure::new(Exit::Usage, format!("{variable} names no proxy that can be used: {why}"))
                .note("sent", "nothing")
                .next("a proxy is named as http://host:port or https://host:port; to go without one, unset the variable, or list the host in NO_PROXY")
        })?;
        Ok(Some(Self { variable, proxy }))
    }

    /// The proxy, with its user and password.
    pub(crate) fn into_proxy(self) -> Proxy {
        self.proxy
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {}:{} ({})", self.proxy.host(), self.proxy.port(), self.variable)
    }
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The first of these variables that is set.
fn first(names: &[&'static str]) -> Result<Option<(&'static str, Zeroizing<String>)>, Failure> {
    for name in names {
        if let Some(text) = variable(name)? {
            return Ok(Some((name, text)));
        }
    }
    Ok(None)
}

/// The proxy that `text` names, or why it names none. What it says holds nothing of the text: a password may stand there.
fn read(text: &str) -> Result<Proxy, String> {
    const NO_ADDRESS: &str = "it is not the address of an HTTP proxy";
    let proxy = Proxy::new(text).map_err(|_| NO_ADDRESS.to_owned())?;
    match proxy.protocol() {
        ProxyProtocol::Http | ProxyProtocol::Https => {}
        other => return Err(format!("{other} is not spoken here, only HTTP")),
    }
    let authority = proxy.uri().authority().ok_or(NO_ADDRESS)?;
    let place = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, place)| place);
    let is_whole = place == authority.host() || authority.port_u16().is_some_and(|port| port != 0);
    if authority.host().is_empty() || !is_whole {
        return Err("host or port is missing, or not one".to_owned());
    }
    Ok(proxy)
}

/// Whether `hosts`, a list with commas between, has the host of `address`.
fn is_spared(hosts: &str, address: &str) -> bool {
    let list = Proxy::builder(ProxyProtocol::Http);
    let list = hosts.split(',').map(str::trim).fold(list, ProxyBuilder::no_proxy);
    list.build().is_ok_and(|list| Uri::from_str(address).is_ok_and(|address| list.is_no_proxy(&address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_one_that_can_be_spoken_to() {
        for (text, place) in [
            ("http://127.0.0.1:9", ("127.0.0.1", 9)),
            ("https://proxy.example", ("proxy.example", 443)),
            ("http://someone:secret@proxy.example:3128/", ("proxy.example", 3128)),
            ("proxy.example:3128", ("proxy.example", 3128)),
            ("http://[::1]:3128", ("[::1]", 3128)),
        ] {
            let proxy = read(text).unwrap();
            assert_eq!((proxy.host(), proxy.port()), place, "{text}");
        }
        for text in [
            "socks5://someone:secret@127.0.0.1:9",
            "socks5h://someone:secret@127.0.0.1:9",
            "socks4://someone:secret@127.0.0.1:9",
            "socks4a://someone:secret@127.0.0.1:9",
            "socks://someone:secret@127.0.0.1:9",
            "ftp://someone:secret@127.0.0.1:9",
            "http://",
            "http://someone:secret@",
            "http://someone:secret@:3128",
            "http://someone:secret@127.0.0.1:99999",
            "http://someone:secret@127.0.0.1:0",
            "http://someone:secret@127.0.0.1:",
            "http://someone:secret@127.0.0.1:9 ",
            " http://someone:secret@127.0.0.1:9",
            "http://someone:%ffsecret@127.0.0.1:9",
            "/secret",
        ] {
            let why = read(text).unwrap_err();
            assert!(!why.contains("someone") && !why.contains("secret"), "{text}: {why}");
        }
    }

    #[test]
    fn a_proxy_is_shown_without_user_and_password() {
        let proxy = read("http://someone:secret@proxy.example:3128").unwrap();
        let via = Via { variable: "HTTPS_PROXY", proxy };
        assert_eq!(via.to_string(), "the proxy proxy.example:3128 (HTTPS_PROXY)");
        assert_eq!(format!("{via:?}"), via.to_string());
    }

    #[test]
    fn hosts_are_spared_by_name_by_end_and_by_beginning() {
        let address = "https://api.example.com:8443/v1";
        for hosts in [
            "api.example.com",
            "API.example.com",
            "a, api.example.com ,b",
            ".example.com",
            "*.example.com",
            ".com",
            "*",
            "api.*",
        ] {
            assert!(is_spared(hosts, address), "{hosts}");
        }
        for hosts in
            ["", ",", "example.com", "pi.example.com", ".api.example.com", "api.example.com:8443", "other"]
        {
            assert!(!is_spared(hosts, address), "{hosts}");
        }
        assert!(is_spared("10.1.2.3", "https://10.1.2.3"));
        assert!(is_spared("10.1.*", "https://10.1.2.3"));
        assert!(!is_spared("10.1.0.0/16", "https://10.1.2.3"));
        assert!(is_spared("[::1]", "https://[::1]:8443"));
        assert!(!is_spared("::1", "https://[::1]:8443"));
    }
}
