//! Verification by a counterparty: from a token, a key set and what is to be settled, it makes a verified
//! verdict or names the check that failed. It needs neither an account nor the service itself.
//!
//! [`verify_verdict`] makes these checks in this order, and stops at the first that fails.
//! [`VerifyError::name`] is the word in the first column.
//!
//! | Check | Passes when |
//! |---|---|
//! | `size`, `parts`, `encoding`, `header`, `algorithm`, `key_id`, `type`, `header_name`, `signature_form` | the token has the one form of [`jwt`](crate::jwt); the algorithm is ES256 |
//! | `unknown_key` | the key set has the key that the token names |
//! | `signature` | the signature verifies under it |
//! | `kind` | the claims are those of a verdict, not of an event or of anything else |
//! | `claims` | every claim is there once, in its type and form; `exp` is `iat` + 300 |
//! | `issuer` | `iss` is the expected issuer, character for character |
//! | `environment` | the key is one of production, or of the kind that is expected instead |
//! | `issued_at` | `iat` does not lie in the future, beyond the leeway |
//! | `expiry` | `exp`, plus the leeway, lies in the future |
//! | `verdict` | it is `allow` |
//! | `amount`, `currency`, `recipient`, `mandate` | if expected: the signed one is equal |
//! | `not_compared` | amount, currency and recipient were expected, or [`Expected::signature_only`] is set |
//!
//! The last check is `replay`: [`VerifiedVerdict::claim_nonce`] refuses a verdict that was settled before. It
//! is a separate call, to be made last, since it uses the verdict up.
//!
//! [`verify_event`] checks a webhook's body in the same way. An event never passes for a verdict, nor a
//! verdict for an event.
//!
//! ```
//! use mandate_core::jwks::KeySet;
//! use mandate_core::replay::MemoryNonces;
//! use mandate_core::verify::{Expected, verify_verdict};
//! use mandate_core::{Amount, Currency, EnvironmentKind, Recipient, Timestamp};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let vectors = include_str!("../vectors/verdicts.json");
//! # let vectors: serde_json::Value = serde_json::from_str(vectors)?;
//! # let (key_set, token) = (vectors["jwks"].to_string(), vectors["vectors"][0]["token"].as_str().unwrap());
//! # let now = Timestamp::parse("2026-03-01T12:00:10Z")?;
//! let keys = KeySet::parse(key_set.as_bytes())?;
//! let expected = Expected {
//!     amount: Some(Amount::parse("40.50")?),
//!     currency: Some(Currency::parse("USD")?),
//!     recipient: Some(Recipient::parse("vendor:acme")?),
//!     environment: Some(EnvironmentKind::Sandbox), // Leave this out where money is real.
//!     ..Expected::new("https://verdicts.example", now)
//! };
//! let verdict = verify_verdict(token, &keys, &expected)?;
//!
//! let nonces = MemoryNonces::new();
//! verdict.claim_nonce(&nonces, now)?;
//! // Settle now. A second time is a replay:
//! assert_eq!(verdict.claim_nonce(&nonces, now).unwrap_err().name(), "replay");
//! # Ok(())
//! # }
//! ```

mod error;
mod expected;
mod verified;

use crate::claims::{EventClaims, VerdictClaims};
use crate::environment::EnvironmentKind;
use crate::error::Invalid;
use crate::json::Object;
use crate::jwks::KeySet;
use crate::jwt::{Unverified, Verified};
use crate::kid::Kid;
use crate::time::Timestamp;
use crate::verdict::Verdict;

pub use self::error::{NotClaimed, TokenKind, VerifyError};
pub use self::expected::{Expected, Leeway, MAX_LEEWAY_SECONDS};
pub use self::verified::{AuditedVerdict, Check, EVENT_ARRIVAL_SECONDS, VerifiedEvent, VerifiedVerdict};

/// Claims that RFC 7519 (sections 4.1.3 and 4.1.5) forbids to ignore. These tokens never have them.
const BINDING_CLAIMS: [&str; 2] = ["aud", "nbf"];

/// Verifies the token of a verdict that is about to be settled. The [module](self) lists the checks.
///
/// ```
/// use mandate_core::verify::{Expected, verify_verdict};
/// # let text = include_str!("../vectors/verdicts.json");
/// # let vectors: serde_json::Value = serde_json::from_str(text)?;
/// # let keys = mandate_core::jwks::KeySet::parse(vectors["jwks"].to_string().as_bytes())?;
/// # let token = vectors["vectors"][0]["token"].as_str().unwrap();
/// # let now = mandate_core::Timestamp::parse("2026-03-01T12:00:10Z")?;
/// let expected = Expected {
///     environment: Some(mandate_core::EnvironmentKind::Sandbox),
///     amount: Some(mandate_core::Amount::parse("41")?),
///     ..Expected::new("https://verdicts.example", now)
/// };
/// let refused = verify_verdict(token, &keys, &expected).unwrap_err();
/// assert_eq!(refused.to_string(), "the amount must be 41; the signed one is 40.5");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The first check that failed.
pub fn verify_verdict(
    token: &str,
    keys: &KeySet,
    expected: &Expected<'_>,
) -> Result<VerifiedVerdict, VerifyError> {
    check_verdict(token, keys, expected).1
}

/// As [`verify_verdict`], with the checks that passed, which are there too if one fails: to be shown to a person.
///
/// ```
/// use mandate_core::verify::{Expected, check_verdict};
/// # let text = include_str!("../vectors/verdicts.json");
/// # let vectors: serde_json::Value = serde_json::from_str(text)?;
/// # let keys = mandate_core::jwks::KeySet::parse(vectors["jwks"].to_string().as_bytes())?;
/// # let token = vectors["vectors"][0]["token"].as_str().unwrap();
/// # let now = mandate_core::Timestamp::parse("2026-03-01T12:00:10Z")?;
/// let (passed, verdict) = check_verdict(token, &keys, &Expected::new("https://other.example", now));
/// let names: Vec<_> = passed.iter().map(|check| check.name).collect();
/// assert_eq!(names, ["algorithm", "signature", "kind"]);
/// assert_eq!(verdict.unwrap_err().name(), "issuer");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_verdict(
    token: &str,
    keys: &KeySet,
    expected: &Expected<'_>,
) -> (Vec<Check>, Result<VerifiedVerdict, VerifyError>) {
    let mut checks = Checks::default();
    let claimed = verdict_claims(token, keys, expected, &mut checks);
    let verified = claimed.map(|(kid, claims, not_compared)| {
        let checks = checks.0.clone();
        VerifiedVerdict { kid, claims, checks, not_compared }
    });
    (checks.0, verified)
}

fn verdict_claims(
    token: &str,
    keys: &KeySet,
    expected: &Expected<'_>,
    checks: &mut Checks,
) -> Result<(Kid, VerdictClaims, Vec<&'static str>), VerifyError> {
    let (kid, claims) = signed_verdict(token, keys, expected.issuer, checks)?;
    check_environment(&kid, expected.environment, checks)?;
    check_issued_at(claims.iat, expected, checks)?;
    check_expiry(claims.exp, expected, checks)?;
    if claims.verdict != Verdict::Allow {
        return Err(VerifyError::Verdict { found: claims.verdict });
    }
    checks.passed("verdict", &claims.verdict);
    check_request(&claims, expected, checks)?;
    let not_compared = expected.missing();
    if !not_compared.is_empty() && !expected.signature_only {
        return Err(VerifyError::NotCompared { fields: not_compared });
    }
    Ok((kid, claims, not_compared))
}

/// Verifies the body of a webhook's request. Of `expected`, only `issuer`, `now`, `leeway` and `environment`
/// are used.
///
/// An event has no expiry. [`VerifiedEvent::claim_id`] refuses an event that arrives twice, or very late.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let vectors = include_str!("../vectors/events.json");
/// # let vectors: serde_json::Value = serde_json::from_str(vectors)?;
/// # let keys = mandate_core::jwks::KeySet::parse(vectors["jwks"].to_string().as_bytes())?;
/// # let body = vectors["vectors"][0]["token"].as_str().unwrap();
/// # let now = mandate_core::Timestamp::parse("2026-03-01T12:00:10Z")?;
/// use mandate_core::verify::{Expected, verify_event};
/// # let expected = Expected::new("https://verdicts.example", now);
/// # let expected = Expected { environment: None, ..expected };
/// let event = verify_event(body, &keys, &expected)?;
/// assert_eq!(event.claims().kind, "mandate.revoked");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The first check that failed.
pub fn verify_event(
    token: &str,
    keys: &KeySet,
    expected: &Expected<'_>,
) -> Result<VerifiedEvent, VerifyError> {
    check_event(token, keys, expected).1
}

/// As [`verify_event`], with the checks that passed, which are there too if one fails: to be shown to a person.
///
/// ```
/// use mandate_core::verify::{Expected, check_event};
/// let expected = Expected::new("https://verdicts.example", mandate_core::Timestamp::from_seconds(0));
/// let (passed, event) = check_event("a.b", &mandate_core::jwks::KeySet::default(), &expected);
/// assert_eq!((passed.len(), event.unwrap_err().name()), (0, "parts"));
/// ```
pub fn check_event(
    token: &str,
    keys: &KeySet,
    expected: &Expected<'_>,
) -> (Vec<Check>, Result<VerifiedEvent, VerifyError>) {
    let mut checks = Checks::default();
    let claimed = event_claims(token, keys, expected, &mut checks);
    let verified = claimed.map(|(kid, claims)| VerifiedEvent { kid, claims, checks: checks.0.clone() });
    (checks.0, verified)
}

fn event_claims(
    token: &str,
    keys: &KeySet,
    expected: &Expected<'_>,
    checks: &mut Checks,
) -> Result<(Kid, EventClaims<String>), VerifyError> {
    let verified = signed(token, keys, TokenKind::Event, checks)?;
    let claims = EventClaims::read(verified.claims()).map_err(VerifyError::Claims)?;
    check_issuer(&claims.iss, expected.issuer, checks)?;
    let kid = verified.into_kid();
    check_environment(&kid, expected.environment, checks)?;
    check_issued_at(claims.iat, expected, checks)?;
    Ok((kid, claims))
}

/// Verifies that the service has ever signed a verdict, whatever it says and however long ago it expired.
///
/// For looking into the past: an export, a dispute. **Never settle on it**: neither the expiry nor the
/// verdict nor the request is checked.
///
/// ```
/// use mandate_core::verify::audit_verdict_ignoring_expiry;
/// # let text = include_str!("../vectors/verdicts.json");
/// # let vectors: serde_json::Value = serde_json::from_str(text)?;
/// # let keys = mandate_core::jwks::KeySet::parse(vectors["jwks"].to_string().as_bytes())?;
/// # let token = vectors["vectors"][0]["token"].as_str().unwrap();
/// let audited = audit_verdict_ignoring_expiry(token, &keys, "https://verdicts.example")?;
/// assert_eq!(audited.claims().request.amount.to_string(), "40.5");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The first check that failed, among those up to `issuer`.
pub fn audit_verdict_ignoring_expiry(
    token: &str,
    keys: &KeySet,
    issuer: &str,
) -> Result<AuditedVerdict, VerifyError> {
    let (kid, claims) = signed_verdict(token, keys, issuer, &mut Checks::default())?;
    Ok(AuditedVerdict { kid, claims })
}

/// The checks that have passed so far.
#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn passed(&mut self, name: &'static str, value: &dyn ToString) {
        self.0.push(Check { name, value: value.to_string() });
    }
}

/// The checks from `size` to `kind`.
fn signed(token: &str, keys: &KeySet, kind: TokenKind, checks: &mut Checks) -> Result<Verified, VerifyError> {
    let unverified = Unverified::parse(token)?;
    checks.passed("algorithm", &"ES256");
    let verified = unverified.verify(keys)?;
    checks.passed("signature", verified.kid());
    let found = kind_of(verified.claims()).map_err(VerifyError::Claims)?;
    if found != kind {
        return Err(VerifyError::Kind { expected: kind, found });
    }
    checks.passed("kind", &kind);
    Ok(verified)
}

/// The checks from `size` to `issuer`.
fn signed_verdict(
    token: &str,
    keys: &KeySet,
    issuer: &str,
    checks: &mut Checks,
) -> Result<(Kid, VerdictClaims), VerifyError> {
    let verified = signed(token, keys, TokenKind::Verdict, checks)?;
    let claims = VerdictClaims::read(verified.claims()).map_err(VerifyError::Claims)?;
    check_issuer(&claims.iss, issuer, checks)?;
    Ok((verified.into_kid(), claims))
}

fn kind_of(claims: &[u8]) -> Result<TokenKind, Invalid> {
    let mut claims = Object::parse_as("claims", claims)?;
    for name in BINDING_CLAIMS {
        if claims.take(name).is_some() {
            return Err(Invalid::new(
                name,
                "must not be there: tokens of this service are valid at once, for anyone",
            ));
        }
    }
    Ok(match (claims.take("verdict").is_some(), claims.take("type").is_some()) {
        (true, false) => TokenKind::Verdict,
        (false, true) => TokenKind::Event,
        _ => TokenKind::Other,
    })
}

fn check_issuer(found: &str, expected: &str, checks: &mut Checks) -> Result<(), VerifyError> {
    if found != expected {
        return Err(VerifyError::Issuer { expected: expected.to_owned(), found: found.to_owned() });
    }
    checks.passed("issuer", &found);
    Ok(())
}

fn check_environment(
    kid: &Kid,
    expected: Option<EnvironmentKind>,
    checks: &mut Checks,
) -> Result<(), VerifyError> {
    let Some(expected) = expected else { return Ok(()) };
    if kid.is_sandbox() != expected.is_sandbox() {
        return Err(VerifyError::Environment { expected, kid: kid.clone() });
    }
    checks.passed("environment", &expected);
    Ok(())
}

fn check_issued_at(iat: i64, expected: &Expected<'_>, checks: &mut Checks) -> Result<(), VerifyError> {
    let issued_at = Timestamp::from_seconds(iat);
    if issued_at > expected.now.plus_seconds(expected.leeway.seconds()) {
        return Err(VerifyError::IssuedAt { issued_at, now: expected.now });
    }
    checks.passed("issued_at", &issued_at);
    Ok(())
}

fn check_expiry(exp: i64, expected: &Expected<'_>, checks: &mut Checks) -> Result<(), VerifyError> {
    let expires_at = Timestamp::from_seconds(exp);
    if expected.now >= expires_at.plus_seconds(expected.leeway.seconds()) {
        return Err(VerifyError::Expiry { expires_at, now: expected.now });
    }
    checks.passed("expiry", &expires_at);
    Ok(())
}

fn check_request(
    claims: &VerdictClaims,
    expected: &Expected<'_>,
    checks: &mut Checks,
) -> Result<(), VerifyError> {
    let found = &claims.request;
    if let Some(amount) = expected.amount {
        if found.amount != amount {
            return Err(VerifyError::Amount { expected: amount, found: found.amount });
        }
        checks.passed("amount", &amount);
    }
    if let Some(currency) = &expected.currency {
        if found.currency != *currency {
            return Err(VerifyError::Currency { expected: currency.clone(), found: found.currency.clone() });
        }
        checks.passed("currency", currency);
    }
    if let Some(recipient) = &expected.recipient {
        if found.recipient != *recipient {
            return Err(VerifyError::Recipient {
                expected: recipient.clone(),
                found: found.recipient.clone(),
            });
        }
        checks.passed("recipient", recipient);
    }
    if let Some(mandate) = expected.mandate {
        if claims.mandate != Some(mandate) {
            return Err(VerifyError::Mandate { expected: mandate, found: claims.mandate });
        }
        checks.passed("mandate", &mandate);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
