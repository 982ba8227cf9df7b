//! What is known of a token that verified.

use crate::claims::{EventClaims, VerdictClaims};
use crate::jwks::Kid;
use crate::replay::{Claimed, NonceStore};
use crate::time::Timestamp;

use super::error::NotClaimed;
use super::expected::MAX_LEEWAY_SECONDS;

/// How long after an event its token may still arrive, in seconds: 24 hours of retries, and an hour to spare.
pub const EVENT_ARRIVAL_SECONDS: i64 = 25 * 60 * 60;

/// One check that was made and passed, for a person to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The check's name, as [`VerifyError::name`](super::VerifyError::name) would give it.
    pub name: &'static str,
    /// What was found, and found good.
    pub value: String,
}

/// An `allow` that was signed by the service, is valid now, and says what was expected.
#[derive(Debug, Clone)]
pub struct VerifiedVerdict {
    pub(super) kid: Kid,
    pub(super) claims: VerdictClaims,
    pub(super) checks: Vec<Check>,
}

/// An event that was signed by the service.
#[derive(Debug, Clone)]
pub struct VerifiedEvent {
    pub(super) kid: Kid,
    pub(super) claims: EventClaims<String>,
    pub(super) checks: Vec<Check>,
}

/// A verdict that was signed by the service at some time: of any code, and in all likelihood expired. Nothing may be
/// settled on it.
#[derive(Debug, Clone)]
pub struct AuditedVerdict {
    pub(super) kid: Kid,
    pub(super) claims: VerdictClaims,
}

impl VerifiedVerdict {
    /// What was signed.
    #[must_use]
    pub fn claims(&self) -> &VerdictClaims {
        &self.claims
    }

    /// The name of the key that signed.
    #[must_use]
    pub fn kid(&self) -> &Kid {
        &self.kid
    }

    /// Whether the verdict is of the sandbox, so that no real money may move on it.
    #[must_use]
    pub fn kid_is_sandbox(&self) -> bool {
        self.kid.is_sandbox()
    }

    /// The checks that passed, in the order in which they were made.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Uses the verdict up: the last step before settling. Of any number of calls with tokens of one nonce, on stores
    /// that share what they know, one succeeds.
    ///
    /// The nonce is remembered until no verifier would take the token any more: [`MAX_LEEWAY_SECONDS`] after its expiry.
    ///
    /// # Errors
    /// The nonce was seen before (`replay`), the verdict has expired since it was verified (`expiry`), or the store
    /// cannot tell (`nonce_store`).
    pub fn claim_nonce<S: NonceStore>(&self, store: &S, now: Timestamp) -> Result<(), NotClaimed<S::Error>> {
        let until = Timestamp::from_seconds(self.claims.exp).plus_seconds(MAX_LEEWAY_SECONDS);
        claim(store, &self.claims.iss, &self.claims.nonce.to_string(), until, now)
    }
}

impl VerifiedEvent {
    /// What was signed; `data` is the JSON text of an object.
    #[must_use]
    pub fn claims(&self) -> &EventClaims<String> {
        &self.claims
    }

    /// The name of the key that signed.
    #[must_use]
    pub fn kid(&self) -> &Kid {
        &self.kid
    }

    /// The checks that passed, in the order in which they were made.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Takes note of the event's id, which is the same at every attempt to deliver it.
    ///
    /// # Errors
    /// The event came before (`replay`: answer 2xx and do nothing), it is older than [`EVENT_ARRIVAL_SECONDS`]
    /// (`expiry`), or the store cannot tell (`nonce_store`).
    pub fn claim_id<S: NonceStore>(&self, store: &S, now: Timestamp) -> Result<(), NotClaimed<S::Error>> {
        let until = Timestamp::from_seconds(self.claims.iat).plus_seconds(EVENT_ARRIVAL_SECONDS);
        claim(store, &self.claims.iss, &self.claims.jti.to_string(), until, now)
    }
}

impl AuditedVerdict {
    /// What was signed.
    #[must_use]
    pub fn claims(&self) -> &VerdictClaims {
        &self.claims
    }

    /// The name of the key that signed.
    #[must_use]
    pub fn kid(&self) -> &Kid {
        &self.kid
    }
}

fn claim<S: NonceStore>(
    store: &S,
    issuer: &str,
    nonce: &str,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), NotClaimed<S::Error>> {
    // A store may forget what has passed; it could not tell a first time from a second.
    if now > until {
        return Err(NotClaimed::Expired);
    }
    match store.claim(issuer, nonce, until, now) {
        Ok(Claimed::Fresh) => Ok(()),
        Ok(Claimed::Replayed) => Err(NotClaimed::Replayed { nonce: nonce.to_owned() }),
        Err(error) => Err(NotClaimed::Store(error)),
    }
}
