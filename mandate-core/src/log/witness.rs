//! What a witness is asked, and what it answers (`tlog-witness` of C2SP, `add-checkpoint`).

use std::fmt;

use super::checkpoint::{Checkpoint, CheckpointRefused, CheckpointUntrusted, SignedCheckpoint};
use super::decimal;
use super::hash::Hash;
use super::key::VerifierKey;
use super::merkle::{MerkleRefused, verify_consistency};
use super::note::MAX_NOTE_BYTES;
use super::proof::{HashLines, MAX_PROOF_HASHES, line, read_hash_lines};

/// The longest request that a witness reads, in bytes.
pub const MAX_ADD_CHECKPOINT_BYTES: usize = MAX_NOTE_BYTES + 8 * 1024;

/// The `Content-Type` of the answer 409, whose body is the size that the witness has cosigned last: see
/// [`write_conflict`] and [`read_conflict`].
pub const CONFLICT_CONTENT_TYPE: &str = "text/x.tlog.size";

/// The body of a request for a cosignature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddCheckpoint {
    /// The size that the witness has cosigned last, as far as the log knows; 0 for none.
    pub old: u64,
    /// The proof that the log of that size is the beginning of the new one.
    pub consistency: Vec<Hash>,
    /// The new checkpoint, with the log's signature.
    pub checkpoint: SignedCheckpoint,
}

/// What a witness knows of one log.
///
/// ```
/// use mandate_core::log::{AddCheckpoint, Checkpoint, Hash, KeyKind, SigningKey, WitnessedLog, cosign};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = SigningKey::new("verdicts.example/log", KeyKind::Note, &[7; 32])?;
/// let checkpoint = Checkpoint::new("verdicts.example/log", 1, Hash::of_leaf(b"a"))?.sign(&log);
/// let body = AddCheckpoint { old: 0, consistency: vec![], checkpoint }.to_string();
///
/// let request = AddCheckpoint::parse(body.as_bytes())?;
/// let known = WitnessedLog { keys: vec![log.verifier().clone()], last: None };
/// let accepted = known.decide(&request)?;
/// // Store size and root, if nothing else was stored meanwhile. Only then cosign:
/// let witness = SigningKey::new("witness.example", KeyKind::Cosignature, &[8; 32])?;
/// let answer = format!("{}\n", cosign(&witness, accepted, 1_767_960_000));
/// assert!(answer.starts_with("\u{2014} witness.example "));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessedLog {
    /// The keys of the log; their name is its origin.
    pub keys: Vec<VerifierKey>,
    /// Size and root of the checkpoint that was cosigned last. `None`: none was.
    pub last: Option<(u64, Hash)>,
}

/// Why a witness does not cosign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessRefused {
    /// The request is too long.
    #[error("the request must be at most {MAX_ADD_CHECKPOINT_BYTES} bytes")]
    Size,
    /// The first line does not say the old size.
    #[error("the first line of the request must be `old` and the size that was cosigned last")]
    Old,
    /// A line is not a hash.
    #[error("hash {number} of the request must be 32 bytes in base64")]
    Hash {
        /// Which, from 1.
        number: usize,
    },
    /// There are more than [`MAX_PROOF_HASHES`].
    #[error("the request must have at most {MAX_PROOF_HASHES} hashes")]
    Hashes,
    /// No blank line and checkpoint come behind the hashes.
    #[error("the request must have a blank line between its hashes and the checkpoint")]
    BlankLine,
    /// The checkpoint is malformed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointRefused),
    /// The witness does not know the log.
    #[error("the witness does not know the log `{origin}`")]
    UnknownLog {
        /// Its origin.
        origin: String,
    },
    /// No known key of the log has signed the checkpoint, or a signature is wrong.
    #[error(transparent)]
    Signature(CheckpointUntrusted),
    /// The old size is greater than the checkpoint's.
    #[error("the old size {old} is greater than the checkpoint's, {new}")]
    Shrunk {
        /// The old size.
        old: u64,
        /// The checkpoint's.
        new: u64,
    },
    /// The old size is not that of the checkpoint that was cosigned last.
    #[error("the checkpoint that was cosigned last has the size {size}")]
    Conflict {
        /// That size.
        size: u64,
    },
    /// The checkpoint is no later state of the one that was cosigned last.
    #[error("the checkpoint is not consistent with the one that was cosigned last: {0}")]
    Inconsistent(MerkleRefused),
}

impl WitnessRefused {
    /// The HTTP status of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::UnknownLog { .. } => 404,
            Self::Signature(_) => 403,
            Self::Conflict { .. } => 409,
            Self::Inconsistent(_) => 422,
            _ => 400,
        }
    }

    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Size => "request_size",
            Self::Old => "old",
            Self::Hash { .. } => "proof_hash",
            Self::Hashes => "proof_hashes",
            Self::BlankLine => "proof_blank_line",
            Self::Checkpoint(refused) => refused.name(),
            Self::UnknownLog { .. } => "unknown_log",
            Self::Signature(untrusted) => untrusted.name(),
            Self::Shrunk { .. } => "shrunk",
            Self::Conflict { .. } => "conflict",
            Self::Inconsistent(refused) => refused.name(),
        }
    }
}

impl AddCheckpoint {
    /// Reads the body of a request, in its one spelling.
    ///
    /// # Errors
    /// A line is malformed or missing, or the checkpoint is.
    pub fn parse(body: &[u8]) -> Result<Self, WitnessRefused> {
        if body.len() > MAX_ADD_CHECKPOINT_BYTES {
            return Err(WitnessRefused::Size);
        }
        let mut rest = body;
        let old = line(&mut rest).and_then(|line| line.strip_prefix("old ")).and_then(decimal::read);
        let old = old.ok_or(WitnessRefused::Old)?;
        let consistency = read_hash_lines(&mut rest).map_err(|problem| match problem {
            HashLines::Hash(number) => WitnessRefused::Hash { number },
            HashLines::TooMany => WitnessRefused::Hashes,
            HashLines::End => WitnessRefused::BlankLine,
        })?;
        Ok(Self { old, consistency, checkpoint: SignedCheckpoint::parse(rest)? })
    }
}

impl WitnessedLog {
    /// The checkpoint to cosign, if it is consistent with the one that was cosigned last.
    ///
    /// The caller stores its size and root before it answers, in one step with a comparison of what was stored before: two
    /// requests at once must not both be answered from the same state.
    ///
    /// # Errors
    /// [`WitnessRefused`], whose status is that of the answer.
    pub fn decide<'a>(&self, request: &'a AddCheckpoint) -> Result<&'a Checkpoint, WitnessRefused> {
        let checkpoint = request.checkpoint.checkpoint();
        self.check_signature(&request.checkpoint)?;
        let (old, new) = (request.old, checkpoint.size());
        if old > new {
            return Err(WitnessRefused::Shrunk { old, new });
        }
        let (size, root) = self.last.unwrap_or_else(|| (0, Hash::of_empty_tree()));
        if old != size {
            return Err(WitnessRefused::Conflict { size });
        }
        verify_consistency((size, &root), (new, checkpoint.root()), &request.consistency)
            .map_err(WitnessRefused::Inconsistent)?;
        Ok(checkpoint)
    }

    /// Whether a known key of the log has signed the checkpoint, and none wrongly.
    fn check_signature(&self, signed: &SignedCheckpoint) -> Result<(), WitnessRefused> {
        let origin = signed.checkpoint().origin();
        let mut refused = WitnessRefused::UnknownLog { origin: origin.to_owned() };
        let mut is_signed = false;
        for key in self.keys.iter().filter(|key| key.name() == origin) {
            match signed.verify(key) {
                // The root of an empty tree is checked with the proof, which has a status of its own.
                Ok(_) | Err(CheckpointUntrusted::EmptyRoot) => is_signed = true,
                Err(unsigned @ CheckpointUntrusted::Unsigned { .. }) => {
                    refused = WitnessRefused::Signature(unsigned);
                }
                Err(wrong) => return Err(WitnessRefused::Signature(wrong)),
            }
        }
        if is_signed { Ok(()) } else { Err(refused) }
    }
}

/// The body of an answer 409.
#[must_use]
pub fn write_conflict(size: u64) -> String {
    format!("{size}\n")
}

/// The size that a witness says it has cosigned last, from the body of its answer 409. `None`: the body is something else.
///
/// ```
/// use mandate_core::log::{read_conflict, write_conflict};
/// assert_eq!(read_conflict(write_conflict(20_852_014).as_bytes()), Some(20_852_014));
/// assert_eq!(read_conflict(b"7"), None);
/// ```
#[must_use]
pub fn read_conflict(body: &[u8]) -> Option<u64> {
    decimal::read(std::str::from_utf8(body).ok()?.strip_suffix('\n')?)
}

impl fmt::Display for AddCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "old {}", self.old)?;
        self.consistency.iter().try_for_each(|hash| writeln!(f, "{hash}"))?;
        write!(f, "\n{}", self.checkpoint)
    }
}
