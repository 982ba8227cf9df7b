//! Settlement as an operator sees it: instructions that have not settled, and sending one at once.

use mandate_core::EscrowId;
use serde_json::json;

use super::audit::{self, AuditEntry, Operator};
use crate::error::{Code, Fault, Refusal};
use crate::model::call::ScriptError;
use crate::store::sql;
use crate::store::sql::instructions::{InstructionKey, SettlementStatus};
use crate::store::tx::Tx;

pub use crate::store::sql::instructions::Unsettled;

/// The newest instruction of each escrow, where it is pending or was refused, oldest first.
///
/// # Errors
/// The database fails.
pub fn unsettled(tx: &mut Tx<'_>) -> Result<Vec<Unsettled>, Fault> {
    sql::instructions::unsettled(tx)
}

/// Makes an escrow's pending instruction due at once, under its id. Returns it. One that was refused has ended: its
/// organization asks again, with an instruction of its own.
///
/// # Errors
/// It has none.
pub fn retry(tx: &mut Tx<'_>, escrow: EscrowId, by: &Operator) -> Result<Unsettled, ScriptError> {
    sql::escrows::hold(tx, escrow)?;
    let pending = sql::instructions::unsettled(tx)?
        .into_iter()
        .find(|found| found.escrow == escrow && found.instruction.status == SettlementStatus::Pending);
    let Some(pending) = pending else {
        let message = format!("{escrow} has no pending instruction; `settlement list` shows those there are");
        return Err(Refusal::new(Code::NotFound, message).into());
    };
    let number = pending.instruction.number;
    let key = InstructionKey { environment: pending.environment, escrow, number };
    sql::instructions::send_now(tx, &key, by.at)?;
    let entry = AuditEntry {
        action: "settlement.retry",
        organization: Some(&pending.organization),
        environment: Some(pending.kind),
        subject: &escrow.to_string(),
        details: json!({ "instruction": pending.instruction.id(escrow) }),
    };
    audit::write(tx, by, &entry)?;
    Ok(pending)
}
