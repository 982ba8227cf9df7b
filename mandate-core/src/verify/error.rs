//! The errors of verification: one check, what was expected, and what was found.

use std::fmt;

use crate::amount::Amount;
use crate::environment::EnvironmentKind;
use crate::error::{Invalid, echo};
use crate::id::MandateId;
use crate::jwt::TokenRefused;
use crate::kid::Kid;
use crate::name::{Currency, Recipient};
use crate::time::Timestamp;
use crate::verdict::Verdict;

/// The kind of a signed token, according to its claims.
///
/// ```
/// use mandate_core::verify::{TokenKind, VerifyError};
/// let refused = VerifyError::Kind { expected: TokenKind::Verdict, found: TokenKind::Event };
/// assert_eq!(refused.to_string(), "the token must be a verdict; it is an event");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// It has `verdict` and no `type`.
    Verdict,
    /// It has `type` and no `verdict`.
    Event,
    /// It has neither, or both.
    Other,
}

/// The check that a token failed. No message repeats the token or its signature.
///
/// ```
/// use mandate_core::{Verdict, verify::VerifyError};
/// let refused = VerifyError::Verdict { found: Verdict::Review };
/// assert_eq!(refused.to_string(), "the verdict must be `allow`; it is `review`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The token itself: its form, its key or its signature.
    #[error(transparent)]
    Token(#[from] TokenRefused),
    /// It is signed, but of another kind.
    #[error("the token must be {expected}; it is {found}")]
    Kind {
        /// The expected kind.
        expected: TokenKind,
        /// The kind of the claims.
        found: TokenKind,
    },
    /// A claim is absent, appears twice, or has the wrong type or form.
    #[error("the claims are refused: {0}")]
    Claims(Invalid),
    /// Another issuer has signed.
    #[error("the issuer must be `{expected}`; the token has `{}`", echo(found))]
    Issuer {
        /// The expected issuer.
        expected: String,
        /// The claim `iss`.
        found: String,
    },
    /// A key of the other kind of environment has signed.
    #[error("the token must be of the {expected} environment; its key is `{kid}`")]
    Environment {
        /// The expected kind.
        expected: EnvironmentKind,
        /// The name of the key. Names of sandbox keys begin with `sandbox-`.
        kid: Kid,
    },
    /// It is issued in the future: one of the two clocks is wrong.
    #[error("the token is issued in the future, at {issued_at}; now is {now}")]
    IssuedAt {
        /// The claim `iat`.
        issued_at: Timestamp,
        /// The caller's time.
        now: Timestamp,
    },
    /// It has expired.
    #[error("the token has expired, at {expires_at}; now is {now}")]
    Expiry {
        /// The claim `exp`.
        expires_at: Timestamp,
        /// The caller's time.
        now: Timestamp,
    },
    /// The request was not allowed.
    #[error("the verdict must be `allow`; it is `{found}`")]
    Verdict {
        /// The claim `verdict`.
        found: Verdict,
    },
    /// Another amount was allowed.
    #[error("the amount must be {expected}; the signed one is {found}")]
    Amount {
        /// The amount that is to be settled.
        expected: Amount,
        /// The claim `request.amount`.
        found: Amount,
    },
    /// Another currency was allowed.
    #[error("the currency must be {expected}; the signed one is {found}")]
    Currency {
        /// The currency that is to be settled.
        expected: Currency,
        /// The claim `request.currency`.
        found: Currency,
    },
    /// Another recipient was allowed.
    #[error("the recipient must be `{expected}`; the signed one is `{found}`")]
    Recipient {
        /// Who is to be paid.
        expected: Recipient,
        /// The claim `request.recipient`.
        found: Recipient,
    },
    /// The verdict was given under another mandate.
    #[error("the mandate must be {expected}; the signed one is {}", shown(*found))]
    Mandate {
        /// The expected mandate.
        expected: MandateId,
        /// The claim `mandate`.
        found: Option<MandateId>,
    },
    /// The verdict is genuine and valid, but nothing says that it is for this payment.
    #[error("not compared with anything: {}", fields.join(", "))]
    NotCompared {
        /// Those of amount, currency and recipient that were not expected.
        fields: Vec<&'static str>,
    },
}

/// Why a nonce could not be claimed. In any case, do not settle.
///
/// ```
/// use mandate_core::{replay::NoncesFull, verify::NotClaimed};
/// let refused = NotClaimed::<NoncesFull>::Replayed { nonce: "n_1".to_owned() };
/// assert_eq!(refused.to_string(), "this is a replay: `n_1` was seen before");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotClaimed<E> {
    /// It was claimed before.
    #[error("this is a replay: `{nonce}` was seen before")]
    Replayed {
        /// The nonce of the verdict, or the id of the event.
        nonce: String,
    },
    /// The token is so old that a store may have deleted its nonce.
    #[error("too late to tell whether this is a replay: the token expired too long ago")]
    Expired,
    /// The store failed.
    #[error("the nonce store cannot tell whether this is a replay: {0}")]
    Store(#[source] E),
}

impl VerifyError {
    /// The name of the check. It stays the same in all versions.
    ///
    /// ```
    /// use mandate_core::{jwks::KeySet, Timestamp, verify::{Expected, verify_verdict}};
    /// let expected = Expected::new("https://verdicts.example", Timestamp::from_seconds(0));
    /// let refused = verify_verdict("a.b", &KeySet::default(), &expected).unwrap_err();
    /// assert_eq!(refused.name(), "parts");
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Token(refused) => refused.name(),
            Self::Kind { .. } => "kind",
            Self::Claims(_) => "claims",
            Self::Issuer { .. } => "issuer",
            Self::Environment { .. } => "environment",
            Self::IssuedAt { .. } => "issued_at",
            Self::Expiry { .. } => "expiry",
            Self::Verdict { .. } => "verdict",
            Self::Amount { .. } => "amount",
            Self::Currency { .. } => "currency",
            Self::Recipient { .. } => "recipient",
            Self::Mandate { .. } => "mandate",
            Self::NotCompared { .. } => "not_compared",
        }
    }
}

impl<E> NotClaimed<E> {
    /// The name of the check. It stays the same in all versions.
    ///
    /// ```
    /// use mandate_core::{replay::NoncesFull, verify::NotClaimed};
    /// assert_eq!(NotClaimed::<NoncesFull>::Expired.name(), "expiry");
    /// assert_eq!(NotClaimed::Store(NoncesFull { most: 0 }).name(), "nonce_store");
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Replayed { .. } => "replay",
            Self::Expired => "expiry",
            Self::Store(_) => "nonce_store",
        }
    }
}

impl fmt::Display for TokenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Verdict => "a verdict",
            Self::Event => "an event",
            Self::Other => "neither a verdict nor an event",
        })
    }
}

fn shown(mandate: Option<MandateId>) -> String {
    mandate.map_or_else(|| "absent".to_owned(), |id| id.to_string())
}
