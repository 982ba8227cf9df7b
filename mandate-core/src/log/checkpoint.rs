//! Checkpoints (`tlog-checkpoint` of C2SP): what a log says of itself at one size, signed.

use std::fmt;

use super::cosignature::{Cosigned, read_cosignature};
use super::decimal;
use super::hash::Hash;
use super::key::{KeyKind, SigningKey, VerifierKey};
use super::note::{Note, NoteRefused, NoteSignature};

/// The longest origin, in bytes.
pub const MAX_ORIGIN_BYTES: usize = 255;

/// The text of a checkpoint: which log, how many entries, and the root of their tree.
///
/// ```
/// use mandate_core::log::{Checkpoint, Hash};
/// let checkpoint = Checkpoint::new("verdicts.example/log/sandbox", 0, Hash::of_empty_tree())?;
/// let text = "verdicts.example/log/sandbox\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n";
/// assert_eq!(checkpoint.to_string(), text);
/// assert_eq!(Checkpoint::parse(text)?, checkpoint);
/// # Ok::<(), mandate_core::log::CheckpointRefused>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    origin: String,
    size: u64,
    root: Hash,
    extensions: Vec<String>,
}

/// A checkpoint with its signatures, which are not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    note: Note,
    checkpoint: Checkpoint,
}

/// Why bytes are not a checkpoint.
///
/// The variants are in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointRefused {
    /// They are not a note.
    #[error(transparent)]
    Note(#[from] NoteRefused),
    /// The text has fewer than three lines, or a blank one, or does not end with a line feed.
    #[error("the text of a checkpoint must be three or more lines, none of them blank")]
    Lines,
    /// The origin is too long, or has a control character in it.
    #[error("the origin must be 1 to {MAX_ORIGIN_BYTES} bytes without control characters")]
    Origin,
    /// The second line is not a size.
    #[error("the second line of a checkpoint must be the size of the tree: digits without a leading zero")]
    TreeSize,
    /// The third line is not a hash.
    #[error("the third line of a checkpoint must be the root of the tree: 32 bytes in base64")]
    RootHash,
}

/// Why a well-formed checkpoint is not relied on.
///
/// The variants are in the order of the checks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointUntrusted {
    /// It is another log's.
    #[error("the checkpoint is that of the log `{found}`")]
    Origin {
        /// Its origin.
        found: String,
    },
    /// The log's key has not signed it.
    #[error("the checkpoint has no signature of the log's key `{key}`")]
    Unsigned {
        /// The name of the key.
        key: String,
    },
    /// A known key signed twice: which signature counts would be a guess.
    #[error("the checkpoint has two signatures of the key `{key}`")]
    SignedTwice {
        /// The name of the key.
        key: String,
    },
    /// The signature of a known key is not one.
    #[error("the signature of the key `{key}` does not verify")]
    Signature {
        /// The name of the key.
        key: String,
    },
    /// The cosignature of a known witness is not one.
    #[error("the cosignature of the witness `{key}` does not verify")]
    Cosignature {
        /// The name of the key.
        key: String,
    },
    /// It says of the empty tree what is not so.
    #[error("the root of a checkpoint of size 0 must be that of the empty tree")]
    EmptyRoot,
    /// Fewer witnesses have cosigned than the policy asks for.
    #[error("the checkpoint does not have the cosignatures that the policy asks for")]
    Quorum,
}

impl CheckpointRefused {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Note(refused) => refused.name(),
            Self::Lines => "checkpoint_lines",
            Self::Origin => "origin_form",
            Self::TreeSize => "tree_size",
            Self::RootHash => "root_hash",
        }
    }
}

impl CheckpointUntrusted {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Origin { .. } => "origin",
            Self::Unsigned { .. } => "unsigned",
            Self::SignedTwice { .. } => "signed_twice",
            Self::Signature { .. } => "signature",
            Self::Cosignature { .. } => "cosignature",
            Self::EmptyRoot => "empty_root",
            Self::Quorum => "quorum",
        }
    }
}

impl Checkpoint {
    /// The checkpoint of a log, without extension lines.
    ///
    /// # Errors
    /// The origin or the size cannot be written.
    pub fn new(origin: &str, size: u64, root: Hash) -> Result<Self, CheckpointRefused> {
        if origin.is_empty() || origin.len() > MAX_ORIGIN_BYTES || origin.chars().any(|char| char < ' ') {
            return Err(CheckpointRefused::Origin);
        }
        if size > super::MAX_TREE_SIZE {
            return Err(CheckpointRefused::TreeSize);
        }
        Ok(Self { origin: origin.to_owned(), size, root, extensions: Vec::new() })
    }

    /// Reads the text of a checkpoint, in its one spelling.
    ///
    /// # Errors
    /// A line is malformed or missing.
    pub fn parse(text: &str) -> Result<Self, CheckpointRefused> {
        let lines = text.strip_suffix('\n').ok_or(CheckpointRefused::Lines)?.split('\n');
        let lines: Vec<_> = lines.collect();
        let [origin, size, root, extensions @ ..] = lines.as_slice() else {
            return Err(CheckpointRefused::Lines);
        };
        if lines.iter().any(|line| line.is_empty()) {
            return Err(CheckpointRefused::Lines);
        }
        let size = decimal::read(size).ok_or(CheckpointRefused::TreeSize)?;
        let root = Hash::parse(root).ok_or(CheckpointRefused::RootHash)?;
        let extensions = extensions.iter().map(|line| (*line).to_owned()).collect();
        Ok(Self { extensions, ..Self::new(origin, size, root)? })
    }

    /// Which log it is of.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// How many entries the log has.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The root of the tree over these entries.
    #[must_use]
    pub fn root(&self) -> &Hash {
        &self.root
    }

    /// Lines that the format does not define. This service writes none.
    #[must_use]
    pub fn extensions(&self) -> &[String] {
        &self.extensions
    }

    /// Whether size and root agree in the one case in which that can be seen: the empty tree has one root.
    pub(super) fn is_sound(&self) -> bool {
        self.size > 0 || self.root == Hash::of_empty_tree()
    }

    /// The checkpoint with the log's signature.
    #[must_use]
    pub fn sign(self, key: &SigningKey) -> SignedCheckpoint {
        let signature = key.sign(self.to_string().as_bytes());
        self.with_signature(key.verifier(), &signature)
    }

    /// The checkpoint with an Ed25519 signature of its text (its `to_string`), which was made elsewhere under the
    /// log's key.
    #[must_use]
    pub fn with_signature(self, key: &VerifierKey, signature: &[u8; 64]) -> SignedCheckpoint {
        let mut note = Note::new(self.to_string());
        note.replace(NoteSignature::new(key.name(), key.id(), signature.to_vec()));
        SignedCheckpoint { note, checkpoint: self }
    }
}

impl SignedCheckpoint {
    /// Reads a checkpoint with its signatures.
    ///
    /// # Errors
    /// The bytes are not a note, or their text is not that of a checkpoint.
    pub fn parse(bytes: &[u8]) -> Result<Self, CheckpointRefused> {
        let note = Note::parse(bytes)?;
        let checkpoint = Checkpoint::parse(note.text())?;
        Ok(Self { note, checkpoint })
    }

    /// What the signatures are of. It must not be relied on before [`SignedCheckpoint::verify`].
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The note, whose text is signed and cosigned.
    #[must_use]
    pub fn note(&self) -> &Note {
        &self.note
    }

    /// Adds a signature or cosignature, unless that key's is there: the newer one of a witness replaces the older one.
    pub fn add(&mut self, signature: NoteSignature) {
        self.note.replace(signature);
    }

    /// The checkpoint, if the log's key has signed it.
    ///
    /// ```
    /// use mandate_core::log::{Checkpoint, Hash, KeyKind, SigningKey};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let key = SigningKey::new("verdicts.example/log/sandbox", KeyKind::Note, &[7; 32])?;
    /// let signed = Checkpoint::new("verdicts.example/log/sandbox", 0, Hash::of_empty_tree())?.sign(&key);
    /// assert_eq!(signed.verify(key.verifier())?.size(), 0);
    ///
    /// let other = SigningKey::new("verdicts.example/log/sandbox", KeyKind::Note, &[8; 32])?;
    /// assert_eq!(signed.verify(other.verifier()).unwrap_err().name(), "unsigned");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// It is another log's, or the key has not signed it, twice, or wrongly. Signatures of other keys are ignored.
    pub fn verify(&self, key: &VerifierKey) -> Result<&Checkpoint, CheckpointUntrusted> {
        if key.name() != self.checkpoint.origin {
            return Err(CheckpointUntrusted::Origin { found: self.checkpoint.origin.clone() });
        }
        let name = || key.name().to_owned();
        let signature =
            self.signature_of(key)?.ok_or_else(|| CheckpointUntrusted::Unsigned { key: name() })?;
        let bytes = signature.bytes().try_into().ok().filter(|_| key.kind() == KeyKind::Note);
        if !bytes.is_some_and(|bytes| key.verifies(self.note.text().as_bytes(), bytes)) {
            return Err(CheckpointUntrusted::Signature { key: name() });
        }
        if self.checkpoint.is_sound() { Ok(&self.checkpoint) } else { Err(CheckpointUntrusted::EmptyRoot) }
    }

    /// The cosignature of a witness, if it is there. This does not check the log's own signature.
    ///
    /// # Errors
    /// The witness's key has signed twice, or wrongly.
    pub fn cosignature(&self, witness: &VerifierKey) -> Result<Option<Cosigned>, CheckpointUntrusted> {
        let Some(signature) = self.signature_of(witness)? else { return Ok(None) };
        match read_cosignature(signature, witness, self.note.text()) {
            Some(cosigned) => Ok(Some(cosigned)),
            None => Err(CheckpointUntrusted::Cosignature { key: witness.name().to_owned() }),
        }
    }

    fn signature_of(&self, key: &VerifierKey) -> Result<Option<&NoteSignature>, CheckpointUntrusted> {
        let mut made = self.note.signatures().iter().filter(|signature| key.made(signature));
        match (made.next(), made.next()) {
            (first, None) => Ok(first),
            (_, Some(_)) => Err(CheckpointUntrusted::SignedTwice { key: key.name().to_owned() }),
        }
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}\n", self.origin, self.size, self.root)?;
        self.extensions.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl fmt::Display for SignedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.note.fmt(f)
    }
}
