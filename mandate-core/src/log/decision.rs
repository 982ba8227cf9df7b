//! The proof that a token's decision is in the log.

use super::entry::{Entry, token_hash};
use super::hash::{HASH_BYTES, Hash};
use super::key::VerifierKey;
use super::policy::{Accepted, Policy};
use super::proof::{LogProof, NotProved};

/// The extra data of a decision's proof: the tag, and the hash of the record. The blind is never among them.
#[must_use]
pub fn decision_extra(tag: &Hash, record: &Hash) -> Vec<u8> {
    [tag.as_bytes().as_slice(), record.as_bytes()].concat()
}

impl LogProof {
    /// The entry that the proof is of, if it is a proof of this token's decision: the token's hash, with tag and record from
    /// the extra data.
    ///
    /// # Errors
    /// [`NotProved::Extra`] or [`NotProved::Token`].
    pub fn decision_entry(&self, token: &str) -> Result<Entry, NotProved> {
        let token = token_hash(token).ok_or(NotProved::Token)?;
        match self.extra.as_deref().unwrap_or_default().as_chunks::<HASH_BYTES>() {
            ([tag, record], []) => {
                Ok(Entry::Decision { tag: Hash::new(*tag), token, record: Hash::new(*record) })
            }
            _ => Err(NotProved::Extra),
        }
    }

    /// The checkpoint of a log that has this token's decision. The token's own signature and claims are not checked: see
    /// [`verify_verdict`](crate::verify::verify_verdict). For `log` and `policy` see [`Policy::accept`].
    ///
    /// ```
    /// use mandate_core::log::{
    ///     Checkpoint, Entry, Hash, KeyKind, LogProof, Policy, SigningKey, decision_extra, root, token_hash,
    /// };
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let token = "header.claims.signature";
    /// let (tag, record) = (Hash::sha256(b"tag"), Hash::sha256(b"record"));
    /// let entry = Entry::Decision { tag, token: token_hash(token).ok_or("not a token")?, record };
    ///
    /// let key = SigningKey::new("verdicts.example/log/sandbox", KeyKind::Note, &[7; 32])?;
    /// let checkpoint = Checkpoint::new("verdicts.example/log/sandbox", 1, root([entry.leaf()]))?.sign(&key);
    /// let extra = Some(decision_extra(&tag, &record));
    /// let text = LogProof { extra, index: 0, hashes: vec![], checkpoint }.to_string();
    ///
    /// let proof = LogProof::parse(text.as_bytes())?;
    /// let accepted = proof.verify_decision(token, Some(key.verifier()), &Policy::none())?;
    /// assert_eq!(accepted.checkpoint.size(), 1);
    /// assert!(proof.verify_decision("another.token.signature", Some(key.verifier()), &Policy::none()).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotProved`], whose name is that of the check that failed.
    pub fn verify_decision(
        &self,
        token: &str,
        log: Option<&VerifierKey>,
        policy: &Policy,
    ) -> Result<Accepted, NotProved> {
        self.verify(&self.decision_entry(token)?.leaf(), log, policy)
    }
}
