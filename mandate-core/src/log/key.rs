//! Keys that sign notes (`signed-note` of C2SP): their names, their ids, and the form in which they are pinned.

use std::fmt;

use ed25519_dalek::{Signature, Signer as _, VerifyingKey};
use sha2::{Digest as _, Sha256};

use super::base64;
use super::note::NoteSignature;
use crate::base64url;

/// The size of an Ed25519 public key and of a secret seed, in bytes.
pub const ED25519_KEY_BYTES: usize = 32;
/// The size of an Ed25519 signature in bytes.
pub const ED25519_SIGNATURE_BYTES: usize = 64;
/// The size of a key's id in bytes.
const KEY_ID_BYTES: usize = 4;
/// The longest name of a key, in bytes.
pub const MAX_KEY_NAME_BYTES: usize = 255;

/// What a key signs: the type byte of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// The text of a note, such as a log's checkpoint (type 1).
    Note,
    /// A checkpoint and the time at which a witness saw it (type 4, `tlog-cosignature`).
    Cosignature,
}

/// A verifier key: `name+id+base64(type, public key)`. The holder pins it; it is never taken from what it verifies.
///
/// ```
/// use mandate_core::log::{KeyKind, VerifierKey};
/// let text = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
/// let key = VerifierKey::parse(text)?;
/// assert_eq!((key.name(), key.kind()), ("example.com/foo", KeyKind::Note));
/// assert_eq!(key.to_string(), text);
/// # Ok::<(), mandate_core::log::KeyRefused>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    kind: KeyKind,
    id: [u8; KEY_ID_BYTES],
    key: VerifyingKey,
}

/// A key that signs checkpoints, or cosigns them. `Debug` never shows it, and it is wiped from memory when dropped.
///
/// ```
/// use mandate_core::log::{KeyKind, SigningKey};
/// // In production: 32 bytes from the operating system's random generator.
/// let key = SigningKey::new("witness.example", KeyKind::Cosignature, &[7; 32])?;
/// assert_eq!(key.verifier().name(), "witness.example");
/// # Ok::<(), mandate_core::log::KeyRefused>(())
/// ```
#[derive(Clone)]
pub struct SigningKey {
    verifier: VerifierKey,
    secret: ed25519_dalek::SigningKey,
}

/// Why a key is refused.
///
/// The variants are in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyRefused {
    /// It does not have three parts.
    #[error("a verifier key must be a name, an id and a key with `+` between them")]
    Parts,
    /// The name is empty, too long, or has a space, a `+` or a control character in it.
    #[error(
        "the name of a key must be 1 to {MAX_KEY_NAME_BYTES} bytes without spaces, `+` and control characters"
    )]
    Name,
    /// The third part is not base64.
    #[error("the third part of a verifier key must be base64 with padding")]
    Encoding,
    /// The type is another one.
    #[error("the key must be Ed25519, of type 1 for a log or of type 4 for a witness")]
    Kind,
    /// The key is not one of Ed25519 that can be relied on.
    #[error("the public key must be a point of Ed25519 in its one spelling, and not one of small order")]
    PublicKey,
    /// The id is not that of name and key.
    #[error("the id of the verifier key does not belong to its name and key")]
    Id,
}

impl KeyRefused {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Parts => "key_parts",
            Self::Name => "key_name",
            Self::Encoding => "key_encoding",
            Self::Kind => "key_type",
            Self::PublicKey => "public_key",
            Self::Id => "key_id",
        }
    }
}

impl KeyKind {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Note => 1,
            Self::Cosignature => 4,
        }
    }

    fn of_byte(byte: u8) -> Option<Self> {
        [Self::Note, Self::Cosignature].into_iter().find(|kind| kind.byte() == byte)
    }
}

impl VerifierKey {
    /// The verifier key with this name and public key.
    ///
    /// # Errors
    /// The name or the key is refused.
    pub fn new(name: &str, kind: KeyKind, public: &[u8; ED25519_KEY_BYTES]) -> Result<Self, KeyRefused> {
        if !is_key_name(name) || name.len() > MAX_KEY_NAME_BYTES {
            return Err(KeyRefused::Name);
        }
        // A key has a second spelling if its coordinate is not reduced; one of small order verifies what was never signed.
        let key = VerifyingKey::from_bytes(public).map_err(|_| KeyRefused::PublicKey)?;
        if key.is_weak() || key.to_edwards().compress().as_bytes() != public {
            return Err(KeyRefused::PublicKey);
        }
        Ok(Self { name: name.to_owned(), kind, id: key_id(name, kind, public), key })
    }

    /// Reads a verifier key, in its one spelling.
    ///
    /// # Errors
    /// A part is malformed, or the id does not belong to name and key.
    pub fn parse(text: &str) -> Result<Self, KeyRefused> {
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(KeyRefused::Parts);
        };
        if !is_key_name(name) {
            return Err(KeyRefused::Name);
        }
        let bytes = base64::decode(key).ok_or(KeyRefused::Encoding)?;
        let (kind, public) = bytes.split_first().ok_or(KeyRefused::Kind)?;
        let kind = KeyKind::of_byte(*kind).ok_or(KeyRefused::Kind)?;
        let key = Self::new(name, kind, public.try_into().map_err(|_| KeyRefused::PublicKey)?)?;
        if hex(key.id) == id { Ok(key) } else { Err(KeyRefused::Id) }
    }

    /// The name. A log's is its origin.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it verifies.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The id: the first four bytes of a hash over name, kind and key. It finds the key of a signature, and proves nothing.
    #[must_use]
    pub fn id(&self) -> u32 {
        u32::from_be_bytes(self.id)
    }

    /// The Ed25519 public key (RFC 8032).
    #[must_use]
    pub fn public_key(&self) -> &[u8; ED25519_KEY_BYTES] {
        self.key.as_bytes()
    }

    /// The SHA-256 of the key's text, in base64url: what people compare through another channel before they pin the key.
    ///
    /// ```
    /// # use mandate_core::log::VerifierKey;
    /// let key = VerifierKey::parse("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")?;
    /// assert_eq!(key.fingerprint(), "oFQlyPX0c5pKlpksnb1Yfb4i6jhzOxYWfzmdRO-52fA");
    /// # Ok::<(), mandate_core::log::KeyRefused>(())
    /// ```
    #[must_use]
    pub fn fingerprint(&self) -> String {
        base64url::encode(&Sha256::digest(self.to_string()))
    }

    /// Whether `signature` gives this key as the one that made it: by name and id.
    #[must_use]
    pub fn made(&self, signature: &NoteSignature) -> bool {
        signature.name() == self.name && signature.key_id() == self.id()
    }

    /// Whether `signature` is one of `message` under this key, by the strict rules: no second spelling, no small order.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8; ED25519_SIGNATURE_BYTES]) -> bool {
        self.key.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl SigningKey {
    /// The key of this name from a secret seed, which must come from a cryptographic random generator.
    ///
    /// # Errors
    /// [`KeyRefused::Name`].
    pub fn new(name: &str, kind: KeyKind, seed: &[u8; ED25519_KEY_BYTES]) -> Result<Self, KeyRefused> {
        let secret = ed25519_dalek::SigningKey::from_bytes(seed);
        let verifier = VerifierKey::new(name, kind, secret.verifying_key().as_bytes())?;
        Ok(Self { verifier, secret })
    }

    /// The key that verifies what this one signs.
    #[must_use]
    pub fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; ED25519_SIGNATURE_BYTES] {
        self.secret.sign(message).to_bytes()
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = [&[self.kind.byte()], self.public_key().as_slice()].concat();
        write!(f, "{}+{}+{}", self.name, hex(self.id), base64::encode(&key))
    }
}

impl fmt::Debug for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifierKey({self})")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("verifier", &self.verifier).finish_non_exhaustive()
    }
}

/// Whether a note may give `text` as the name of a key.
pub(super) fn is_key_name(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(|char| char.is_whitespace() || char == '+' || char < ' ')
}

fn key_id(name: &str, kind: KeyKind, public: &[u8]) -> [u8; KEY_ID_BYTES] {
    let hash = Sha256::new().chain_update(name).chain_update([b'\n', kind.byte()]).chain_update(public);
    let mut id = [0; KEY_ID_BYTES];
    id.iter_mut().zip(hash.finalize()).for_each(|(to, byte)| *to = byte);
    id
}

fn hex(id: [u8; KEY_ID_BYTES]) -> String {
    format!("{:08x}", u32::from_be_bytes(id))
}
