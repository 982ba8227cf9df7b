//! A new passkey.

use super::ceremony::{Ceremony, CeremonyError};
use super::key::{CredentialId, PersonKey, decode};
use super::party::RelyingParty;
use crate::error::Invalid;
use crate::es256::PublicKey;
use crate::json::Object;

/// The size of the authenticator's model number in front of the credential id, in bytes. It is not read.
const AAGUID_BYTES: usize = 16;

/// A key of ES256 in COSE, up to x, as CTAP2 writes it (RFC 9053, section 7.1.1): a map of five, the type EC2, the
/// algorithm -7, the curve P-256, and a string of 32 bytes.
const BEFORE_X: [u8; 10] = [0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20];
/// Between x and y: the label of y, and a string of 32 bytes.
const BEFORE_Y: [u8; 3] = [0x22, 0x58, 0x20];

/// How the keys of other algorithms begin, so that a refusal can name them.
const OTHERS: [(&[u8], &str); 6] = [
    (&[0xa4, 0x01, 0x03, 0x03, 0x39, 0x01, 0x00], "RS256"),
    (&[0xa4, 0x01, 0x03, 0x03, 0x38, 0x24], "PS256"),
    (&[0xa4, 0x01, 0x01, 0x03, 0x27], "EdDSA"),
    (&[0xa5, 0x01, 0x02, 0x03, 0x38, 0x22], "ES384"),
    (&[0xa5, 0x01, 0x02, 0x03, 0x38, 0x23], "ES512"),
    (&[0xa5, 0x01, 0x02, 0x03, 0x38, 0x2e], "ES256K"),
];

/// A new passkey, as a browser hands it over. No attestation is read.
///
/// ```
/// use mandate_core::json::Object;
/// use mandate_core::people::Registration;
/// let body = br#"{"authenticatorData": "AA", "clientDataJSON": "e30"}"#;
/// assert_eq!(Registration::read(Object::parse(body)?)?.authenticator_data, [0]);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// What the authenticator says, with the new key: what `getAuthenticatorData()` of the browser's answer returns.
    pub authenticator_data: Vec<u8>,
    /// What the browser says: for which challenge, and at which origin.
    pub client_data: Vec<u8>,
}

/// The key of a new passkey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// The id of the passkey.
    pub credential: CredentialId,
    /// Its key.
    pub key: PersonKey,
    /// Whether the passkey may be copied to other devices of its person.
    pub is_synced: bool,
}

/// Why a registration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// The browser's or the authenticator's data is refused.
    #[error(transparent)]
    Ceremony(#[from] CeremonyError),
    /// The id of the passkey is refused.
    #[error("the passkey is refused: {0}")]
    Credential(Invalid),
    /// The key is of another algorithm.
    #[error(
        "the passkey's key must be of ES256 (ECDSA on P-256 with SHA-256); it is of {0}, so use another authenticator"
    )]
    Algorithm(&'static str),
    /// The key is not a point on P-256.
    #[error("the passkey's key must be a point on P-256")]
    Key,
}

impl RegistrationError {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ceremony(refused) => refused.name(),
            Self::Credential(_) => "credential",
            Self::Algorithm(_) => "algorithm",
            Self::Key => "key",
        }
    }
}

impl Registration {
    /// Reads the members `authenticatorData` and `clientDataJSON`, each base64url.
    ///
    /// # Errors
    /// A member is missing or unknown, or not base64url.
    pub fn read(mut object: Object<'_>) -> Result<Self, Invalid> {
        let mut bytes = |name| decode(name, &object.require(name)?.string()?);
        let read =
            Self { authenticator_data: bytes("authenticatorData")?, client_data: bytes("clientDataJSON")? };
        object.finish()?;
        Ok(read)
    }

    /// Checks that this is a registration for `challenge`, made at the site `party` by a user who was verified, and returns
    /// the new key.
    ///
    /// Nothing is signed: a registration is believed because the challenge was given to one person, once.
    ///
    /// # Errors
    /// A check fails: the error says which.
    pub fn verify(&self, challenge: &[u8], party: &RelyingParty) -> Result<NewKey, RegistrationError> {
        let data =
            Ceremony::Registration.check(&self.client_data, &self.authenticator_data, challenge, party)?;
        let (credential, rest) = credential(data.rest)?;
        let (key, rest) = key(rest)?;
        data.end(rest)?;
        Ok(NewKey { credential, key, is_synced: data.flags.is_synced() })
    }
}

/// The id of the passkey, and what follows it.
fn credential(bytes: &[u8]) -> Result<(CredentialId, &[u8]), RegistrationError> {
    let parts = || {
        let (_, rest) = bytes.split_first_chunk::<AAGUID_BYTES>()?;
        let (length, rest) = rest.split_first_chunk()?;
        rest.split_at_checked(u16::from_be_bytes(*length).into())
    };
    let (id, rest) = parts().ok_or(CUT)?;
    let id = CredentialId::from_bytes(id).map_err(RegistrationError::Credential)?;
    Ok((id, rest))
}

const CUT: RegistrationError =
    RegistrationError::Ceremony(CeremonyError::AuthenticatorData("is cut off in the new key"));

/// The key, and what follows it.
fn key(bytes: &[u8]) -> Result<(PersonKey, &[u8]), RegistrationError> {
    let other = OTHERS.iter().find(|(start, _)| bytes.starts_with(start));
    let other = other.map_or("another algorithm or in another encoding", |(_, name)| name);
    let (start, rest) = bytes.split_first_chunk().ok_or(CUT)?;
    if *start != BEFORE_X {
        return Err(RegistrationError::Algorithm(other));
    }
    let (x, rest) = rest.split_first_chunk().ok_or(CUT)?;
    let (middle, rest) = rest.split_first_chunk().ok_or(CUT)?;
    if *middle != BEFORE_Y {
        return Err(RegistrationError::Algorithm(other));
    }
    let (y, rest) = rest.split_first_chunk().ok_or(CUT)?;
    let key = PublicKey::from_coordinates(*x, *y).map_err(|_| RegistrationError::Key)?;
    Ok((key.into(), rest))
}
