//! A client of the demonstration's API, as a user could write one.

use std::time::Duration;

use mandate_core::EnvironmentKind;
use mandate_core::jwks::KeySet;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;

use crate::app::Urls;
use crate::error::Fault;
use crate::http::KEY_SET_PATH;

/// How long an answer may take, in seconds.
const ANSWER_SECONDS: u64 = 10;

/// A client of one server.
pub(super) struct Client {
    http: reqwest::Client,
    pub(super) urls: Urls,
}

impl Client {
    pub(super) fn new(urls: Urls) -> Result<Self, Fault> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(ANSWER_SECONDS)).build();
        Ok(Self { http: http.map_err(unanswered)?, urls })
    }

    /// Posts `body` with an API key. Any other status than 2xx is a fault.
    pub(super) async fn post(&self, key: &str, path: &str, body: &Value) -> Result<Value, Fault> {
        answered(path, self.http.post(self.url(path)).bearer_auth(key).json(body)).await
    }

    /// The same, at most once under `name`.
    pub(super) async fn post_once(
        &self,
        key: &str,
        path: &str,
        body: &Value,
        name: &str,
    ) -> Result<Value, Fault> {
        let request = self.http.post(self.url(path)).header("Idempotency-Key", name);
        answered(path, request.bearer_auth(key).json(body)).await
    }

    /// Reads with an API key. Any other status than 2xx is a fault.
    pub(super) async fn get(&self, key: &str, path: &str) -> Result<Value, Fault> {
        answered(path, self.http.get(self.url(path)).bearer_auth(key)).await
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.urls.base)
    }

    /// The public keys, fetched without an API key.
    pub(super) async fn key_set(&self) -> Result<KeySet, Fault> {
        let url = format!("{}{KEY_SET_PATH}", self.urls.verdicts);
        let (_, text) = read(self.http.get(url).send().await.map_err(unanswered)?).await?;
        KeySet::parse(text.as_bytes()).map_err(|e| Fault::new(format!("the key set: {e}")))
    }

    /// A text of the sandboxes' public log, fetched without an API key. None where it is not there.
    pub(super) async fn log(&self, name: &str) -> Result<Option<String>, Fault> {
        let url = format!("{}/log/{}/{name}", self.urls.verdicts, EnvironmentKind::Sandbox);
        let (status, text) = read(self.http.get(url).send().await.map_err(unanswered)?).await?;
        Ok(status.is_success().then_some(text))
    }
}

async fn answered(path: &str, request: RequestBuilder) -> Result<Value, Fault> {
    let (status, text) = read(request.send().await.map_err(unanswered)?).await?;
    if !status.is_success() {
        return Err(Fault::new(format!("{path} was answered with {status}: {text}; --fresh starts over")));
    }
    serde_json::from_str(&text).map_err(|e| Fault::new(format!("the answer of {path}: {e}")))
}

async fn read(response: Response) -> Result<(StatusCode, String), Fault> {
    let status = response.status();
    Ok((status, response.text().await.map_err(unanswered)?))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn unanswered(error: reqwest::Error) -> Fault {
    Fault::new(format!("the service does not answer: {error}"))
}
