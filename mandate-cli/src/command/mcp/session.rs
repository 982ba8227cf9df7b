//! The requests that the tools make: the agent's own, and no others.

use std::time::Duration;

use mandate_core::DecisionId;
use reqwest::Method;

use super::token_dir::TokenDir;
use super::trouble::{Purpose, Trouble};
use crate::client::{Call, Client, Reply};
use crate::credential::Access;
use crate::exit::Failure;

/// The longest pause that the service may ask for: a host gives up on a call after a minute, often sooner.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long each of the four attempts may take, so that all of them end within that minute.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The service, as one agent reaches it.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    token_dir: Option<TokenDir>,
}

/// An answer to a request for a decision.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) body: String,
    /// Whether it was given before, to the same request.
    pub(super) is_replayed: bool,
}

impl Session {
    pub(super) fn new(access: Access, token_dir: Option<TokenDir>) -> Result<Self, Failure> {
        let client = Client::with(access, None, false)?.with_patience(LONGEST_PAUSE, TIMEOUT);
        Ok(Self { client, token_dir })
    }

    /// Asks for a decision.
    pub(super) fn authorize(&self, body: &str, idempotency_key: String) -> Result<Posted, Trouble> {
        let client = self.client.keyed(idempotency_key);
        let call = Call::new(Method::POST, "/authorizations", &[], Some(body));
        let reply = answered(&client, &call, Purpose::Decide)?;
        let is_replayed = reply.headers.get("idempotency-replayed").is_some_and(|value| value == "true");
        Ok(Posted { body: reply.body, is_replayed })
    }

    /// A decision of the agent.
    pub(super) fn decision(&self, id: &DecisionId) -> Result<String, Trouble> {
        self.read(&format!("/decisions/{id}"), &[])
    }

    /// The agent's newest mandates.
    pub(super) fn mandates(&self) -> Result<String, Trouble> {
        self.read("/mandates", &[("limit", "20".to_owned())])
    }

    /// The agent's month.
    pub(super) fn usage(&self, query: &[(&str, String)]) -> Result<String, Trouble> {
        self.read("/usage", &[query, &[("limit", "100".to_owned())]].concat())
    }

    /// Writes a token to its file, if a directory was named.
    pub(super) fn keep(&self, decision: &DecisionId, token: &str) -> Result<Option<String>, Trouble> {
        let written = self.token_dir.as_ref().map(|dir| dir.write(decision, token)).transpose();
        written.map_err(|failure| Trouble::of(&failure, None, Purpose::Read))
    }

    fn read(&self, path: &str, query: &[(&str, String)]) -> Result<String, Trouble> {
        answered(&self.client, &Call::new(Method::GET, path, query, None), Purpose::Read)
            .map(|reply| reply.body)
    }
}

/// The answer, if it is a 2xx.
fn answered(client: &Client, call: &Call<'_>, purpose: Purpose) -> Result<Reply, Trouble> {
    let reply = client.exchange(call).map_err(|failure| Trouble::of(&failure, None, purpose))?;
    if (200..300).contains(&reply.status) {
        return Ok(reply);
    }
    let wait = reply.headers.get("retry-after").and_then(|value| value.to_str().ok());
    let wait = wait.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    Err(Trouble::of(&client.failed(call, &reply), wait, purpose))
}
