//! Spending mandates for autonomous agents: decide, sign, verify.
//!
//! An organization writes a [`Mandate`] for an agent: limits, categories, a review threshold, an expiry. The agent makes
//! a [`Request`]; [`evaluate`] gives an [`Outcome`] with one of eight [`Verdict`]s; signed, it is a token that a stranger
//! can verify offline.
//!
//! This library is the whole of that, and nothing else: it has no clock, no randomness, no I/O and no async. The caller
//! says what time it is and brings random bytes where they are needed, so that every function gives the same result for
//! the same arguments. Input is read strictly, each type holds only what is valid, and amounts are exact decimals.
//!
//! # Where to begin
//!
//! - **Deciding in a service of your own**: read a mandate with [`Terms::read`], a request with [`Request::read`], keep
//!   [`RecentRequests`] and the month's [`Total`] for each agent, and call [`evaluate`].
//! - **Verifying in a checkout of your own**: [`jwks::KeySet::parse`], [`verify::verify_verdict`], and a
//!   [`replay::NonceStore`], so that no verdict is settled twice.
//! - **Signing**: [`VerdictClaims::to_json`] and [`jwt::sign`], under a key of [`es256`].
//! - **Reading bodies strictly**: [`json::Object`].
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
mod mandate;
mod name;
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
pub use id::{DecisionId, EscrowId, EventId, ExportId, MandateId, Nonce, RequestId, ReviewId, WebhookId};
pub use mandate::{EscrowTerms, Limits, MAX_CATEGORIES, Mandate, MandateStatus, MandateView, Terms};
pub use name::{AgentId, AgentName, Category, Currency, PolicyVersion, Principal, Recipient};
pub use policy::{Evaluation, Outcome, Reason, evaluate};
pub use request::Request;
pub use review::{AlreadyResolved, Resolution, ReviewStatus};
pub use time::{Day, Month, Timestamp};
pub use usage::{Basis, RecentRequests, VELOCITY_REQUESTS, VELOCITY_WINDOW_SECONDS};
pub use verdict::{Denials, Verdict};
