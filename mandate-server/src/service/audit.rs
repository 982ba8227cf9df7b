//! The audit records of operators' actions, each written in the transaction of its action.

use mandate_core::{EnvironmentKind, Timestamp};
use serde_json::Value;

use crate::error::Fault;
use crate::store::sql;
use crate::store::sql::audit::AuditRecord;
use crate::store::tx::Tx;

/// Who acts, and when.
#[derive(Debug, Clone)]
pub struct Operator {
    /// Their user name in the operating system.
    pub name: String,
    /// When.
    pub at: Timestamp,
}

/// An operator's action, to be recorded: what was done, and to what.
#[derive(Debug)]
pub struct AuditEntry<'a> {
    /// The command, such as `key.revoke`.
    pub action: &'static str,
    /// The name of the organization concerned.
    pub organization: Option<&'a str>,
    /// Its environment, or the kind of environment that a signing key signs for.
    pub environment: Option<EnvironmentKind>,
    /// What the action changed.
    pub subject: &'a str,
    /// Other details, as an object. Never a secret.
    pub details: Value,
}

/// Writes an audit record of what `by` did.
///
/// # Errors
/// The database fails.
pub fn write(tx: &mut Tx<'_>, by: &Operator, entry: &AuditEntry<'_>) -> Result<(), Fault> {
    let details = serde_json::value::to_raw_value(&entry.details);
    let details = details.map_err(|e| Fault::new(format!("cannot write an audit record: {e}")))?;
    sql::audit::insert(
        tx,
        &AuditRecord {
            at: by.at,
            action: entry.action.to_owned(),
            organization: entry.organization.map(str::to_owned),
            environment: entry.environment.map(EnvironmentKind::as_str),
            subject: entry.subject.to_owned(),
            operator: by.name.clone(),
            details,
        },
    )
}

/// The newest records since `since`, newest first: of one organization, or of all.
///
/// # Errors
/// The database fails.
pub fn newest(
    tx: &mut Tx<'_>,
    organization: Option<&str>,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<AuditRecord>, Fault> {
    sql::audit::newest(tx, organization, since, i64::from(limit))
}
