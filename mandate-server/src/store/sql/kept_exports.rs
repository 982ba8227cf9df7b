//! The exports that are kept, as an operator sees them, and how one of them ends before its time.

use mandate_core::{EnvironmentKind, ExportId, Timestamp};

use super::exports::{ExportStatus, Format};
use super::keys::kind;
use crate::error::Fault;
use crate::store::tx::Tx;

const ALL: &str = "/* kept_exports.all */
    SELECT e.export, o.name, n.kind, e.format, e.status, e.rows, e.expires_at, e.incomplete_since
    FROM exports e
    JOIN environments n ON n.environment = e.environment
    JOIN organizations o ON o.organization = n.organization
    WHERE e.expires_at > $1 ORDER BY e.export DESC";
const OWNER: &str = "/* kept_exports.owner */
    SELECT o.name, n.kind
    FROM exports e
    JOIN environments n ON n.environment = e.environment
    JOIN organizations o ON o.organization = n.organization
    WHERE e.export = $1 AND e.expires_at > $2";
const END: &str = "/* kept_exports.end */ UPDATE exports SET expires_at = $1 WHERE export = $2";
const GIVE_WAY: &str = "/* kept_exports.give_way */ UPDATE exports SET expires_at = $1
    WHERE environment = $2 AND export = (SELECT export FROM exports
        WHERE environment = $2 AND status <> 'pending' AND expires_at > $1 ORDER BY export LIMIT 1)";

/// An export that is kept, and whose it is.
#[derive(Debug)]
pub struct KeptExport {
    /// Its id.
    pub id: ExportId,
    /// The organization.
    pub organization: String,
    /// The kind of its environment.
    pub kind: EnvironmentKind,
    /// How it is written.
    pub format: Format,
    /// How far it is.
    pub status: ExportStatus,
    /// How many decisions are in it, when it is ready.
    pub rows: Option<i64>,
    /// When it is deleted.
    pub expires_at: Timestamp,
    /// From when on it may lack decisions, since the clock was set back.
    pub incomplete_since: Option<Timestamp>,
}

/// The exports of all organizations that have not expired by `now`, newest first.
pub fn all(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<KeptExport>, Fault> {
    let rows = tx.query(ALL, &[now.millis().into()])?.into_iter();
    rows.map(|mut row| {
        Ok(KeptExport {
            id: ExportId::from_bytes(row.bytes()?),
            organization: row.text()?,
            kind: kind(&row.text()?)?,
            format: Format::parse(&row.text()?)?,
            status: ExportStatus::parse(&row.text()?)?,
            rows: row.maybe_integer()?,
            expires_at: Timestamp::from_millis(row.integer()?),
            incomplete_since: row.maybe_integer()?.map(Timestamp::from_millis),
        })
    })
    .collect()
}

/// The organization that an export belongs to, and the kind of its environment; none if it has expired by `now`.
pub fn owner(
    tx: &mut Tx<'_>,
    id: ExportId,
    now: Timestamp,
) -> Result<Option<(String, EnvironmentKind)>, Fault> {
    let row = tx.row(OWNER, &[id.to_bytes().into(), now.millis().into()])?;
    row.map(|mut row| Ok((row.text()?, kind(&row.text()?)?))).transpose()
}

/// Has an export expire at `now`.
pub fn end(tx: &mut Tx<'_>, id: ExportId, now: Timestamp) -> Result<(), Fault> {
    tx.execute_one(END, &[now.millis().into(), id.to_bytes().into()])
}

/// Has the oldest export of an environment that is not being built expire at `now`. False if there is none.
pub fn give_way(tx: &mut Tx<'_>, environment: i64, now: Timestamp) -> Result<bool, Fault> {
    Ok(tx.execute(GIVE_WAY, &[now.millis().into(), environment.into()])? == 1)
}
