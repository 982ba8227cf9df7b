//! A provider that receives signed instructions over HTTP.
//!
//! An instruction is posted as an ES256 JWT (`Content-Type: application/jwt`) with the claims `iss`, `jti` (the
//! instruction's id, the same at each attempt), `iat` and `instruction`. The provider answers 2xx with
//! `{"status": "settled"}`, `{"status": "refused", "reason": "..."}` (the reason may be absent), or `{"status": "pending"}`.
//! After `pending`, after any other answer and after none, the same instruction is sent again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mandate_core::api_key::masked;
use mandate_core::json::Object;
use mandate_core::jwt;
use serde::Serialize;
use url::Url;

use super::{Adapter, Instruction, Outcome};
use crate::clock::Clock;
use crate::error::Fault;
use crate::model::text::is_bidirectional_control;
use crate::outgoing::{Client, MAX_BODY_BYTES, NoAnswer, SystemNames};
use crate::service::escrows::{MAX_REFUSAL_REASON, Reply};
use crate::service::signing::Keyring;
use crate::store::sql::instructions::SettlementStatus;

/// How long an attempt may take, in seconds.
const ATTEMPT_SECONDS: u64 = 10;
/// How many connections are kept between instructions: as many as are sent at a time.
const MAX_IDLE: usize = 8;

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
    /// A provider that receives instructions at `url`. They are signed with the key of `keyring` that signs at the
    /// time of `clock`.
    ///
    /// # Errors
    /// The URL is not valid, or the client cannot be set up.
    pub fn new(url: &str, keyring: Keyring, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        let names = Arc::new(SystemNames);
        let client = Client::new(names, Duration::from_secs(ATTEMPT_SECONDS), MAX_IDLE);
        let client = client.map_err(|e| Fault::new(format!("settlement: {e}")))?;
        let url = Url::parse(url).map_err(|e| Fault::new(format!("settlement_url: {e}")))?;
        Ok(Self { client, url, keyring, clock })
    }

    async fn send(&self, instruction: &Instruction) -> Result<Reply, Fault> {
        let iss = self.keyring.issuer();
        let claims = Claims { iss, jti: &instruction.id, iat: instruction.at.seconds(), instruction };
        let claims = serde_json::to_string(&claims).map_err(|e| Fault::new(e.to_string()))?;
        let token = jwt::sign(&*self.keyring.signing(instruction.kind, self.clock.now())?.signer, &claims);
        let token = token.map_err(|e| Fault::new(e.to_string()))?;
        let answered = self.client.post_jwt(self.url.as_str(), token).await;
        let answered = answered.map_err(|e| unanswered(&e))?;
        if !answered.status.is_success() {
            return Err(Fault::Provider(format!("the provider answered {}", answered.status)));
        }
        let body = answered.body.map_err(|e| unanswered(&e))?;
        let mut answer = Object::parse_as("answer", &body).map_err(|e| unusable(&e))?;
        let status = answer.require("status").and_then(|field| field.string()).map_err(|e| unusable(&e))?;
        Ok(match SettlementStatus::parse(&status).map_err(|e| unusable(&e))? {
            SettlementStatus::Pending => Reply::Pending,
            SettlementStatus::Settled => Reply::Settled,
            SettlementStatus::Refused => {
                let reason = answer.take("reason").and_then(|reason| reason.string().ok());
                Reply::Refused { reason: reason.map(|text| kept(&text)).filter(|text| !text.is_empty()) }
            }
        })
    }
}

impl Adapter for Http {
    fn recorded(&self) -> Reply {
        Reply::Pending
    }

    fn carry_out<'a>(&'a self, instruction: &'a Instruction) -> Outcome<'a> {
        Box::pin(self.send(instruction))
    }
}

/// A provider's text as it is kept and shown: cut to its length, without API keys, and with a sign for each character that
/// no free text may hold.
fn kept(text: &str) -> String {
    let plain = |c: char| if c.is_control() || is_bidirectional_control(c) { '\u{fffd}' } else { c };
    masked(text).chars().take(MAX_REFUSAL_REASON).map(plain).collect()
}

fn unanswered(why: &NoAnswer) -> Fault {
    Fault::Provider(match why {
        NoAnswer::NoAddress => "the provider does not answer: its name resolves to no address".to_owned(),
        NoAnswer::TooLong => format!("the provider's answer is longer than {MAX_BODY_BYTES} bytes"),
        why => format!("the provider does not answer: {why}"),
    })
}

fn unusable(error: &mandate_core::Invalid) -> Fault {
    Fault::Provider(format!("the provider's answer cannot be used: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_kept_as_free_text_of_500_characters() {
        assert_eq!(kept("no such account: ü"), "no such account: ü");
        assert_eq!(kept("a\u{0}b\nc\u{202e}d"), "a\u{fffd}b\u{fffd}c\u{fffd}d");
        assert_eq!(kept(&"ü".repeat(501)), "ü".repeat(500));
        let key = "sk_live_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye";
        assert_eq!(kept(&format!("not {key}")), "not sk_live_…");
    }
}
