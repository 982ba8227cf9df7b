//! Forwards events to a receiver, as their issuer would.

use std::time::Duration;

use reqwest::Method;

use crate::exit::Failure;
use crate::http::{self, Address, Transport};

/// How long the receiver may take: as long as an issuer waits.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where events are forwarded to.
#[derive(Debug)]
pub(crate) struct Forward {
    transport: Transport,
    address: Address,
}

impl Forward {
    /// Fails if the proxy for this address cannot be used.
    pub(crate) fn new(address: Address) -> Result<Self, Failure> {
        Ok(Self { transport: address.transport()?, address })
    }

    /// Posts the token. Returns the status.
    pub(crate) fn send(&self, token: &str) -> Result<u16, String> {
        let sent = self.transport.request(Method::POST, self.address.as_str()).and_then(|request| {
            let request = request.header("content-type", "application/jwt").body(token.to_owned());
            http::send(request, TIMEOUT)
        });
        let response =
            sent.map_err(|e| format!("{} cannot be reached{}", self.address, self.address.why(&e)))?;
        Ok(response.status())
    }
}
