//! The proof that a token's decision is in the log, and the record whose hash is there.

use super::entry::{Entry, token_hash};
use super::hash::{HASH_BYTES, Hash};
use super::key::VerifierKey;
use super::policy::{Accepted, Policy};
use super::proof::{LogProof, NotProved};
use crate::error::Invalid;
use crate::json::Object;

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

/// The record of a decision, whose hash with its blind is in the log ([`record_hash`](super::record_hash)): the decision object
/// of an export's line as it was when it was decided. Its review is cut down to what it was then; everything else stays
/// byte for byte.
///
/// ```
/// use mandate_core::log::decision_record;
/// let row = r#"{"jti":"dec_1","review":{"id":"rev_1","status":"denied","waits_for":"role:cfo","expires_at":"T","resolved_at":"T"}}"#;
/// let record = r#"{"jti":"dec_1","review":{"id":"rev_1","status":"pending","waits_for":"role:cfo","expires_at":"T"}}"#;
/// assert_eq!(decision_record(row)?, record);
/// assert_eq!(decision_record(record)?, record);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
///
/// # Errors
/// It is not a JSON object, a name appears twice in it or in its review, or the review lacks a member.
pub fn decision_record(row: &str) -> Result<String, Invalid> {
    let mut decision = Object::parse_as("decision", row.as_bytes())?;
    decision.strict()?;
    let Some(review) = decision.take("review") else { return Ok(row.to_owned()) };
    let mut members = review.object()?;
    let mut raw = |name| members.require(name).map(|field| field.raw());
    let (id, waits_for, expires_at) = (raw("id")?, raw("waits_for")?, raw("expires_at")?);
    // The text of a member lies within the text of the row.
    let start = review.raw().as_ptr().addr().saturating_sub(row.as_ptr().addr());
    let before = row.get(..start).unwrap_or_default();
    let behind = row.get(start.saturating_add(review.raw().len())..).unwrap_or_default();
    Ok(format!(
        r#"{before}{{"id":{id},"status":"pending","waits_for":{waits_for},"expires_at":{expires_at}}}{behind}"#
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row as an export writes it, with this text behind its basis.
    fn row(review: &str) -> String {
        format!(
            r#"{{"jti":"dec_1","request":{{"amount":40.50,"note":"a \"review\":{{}} \u2028"}},"basis":{{}}{review},"verdict_token":"a.b.c"}}"#
        )
    }

    #[test]
    fn a_record_has_no_answer_and_is_else_the_row() {
        let pending =
            r#","review":{"id":"rev_1","status":"pending","waits_for":"role:cfo","expires_at":"T"}"#;
        for (shown, wanted) in [
            ("", ""),
            (pending, pending),
            (
                r#","review":{"id":"rev_1","status":"approved","waits_for":"role:cfo","expires_at":"T","resolved_at":"U","resolved_after":7,"decision":"dec_2","resolved_by":{"kind":"key"}}"#,
                pending,
            ),
            (
                r#","review": { "later": 1, "expires_at":"T","waits_for":"role:cfo","status":"expired","id":"rev_1"}"#,
                &pending.replace(":{\"id", ": {\"id"),
            ),
        ] {
            let record = decision_record(&row(shown)).unwrap();
            assert_eq!(record, row(wanted), "{shown}");
            assert_eq!(decision_record(&record).unwrap(), record);
        }
    }

    #[test]
    fn rows_with_two_readings_are_refused() {
        let review = r#","review":{"id":"rev_1","status":"pending","waits_for":"role:cfo","expires_at":"T"}"#;
        for (text, field) in [
            (row(&format!("{review}{review}")), "review"),
            (row(&review.replace("\"status\"", "\"id\"")), "review.id"),
            (row(&review.replace("\"id\":\"rev_1\",", "")), "review.id"),
            (row(&review.replace("waits_for", "waits")), "review.waits_for"),
            (row(r#","review":"rev_1""#), "review"),
            (row(",\"jti\":\"dec_2\""), "jti"),
            (row(",\"more\":{\"a\":1,\"a\":2}"), "more.a"),
            (row("") + "x", "decision"),
            ("[]".to_owned(), "decision"),
        ] {
            assert_eq!(decision_record(&text).unwrap_err().field(), field, "{text}");
        }
    }
}
