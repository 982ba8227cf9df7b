//! People who answer for money with a key of their own: a passkey (`WebAuthn`), checked offline.
//!
//! A person answers a review, or stops an agent, by signing a [`Statement`]: canonical JSON that names the payment, the
//! answer, the person and the passkey. Its SHA-256 is the challenge of a `WebAuthn` assertion with user verification. The
//! [`Answer`] keeps the statement and the [`Assertion`], so that an auditor can check both years later.
//!
//! What an answer proves: the holder of this passkey signed these digits. An authenticator shows no digits, so it does not
//! prove what a page displayed.
//!
//! ES256 is the only algorithm, and no attestation is read. Signature counters are not compared: those of synced passkeys
//! stay at 0. Every error has a `name` that stays the same from version to version.
//!
//! # Where to begin
//!
//! - **Registering a passkey**: [`RelyingParty::of_origin`], [`Registration::read`], [`Registration::verify`].
//! - **Signing in**: [`Assertion::read`], [`Assertion::verify`], with 32 random bytes as the challenge.
//! - **Asking for an answer**: [`Statement::to_json`], [`challenge`], [`Assertion::verify`], [`Answer::hash`].
//! - **Auditing**: [`Answer::read`], [`Answer::verify`].
//!
//! ```
//! use mandate_core::people::{PersonKey, RelyingParty};
//! let party = RelyingParty::of_origin("https://console.example")?;
//! assert_eq!(party.id(), "console.example");
//! assert!(PersonKey::parse("AAAA").is_err());
//! # Ok::<(), mandate_core::Invalid>(())
//! ```

mod answer;
mod assertion;
mod ceremony;
mod key;
mod party;
mod registration;
mod statement;
#[cfg(test)]
#[cfg(feature = "p256")]
pub(crate) mod tests;

pub use answer::{Answer, AnswerError};
pub use assertion::{Assertion, AssertionError};
pub use ceremony::{CeremonyError, MAX_AUTHENTICATOR_DATA_BYTES, MAX_CLIENT_DATA_BYTES};
pub use key::{CredentialId, MAX_CREDENTIAL_BYTES, MAX_SIGNATURE_BYTES, PERSON_KEY_BYTES, PersonKey};
pub use party::{MAX_ORIGIN_BYTES, RelyingParty};
pub use registration::{NewKey, Registration, RegistrationError};
pub use statement::{Asked, CHALLENGE_BYTES, MAX_STATEMENT_BYTES, Statement, Subject, challenge};
