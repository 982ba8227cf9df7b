//! The entries of a log of verdicts, and how each is written.
//!
//! | Type | Bytes |
//! |---|---|
//! | 1, a decision | `1`, tag (32), SHA-256 of the token's signing input (32), hash of the record (32) |
//! | 2, a record that governs | `2`, tag (32), random bytes (32), hash of the record (32) |
//! | 3, a signing key | `3`, what happened (1), milliseconds since the Unix epoch (8, signed), x (32), y (32), thumbprint (32), length of the kid (1), kid |
//! | 4, an older log | `4`, the last checkpoint that it published, with its signatures |
//!
//! Numbers are big-endian. Types 1 and 2 are alike in length, and nothing in them can be guessed: see [`BlindSecret`].

mod secret;

pub use secret::{BlindSecret, WatchKey, record_hash};

use super::bundle::MAX_ENTRY_BYTES;
use super::checkpoint::{CheckpointRefused, SignedCheckpoint};
use super::hash::{HASH_BYTES, Hash};
use crate::es256::PublicKey;
use crate::jwks::{self, Kid};
use crate::jwt::MAX_TOKEN_BYTES;
use crate::time::Timestamp;

/// The size of an entry of type 1 or 2, in bytes.
pub const COMMITMENT_BYTES: usize = 1 + 3 * HASH_BYTES;

/// An entry of a log.
///
/// ```
/// use mandate_core::log::{Entry, Hash};
/// let [tag, token, record] = [b"t", b"s", b"r"].map(|text| Hash::sha256(text));
/// let entry = Entry::Decision { tag, token, record };
/// let bytes = entry.to_bytes();
/// assert_eq!((bytes.len(), bytes[0]), (97, 1));
/// assert_eq!(Entry::parse(&bytes)?, entry);
/// # Ok::<(), mandate_core::log::EntryRefused>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A decision.
    Decision {
        /// By which the holder of the environment's watch key finds it: [`WatchKey::decision`].
        tag: Hash,
        /// The hash of its token's signing input: [`token_hash`].
        token: Hash,
        /// The hash of its record: [`record_hash`].
        record: Hash,
    },
    /// A change that governs decisions: an agent, a mandate, a mode, the answer to a review, a person's key.
    Governing {
        /// By which the holder of the environment's watch key finds it: [`WatchKey::governing`].
        tag: Hash,
        /// Random bytes, so that it looks like a decision.
        random: Hash,
        /// The hash of its record: [`record_hash`].
        record: Hash,
    },
    /// What happened to a signing key. It is readable, so that everyone can watch the keys.
    Key(KeyEvent),
    /// The last checkpoint of the log that this one continues. Only the first entry is of this type.
    OlderLog(SignedCheckpoint),
}

/// What happened to a key that signs tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEvent {
    /// What happened.
    pub change: KeyChange,
    /// When.
    pub at: Timestamp,
    /// The name under which it is published.
    pub kid: Kid,
    /// The key.
    pub public: PublicKey,
}

/// What happens to a signing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyChange {
    /// It is in the key set from now on.
    Published,
    /// It signs no more; what it signed stays valid.
    Retired,
    /// It must not be relied on any more.
    Revoked,
}

/// Why bytes are not an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryRefused {
    /// The first byte is none of the types, or there is none.
    #[error("the entry must begin with its type, from 1 to 4")]
    Type,
    /// The length is not that of its type.
    #[error("an entry of type {entry_type} has another length than {bytes} bytes")]
    Length {
        /// The type.
        entry_type: u8,
        /// How many bytes it has.
        bytes: usize,
    },
    /// What happened is none of the three.
    #[error("what happened to the key must be 1 (published), 2 (retired) or 3 (revoked)")]
    Change,
    /// The instant is beyond those that this library knows.
    #[error("the instant of the entry must be in the years from 1970 to 9999")]
    Instant,
    /// The public key is not on the curve.
    #[error("the public key of the entry must be a point on P-256")]
    PublicKey,
    /// The thumbprint is not that of the key.
    #[error("the thumbprint of the entry does not belong to its key")]
    Thumbprint,
    /// The name of the key is malformed.
    #[error("the name of the key must be 1 to 128 printable ASCII characters")]
    KeyId,
    /// The checkpoint is malformed, or in another spelling.
    #[error("the older log's checkpoint is refused: {0}")]
    Checkpoint(CheckpointRefused),
}

impl EntryRefused {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Type => "entry_type",
            Self::Length { .. } => "entry_length",
            Self::Change => "key_change",
            Self::Instant => "instant",
            Self::PublicKey => "public_key",
            Self::Thumbprint => "thumbprint",
            Self::KeyId => "key_id",
            Self::Checkpoint(refused) => refused.name(),
        }
    }
}

impl KeyChange {
    const ALL: [Self; 3] = [Self::Published, Self::Retired, Self::Revoked];

    /// `published`, `retired` or `revoked`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Retired => "retired",
            Self::Revoked => "revoked",
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Published => 1,
            Self::Retired => 2,
            Self::Revoked => 3,
        }
    }
}

impl Entry {
    /// The bytes of the entry.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let commitment = |entry_type: u8, parts: [&Hash; 3]| {
            let [first, second, third] = parts.map(Hash::as_bytes);
            [&[entry_type], first.as_slice(), second, third].concat()
        };
        match self {
            Self::Decision { tag, token, record } => commitment(1, [tag, token, record]),
            Self::Governing { tag, random, record } => commitment(2, [tag, random, record]),
            Self::Key(event) => event.to_bytes(),
            Self::OlderLog(checkpoint) => [&[4], checkpoint.to_string().as_bytes()].concat(),
        }
    }

    /// The hash of the entry as a leaf of the tree.
    #[must_use]
    pub fn leaf(&self) -> Hash {
        Hash::of_leaf(&self.to_bytes())
    }

    /// Reads an entry, in its one spelling.
    ///
    /// # Errors
    /// The type, the length or a part is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, EntryRefused> {
        let (entry_type, rest) = bytes.split_first().ok_or(EntryRefused::Type)?;
        let wrong = EntryRefused::Length { entry_type: *entry_type, bytes: bytes.len() };
        if bytes.len() > MAX_ENTRY_BYTES {
            return Err(wrong);
        }
        let parts = || match rest.as_chunks() {
            ([first, second, third], []) => Ok([*first, *second, *third].map(Hash::new)),
            _ => Err(wrong),
        };
        match entry_type {
            1 => parts().map(|[tag, token, record]| Self::Decision { tag, token, record }),
            2 => parts().map(|[tag, random, record]| Self::Governing { tag, random, record }),
            3 => KeyEvent::parse(rest, wrong).map(Self::Key),
            4 => SignedCheckpoint::parse(rest).map(Self::OlderLog).map_err(EntryRefused::Checkpoint),
            _ => Err(EntryRefused::Type),
        }
    }
}

impl KeyEvent {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![3, self.change.byte()];
        bytes.extend_from_slice(&self.at.millis().to_be_bytes());
        bytes.extend_from_slice(self.public.x());
        bytes.extend_from_slice(self.public.y());
        bytes.extend_from_slice(&jwks::thumbprint_bytes(&self.public));
        bytes.push(u8::try_from(self.kid.as_str().len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(self.kid.as_str().as_bytes());
        bytes
    }

    fn parse(bytes: &[u8], wrong: EntryRefused) -> Result<Self, EntryRefused> {
        let (change, rest) = bytes.split_first().ok_or(wrong)?;
        let change = KeyChange::ALL.into_iter().find(|known| known.byte() == *change);
        let change = change.ok_or(EntryRefused::Change)?;
        let (millis, rest) = rest.split_first_chunk().ok_or(wrong)?;
        let (x, rest) = rest.split_first_chunk().ok_or(wrong)?;
        let (y, rest) = rest.split_first_chunk().ok_or(wrong)?;
        let (print, rest) = rest.split_first_chunk::<HASH_BYTES>().ok_or(wrong)?;
        let (length, kid) = rest.split_first().ok_or(wrong)?;
        if usize::from(*length) != kid.len() {
            return Err(wrong);
        }
        // A timestamp is bounded: what is beyond would be a second spelling of the bound.
        let millis = i64::from_be_bytes(*millis);
        let at = Timestamp::from_millis(millis);
        if at.millis() != millis {
            return Err(EntryRefused::Instant);
        }
        let public = PublicKey::from_coordinates(*x, *y).map_err(|_| EntryRefused::PublicKey)?;
        if jwks::thumbprint_bytes(&public) != *print {
            return Err(EntryRefused::Thumbprint);
        }
        let kid = std::str::from_utf8(kid).ok().and_then(|kid| Kid::parse(kid).ok());
        let kid = kid.ok_or(EntryRefused::KeyId)?;
        Ok(Self { change, at, kid, public })
    }
}

/// The hash by which a log is asked for a token: SHA-256 of its signing input, the token up to its second full stop. The
/// signature is left out, since the holder of one token can write a second signature that verifies.
///
/// `None`: the text is longer than a token can be, or does not have three parts. Nothing else is checked.
///
/// ```
/// use mandate_core::log::{Hash, token_hash};
/// assert_eq!(token_hash("header.claims.signature"), Some(Hash::sha256(b"header.claims")));
/// assert_eq!(token_hash("header.claims.signature"), token_hash("header.claims.another"));
/// assert_eq!(token_hash("header.claims"), None);
/// ```
#[must_use]
pub fn token_hash(token: &str) -> Option<Hash> {
    let (input, signature) = token.rsplit_once('.').filter(|_| token.len() <= MAX_TOKEN_BYTES)?;
    let parts = input.split('.').count();
    (parts == 2 && !signature.is_empty()).then(|| Hash::sha256(input.as_bytes()))
}
