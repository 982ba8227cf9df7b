//! One keyset walk for every list, newest first.
//!
//! A page begins after a position, not after a number of rows. So its cost does not grow with its depth, and
//! rows written meanwhile shift nothing.

use std::sync::Arc;

use mandate_core::Invalid;
use mandate_core::Timestamp;
use mandate_core::api_key::KeyClass;
use mandate_core::cursor::{CursorKey, Scope};
use serde::Serialize;

use crate::error::{Fault, Refusal};
use crate::model::call::{Answer, Call, ScriptError, Scripted};
use crate::model::records::{Direction, Position, Slice};

/// How many rows a search looks at in one request. One that finds little stops there, and says that there is more.
const SEARCHED_ROWS: usize = 5_000;
/// How many rows it reads at a time.
const SEARCH_PAGE: i64 = 500;

/// Which page is requested.
#[derive(Debug, Clone)]
pub struct Query {
    /// How many rows at most, 1 to 100.
    pub limit: u32,
    /// Where the page begins.
    pub from: From,
}

/// Where a page begins.
#[derive(Debug, Clone)]
pub enum From {
    /// At the newest row.
    Newest,
    /// After the end of the previous page: its `next_cursor`.
    Cursor(String),
    /// After the object with this id: `starting_after`.
    After(String),
    /// Before the object with this id, towards the newest: `ending_before`.
    Before(String),
}

/// The key and the time that cursors are made and opened with.
#[derive(Debug, Clone)]
pub struct Cursors {
    /// The key.
    pub key: Arc<CursorKey>,
    /// The time.
    pub now: Timestamp,
}

/// A walk through one list, at the start of a page.
#[derive(Debug)]
pub struct Walk<'a> {
    list: &'static str,
    filters: String,
    class: KeyClass,
    caller: String,
    cursors: &'a Cursors,
    limit: usize,
    /// The rows to look for. One more than the page holds shows whether there are more.
    pub slice: Slice,
}

#[derive(Serialize)]
struct Page<T> {
    data: Vec<T>,
    has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl<'a> Walk<'a> {
    /// Finds the start of the page. `filters` must be one text for each set of filters. `place` returns the
    /// position of the object with an id, if the id belongs to this list.
    ///
    /// # Errors
    /// The cursor does not open, or an id is not one of this list.
    pub fn open(
        list: &'static str,
        filters: String,
        call: &Call,
        query: &Query,
        cursors: &'a Cursors,
        place: impl FnOnce(&str) -> Result<Option<Position>, Fault>,
    ) -> Result<Self, ScriptError> {
        let caller = match &call.caller.agent {
            Some(agent) => format!("{} {agent}", call.caller.environment.id),
            None => call.caller.environment.id.to_string(),
        };
        let slice =
            Slice { direction: Direction::Older, from: [0xff; 16], limit: i64::from(query.limit) + 1 };
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let mut walk = Self { list, filters, class: call.caller.class(), caller, cursors, limit, slice };
        let (name, direction, id) = match &query.from {
            From::Newest => return Ok(walk),
            From::Cursor(cursor) => {
                (walk.slice.direction, walk.slice.from) = walk.place_of(cursor)?;
                return Ok(walk);
            }
            From::After(id) => ("starting_after", Direction::Older, id),
            From::Before(id) => ("ending_before", Direction::Newer, id),
        };
        walk.slice.direction = direction;
        walk.slice.from = place(id)?.ok_or_else(|| {
            Refusal::from(Invalid::value(name, "must be the id of an object of this list", id))
        })?;
        Ok(walk)
    }

    /// Looks for the rows that `wanted` accepts among those that `page` returns for a slice. Also returns where the search
    /// stopped, if it did before it had found enough: see [`Walk::answer`].
    ///
    /// # Errors
    /// The database fails.
    pub fn search<T>(
        &self,
        mut page: impl FnMut(&Slice) -> Result<Vec<T>, Fault>,
        position: impl Fn(&T) -> Position,
        wanted: impl Fn(&T) -> bool,
    ) -> Result<(Vec<T>, Option<Position>), Fault> {
        let mut slice = Slice { limit: SEARCH_PAGE, ..self.slice };
        let (mut found, mut searched) = (Vec::new(), 0);
        loop {
            let rows = page(&slice)?;
            let is_last = i64::try_from(rows.len()).is_ok_and(|rows| rows < SEARCH_PAGE);
            searched += rows.len();
            for row in rows {
                slice.from = position(&row);
                if wanted(&row) {
                    found.push(row);
                }
                // One more than the page holds shows that there are more.
                if found.len() > self.limit {
                    return Ok((found, None));
                }
            }
            if is_last || searched >= SEARCHED_ROWS {
                return Ok((found, (!is_last).then_some(slice.from)));
            }
        }
    }

    /// Answers with the page: `rows` in the order of the walk, at most as many as [`Walk::slice`] asked for.
    /// If a search stopped before it had found them, `stopped_at` is where the next page goes on.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn answer<S: Serialize>(
        self,
        mut rows: Vec<(Position, S)>,
        stopped_at: Option<Position>,
    ) -> Scripted {
        let more_than_fit = rows.len() > self.limit;
        rows.truncate(self.limit);
        let end = if more_than_fit { rows.last().map(|(position, _)| *position) } else { stopped_at };
        let mut data: Vec<S> = rows.into_iter().map(|(_, row)| row).collect();
        if self.slice.direction == Direction::Newer {
            data.reverse();
        }
        let next_cursor = end.map(|end| self.cursor(end));
        Ok(Answer::new(200, &Page { data, has_more: next_cursor.is_some(), next_cursor })?)
    }

    fn scope(&self) -> Scope<'_> {
        Scope { list: self.list, filters: &self.filters, class: self.class, caller: &self.caller }
    }

    fn cursor(&self, end: Position) -> String {
        let direction = match self.slice.direction {
            Direction::Older => '-',
            Direction::Newer => '+',
        };
        let position = format!("{direction}{:032x}", u128::from_be_bytes(end));
        self.cursors.key.issue(&self.scope(), &position, self.cursors.now)
    }

    fn place_of(&self, cursor: &str) -> Result<(Direction, Position), Refusal> {
        let refused = |e: mandate_core::cursor::CursorRefused| Refusal::invalid(e.to_string());
        let opened = self.cursors.key.open(cursor, &self.scope(), self.cursors.now).map_err(refused)?;
        let (direction, position) = match opened.split_at_checked(1) {
            Some(("-", position)) => (Direction::Older, position),
            Some(("+", position)) => (Direction::Newer, position),
            _ => return Err(refused(mandate_core::cursor::CursorRefused)),
        };
        let position = u128::from_str_radix(position, 16);
        let position = position.map_err(|_| refused(mandate_core::cursor::CursorRefused))?;
        Ok((direction, position.to_be_bytes()))
    }
}
