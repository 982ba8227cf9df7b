//! Tokens that were verified.

use crate::claims::{EventClaims, VerdictClaims};
use crate::kid::Kid;
use crate::replay::{Claimed, NonceStore};
use crate::time::Timestamp;

use super::error::NotClaimed;
use super::expected::MAX_LEEWAY_SECONDS;

/// How long after its event a token may still arrive, in seconds: 24 hours of retries, and one hour more.
pub const EVENT_ARRIVAL_SECONDS: i64 = 25 * 60 * 60;

/// A check that passed, for a person to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The name of the check, as in [`VerifyError::name`](super::VerifyError::name).
    pub name: &'static str,
    /// The value that was checked.
    pub value: String,
}

/// An `allow` that the service has signed, that is valid now, and that matches what was expected. Claim its nonce
/// before you deliver.
///
/// ```
/// use mandate_core::verify::{Expected, verify_verdict};
/// # let text = include_str!("../../vectors/verdicts.json");
/// # let vectors: serde_json::Value = serde_json::from_str(text)?;
/// # let keys = mandate_core::jwks::KeySet::parse(vectors["jwks"].to_string().as_bytes())?;
/// # let token = vectors["vectors"][0]["token"].as_str().unwrap();
/// # let now = mandate_core::Timestamp::parse("2026-03-01T12:00:10Z")?;
/// # use mandate_core::{Amount, Currency, Recipient};
/// let expected = Expected {
///     environment: None,
///     amount: Some(Amount::parse("40.5")?),
///     currency: Some(Currency::parse("USD")?),
///     recipient: Some(Recipient::parse("vendor:acme")?),
///     ..Expected::new("https://verdicts.example", now)
/// };
/// let verdict = verify_verdict(token, &keys, &expected)?;
/// assert!(verdict.kid_is_sandbox(), "no real money may move");
/// assert_eq!(verdict.claims().request.recipient.as_str(), "vendor:acme");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "claim its nonce before you deliver"]
pub struct VerifiedVerdict {
    pub(super) kid: Kid,
    pub(super) claims: VerdictClaims,
    pub(super) checks: Vec<Check>,
    pub(super) not_compared: Vec<&'static str>,
}

/// An event that the service has signed.
///
/// ```
/// use mandate_core::verify::{Expected, verify_event};
/// # let text = include_str!("../../vectors/events.json");
/// # let vectors: serde_json::Value = serde_json::from_str(text)?;
/// # let keys = mandate_core::jwks::KeySet::parse(vectors["jwks"].to_string().as_bytes())?;
/// # let body = vectors["vectors"][0]["token"].as_str().unwrap();
/// # let now = mandate_core::Timestamp::parse("2026-03-01T12:00:10Z")?;
/// let sandbox = Some(mandate_core::EnvironmentKind::Sandbox);
/// let expected = Expected { environment: sandbox, ..Expected::new("https://verdicts.example", now) };
/// let event = verify_event(body, &keys, &expected)?;
/// assert_eq!(event.claims().kind, "mandate.revoked");
/// assert!(event.claims().data.starts_with('{'));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct VerifiedEvent {
    pub(super) kid: Kid,
    pub(super) claims: EventClaims<String>,
    pub(super) checks: Vec<Check>,
}

/// A verdict that the service has signed at some time: it may have any code, and has probably expired. Never
/// settle on it.
#[derive(Debug, Clone)]
pub struct AuditedVerdict {
    pub(super) kid: Kid,
    pub(super) claims: VerdictClaims,
}

impl VerifiedVerdict {
    /// The signed claims.
    #[must_use]
    pub fn claims(&self) -> &VerdictClaims {
        &self.claims
    }

    /// The name of the key that signed.
    #[must_use]
    pub fn kid(&self) -> &Kid {
        &self.kid
    }

    /// Whether the verdict is of the sandbox: then no real money may move.
    #[must_use]
    pub fn kid_is_sandbox(&self) -> bool {
        self.kid.is_sandbox()
    }

    /// The checks that passed, in the order in which they were made.
    ///
    /// ```
    /// use mandate_core::verify::{Expected, verify_verdict};
    /// # let text = include_str!("../../vectors/verdicts.json");
    /// # let vectors: serde_json::Value = serde_json::from_str(text)?;
    /// # let keys = mandate_core::jwks::KeySet::parse(vectors["jwks"].to_string().as_bytes())?;
    /// # let token = vectors["vectors"][0]["token"].as_str().unwrap();
    /// # let now = mandate_core::Timestamp::parse("2026-03-01T12:00:10Z")?;
    /// # let expected = Expected::new("https://verdicts.example", now);
    /// # let expected = Expected { environment: None, signature_only: true, ..expected };
    /// let verdict = verify_verdict(token, &keys, &expected)?;
    /// let first = &verdict.checks()[0];
    /// assert_eq!((first.name, first.value.as_str()), ("algorithm", "ES256"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Those of `amount`, `currency` and `recipient` that were not compared: nothing, unless
    /// [`Expected::signature_only`](super::Expected::signature_only) allowed it.
    ///
    /// ```
    /// use mandate_core::verify::{Expected, verify_verdict};
    /// # let text = include_str!("../../vectors/verdicts.json");
    /// # let vectors: serde_json::Value = serde_json::from_str(text)?;
    /// # let keys = mandate_core::jwks::KeySet::parse(vectors["jwks"].to_string().as_bytes())?;
    /// # let token = vectors["vectors"][0]["token"].as_str().unwrap();
    /// # let now = mandate_core::Timestamp::parse("2026-03-01T12:00:10Z")?;
    /// let expected = Expected {
    ///     environment: None,
    ///     signature_only: true,
    ///     amount: Some(mandate_core::Amount::parse("40.5")?),
    ///     ..Expected::new("https://verdicts.example", now)
    /// };
    /// assert_eq!(verify_verdict(token, &keys, &expected)?.not_compared(), ["currency", "recipient"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn not_compared(&self) -> &[&'static str] {
        &self.not_compared
    }

    /// Uses the verdict up: the last step before settling. Of any number of calls with the same nonce, on
    /// stores that share their entries, exactly one succeeds.
    ///
    /// The nonce is kept until no verifier accepts the token any more: [`MAX_LEEWAY_SECONDS`] after its
    /// expiry.
    ///
    /// ```
    /// use mandate_core::{replay::MemoryNonces, verify::{Expected, verify_verdict}};
    /// # let text = include_str!("../../vectors/verdicts.json");
    /// # let vectors: serde_json::Value = serde_json::from_str(text)?;
    /// # let keys = mandate_core::jwks::KeySet::parse(vectors["jwks"].to_string().as_bytes())?;
    /// # let token = vectors["vectors"][0]["token"].as_str().unwrap();
    /// # let now = mandate_core::Timestamp::parse("2026-03-01T12:00:10Z")?;
    /// # let expected = Expected::new("https://verdicts.example", now);
    /// # let expected = Expected { environment: None, signature_only: true, ..expected };
    /// let verdict = verify_verdict(token, &keys, &expected)?;
    /// let nonces = MemoryNonces::new();
    /// assert!(verdict.claim_nonce(&nonces, now).is_ok());
    /// assert_eq!(verdict.claim_nonce(&nonces, now).unwrap_err().name(), "replay");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The nonce was seen before (`replay`), the verdict has expired since it was verified (`expiry`), or the
    /// store cannot answer (`nonce_store`).
    pub fn claim_nonce<S: NonceStore>(&self, store: &S, now: Timestamp) -> Result<(), NotClaimed<S::Error>> {
        let until = Timestamp::from_seconds(self.claims.exp).plus_seconds(MAX_LEEWAY_SECONDS);
        claim(store, &self.claims.iss, &self.claims.nonce.to_string(), until, now)
    }
}

impl VerifiedEvent {
    /// The signed claims. `data` is the JSON text of an object.
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

    /// Claims the event's id, which is the same in every attempt to deliver it.
    ///
    /// ```
    /// use mandate_core::{replay::MemoryNonces, verify::{Expected, verify_event}};
    /// # let text = include_str!("../../vectors/events.json");
    /// # let vectors: serde_json::Value = serde_json::from_str(text)?;
    /// # let keys = mandate_core::jwks::KeySet::parse(vectors["jwks"].to_string().as_bytes())?;
    /// # let body = vectors["vectors"][0]["token"].as_str().unwrap();
    /// # let now = mandate_core::Timestamp::parse("2026-03-01T12:00:10Z")?;
    /// # let expected = Expected { environment: None, ..Expected::new("https://verdicts.example", now) };
    /// let event = verify_event(body, &keys, &expected)?;
    /// let seen = MemoryNonces::new();
    /// assert!(event.claim_id(&seen, now).is_ok());
    /// assert_eq!(event.claim_id(&seen, now).unwrap_err().name(), "replay");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The event arrived before (`replay`: answer 2xx and do nothing), it is older than
    /// [`EVENT_ARRIVAL_SECONDS`] (`expiry`), or the store cannot answer (`nonce_store`).
    pub fn claim_id<S: NonceStore>(&self, store: &S, now: Timestamp) -> Result<(), NotClaimed<S::Error>> {
        let until = Timestamp::from_seconds(self.claims.iat).plus_seconds(EVENT_ARRIVAL_SECONDS);
        claim(store, &self.claims.iss, &self.claims.jti.to_string(), until, now)
    }
}

impl AuditedVerdict {
    /// The signed claims.
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
    // A store may have deleted such entries, so it could not tell a first use from a second.
    if now > until {
        return Err(NotClaimed::Expired);
    }
    match store.claim(issuer, nonce, until, now) {
        Ok(Claimed::Fresh) => Ok(()),
        Ok(Claimed::Replayed) => Err(NotClaimed::Replayed { nonce: nonce.to_owned() }),
        Err(error) => Err(NotClaimed::Store(error)),
    }
}
