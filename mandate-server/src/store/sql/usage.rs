//! The metering, and the month's spending.

use mandate_core::Total;

use crate::error::Fault;
use crate::store::records::{UsageKey, UsageRecord};
use crate::store::tx::{Tx, Value};

const FIND: &str =
    "SELECT spent, requests, allow, review, deny_no_mandate, deny_revoked, deny_expired, deny_limit,
        deny_category, deny_velocity
    FROM usage WHERE environment = $1 AND month = $2 AND agent = $3 AND currency = $4";
const KEEP: &str = "INSERT INTO usage (environment, month, agent, currency, spent, requests, allow, review,
        deny_no_mandate, deny_revoked, deny_expired, deny_limit, deny_category, deny_velocity)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    ON CONFLICT (environment, month, agent, currency) DO UPDATE SET
        spent = excluded.spent, requests = excluded.requests, allow = excluded.allow, review = excluded.review,
        deny_no_mandate = excluded.deny_no_mandate, deny_revoked = excluded.deny_revoked,
        deny_expired = excluded.deny_expired, deny_limit = excluded.deny_limit,
        deny_category = excluded.deny_category, deny_velocity = excluded.deny_velocity
    WHERE usage.spent = $15 AND usage.requests = $16";

/// The metering of one agent, month and currency. The agent must be locked. Without a row, everything is 0.
pub fn find(tx: &mut Tx<'_>, key: &UsageKey) -> Result<UsageRecord, Fault> {
    let parameters = [
        key.agent.environment.into(),
        key.month.to_string().into(),
        key.agent.agent.as_str().into(),
        key.currency.as_str().into(),
    ];
    let Some(mut row) = tx.row(FIND, &parameters)? else { return Ok(UsageRecord::default()) };
    let spent = Total::parse(&row.text()?)?;
    let requests = row.integer()?;
    let mut verdicts = [0; 8];
    for count in &mut verdicts {
        *count = row.integer()?;
    }
    Ok(UsageRecord { spent, requests, verdicts, stored: Some((spent, requests)) })
}

/// Writes the metering.
///
/// # Errors
/// The row is not the one that was read: somebody decided for this agent without the lock.
pub fn keep(tx: &mut Tx<'_>, key: &UsageKey, usage: &UsageRecord) -> Result<(), Fault> {
    let mut parameters: Vec<Value> = vec![
        key.agent.environment.into(),
        key.month.to_string().into(),
        key.agent.agent.as_str().into(),
        key.currency.as_str().into(),
        usage.spent.to_string().into(),
        usage.requests.into(),
    ];
    parameters.extend(usage.verdicts.map(Value::from));
    // A row that was not there must still not be there: no stored row has a negative count.
    let (spent, requests) = usage.stored.unwrap_or((Total::ZERO, -1));
    parameters.push(spent.to_string().into());
    parameters.push(requests.into());
    tx.execute_one(KEEP, &parameters)
}
