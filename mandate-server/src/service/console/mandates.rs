//! Mandates, and what was spent under them.

use mandate_core::{AgentId, MandateId, Month};

use crate::error::Fault;
use crate::model::records::{Direction, Slice};
use crate::store::sql;
use crate::store::tx::Tx;

pub use crate::store::sql::usage::Metered;
pub use mandate_core::Mandate;

/// How many mandates a page shows.
pub const PAGE: usize = 50;
/// How many rows of metering a page shows.
pub const METERED: usize = 200;

/// A page of mandates, newest first, and where the next begins, if there are more.
///
/// # Errors
/// The database fails.
pub fn list(
    tx: &mut Tx<'_>,
    environment: i64,
    agent: Option<&AgentId>,
    before: Option<MandateId>,
) -> Result<(Vec<Mandate>, Option<MandateId>), Fault> {
    let from = before.map_or([0xff; 16], MandateId::to_bytes);
    let limit = i64::try_from(PAGE + 1).unwrap_or(i64::MAX);
    let slice = Slice { direction: Direction::Older, from, limit };
    let mut rows = sql::mandates::page(tx, environment, agent, &slice)?;
    let has_more = rows.len() > PAGE;
    rows.truncate(PAGE);
    let older = rows.last().map(|mandate| mandate.id).filter(|_| has_more);
    Ok((rows, older))
}

/// A mandate, and the newest of its agent's mandates. None if the environment has none of that id.
///
/// # Errors
/// The database fails.
pub fn one(
    tx: &mut Tx<'_>,
    environment: i64,
    id: MandateId,
) -> Result<Option<(Mandate, Vec<Mandate>)>, Fault> {
    let Some(mandate) = sql::mandates::find(tx, environment, id)? else { return Ok(None) };
    let (history, _) = list(tx, environment, Some(&mandate.terms.agent), None)?;
    Ok(Some((mandate, history)))
}

/// The metering of a month, in the order of agents and currencies, and whether there is more.
///
/// # Errors
/// The database fails.
pub fn month(tx: &mut Tx<'_>, environment: i64, month: Month) -> Result<(Vec<Metered>, bool), Fault> {
    let limit = i64::try_from(METERED + 1).unwrap_or(i64::MAX);
    let mut rows = sql::usage::page(tx, environment, month, None, ("", ""), limit)?;
    let has_more = rows.len() > METERED;
    rows.truncate(METERED);
    Ok((rows, has_more))
}
