//! The owner of an API key.

use mandate_core::Timestamp;

use crate::error::Fault;
use crate::model::call::{Caller, Environment};
use crate::store::sql;
use crate::store::tx::Tx;

/// How many requests a key may make in any 60 seconds, unless the operator has set another rate.
pub const DEFAULT_RATE: u32 = 6_000;

/// The caller behind the key with this hash, if the key is in force.
///
/// # Errors
/// The database fails.
pub fn find(tx: &mut Tx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<Option<Caller>, Fault> {
    let found = sql::keys::find(tx, *hash, now)?;
    Ok(found.map(|key| Caller {
        key: key.id,
        environment: Environment { id: key.environment, kind: key.kind, policy_version: key.policy_version },
        agent: key.agent,
        rate: key.rate,
        expires_at: key.expires_at,
    }))
}

/// A number that grows whenever a key is revoked or given another rate.
///
/// # Errors
/// The database fails.
pub fn revision(tx: &mut Tx<'_>) -> Result<i64, Fault> {
    sql::keys::revision(tx)
}
