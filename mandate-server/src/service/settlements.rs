//! Refused settlement instructions, and the operator's retry.

use mandate_core::EscrowId;
use serde_json::json;

use super::audit::{self, Deed, Operator};
use crate::error::{Code, Fault, Refusal};
use crate::model::call::ScriptError;
use crate::store::sql;
use crate::store::tx::Tx;

pub use crate::store::sql::escrows::RefusedEntry;

/// The instructions that were refused, oldest first.
///
/// # Errors
/// The database fails.
pub fn refused(tx: &mut Tx<'_>) -> Result<Vec<RefusedEntry>, Fault> {
    sql::escrows::refused(tx)
}

/// Sends an escrow's refused instructions again, under their old ids. Returns them.
///
/// # Errors
/// There are none.
pub fn retry(tx: &mut Tx<'_>, escrow: EscrowId, by: &Operator) -> Result<Vec<RefusedEntry>, ScriptError> {
    sql::escrows::hold(tx, escrow)?;
    let mut entries = sql::escrows::refused(tx)?;
    entries.retain(|entry| entry.escrow == escrow);
    if entries.is_empty() {
        let message = format!("{escrow} has no refused instruction; `settlement list` shows those there are");
        return Err(Refusal::new(Code::NotFound, message).into());
    }
    for entry in &entries {
        sql::escrows::send_again(tx, entry, by.at)?;
        let deed = Deed {
            action: "settlement.retry",
            organization: Some(&entry.organization),
            environment: Some(entry.kind),
            subject: &escrow.to_string(),
            details: json!({ "state": entry.state.as_str() }),
        };
        audit::write(tx, by, &deed)?;
    }
    Ok(entries)
}
