//! The hashes of a Merkle tree (RFC 6962, section 2.1; the same in RFC 9162, section 2.1.1).

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::base64;

/// The size of a hash in bytes.
pub const HASH_BYTES: usize = 32;

/// The first byte of what is hashed for a leaf. It differs from that of a node, so that neither passes for the other.
const LEAF: u8 = 0;
/// The first byte of what is hashed for a node.
const NODE: u8 = 1;

/// A SHA-256 hash. It is shown in base64, as the log's formats write it.
///
/// ```
/// use mandate_core::log::Hash;
/// let empty = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
/// assert_eq!(Hash::of_empty_tree().to_string(), empty);
/// assert_eq!(Hash::parse(empty), Some(Hash::of_empty_tree()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; HASH_BYTES]);

impl Hash {
    /// The hash with these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; HASH_BYTES]) -> Self {
        Self(bytes)
    }

    /// The SHA-256 of `bytes`.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The root of a tree without leaves.
    #[must_use]
    pub fn of_empty_tree() -> Self {
        Self::sha256(b"")
    }

    /// The hash of a leaf that holds `entry`.
    ///
    /// ```
    /// use mandate_core::log::Hash;
    /// assert_eq!(Hash::of_leaf(b""), Hash::sha256(&[0]));
    /// ```
    #[must_use]
    pub fn of_leaf(entry: &[u8]) -> Self {
        Self(Sha256::new().chain_update([LEAF]).chain_update(entry).finalize().into())
    }

    /// The hash of the node above two others.
    ///
    /// ```
    /// use mandate_core::log::Hash;
    /// let [left, right] = [b"a", b"b"].map(|entry| Hash::of_leaf(entry));
    /// assert_ne!(Hash::of_node(&left, &right), Hash::of_node(&right, &left));
    /// ```
    #[must_use]
    pub fn of_node(left: &Self, right: &Self) -> Self {
        let hash = Sha256::new().chain_update([NODE]).chain_update(left.0).chain_update(right.0);
        Self(hash.finalize().into())
    }

    /// Reads base64 of 32 bytes, in its one spelling. `None`: it is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        base64::decode(text)?.try_into().ok().map(Self)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; HASH_BYTES] {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64::encode(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}
