//! Answers kept under the callers' idempotency keys.

use mandate_core::Timestamp;

use crate::error::Fault;
use crate::store::records::{KeptKey, KeptRecord};
use crate::store::tx::{Tx, Value};

const FIND: &str = "SELECT fingerprint, status, body, sealed, created_at FROM idempotency
    WHERE environment = $1 AND api_key = $2 AND name = $3";
const KEEP: &str =
    "INSERT INTO idempotency (environment, api_key, name, fingerprint, status, body, sealed, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
const DROP: &str = "DELETE FROM idempotency WHERE environment = $1 AND api_key = $2 AND name = $3";
const OLDEST: &str = "SELECT created_at FROM idempotency ORDER BY kept LIMIT 1";
const FORGET: &str = "DELETE FROM idempotency
    WHERE kept IN (SELECT kept FROM idempotency ORDER BY kept LIMIT $1) AND created_at <= $2";

/// The answer kept under a key, of whatever age.
pub fn lock(tx: &mut Tx<'_>, key: &KeptKey) -> Result<Option<KeptRecord>, Fault> {
    let parameters = [key.environment.into(), key.api_key.into(), key.name.as_str().into()];
    let Some(mut row) = tx.lock(FIND, &parameters)? else { return Ok(None) };
    Ok(Some(KeptRecord {
        fingerprint: row.bytes()?,
        status: u16::try_from(row.integer()?).map_err(|_| Fault::new("database: idempotency.status"))?,
        body: row.blob()?,
        sealed: row.integer()? == 1,
        created_at: Timestamp::from_millis(row.integer()?),
    }))
}

/// Keeps an answer, behind all others. One that has expired under the same key goes.
pub fn keep(tx: &mut Tx<'_>, key: &KeptKey, kept: &KeptRecord) -> Result<(), Fault> {
    if !keep_new(tx, key, kept)? {
        tx.execute_one(DROP, &[key.environment.into(), key.api_key.into(), key.name.as_str().into()])?;
        if !keep_new(tx, key, kept)? {
            return Err(Fault::new("database: an answer is kept under a key that was dropped"));
        }
    }
    Ok(())
}

/// Keeps an answer, behind all others. False when one is kept under the same key, of whatever age.
pub fn keep_new(tx: &mut Tx<'_>, key: &KeptKey, kept: &KeptRecord) -> Result<bool, Fault> {
    let row: [Value; 8] = [
        key.environment.into(),
        key.api_key.into(),
        key.name.as_str().into(),
        kept.fingerprint.into(),
        i64::from(kept.status).into(),
        kept.body.clone().into(),
        i64::from(kept.sealed).into(),
        kept.created_at.millis().into(),
    ];
    Ok(tx.execute(KEEP, &row)? == 1)
}

/// When the answer that is kept longest was kept.
pub fn oldest(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    tx.row(OLDEST, &[])?.map(|mut row| row.integer().map(Timestamp::from_millis)).transpose()
}

/// Forgets, of the `limit` answers that are kept longest, those kept at `until` or before; says how many.
pub fn forget(tx: &mut Tx<'_>, until: Timestamp, limit: i64) -> Result<usize, Fault> {
    tx.execute(FORGET, &[limit.into(), until.millis().into()])
}
