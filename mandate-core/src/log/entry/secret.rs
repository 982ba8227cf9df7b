//! The two secrets of an environment: one hides what records say, the other finds the environment's entries.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::base64url;
use crate::error::Invalid;
use crate::id::DecisionId;
use crate::log::hash::{HASH_BYTES, Hash};
use crate::name::AgentId;

/// What a watch key's text begins with.
const WATCH_KEY_PREFIX: &str = "watch_";

/// The secret that hides what records say. Without a record's blind its hash cannot be compared with a guess. It is wiped
/// from memory when dropped, and `Debug` never shows it.
///
/// ```
/// use mandate_core::log::BlindSecret;
/// let secret = BlindSecret::new([7; 32]);
/// assert_ne!(secret.governing(1), secret.governing(2));
/// assert_eq!(format!("{secret:?}"), "BlindSecret(…)");
/// ```
#[derive(Clone)]
pub struct BlindSecret(Zeroizing<[u8; HASH_BYTES]>);

/// The secret that finds an environment's entries among all others, for the organization and its auditor. Its holder learns
/// nothing of other environments. It is wiped from memory when dropped, and `Debug` never shows it.
///
/// ```
/// use mandate_core::AgentId;
/// use mandate_core::log::WatchKey;
/// let key = WatchKey::new([7; 32]);
/// let agent = AgentId::parse("agt_buyer")?;
/// assert_ne!(key.decision(&agent, 1), key.decision(&agent, 2));
/// assert_eq!(WatchKey::parse(&key.reveal())?.governing(1), key.governing(1));
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Clone)]
pub struct WatchKey(Zeroizing<[u8; HASH_BYTES]>);

impl BlindSecret {
    /// The secret with these bytes, which must come from a cryptographic random generator.
    #[must_use]
    pub fn new(bytes: [u8; HASH_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The blind of a decision's record: HMAC-SHA-256 of `blind` and the id.
    #[must_use]
    pub fn decision(&self, id: DecisionId) -> Hash {
        self.blind(&id.to_string())
    }

    /// The blind of a governing record: HMAC-SHA-256 of `blind` and the record's number in decimal digits.
    #[must_use]
    pub fn governing(&self, number: u64) -> Hash {
        self.blind(&number.to_string())
    }

    /// An id begins with a letter and a number does not: no two records have one text.
    fn blind(&self, text: &str) -> Hash {
        mac(&self.0, [b"blind", text.as_bytes()])
    }
}

impl WatchKey {
    /// The key with these bytes, which must come from a cryptographic random generator.
    #[must_use]
    pub fn new(bytes: [u8; HASH_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads the text of a watch key: `watch_` and 32 bytes in base64url.
    ///
    /// # Errors
    /// It is something else. The message does not repeat it.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let bytes = text.strip_prefix(WATCH_KEY_PREFIX).and_then(base64url::decode_array);
        let refused = || Invalid::new("watch key", "must be `watch_` and 43 characters of base64url");
        bytes.map(Self::new).ok_or_else(refused)
    }

    /// The text of the key, to be given to the organization or its auditor.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{WATCH_KEY_PREFIX}{}", base64url::encode(&*self.0))
    }

    /// The tag of an agent's decision number `sequence`, from 1: HMAC-SHA-256 of the type 1, the agent's id and the sequence
    /// as 8 bytes, each with its length before it as 2 bytes.
    #[must_use]
    pub fn decision(&self, agent: &AgentId, sequence: u64) -> Hash {
        self.tag(&[&[1], agent.as_str().as_bytes(), &sequence.to_be_bytes()])
    }

    /// The tag of the environment's governing record number `number`, from 1: HMAC-SHA-256 of the type 2 and the number as 8
    /// bytes, each with its length before it as 2 bytes.
    #[must_use]
    pub fn governing(&self, number: u64) -> Hash {
        self.tag(&[&[2], &number.to_be_bytes()])
    }

    fn tag(&self, parts: &[&[u8]]) -> Hash {
        let lengths: Vec<_> =
            parts.iter().map(|part| u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes()).collect();
        mac(&self.0, lengths.iter().zip(parts).flat_map(|(length, part)| [length.as_slice(), part]))
    }
}

/// The hash of a record, hidden by its blind: SHA-256 of the blind and the record. A decision's record is its canonical
/// export row as it was when it was decided: without the review's answer, and without the blind.
///
/// ```
/// use mandate_core::log::{BlindSecret, record_hash};
/// let blind = BlindSecret::new([7; 32]).governing(1);
/// assert_ne!(record_hash(&blind, b"{\"a\":1}"), record_hash(&blind, b"{\"a\":2}"));
/// ```
#[must_use]
pub fn record_hash(blind: &Hash, record: &[u8]) -> Hash {
    Hash::new(Sha256::new().chain_update(blind.as_bytes()).chain_update(record).finalize().into())
}

impl fmt::Debug for BlindSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlindSecret(…)")
    }
}

impl fmt::Debug for WatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchKey(…)")
    }
}

fn mac<'a>(key: &[u8; HASH_BYTES], parts: impl IntoIterator<Item = &'a [u8]>) -> Hash {
    // HMAC pads a key that is shorter than a block with zeros (RFC 2104, section 2).
    let mut block = Zeroizing::new([0; 64]);
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    let mac = <Hmac<Sha256> as KeyInit>::new((&*block).into());
    Hash::new(parts.into_iter().fold(mac, Mac::chain_update).finalize().into_bytes().into())
}
