//! Where requests go: this machine and no other.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};

use crate::Failure;

/// A URL on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl Target {
    /// Reads an `http` URL whose host has loopback addresses only.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let rest = text.strip_prefix("http://").ok_or("must be a URL that begins with http://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let with_port = !authority.ends_with(']') && authority.contains(':');
        let named = if with_port { authority.to_owned() } else { format!("{authority}:80") };
        let addresses: Vec<_> = named.to_socket_addrs()?.collect();
        match addresses.first() {
            Some(address) if addresses.iter().all(|address| address.ip().is_loopback()) => Ok(Self {
                address: *address,
                authority: authority.to_owned(),
                path: format!("/{path}").trim_end_matches('/').to_owned(),
            }),
            _ => Err(format!(
                "must be on this machine (127.0.0.1, [::1] or localhost); got the host `{authority}`"
            )
            .into()),
        }
    }

    /// A request without a body: its head.
    pub(crate) fn get(&self, path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.authority)
    }

    /// A request with a body of JSON, under this API key.
    pub(crate) fn post(&self, path: &str, key: &str, body: &str) -> String {
        let Self { authority, path: base, .. } = self;
        let length = body.len();
        format!(
            "POST {base}{path} HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}
