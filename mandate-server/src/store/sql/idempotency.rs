//! Answers kept under the callers' idempotency keys.

use mandate_core::Timestamp;

use crate::error::Fault;
use crate::store::records::{KeptKey, KeptRecord};
use crate::store::tx::Tx;

const FIND: &str = "SELECT fingerprint, status, body, sealed, created_at FROM idempotency
    WHERE environment = $1 AND api_key = $2 AND name = $3";
const KEEP: &str = "INSERT INTO idempotency (environment, api_key, name, fingerprint, status, body, sealed, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (environment, api_key, name) DO UPDATE SET fingerprint = excluded.fingerprint,
        status = excluded.status, body = excluded.body, sealed = excluded.sealed, created_at = excluded.created_at";

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

/// Keeps an answer, in the place of one that has expired if there is one.
pub fn keep(tx: &mut Tx<'_>, key: &KeptKey, kept: &KeptRecord) -> Result<(), Fault> {
    tx.execute_one(
        KEEP,
        &[
            key.environment.into(),
            key.api_key.into(),
            key.name.as_str().into(),
            kept.fingerprint.into(),
            i64::from(kept.status).into(),
            kept.body.clone().into(),
            i64::from(kept.sealed).into(),
            kept.created_at.millis().into(),
        ],
    )
}
