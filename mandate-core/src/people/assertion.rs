//! A signature of a person's passkey over a challenge.

use super::ceremony::{Ceremony, CeremonyError, at_most, client_data_hash};
use super::key::{CredentialId, MAX_SIGNATURE_BYTES, PersonKey, decode};
use super::party::RelyingParty;
use crate::error::Invalid;
use crate::json::Object;

/// A signature of a person's passkey over a challenge, as a browser hands it over.
///
/// ```
/// use mandate_core::json::Object;
/// use mandate_core::people::Assertion;
/// let body = br#"{"credential": "AQID", "authenticatorData": "", "clientDataJSON": "e30", "signature": ""}"#;
/// let assertion = Assertion::read(Object::parse(body)?)?;
/// assert_eq!(assertion.client_data, b"{}");
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assertion {
    /// The passkey.
    pub credential: CredentialId,
    /// What the authenticator says: for which site, and whether it verified the user.
    pub authenticator_data: Vec<u8>,
    /// What the browser says: for which challenge, and at which origin.
    pub client_data: Vec<u8>,
    /// The signature over both, in DER.
    pub signature: Vec<u8>,
}

/// Why an assertion is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssertionError {
    /// The browser's or the authenticator's data is refused.
    #[error(transparent)]
    Ceremony(#[from] CeremonyError),
    /// The signature is not one of this key.
    #[error("the signature of the assertion is not one of this passkey's key")]
    Signature,
}

impl AssertionError {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ceremony(refused) => refused.name(),
            Self::Signature => "signature",
        }
    }
}

impl Assertion {
    /// Reads the members `credential`, `authenticatorData`, `clientDataJSON` and `signature`, each base64url.
    ///
    /// # Errors
    /// A member is missing or unknown, or not base64url.
    pub fn read(mut object: Object<'_>) -> Result<Self, Invalid> {
        let read = Self::take(&mut object, ["authenticatorData", "clientDataJSON"])?;
        object.finish()?;
        Ok(read)
    }

    /// Takes the four members out; the two that are spelled in two ways have these names.
    pub(super) fn take(
        object: &mut Object<'_>,
        [authenticator_data, client_data]: [&'static str; 2],
    ) -> Result<Self, Invalid> {
        let mut bytes = |name| decode(name, &object.require(name)?.string()?);
        Ok(Self {
            credential: CredentialId::from_bytes(&bytes("credential")?)?,
            authenticator_data: bytes(authenticator_data)?,
            client_data: bytes(client_data)?,
            signature: bytes("signature")?,
        })
    }

    /// Checks that this is an assertion of `key` over `challenge`, made at the site `party` by a user who was verified.
    ///
    /// The caller has looked the key up by [`Assertion::credential`]. The signature counter is not compared.
    ///
    /// # Errors
    /// A check fails: the error says which.
    pub fn verify(
        &self,
        challenge: &[u8],
        party: &RelyingParty,
        key: &PersonKey,
    ) -> Result<(), AssertionError> {
        at_most("signature", &self.signature, MAX_SIGNATURE_BYTES)?;
        let data =
            Ceremony::Assertion.check(&self.client_data, &self.authenticator_data, challenge, party)?;
        data.end(data.rest)?;
        let signed = [self.authenticator_data.as_slice(), &client_data_hash(&self.client_data)].concat();
        if key.verify(&signed, &self.signature) { Ok(()) } else { Err(AssertionError::Signature) }
    }
}
