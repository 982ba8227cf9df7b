//! Answers kept under the callers' idempotency keys.

use mandate_core::Timestamp;

use super::checksums::IDEMPOTENCY;
use crate::error::Fault;
use crate::model::records::{KeptKey, KeptRecord};
use crate::store::tx::{Row, Tx, Value};

const FIND: &str = "/* idempotency.find */
    SELECT fingerprint, status, body, sealed, created_at, checksum FROM idempotency
    WHERE environment = $1 AND api_key = $2 AND name = $3";
const HOLD: &str = "/* idempotency.hold */
    SELECT pg_advisory_xact_lock(hashtextextended($3::text, $1::bigint # ($2::bigint << 24)))";
const KEEP: &str = "/* idempotency.keep */
    INSERT INTO idempotency (environment, api_key, name, fingerprint, status, body, sealed, created_at, checksum)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING";
const DROP: &str = "/* idempotency.drop */
    DELETE FROM idempotency WHERE environment = $1 AND api_key = $2 AND name = $3";
// Answers kept by a clock that was ahead are passed over: they would block all that were kept after them.
const OLDEST: &str = "/* idempotency.oldest */
    SELECT created_at FROM idempotency WHERE created_at <= $1 ORDER BY kept LIMIT 1";
const FORGET: &str = "/* idempotency.forget */ DELETE FROM idempotency WHERE kept IN ( SELECT kept
    FROM idempotency WHERE created_at <= $1
    ORDER BY kept LIMIT $2) AND created_at <= $3";
const FORGET_BESIDE_OTHERS: &str = "/* idempotency.forget_beside_others */
    DELETE FROM idempotency WHERE kept IN (
    SELECT kept FROM idempotency WHERE created_at <= $1
    ORDER BY kept LIMIT $2 FOR UPDATE SKIP LOCKED) AND created_at <= $3";

/// Locks a key, used before or not, until the transaction ends. Returns the answer kept under it, of any age.
pub fn lock(tx: &mut Tx<'_>, key: &KeptKey) -> Result<Option<KeptRecord>, Fault> {
    let parameters = [key.environment.into(), key.api_key.into(), key.name.as_str().into()];
    tx.hold(HOLD, &parameters)?;
    tx.row(FIND, &parameters)?.map(|mut row| read(&mut row, &parameters)).transpose()
}

/// Reads an answer's five columns, whose checksum must hold.
pub(in crate::store) fn read(row: &mut Row, key: &[Value; 3]) -> Result<KeptRecord, Fault> {
    IDEMPOTENCY.must_hold(key, row)?;
    Ok(KeptRecord {
        fingerprint: row.bytes()?,
        status: u16::try_from(row.integer()?).map_err(|_| Fault::corrupt("database: idempotency.status"))?,
        body: row.blob()?,
        sealed: row.integer()? == 1,
        created_at: Timestamp::from_millis(row.integer()?),
    })
}

/// Keeps an answer, after all others. It replaces an expired one under the same key.
pub fn keep(tx: &mut Tx<'_>, key: &KeptKey, kept: &KeptRecord) -> Result<(), Fault> {
    if !keep_new(tx, key, kept)? {
        // Another transaction may have deleted the expired answer.
        tx.execute(DROP, &[key.environment.into(), key.api_key.into(), key.name.as_str().into()])?;
        tx.execute_one(KEEP, &values(key, kept))?;
    }
    Ok(())
}

/// Keeps an answer, after all others. False if one is kept under the same key, of any age.
pub fn keep_new(tx: &mut Tx<'_>, key: &KeptKey, kept: &KeptRecord) -> Result<bool, Fault> {
    Ok(tx.execute(KEEP, &values(key, kept))? == 1)
}

/// A kept answer's eight columns, and their checksum.
pub(in crate::store) fn values(key: &KeptKey, kept: &KeptRecord) -> Vec<Value> {
    let mut values = vec![
        key.environment.into(),
        key.api_key.into(),
        key.name.as_str().into(),
        kept.fingerprint.into(),
        i64::from(kept.status).into(),
        kept.body.clone().into(),
        i64::from(kept.sealed).into(),
        kept.created_at.millis().into(),
    ];
    values.push(IDEMPOTENCY.checksum(&values));
    values
}

/// The time of the oldest answer, of those kept at `latest` or before.
pub fn oldest(tx: &mut Tx<'_>, latest: Timestamp) -> Result<Option<Timestamp>, Fault> {
    tx.row(OLDEST, &[latest.millis().into()])?
        .map(|mut row| row.integer().map(Timestamp::from_millis))
        .transpose()
}

/// Looks at the `limit` oldest answers that were kept at `latest` or before. Deletes those kept at `until` or
/// before, and returns how many.
pub fn forget(tx: &mut Tx<'_>, until: Timestamp, latest: Timestamp, limit: i64) -> Result<usize, Fault> {
    let sql = tx.either(FORGET, FORGET_BESIDE_OTHERS);
    tx.execute(sql, &[latest.millis().into(), limit.into(), until.millis().into()])
}
