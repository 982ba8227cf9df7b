//! The key of a person, and the id of the passkey that holds it.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::base64url;
use crate::error::Invalid;
use crate::es256::{self, PublicKey};

/// The longest credential id that `WebAuthn` allows, in bytes.
pub const MAX_CREDENTIAL_BYTES: usize = 1023;

/// The size of a person's key in bytes: 4, x, y (SEC 1, section 2.3.3).
pub const PERSON_KEY_BYTES: usize = 65;

/// The longest signature of ES256 in DER, in bytes: two integers of 33 bytes, and the heads of three values.
pub const MAX_SIGNATURE_BYTES: usize = 72;

/// The id of a passkey, as its authenticator chose it. Written as base64url.
///
/// ```
/// use mandate_core::people::CredentialId;
/// let id = CredentialId::from_bytes(&[1, 2, 3])?;
/// assert_eq!(id.to_string(), "AQID");
/// assert_eq!(CredentialId::parse("AQID")?, id);
/// let refused = CredentialId::parse("").unwrap_err();
/// assert_eq!(refused.to_string(), "credential must have 1 to 1023 bytes; it has 0");
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialId(Arc<[u8]>);

/// The public key of a passkey, for ES256. Written as base64url of its uncompressed point.
///
/// ```
/// use mandate_core::es256::SecretKey;
/// use mandate_core::people::PersonKey;
/// let key = PersonKey::from(*SecretKey::from_bytes([7; 32])?.public_key());
/// assert_eq!(PersonKey::parse(&key.to_string())?, key);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PersonKey(PublicKey);

impl CredentialId {
    /// The id with these bytes.
    ///
    /// # Errors
    /// There are none, or more than [`MAX_CREDENTIAL_BYTES`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Invalid> {
        if (1..=MAX_CREDENTIAL_BYTES).contains(&bytes.len()) {
            return Ok(Self(bytes.into()));
        }
        let problem = format!("must have 1 to {MAX_CREDENTIAL_BYTES} bytes; it has {}", bytes.len());
        Err(Invalid::new("credential", problem))
    }

    /// Reads the text.
    ///
    /// # Errors
    /// The text is not base64url in its one spelling, or of no or too many bytes.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::from_bytes(&decode("credential", text)?)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl PersonKey {
    /// Reads the text.
    ///
    /// # Errors
    /// The text is not base64url in its one spelling, or not of a point on P-256 in its uncompressed form.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::from_sec1(&decode("key", text)?)
    }

    /// The key with this uncompressed point.
    ///
    /// # Errors
    /// The bytes are not 4, x and y of a point on P-256.
    pub fn from_sec1(bytes: &[u8]) -> Result<Self, Invalid> {
        let wanted = "must be a point on P-256 in its uncompressed form, 65 bytes of which the first is 4";
        let point = bytes.strip_prefix(&[4]).and_then(<[u8]>::split_first_chunk);
        let (x, y) = point.ok_or_else(|| Invalid::new("key", wanted))?;
        let y = y.try_into().map_err(|_| Invalid::new("key", wanted))?;
        PublicKey::from_coordinates(*x, y).map(Self).map_err(|_| Invalid::new("key", wanted))
    }

    /// The uncompressed point: 4, x, y.
    #[must_use]
    pub fn to_sec1(&self) -> [u8; PERSON_KEY_BYTES] {
        let mut bytes = [4; PERSON_KEY_BYTES];
        let coordinates = self.0.x().iter().chain(self.0.y());
        bytes.iter_mut().skip(1).zip(coordinates).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// Whether `signature`, in DER as authenticators write it, is one of `message` under this key.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        es256::verify_der(&self.0, message, signature)
    }
}

impl From<PublicKey> for PersonKey {
    fn from(key: PublicKey) -> Self {
        Self(key)
    }
}

/// The bytes of `text`, base64url.
pub(super) fn decode(field: &'static str, text: &str) -> Result<Vec<u8>, Invalid> {
    base64url::decode(text)
        .map_err(|problem| Invalid::new(field, format!("must be base64url without padding; it {problem}")))
}

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64url::encode(&self.0))
    }
}

impl fmt::Debug for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for CredentialId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for PersonKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64url::encode(&self.to_sec1()))
    }
}

impl fmt::Debug for PersonKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for PersonKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
