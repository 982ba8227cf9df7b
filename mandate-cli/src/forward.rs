//! Sends events on to a receiver, as their issuer would.

use std::time::Duration;

use ureq::Agent;

use crate::exit::Failure;
use crate::http::Address;

/// How long the receiver may take: as long as an issuer waits.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where events are sent on.
#[derive(Debug)]
pub(crate) struct Forward {
    agent: Agent,
    address: Address,
}

impl Forward {
    /// Fails when a proxy is to be used that cannot be.
    pub(crate) fn new(address: Address) -> Result<Self, Failure> {
        Ok(Self { agent: address.agent()?, address })
    }

    /// Posts the token; gives the status.
    pub(crate) fn send(&self, token: &str) -> Result<u16, String> {
        let request = self.agent.post(self.address.as_str()).config().timeout_global(Some(TIMEOUT)).build();
        let sent = request.header("content-type", "application/jwt").send(token);
        let response =
            sent.map_err(|e| format!("{} cannot be reached{}", self.address, self.address.why(&e)))?;
        Ok(response.status().as_u16())
    }
}
