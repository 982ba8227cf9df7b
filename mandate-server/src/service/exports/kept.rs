//! The operator's view of exports, and their deletion before they expire.

use mandate_core::{ExportId, Timestamp};
use serde_json::json;

use crate::error::{Code, Refusal};
use crate::model::call::ScriptError;
use crate::service::audit::{self, AuditEntry, Operator};
use crate::store::sql;
use crate::store::tx::Tx;

pub use crate::store::sql::kept_exports::KeptExport;

/// The exports of all organizations that are kept at `now`, newest first.
///
/// # Errors
/// The database fails.
pub fn all(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<KeptExport>, ScriptError> {
    Ok(sql::kept_exports::all(tx, now)?)
}

/// Deletes an export: it is absent at once, and its file is removed like that of one that has expired.
///
/// # Errors
/// There is none of that id, or it has expired.
pub fn delete(tx: &mut Tx<'_>, id: ExportId, by: &Operator) -> Result<(), ScriptError> {
    let Some((organization, kind)) = sql::kept_exports::owner(tx, id, by.at)? else {
        let message = format!("there is no export {id}; `export list` shows those there are");
        return Err(Refusal::new(Code::NotFound, message).into());
    };
    sql::kept_exports::end(tx, id, by.at)?;
    let entry = AuditEntry {
        action: "export.delete",
        organization: Some(&organization),
        environment: Some(kind),
        subject: &id.to_string(),
        details: json!({}),
    };
    audit::write(tx, by, &entry)?;
    Ok(())
}
