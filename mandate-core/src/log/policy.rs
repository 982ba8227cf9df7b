//! Policies (`tlog-policy` of C2SP): which logs are accepted, and how many of which witnesses must have cosigned.
//!
//! A policy is the verifier's own file. Nothing of it is ever taken from a proof.

mod parse;

use std::collections::BTreeMap;

use super::checkpoint::{Checkpoint, CheckpointUntrusted, SignedCheckpoint};
use super::cosignature::Cosigned;
use super::key::{KeyRefused, VerifierKey};

/// The longest policy that is read, in bytes.
pub const MAX_POLICY_BYTES: usize = 64 * 1024;
/// How many logs, how many witnesses and how many groups a policy may have.
pub const MAX_POLICY_ITEMS: usize = 256;

/// A policy.
///
/// ```
/// use mandate_core::log::{KeyKind, Policy, SigningKey};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let key = |name, byte| SigningKey::new(name, KeyKind::Cosignature, &[byte; 32]).map(|key| key.verifier().to_string());
/// let text = format!(
///     "witness a {}\nwitness b {}\ngroup both all a b\nquorum both\n",
///     key("a.example", 1)?, key("b.example", 2)?,
/// );
/// assert_eq!(Policy::parse(text.as_bytes())?.witnesses().count(), 2);
///
/// let refused = Policy::parse(b"\nquorum both\n").unwrap_err();
/// assert_eq!(refused.to_string(), "line 2 of the policy: `both` is not defined above");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    logs: Vec<Known>,
    witnesses: Vec<Known>,
    quorum: Quorum,
}

/// A log or a witness that a policy knows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    key: VerifierKey,
    url: Option<String>,
}

/// Who must have cosigned.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Quorum {
    None,
    /// The witness at this place.
    Witness(usize),
    /// At least `threshold` of the members.
    Group {
        threshold: usize,
        members: Vec<Quorum>,
    },
}

/// A checkpoint that a policy accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// The witnesses of the policy that have cosigned it, by the names of their keys, and when.
    pub cosigned: BTreeMap<String, Cosigned>,
}

/// Why a policy is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the policy: {problem}")]
pub struct PolicyRefused {
    /// Which line, from 1. What is missing from the whole is refused at the last line.
    pub line: usize,
    /// What is wrong with it.
    pub problem: PolicyProblem,
}

/// What is wrong with a line of a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyProblem {
    /// The file is too long.
    #[error("the policy must be at most {MAX_POLICY_BYTES} bytes")]
    Size,
    /// No line feed ends the line.
    #[error("each line must end with a line feed")]
    End,
    /// A byte is not allowed.
    #[error("control characters other than tab and line feed are not allowed")]
    Character,
    /// The first word is none of the four.
    #[error("a line must begin with log, witness, group or quorum")]
    Word,
    /// The line has too many or too few words.
    #[error("the line must be `{wanted}`")]
    Words {
        /// What it must look like.
        wanted: &'static str,
    },
    /// The key is refused.
    #[error("{0}")]
    Key(#[from] KeyRefused),
    /// The key is of a kind for another purpose.
    #[error("the key must be of type {wanted}")]
    KeyKind {
        /// The type byte of a log or of a witness.
        wanted: u8,
    },
    /// The public key is on a line above, under whatever name.
    #[error("the same key is on a line above")]
    DuplicateKey,
    /// The name is taken, or is `none`.
    #[error("the name `{name}` is taken")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The name is not defined on a line above.
    #[error("`{name}` is not defined above")]
    Undefined {
        /// The name.
        name: String,
    },
    /// A witness or group is a member twice.
    #[error("`{name}` is a member of a group already")]
    MemberTwice {
        /// The name.
        name: String,
    },
    /// The threshold is not a number from 1 to the number of members.
    #[error("the threshold must be all, any, or a number from 1 to {members}")]
    Threshold {
        /// How many members there are.
        members: usize,
    },
    /// There are more than [`MAX_POLICY_ITEMS`].
    #[error("the policy must have at most {MAX_POLICY_ITEMS} logs, witnesses and groups each")]
    Items,
    /// There is no quorum, or a second one.
    #[error("the policy must have exactly one quorum")]
    Quorum,
}

impl PolicyRefused {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match &self.problem {
            PolicyProblem::Size => "policy_size",
            PolicyProblem::End => "policy_end",
            PolicyProblem::Character => "policy_character",
            PolicyProblem::Word => "policy_word",
            PolicyProblem::Words { .. } => "policy_words",
            PolicyProblem::Key(refused) => refused.name(),
            PolicyProblem::KeyKind { .. } => "key_type",
            PolicyProblem::DuplicateKey => "duplicate_key",
            PolicyProblem::DuplicateName { .. } => "duplicate_name",
            PolicyProblem::Undefined { .. } => "undefined",
            PolicyProblem::MemberTwice { .. } => "member_twice",
            PolicyProblem::Threshold { .. } => "threshold",
            PolicyProblem::Items => "policy_items",
            PolicyProblem::Quorum => "policy_quorum",
        }
    }
}

impl Policy {
    /// A policy that knows no log and asks for no cosignature: `quorum none`.
    #[must_use]
    pub fn none() -> Self {
        Self { logs: Vec::new(), witnesses: Vec::new(), quorum: Quorum::None }
    }

    /// Reads a policy.
    ///
    /// # Errors
    /// A line is malformed, or the quorum is missing.
    pub fn parse(bytes: &[u8]) -> Result<Self, PolicyRefused> {
        parse::parse(bytes)
    }

    /// The keys of the logs, with their URLs.
    pub fn logs(&self) -> impl Iterator<Item = (&VerifierKey, Option<&str>)> {
        self.logs.iter().map(|log| (&log.key, log.url.as_deref()))
    }

    /// The keys of the witnesses, with their URLs.
    pub fn witnesses(&self) -> impl Iterator<Item = (&VerifierKey, Option<&str>)> {
        self.witnesses.iter().map(|witness| (&witness.key, witness.url.as_deref()))
    }

    /// Whether no cosignature is asked for.
    #[must_use]
    pub fn asks_for_no_witness(&self) -> bool {
        self.quorum == Quorum::None
    }

    /// The checkpoint, if it is acceptable: signed by the log's key, and cosigned by a quorum of witnesses.
    ///
    /// `log` is the key that the verifier has pinned. Where the policy lists logs, `log` must be one of them; without `log`,
    /// each of them is accepted.
    ///
    /// # Errors
    /// No accepted log has signed it, a known key signed it twice or wrongly, or witnesses are missing.
    pub fn accept(
        &self,
        signed: &SignedCheckpoint,
        log: Option<&VerifierKey>,
    ) -> Result<Accepted, CheckpointUntrusted> {
        let found = signed.checkpoint().origin();
        let listed = |key: &VerifierKey| self.logs.is_empty() || self.logs.iter().any(|log| log.key == *key);
        let keys: Vec<_> = match log {
            Some(key) => [key].into_iter().filter(|key| listed(key)).collect(),
            None => self.logs.iter().map(|log| &log.key).collect(),
        };
        // Keys of one origin: any may have signed, but none wrongly.
        let mut refused = CheckpointUntrusted::Origin { found: found.to_owned() };
        let mut accepted = None;
        for key in keys.into_iter().filter(|key| key.name() == found) {
            match signed.verify(key) {
                Ok(checkpoint) => accepted = Some(checkpoint.clone()),
                Err(unsigned @ CheckpointUntrusted::Unsigned { .. }) => refused = unsigned,
                Err(wrong) => return Err(wrong),
            }
        }
        let checkpoint = accepted.ok_or(refused)?;
        let (mut cosigned, mut by_place) = (BTreeMap::new(), Vec::new());
        for witness in &self.witnesses {
            let cosignature = signed.cosignature(&witness.key)?;
            by_place.push(cosignature.is_some());
            cosigned.extend(cosignature.map(|cosigned| (witness.key.name().to_owned(), cosigned)));
        }
        if self.quorum.is_met(&by_place) {
            Ok(Accepted { checkpoint, cosigned })
        } else {
            Err(CheckpointUntrusted::Quorum)
        }
    }
}

impl Quorum {
    fn is_met(&self, cosigned: &[bool]) -> bool {
        match self {
            Self::None => true,
            Self::Witness(place) => cosigned.get(*place) == Some(&true),
            Self::Group { threshold, members } => {
                members.iter().filter(|member| member.is_met(cosigned)).count() >= *threshold
            }
        }
    }
}
