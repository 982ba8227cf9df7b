//! What a proof names must be the log that was looked at, or one that it continues: the log's key can sign a tree for each proof.

use mandate_core::log::{Checkpoint, LogProof, Policy, SignedCheckpoint, VerifierKey};

use crate::command::log::monitor::look::{Found, fork};
use crate::exit::Failure;
use crate::public_log::entries::Entries;
use crate::public_log::older::Older;
use crate::public_log::source::Source;

/// The proofs of tokens.
pub(super) struct Proofs<'a> {
    source: &'a Source,
    looked: &'a SignedCheckpoint,
    key: &'a VerifierKey,
    older_keys: &'a [VerifierKey],
    /// The logs that this one continues, once a proof is of one of them.
    older: Option<Older>,
    /// What proofs have named and was compared: most of them name the same.
    compared: Vec<Checkpoint>,
}

impl<'a> Proofs<'a> {
    pub(super) fn new(
        source: &'a Source,
        looked: &'a SignedCheckpoint,
        (key, older_keys): (&'a VerifierKey, &'a [VerifierKey]),
    ) -> Self {
        Self { source, looked, key, older_keys, older: None, compared: Vec::new() }
    }

    /// Why this proof shows no entry of the token in these logs. None: it does.
    pub(super) fn refused(&mut self, what: &str, token: &str, proof: &[u8]) -> Result<Option<String>, Found> {
        let does_not_hold = |why: &dyn std::fmt::Display| {
            Ok(Some(format!("the proof that the service gives does not hold: {why}")))
        };
        let proof = match LogProof::parse(proof) {
            Ok(proof) => proof,
            Err(why) => return does_not_hold(&why),
        };
        // Whether the witnesses have cosigned is looked at apart.
        let holds = |key: &VerifierKey| proof.verify_decision(token, Some(key), &Policy::none());
        let named = proof.checkpoint.checkpoint();
        let (source, end) = if let Err(why) = holds(self.key) {
            let Some(key) = self.older_keys.iter().find(|key| holds(key).is_ok()) else {
                return does_not_hold(&why);
            };
            let older = match &mut self.older {
                Some(older) => older,
                none => none.insert(Older::of(self.source, self.looked.checkpoint())?),
            };
            let Some(log) = older.logs.iter().find(|log| log.named.verify(key).is_ok()) else {
                let why = format!("its proof is of {}, which is none of the logs read", named.origin());
                return Ok(Some(why));
            };
            (&log.source, &log.named)
        } else {
            (self.source, self.looked)
        };
        let size = end.checkpoint().size();
        if proof.index >= size {
            let (index, origin) = (proof.index, named.origin());
            return Ok(Some(format!("its proof is of entry {index}, and {origin} has {size}")));
        }
        if !self.compared.contains(named) {
            must_be_of(source, end, &proof.checkpoint, what)?;
            self.compared.push(named.clone());
        }
        Ok(None)
    }
}

/// Compares a log up to the checkpoint that was looked at with one that the proof of `what` names, which its key has signed too:
/// the entries that are served must lead to the root of the larger one, and the first of them to that of the other.
pub(super) fn must_be_of(
    source: &Source,
    looked: &SignedCheckpoint,
    named: &SignedCheckpoint,
    what: &str,
) -> Result<(), Found> {
    let (before, whose, now) = if named.checkpoint().size() <= looked.checkpoint().size() {
        (named, format!("that the proof of {what} names"), looked)
    } else {
        (looked, format!("that were looked at; the proof of {what} names the former"), named)
    };
    let entries = Entries { source, checkpoint: now.checkpoint() };
    let size = named.checkpoint().size();
    let noted = |failure: Failure| {
        failure.note("compared", format_args!("the checkpoint of {size} entries in the proof of {what}"))
    };
    let root = entries.scan(before.checkpoint().size(), |_, _| Ok(())).map_err(noted)?;
    if root == *before.checkpoint().root() { Ok(()) } else { Err(fork(before, &whose, now)) }
}
