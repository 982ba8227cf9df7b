//! Posts to webhooks: only to addresses that may be reached, within limits of time and size.
//!
//! A name is looked up for each connection, and only those of its addresses that may be reached are passed to
//! the connector. It looks nothing up itself, so the address that was checked is the one connected to. An
//! address in the URL itself skips the lookup, and is checked with the URL at each attempt. A reused
//! connection still leads to the address that was checked.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::error::Fault;
pub use crate::outgoing::NoAnswer;
use crate::outgoing::{self, Client, Names, SystemNames};
use crate::service::endpoint::{self, EgressPolicy};

/// How long an attempt may take, from the lookup of the name to the end of the answer.
pub const ATTEMPT: Duration = Duration::from_secs(10);

/// Posts to webhooks.
pub struct Dialer {
    client: Client,
    egress: Arc<EgressPolicy>,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("egress", &self.egress).finish_non_exhaustive()
    }
}

impl Dialer {
    /// A dialer that reaches what `egress` allows, and keeps at most `idle` connections between attempts.
    ///
    /// # Errors
    /// The client cannot be set up.
    pub fn new(egress: EgressPolicy, idle: usize) -> Result<Self, Fault> {
        Self::with(egress, Arc::new(SystemNames), ATTEMPT, idle)
    }

    /// The same, but it looks names up with `names`, and waits up to `attempt` for an answer.
    ///
    /// # Errors
    /// The client cannot be set up.
    pub fn with(
        egress: EgressPolicy,
        names: Arc<dyn Names>,
        attempt: Duration,
        idle: usize,
    ) -> Result<Self, Fault> {
        let egress = Arc::new(egress);
        let guarded = FilteredNames { names, egress: Arc::clone(&egress) };
        let client = Client::new(Arc::new(guarded), attempt, idle);
        Ok(Self { client: client.map_err(|e| Fault::new(format!("deliveries: {e}")))?, egress })
    }

    /// Posts a token to a webhook of an environment. Returns the status of the answer.
    ///
    /// # Errors
    /// There was no status.
    pub async fn post(&self, environment: i64, url: &str, token: String) -> Result<u16, NoAnswer> {
        self.send(environment, url, "application/jwt", token).await
    }

    /// Posts a message for people, in JSON, on behalf of an environment. Returns the status of the answer.
    ///
    /// # Errors
    /// There was no status.
    pub async fn notify(&self, environment: i64, url: &str, message: String) -> Result<u16, NoAnswer> {
        self.send(environment, url, "application/json", message).await
    }

    async fn send(
        &self,
        environment: i64,
        url: &str,
        form: &'static str,
        body: String,
    ) -> Result<u16, NoAnswer> {
        let url = endpoint::parse(url, &self.egress).map_err(|e| NoAnswer::Refused(e.to_string()))?;
        // The status counts, however the body ends.
        let posting = self.client.post(url.as_str(), form, body);
        Ok(outgoing::on_behalf_of(environment, posting).await?.status.as_u16())
    }
}

/// Resolves names to the addresses that may be reached, and hides the others.
struct FilteredNames {
    names: Arc<dyn Names>,
    egress: Arc<EgressPolicy>,
}

impl Names for FilteredNames {
    fn look_up(&self, name: &str) -> BoxFuture<'static, Vec<SocketAddr>> {
        let (egress, text) = (Arc::clone(&self.egress), name.to_owned());
        let found = self.names.look_up(name);
        async move { found.await.into_iter().filter(|at| egress.allows_for(&text, at.ip())).collect() }
            .boxed()
    }
}

#[cfg(test)]
mod tests;
