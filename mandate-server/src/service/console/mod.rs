//! What the console's pages show: each reads one snapshot of one environment, and nothing of it is kept.

pub mod decisions;
pub mod lists;
pub mod mandates;
pub mod queue;
pub mod review;
pub mod rules;

use crate::error::Fault;
use crate::model::records::Mode;
use crate::store::sql;
use crate::store::tx::Tx;

/// The mode in force.
///
/// # Errors
/// The database fails.
pub fn mode(tx: &mut Tx<'_>, environment: i64) -> Result<Mode, Fault> {
    sql::environments::mode(tx, environment).map(|(mode, _)| mode)
}
