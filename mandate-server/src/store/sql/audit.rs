//! Audit records of the operators' commands.

use mandate_core::{EnvironmentKind, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::keys::kind;
use crate::error::Fault;
use crate::store::tx::{Row, Tx};

const INSERT: &str = "/* audit.insert */
    INSERT INTO audit (at, action, organization, environment, subject, operator, details)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

const NEWEST: &str = "/* audit.newest */
    SELECT at, action, organization, environment, subject, operator, details
    FROM audit WHERE at >= $1 ORDER BY audit DESC LIMIT $2";
const NEWEST_OF: &str = "/* audit.newest_of */
    SELECT at, action, organization, environment, subject, operator, details
    FROM audit WHERE organization = $1 AND at >= $2 ORDER BY audit DESC LIMIT $3";

const RECENT: &str = "/* audit.recent */
    SELECT COUNT(*), MIN(at) FROM (SELECT at FROM audit
        WHERE organization = $1 AND environment = $2 AND action = $3 AND subject = $4 AND at > $5
        ORDER BY at DESC LIMIT $6) newest";

/// An audit record.
#[derive(Debug, Serialize)]
pub struct AuditRecord {
    /// The time.
    pub at: Timestamp,
    /// The command, as in `key.revoke`.
    pub action: String,
    /// The organization concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// The kind of the environment concerned, or of those that a signing key signs for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<&'static str>,
    /// The object of the command.
    pub subject: String,
    /// The operator's name in the operating system.
    pub operator: String,
    /// Further details: a JSON object without secrets.
    pub details: Box<RawValue>,
}

/// Writes a record.
pub fn insert(tx: &mut Tx<'_>, record: &AuditRecord) -> Result<(), Fault> {
    let row = [
        record.at.millis().into(),
        record.action.as_str().into(),
        record.organization.as_deref().into(),
        record.environment.into(),
        record.subject.as_str().into(),
        record.operator.as_str().into(),
        record.details.get().into(),
    ];
    tx.execute_one(INSERT, &row)
}

/// The newest records since `since`, newest first: of one organization, or of all.
pub fn newest(
    tx: &mut Tx<'_>,
    organization: Option<&str>,
    since: Timestamp,
    limit: i64,
) -> Result<Vec<AuditRecord>, Fault> {
    let rows = match organization {
        Some(name) => tx.query(NEWEST_OF, &[name.into(), since.millis().into(), limit.into()])?,
        None => tx.query(NEWEST, &[since.millis().into(), limit.into()])?,
    };
    rows.into_iter().map(read).collect()
}

/// How many records there are of this action and subject in an environment since an instant, at most `limit`, and when the
/// oldest of those was written.
pub fn recent(
    tx: &mut Tx<'_>,
    (organization, kind): (&str, EnvironmentKind),
    (action, subject, since): (&str, &str, Timestamp),
    limit: i64,
) -> Result<(i64, Option<Timestamp>), Fault> {
    let parameters = [
        organization.into(),
        kind.as_str().into(),
        action.into(),
        subject.into(),
        since.millis().into(),
        limit.into(),
    ];
    let mut row = tx.one_row(RECENT, &parameters)?;
    Ok((row.integer()?, row.maybe_integer()?.map(Timestamp::from_millis)))
}

fn read(mut row: Row) -> Result<AuditRecord, Fault> {
    Ok(AuditRecord {
        at: Timestamp::from_millis(row.integer()?),
        action: row.text()?,
        organization: row.maybe_text()?,
        environment: row.maybe_text()?.map(|text| kind(&text)).transpose()?.map(EnvironmentKind::as_str),
        subject: row.text()?,
        operator: row.text()?,
        details: RawValue::from_string(row.text()?)
            .map_err(|e| Fault::corrupt(format!("database: audit.details: {e}")))?,
    })
}
