//! The proxy that requests go through: which variable names it, and which hosts are reached without it.

use std::fmt;
use std::str::FromStr as _;

use http::Uri;
use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

use crate::environment::variable;
use crate::exit::{Exit, Failure};

/// The variables that name a proxy. Only the first that is set counts.
const NAMING: [&str; 6] =
    ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
/// The variables that list the hosts that are reached without a proxy. Only the first that is set counts.
const SPARING: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// An HTTP proxy that can be used, and the variable that names it. It is shown without user and password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UsableProxy {
    variable: &'static str,
    proxy: Proxy,
}

/// An HTTP proxy.
#[derive(Clone, PartialEq, Eq)]
struct Proxy {
    host: String,
    port: u16,
    /// The whole URL, with user and password.
    url: Zeroizing<String>,
}

impl UsableProxy {
    /// The proxy for `address`, if there is one.
    ///
    /// # Errors
    ///
    /// The variable that counts does not name an HTTP proxy. It must not be bypassed silently.
    pub(crate) fn find(address: &str) -> Result<Option<Self>, Failure> {
        let Some((variable, text)) = first(&NAMING)? else { return Ok(None) };
        if first(&SPARING)?.is_some_and(|(_, hosts)| is_spared(&hosts, address)) {
            return Ok(None);
        }
        let proxy = read(&text).map_err(|why| {
            Failure::new(Exit::Usage, format!("{variable} does not name a usable proxy: {why}"))
                .note("sent", "nothing")
                .next("name a proxy as http://host:port or https://host:port; to use none, unset the variable or list the host in NO_PROXY")
        })?;
        Ok(Some(Self { variable, proxy }))
    }

    /// The proxy for the client, with user and password.
    pub(crate) fn proxy(&self) -> reqwest::Result<reqwest::Proxy> {
        reqwest::Proxy::all(self.proxy.url.as_str())
    }
}

impl fmt::Display for UsableProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy {}:{} ({})", self.proxy.host, self.proxy.port, self.variable)
    }
}

impl fmt::Debug for UsableProxy {
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

/// The proxy that `text` names, or why it names none. The reason shows nothing of the text, which may hold a
/// password.
fn read(text: &str) -> Result<Proxy, &'static str> {
    const NO_ADDRESS: &str = "it is not the address of an HTTP proxy";
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri = Uri::from_str(&url).map_err(|_| NO_ADDRESS)?;
    let default_port = match uri.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        _ => return Err("it must begin with http:// or https://; SOCKS is not supported"),
    };
    let authority = uri.authority().ok_or(NO_ADDRESS)?;
    let (user, place) = authority.as_str().rsplit_once('@').unwrap_or(("", authority.as_str()));
    if percent_decode_str(user).decode_utf8().is_err() {
        return Err("its user or password is not UTF-8");
    }
    let is_whole = place == authority.host() || authority.port_u16().is_some_and(|port| port != 0);
    if authority.host().is_empty() || !is_whole {
        return Err("its host or port is missing or malformed");
    }
    let port = authority.port_u16().unwrap_or(default_port);
    Ok(Proxy { host: authority.host().to_owned(), port, url: Zeroizing::new(url) })
}

/// Whether `hosts`, separated by commas, has the host of `address`: by its whole name, by its end
/// (`.example.com`, `*.example.com`), by its start (`10.1.*`), or as `*`.
fn is_spared(hosts: &str, address: &str) -> bool {
    let Ok(address) = Uri::from_str(address) else { return false };
    let host = address.host().unwrap_or_default().to_ascii_lowercase();
    hosts.to_ascii_lowercase().split(',').map(str::trim).any(|listed| {
        match (listed.strip_prefix('*'), listed.strip_suffix('*')) {
            (Some(end), _) => host.ends_with(end),
            (None, Some(beginning)) => host.starts_with(beginning),
            (None, None) if listed.starts_with('.') => host.ends_with(listed),
            (None, None) => host == listed,
        }
    })
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
            assert_eq!((proxy.host.as_str(), proxy.port), place, "{text}");
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
            let why = read(text).err().unwrap();
            assert!(!why.contains("someone") && !why.contains("secret"), "{text}: {why}");
        }
    }

    #[test]
    fn a_proxy_is_shown_without_user_and_password() {
        let proxy = read("http://someone:secret@proxy.example:3128").unwrap();
        let via = UsableProxy { variable: "HTTPS_PROXY", proxy };
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
