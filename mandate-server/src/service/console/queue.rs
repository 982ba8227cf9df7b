//! The reviews of an environment that wait for an answer.

use mandate_core::Timestamp;
use serde::Serialize;

use crate::error::Fault;
use crate::store::sql;
use crate::store::tx::Tx;

pub use crate::store::sql::reviews::Waiting;

/// How many reviews the queue shows at most: those that expire first.
pub const MAX_SHOWN: i64 = 100;

/// The queue.
#[derive(Debug, Serialize)]
pub struct Queue {
    /// The reviews, the one that expires first at the top.
    pub waiting: Vec<Waiting>,
    /// More wait than are shown.
    pub has_more: bool,
}

/// The reviews that wait at `now`.
///
/// # Errors
/// The database fails.
pub fn queue(tx: &mut Tx<'_>, environment: i64, now: Timestamp) -> Result<Queue, Fault> {
    let mut waiting = sql::reviews::waiting(tx, environment, now, MAX_SHOWN + 1)?;
    let most = usize::try_from(MAX_SHOWN).unwrap_or(usize::MAX);
    let has_more = waiting.len() > most;
    waiting.truncate(most);
    Ok(Queue { waiting, has_more })
}
