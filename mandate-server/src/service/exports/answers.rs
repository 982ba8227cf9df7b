//! What people have signed, as exports carry it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Fault;
use crate::model::people::{Actor, ActorKind};
use crate::store::sql;
use crate::store::sql::decisions::Whole;
use crate::store::tx::Tx;

/// How the governing records of passkeys begin.
const OF_PASSKEYS: [&str; 2] = [r#"{"type":"person.key","#, r#"{"type":"person.withdrawn","#];
/// How those of revocations begin.
const OF_REVOCATION: &str = r#"{"type":"mandate.revoked","#;

/// Of a record of a revocation, what a person signed.
#[derive(Deserialize)]
struct Revocation {
    answer: Option<String>,
}

/// Whether a governing record is of a person's passkey.
pub(super) fn is_of_passkey(record: &str) -> bool {
    OF_PASSKEYS.iter().any(|beginning| record.starts_with(beginning))
}

/// What a person signed to answer the review of a decision.
pub(super) fn to_review(tx: &mut Tx<'_>, whole: &Whole) -> Result<Option<Box<RawValue>>, Fault> {
    let by_person = |by: &Actor| by.kind == ActorKind::Person;
    let Some(review) =
        whole.review.as_ref().filter(|review| review.resolved_by.as_ref().is_some_and(by_person))
    else {
        return Ok(None);
    };
    let content = sql::answers::of_review(tx, whole.decision.environment, review.id)?;
    content.ok_or_else(lost).and_then(raw).map(Some)
}

/// What a person signed to revoke a mandate, if this is a record of that.
pub(super) fn to_revocation(
    tx: &mut Tx<'_>,
    environment: i64,
    record: &str,
) -> Result<Option<Box<RawValue>>, Fault> {
    if !record.starts_with(OF_REVOCATION) {
        return Ok(None);
    }
    let Revocation { answer } = serde_json::from_str(record)
        .map_err(|e| Fault::corrupt(format!("database: log_records.record: {e}")))?;
    let Some(hash) = answer else { return Ok(None) };
    let hash = URL_SAFE_NO_PAD.decode(hash).ok().and_then(|hash| <[u8; 32]>::try_from(hash).ok());
    let content = sql::answers::find(tx, environment, hash.ok_or_else(lost)?)?;
    content.ok_or_else(lost).and_then(raw).map(Some)
}

fn raw(content: String) -> Result<Box<RawValue>, Fault> {
    RawValue::from_string(content).map_err(|e| Fault::corrupt(format!("database: answers.content: {e}")))
}

fn lost() -> Fault {
    Fault::corrupt("database: what a person signed is not there; `mandate-server check` finds others")
}
