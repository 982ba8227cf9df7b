//! A provider who takes signed instructions over HTTP.
//!
//! An instruction is posted as an ES256 JWT (`Content-Type: application/jwt`) with the claims `iss`, `jti` (the
//! instruction's id, the same at each attempt), `iat` and `instruction`. The provider answers 2xx with
//! `{"status": "settled"}`, `{"status": "refused"}`, or `{"status": "pending"}`, after which it is asked again with the
//! same instruction. Any other answer, and none, says nothing: the instruction is sent again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mandate_core::json::Object;
use mandate_core::jwt;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use serde::Serialize;

use super::{Adapter, Instruction, Outcome};
use crate::clock::Clock;
use crate::error::Fault;
use crate::service::signing::Keyring;
use crate::store::sql::escrows::SettlementStatus;

/// How long an attempt may take, in seconds.
const ATTEMPT_SECONDS: u64 = 10;
/// The longest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// A provider behind a URL.
pub struct Http {
    client: Client,
    url: Url,
    keyring: Keyring,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

/// They have neither `verdict` nor `type`: an instruction passes for neither verdict nor event.
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    jti: &'a str,
    iat: i64,
    instruction: &'a Instruction,
}

impl Http {
    /// A provider who takes instructions at `url`, signed with `keyring` under the key of the time that `clock` shows.
    ///
    /// # Errors
    /// The URL is none, or the client cannot be set up.
    pub fn new(url: &str, keyring: Keyring, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .timeout(Duration::from_secs(ATTEMPT_SECONDS))
            .build();
        let client = client.map_err(|e| Fault::new(format!("settlement: {e}")))?;
        let url = Url::parse(url).map_err(|e| Fault::new(format!("settlement_url: {e}")))?;
        Ok(Self { client, url, keyring, clock })
    }

    async fn send(&self, instruction: &Instruction) -> Result<SettlementStatus, Fault> {
        let iss = self.keyring.issuer();
        let claims = Claims { iss, jti: &instruction.id, iat: instruction.at.seconds(), instruction };
        let claims = serde_json::to_string(&claims).map_err(|e| Fault::new(e.to_string()))?;
        let token = jwt::sign(&*self.keyring.signing(instruction.kind, self.clock.now())?.signer, &claims);
        let token = token.map_err(|e| Fault::new(e.to_string()))?;
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/jwt").body(token);
        let response = request.send().await.map_err(unanswered)?;
        let status = response.status();
        if !status.is_success() {
            return Err(Fault::new(format!("the provider answered {status}")));
        }
        let body = read(response).await?;
        let mut answer = Object::parse_as("answer", &body).map_err(|e| unusable(&e))?;
        let status = answer.require("status").and_then(|field| field.string()).map_err(|e| unusable(&e))?;
        SettlementStatus::parse(&status).map_err(|e| unusable(&e))
    }
}

impl Adapter for Http {
    fn recorded(&self) -> SettlementStatus {
        SettlementStatus::Pending
    }

    fn carry_out<'a>(&'a self, instruction: &'a Instruction) -> Outcome<'a> {
        Box::pin(self.send(instruction))
    }
}

async fn read(mut response: Response) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unanswered)? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER_BYTES {
            return Err(Fault::new(format!("the provider's answer is longer than {MAX_ANSWER_BYTES} bytes")));
        }
    }
    Ok(body)
}

/// The URL stays out of the message, since it may hold a secret.
fn unanswered(error: reqwest::Error) -> Fault {
    Fault::new(format!("the provider does not answer: {}", error.without_url()))
}

fn unusable(error: &mandate_core::Invalid) -> Fault {
    Fault::new(format!("the provider's answer cannot be used: {error}"))
}
