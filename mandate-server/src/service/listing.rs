//! One keyset walk for every list, newest first.
//!
//! A page begins behind a position, never at a count of rows: its cost does not grow with its depth, and rows written
//! meanwhile move nothing.

use std::sync::Arc;

use mandate_core::Timestamp;
use mandate_core::cursor::{CursorKey, Scope};
use serde::Serialize;

use super::{Answer, Call, Scripted};
use crate::error::{Fault, Refusal};

/// Which page is asked for.
#[derive(Debug, Clone)]
pub struct Query {
    /// How many rows at most, 1 to 100.
    pub limit: u32,
    /// The `next_cursor` of the page before.
    pub cursor: Option<String>,
}

/// What cursors are issued and opened with.
#[derive(Debug, Clone)]
pub struct Cursors {
    /// The key.
    pub key: Arc<CursorKey>,
    /// The time.
    pub now: Timestamp,
}

/// A row's place in its list: 128 bits that sort by creation.
pub type Position = [u8; 16];

#[derive(Serialize)]
struct Page<T> {
    data: Vec<T>,
    has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Answers with one page of `list`. `rows` gives at most so many rows before a position, newest first.
///
/// # Errors
/// The cursor does not open, or the rows cannot be read.
pub fn page<T, S: Serialize>(
    list: &str,
    call: &Call,
    query: &Query,
    cursors: &Cursors,
    rows: impl FnOnce(Position, i64) -> Result<Vec<T>, Fault>,
    show: impl Fn(T) -> Result<(Position, S), Fault>,
) -> Scripted {
    let caller = match &call.caller.agent {
        Some(agent) => format!("{} {agent}", call.caller.environment.id),
        None => call.caller.environment.id.to_string(),
    };
    let scope = Scope { list, filters: "", class: call.caller.class(), caller: &caller };
    let before = match &query.cursor {
        None => [0xff; 16],
        Some(cursor) => open(cursor, &scope, cursors)?,
    };
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    // One more than asked for tells whether there are more.
    let mut found = rows(before, i64::from(query.limit) + 1)?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let mut end = before;
    let mut data = Vec::with_capacity(found.len());
    for row in found {
        let (position, view) = show(row)?;
        end = position;
        data.push(view);
    }
    let next_cursor = has_more.then(|| {
        let position = format!("{:032x}", u128::from_be_bytes(end));
        cursors.key.issue(&scope, &position, cursors.now)
    });
    Ok(Answer::new(200, &Page { data, has_more, next_cursor })?)
}

fn open(cursor: &str, scope: &Scope<'_>, cursors: &Cursors) -> Result<Position, Refusal> {
    let position =
        cursors.key.open(cursor, scope, cursors.now).map_err(|e| Refusal::invalid(e.to_string()))?;
    let position = u128::from_str_radix(&position, 16);
    position.map(u128::to_be_bytes).map_err(|_| Refusal::invalid("cursor expired or malformed"))
}
