//! Proofs that an entry is in a log (`tlog-proof` of C2SP): a checkpoint, the index of the entry, and the hashes between.

use std::fmt;

use super::base64;
use super::checkpoint::{CheckpointRefused, CheckpointUntrusted, SignedCheckpoint};
use super::decimal;
use super::hash::Hash;
use super::key::VerifierKey;
use super::merkle::{MerkleRefused, verify_inclusion};
use super::note::MAX_NOTE_BYTES;
use super::policy::{Accepted, Policy};

/// The longest proof that is read, in bytes.
pub const MAX_PROOF_BYTES: usize = MAX_NOTE_BYTES + 16 * 1024;
/// The most extra data that is read, in bytes.
pub const MAX_EXTRA_BYTES: usize = 8 * 1024;
/// The most hashes between a leaf and a root.
pub const MAX_PROOF_HASHES: usize = 63;

const HEADER: &str = "c2sp.org/tlog-proof@v1";

/// A proof, which is not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogProof {
    /// Data that nothing vouches for by itself, not empty. A proof of a decision has tag and hash here: see
    /// [`LogProof::verify_decision`].
    pub extra: Option<Vec<u8>>,
    /// The index of the entry, from 0.
    pub index: u64,
    /// The hashes from the leaf's sibling up.
    pub hashes: Vec<Hash>,
    /// The checkpoint, with the signatures of the log and its witnesses.
    pub checkpoint: SignedCheckpoint,
}

/// Why bytes are not a proof.
///
/// The variants are in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofRefused {
    /// They are more than [`MAX_PROOF_BYTES`].
    #[error("the proof must be at most {MAX_PROOF_BYTES} bytes; got {bytes}")]
    Size {
        /// How many.
        bytes: usize,
    },
    /// The first line is another one.
    #[error("the proof must begin with the line `{HEADER}`")]
    Header,
    /// The extra data are not base64, empty, or too long.
    #[error("the extra data must be 1 to {MAX_EXTRA_BYTES} bytes in base64")]
    Extra,
    /// The index is missing or malformed.
    #[error("the proof must have a line `index` with digits, without a leading zero")]
    Index,
    /// A line is not a hash.
    #[error("hash {number} of the proof must be 32 bytes in base64")]
    Hash {
        /// Which, from 1.
        number: usize,
    },
    /// There are more than [`MAX_PROOF_HASHES`].
    #[error("the proof must have at most {MAX_PROOF_HASHES} hashes")]
    Hashes,
    /// No blank line and checkpoint come behind the hashes.
    #[error("the proof must have a blank line between its hashes and the checkpoint")]
    BlankLine,
    /// The checkpoint is malformed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointRefused),
}

/// Why a well-formed proof does not prove that the entry is in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotProved {
    /// The extra data are not those of a decision's proof.
    #[error("the extra data of a decision's proof must be 64 bytes: its tag, and the hash of its record")]
    Extra,
    /// The text is not that of a token.
    #[error("the token must have 3 parts with a full stop between them")]
    Token,
    /// The checkpoint is not relied on.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointUntrusted),
    /// The hashes do not lead from the entry to the checkpoint's root.
    #[error("the entry is not proved to be in the log: {0}")]
    Inclusion(#[from] MerkleRefused),
}

impl ProofRefused {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Size { .. } => "proof_size",
            Self::Header => "proof_header",
            Self::Extra => "extra",
            Self::Index => "proof_index",
            Self::Hash { .. } => "proof_hash",
            Self::Hashes => "proof_hashes",
            Self::BlankLine => "proof_blank_line",
            Self::Checkpoint(refused) => refused.name(),
        }
    }
}

impl NotProved {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Extra => "extra",
            Self::Token => "token",
            Self::Checkpoint(untrusted) => untrusted.name(),
            Self::Inclusion(refused) => refused.name(),
        }
    }
}

impl LogProof {
    /// Reads a proof, in its one spelling.
    ///
    /// # Errors
    /// A line is malformed or missing, or the checkpoint is.
    pub fn parse(bytes: &[u8]) -> Result<Self, ProofRefused> {
        if bytes.len() > MAX_PROOF_BYTES {
            return Err(ProofRefused::Size { bytes: bytes.len() });
        }
        let mut rest = bytes;
        if line(&mut rest) != Some(HEADER) {
            return Err(ProofRefused::Header);
        }
        let mut next = line(&mut rest);
        let extra = next.and_then(|line| line.strip_prefix("extra "));
        let extra = extra.map(|text| {
            next = line(&mut rest);
            let fits = |extra: &Vec<u8>| (1..=MAX_EXTRA_BYTES).contains(&extra.len());
            base64::decode(text).filter(fits).ok_or(ProofRefused::Extra)
        });
        let extra = extra.transpose()?;
        let index = next.and_then(|line| line.strip_prefix("index ")).and_then(decimal::read);
        let index = index.ok_or(ProofRefused::Index)?;
        let hashes = read_hash_lines(&mut rest).map_err(|problem| match problem {
            HashLines::Hash(number) => ProofRefused::Hash { number },
            HashLines::TooMany => ProofRefused::Hashes,
            HashLines::End => ProofRefused::BlankLine,
        })?;
        Ok(Self { extra, index, hashes, checkpoint: SignedCheckpoint::parse(rest)? })
    }

    /// The checkpoint that has the entry with the hash `leaf` (see [`Hash::of_leaf`]), if log and witnesses are those that
    /// the verifier accepts. `log` is the key that the verifier has pinned: see [`Policy::accept`].
    ///
    /// # Errors
    /// The checkpoint is not acceptable, or the hashes do not lead from the entry to its root.
    pub fn verify(
        &self,
        leaf: &Hash,
        log: Option<&VerifierKey>,
        policy: &Policy,
    ) -> Result<Accepted, NotProved> {
        let accepted = policy.accept(&self.checkpoint, log)?;
        let (size, root) = (accepted.checkpoint.size(), accepted.checkpoint.root());
        verify_inclusion(leaf, self.index, size, &self.hashes, root)?;
        Ok(accepted)
    }
}

impl fmt::Display for LogProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        if let Some(extra) = &self.extra {
            writeln!(f, "extra {}", base64::encode(extra))?;
        }
        writeln!(f, "index {}", self.index)?;
        self.hashes.iter().try_for_each(|hash| writeln!(f, "{hash}"))?;
        write!(f, "\n{}", self.checkpoint)
    }
}

/// Why lines of hashes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HashLines {
    /// This line, from 1, is not a hash.
    Hash(usize),
    TooMany,
    /// No blank line ends them.
    End,
}

/// Reads lines of hashes and the blank line behind them. `rest` goes on behind that line.
pub(super) fn read_hash_lines(rest: &mut &[u8]) -> Result<Vec<Hash>, HashLines> {
    let mut hashes = Vec::new();
    loop {
        let number = hashes.len().saturating_add(1);
        match line(rest) {
            Some("") => return Ok(hashes),
            Some(_) if number > MAX_PROOF_HASHES => return Err(HashLines::TooMany),
            Some(text) => hashes.push(Hash::parse(text).ok_or(HashLines::Hash(number))?),
            None if rest.contains(&b'\n') => return Err(HashLines::Hash(number)),
            None => return Err(HashLines::End),
        }
    }
}

/// The next line, without its line feed. `None`: no line feed ends it, or it is not UTF-8.
pub(super) fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let (line, behind) = rest.split_at_checked(end)?;
    let line = std::str::from_utf8(line).ok()?;
    *rest = behind.strip_prefix(b"\n")?;
    Some(line)
}
