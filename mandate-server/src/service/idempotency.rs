//! Idempotency: the first answer under a key is kept together with its effect, and given again to retries.
//!
//! The claim, the effect and the kept answer are in one transaction. After a crash at any point a retry finds
//! all of them or none.

use mandate_core::Timestamp;

use crate::error::Fault;
use crate::model::call::{Answer, Call, ScriptError, Scripted};
use crate::model::idempotency::{Judgement, KEPT_SECONDS};
use crate::store::sql;
use crate::store::tx::Tx;

/// When the oldest kept answer expires, as known at `now`. Answers that a clock kept while it was ahead are
/// passed over until their time comes.
///
/// # Errors
/// The database fails.
pub fn next_end(tx: &mut Tx<'_>, now: Timestamp) -> Result<Option<Timestamp>, Fault> {
    Ok(sql::idempotency::oldest(tx, now)?.map(|kept| kept.plus_seconds(KEPT_SECONDS)))
}

/// Deletes at most `limit` answers that have expired at `now`, oldest first. Returns how many.
///
/// # Errors
/// The database fails.
pub fn forget(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<usize, Fault> {
    sql::idempotency::forget(tx, now.plus_seconds(-KEPT_SECONDS), now, limit)
}

/// Runs `script` once under the caller's idempotency key. A repetition gets the first answer again.
///
/// # Errors
/// The script ends in a fault. A refusal is an answer, and is kept.
pub fn once(
    tx: &mut Tx<'_>,
    call: &Call,
    script: impl FnOnce(&mut Tx<'_>) -> Scripted,
) -> Result<Answer, Fault> {
    let Some(claim) = &call.idempotency else { return answered(script(tx), call) };
    let key = claim.key(&call.caller);
    let kept = sql::idempotency::lock(tx, &key)?;
    match claim.judge(kept.as_ref())? {
        Judgement::Replay(answer) => Ok(answer),
        Judgement::Conflict(refusal) => Answer::refused(&refusal, call.request_id),
        Judgement::Fresh => {
            let answer = answered(script(tx), call)?;
            sql::idempotency::keep(tx, &key, &claim.keep(&answer, call.at)?)?;
            Ok(answer)
        }
    }
}

/// A refusal is an answer, too.
pub(super) fn answered(result: Scripted, call: &Call) -> Result<Answer, Fault> {
    match result {
        Ok(answer) => Ok(answer),
        Err(ScriptError::Refused(refusal)) => Answer::refused(&refusal, call.request_id),
        Err(ScriptError::Fault(fault)) => Err(fault),
    }
}
