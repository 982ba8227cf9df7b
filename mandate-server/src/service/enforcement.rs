//! The switch between observe and enforce. Each environment has its own.

use mandate_core::Timestamp;
use serde::Serialize;

use super::public_log::Governing;
use crate::model::call::{Answer, Call, Scripted};
use crate::model::records::Mode;
use crate::store::sql;
use crate::store::tx::Tx;

#[derive(Serialize)]
struct Enforcement {
    mode: Mode,
    since: Timestamp,
}

/// Switches the mode, from the next decision on. Switching to the mode in force changes nothing, `since` included.
///
/// # Errors
/// The database fails.
pub fn set(tx: &mut Tx<'_>, call: &Call, mode: Mode, now: Timestamp) -> Scripted {
    let environment = call.caller.environment.id;
    sql::environments::lock(tx, environment)?;
    let (in_force, mut since) = sql::environments::mode(tx, environment)?;
    if mode != in_force {
        since = now;
        sql::environments::switch(tx, environment, mode, since)?;
        Governing::ModeSwitched { at: since, mode }.record(tx, environment)?;
    }
    Ok(Answer::new(200, &Enforcement { mode, since })?)
}

/// The mode in force.
///
/// # Errors
/// The database fails.
pub fn get(tx: &mut Tx<'_>, call: &Call) -> Scripted {
    let (mode, since) = sql::environments::mode(tx, call.caller.environment.id)?;
    Ok(Answer::new(200, &Enforcement { mode, since })?)
}
