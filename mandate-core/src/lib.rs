//! Spending mandates for autonomous agents: decide, sign, verify.
//!
//! An organization writes a [`Mandate`] for an agent: limits, categories, a review threshold, an expiry. The agent makes
//! a [`Request`]. [`evaluate`] returns an [`Outcome`] with one of eight [`Verdict`]s. Signed, a verdict is a token that
//! anyone can verify offline.
//!
//! This library has no clock, no randomness, no I/O and no async code. The caller passes the time and random
//! bytes in, so every function returns the same result for the same arguments. Input is read strictly, each
//! type holds only valid values, and amounts are exact decimals. The library implements no cryptographic
//! primitive itself: ES256 comes from `p256` or `aws-lc-rs`.
//!
//! # Where to begin
//!
//! - **Deciding in your own service**: read a mandate with [`Terms::read`] and a request with
//!   [`Request::read`], keep [`RecentRequests`] and the month's [`Total`] for each agent, and call
//!   [`evaluate`].
//! - **Verifying in your own checkout**: [`jwks::KeySet::parse`], [`verify::verify_verdict`], and a
//!   [`replay::NonceStore`], so that no verdict is settled twice.
//! - **Signing**: [`VerdictClaims::to_json`] and [`jwt::sign`], under a key of [`es256`].
//! - **Reading bodies strictly**: [`json::Object`].
//!
//! # A whole month
//!
//! A service decides and signs, with a store of its own. A seller verifies each token and settles it once. In a real
//! service the store is a database, and the lines of `decide` are one transaction that holds a lock on the agent.
//!
//! ```
//! use std::collections::HashMap;
//!
//! use mandate_core::json::Object;
//! use mandate_core::jwks::{KeySet, Kid, VerificationKey};
//! use mandate_core::replay::MemoryNonces;
//! use mandate_core::verify::{Expected, verify_verdict};
//! use mandate_core::{
//!     AgentId, Amount, Basis, Currency, DecisionId, EnvironmentKind, Evaluation, Invalid, Mandate, MandateId, Month, Nonce,
//!     PolicyVersion, RecentRequests, Recipient, Request, Terms, Timestamp, Total, VERDICT_LIFETIME_SECONDS, Verdict,
//!     VerdictClaims, es256, evaluate, jwt,
//! };
//!
//! /// What the service keeps about one agent.
//! struct Store {
//!     mandate: Mandate,
//!     spent: HashMap<(Month, Currency), Total>,
//!     recent: RecentRequests,
//! }
//!
//! impl Store {
//!     /// The verdict on one request, and its reason if it is a denial. Every request counts for the velocity rule; an
//!     /// allowed amount counts as spent.
//!     fn decide(&mut self, request: &Request, now: Timestamp) -> (Verdict, Option<String>) {
//!         let spent = self.spent.entry((now.month(), request.currency.clone())).or_default();
//!         let basis = Basis { spent: *spent, recent_requests: self.recent.count_at(now) };
//!         let outcome = evaluate(Some(&self.mandate), &basis, request, now, Evaluation::Request);
//!         self.recent.record(now);
//!         if outcome.verdict == Verdict::Allow {
//!             *spent = spent.plus(request.amount);
//!         }
//!         (outcome.verdict, outcome.reason.map(|reason| reason.to_string()))
//!     }
//! }
//!
//! fn ask(amount: &str) -> Result<Request, Invalid> {
//!     let body = format!(r#"{{"amount":{amount},"currency":"USD","recipient":"vendor:acme","category":"software"}}"#);
//!     Request::read(AgentId::parse("agt_buyer")?, Object::parse(body.as_bytes())?)
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Numbers and secrets that are random here come from the operating system's generator in a real service.
//! let written = Timestamp::parse("2026-06-01T09:00:00Z")?;
//! let terms = Terms::read(Object::parse(br#"{
//!     "principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["software"], "expires": "2026-12-31",
//!     "limits": {"per_transaction": 500, "per_month": 1000, "currency": "USD"}, "review_above": 450
//! }"#)?)?;
//! let id = MandateId::new(written, 1);
//! let mandate = Mandate::new(id, terms, written);
//! let mut store = Store { mandate, spent: HashMap::new(), recent: RecentRequests::default() };
//! let secret = es256::SecretKey::from_bytes([7; 32])?;
//! let kid = Kid::for_key(secret.public_key(), EnvironmentKind::Production);
//! let signer = es256::signer(&secret, kid.clone())?;
//!
//! // The seller has the key set, and remembers which nonces it has settled.
//! let keys = KeySet::new(vec![VerificationKey::new(kid, *secret.public_key())?])?;
//! let nonces = MemoryNonces::new();
//!
//! for (number, day, amount, verdict, reason) in [
//!     (1, 2, "400", "allow", None),
//!     (2, 9, "460", "review", None),
//!     (3, 16, "501", "deny_limit", Some("amount 501 exceeds per_transaction limit 500")),
//!     (4, 23, "600e-1", "allow", None),
//!     (5, 30, "440", "allow", None),
//!     (6, 30, "100.01", "deny_limit", Some("amount 100.01 exceeds per_month limit 1000 (900 spent)")),
//! ] {
//!     let now = Timestamp::parse(&format!("2026-06-{day:02}T12:00:00Z"))?;
//!     let request = ask(amount)?;
//!     let (found, why) = store.decide(&request, now);
//!     assert_eq!((found.as_str(), why.as_deref()), (verdict, reason));
//!
//!     // Every decision is signed; only an allow is worth presenting.
//!     let paid = request.amount;
//!     let claims = VerdictClaims {
//!         iss: "https://verdicts.example".to_owned(),
//!         jti: DecisionId::new(now, number),
//!         iat: now.seconds(),
//!         exp: now.seconds() + VERDICT_LIFETIME_SECONDS,
//!         verdict: found,
//!         mandate: Some(id),
//!         policy_version: PolicyVersion::parse("pol_2026-06-01.1")?,
//!         nonce: Nonce::new(now, number),
//!         request,
//!     };
//!     let token = jwt::sign(&*signer, &claims.to_json())?;
//!
//!     let later = now.plus_seconds(5);
//!     let expected = Expected {
//!         amount: Some(paid),
//!         currency: Some(Currency::parse("USD")?),
//!         recipient: Some(Recipient::parse("vendor:acme")?),
//!         ..Expected::new("https://verdicts.example", later)
//!     };
//!     let verified = verify_verdict(&token, &keys, &expected);
//!     assert_eq!(verified.is_ok(), found == Verdict::Allow);
//!     if let Ok(verified) = verified {
//!         verified.claim_nonce(&nonces, later)?; // Settle now. A second time is a replay:
//!         assert!(verified.claim_nonce(&nonces, later).is_err());
//!     }
//! }
//! let june = (Month::parse("2026-06")?, Currency::parse("USD")?);
//! assert_eq!(store.spent[&june].to_string(), "900");
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs, clippy::float_arithmetic, clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod amount;
pub mod api_key;
mod base64url;
mod claims;
pub mod cursor;
mod environment;
mod error;
pub mod es256;
mod escrow;
mod event;
pub mod export;
mod id;
pub mod json;
pub mod jwks;
pub mod jwt;
mod kid;
#[cfg(feature = "log")]
pub mod log;
mod mandate;
mod name;
#[cfg(feature = "people")]
pub mod people;
mod policy;
pub mod replay;
mod request;
mod review;
mod time;
mod usage;
#[cfg(test)]
#[cfg(feature = "p256")]
mod vectors;
mod verdict;
pub mod verify;

pub use amount::{Amount, Total};
pub use claims::{EventClaims, VERDICT_LIFETIME_SECONDS, VerdictClaims};
pub use environment::EnvironmentKind;
pub use error::Invalid;
pub use escrow::{EscrowState, NoTransition};
pub use event::EventKind;
pub use id::{
    DecisionId, EscrowId, EventId, ExportId, MandateId, Nonce, PersonId, RequestId, ReviewId, WebhookId,
};
pub use mandate::{EscrowTerms, Limits, MAX_CATEGORIES, Mandate, MandateStatus, MandateView, Terms};
pub use name::{AgentId, AgentName, Category, Currency, PolicyVersion, Principal, Recipient};
pub use policy::{Evaluation, Outcome, Reason, evaluate};
pub use request::Request;
pub use review::{AlreadyResolved, Resolution, ReviewStatus};
pub use time::{Day, Month, Timestamp};
pub use usage::{Basis, RecentRequests, VELOCITY_AHEAD_SECONDS, VELOCITY_REQUESTS, VELOCITY_WINDOW_SECONDS};
pub use verdict::{Denials, Verdict};

/// Compiles the README's example together with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
