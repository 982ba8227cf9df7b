//! Lists: fetched page by page, newest first, even when a cursor expires meanwhile.

use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Call, Client};
use crate::exit::{Exit, Failure};
use crate::value::count;

/// The most objects on one page.
const MAX_PAGE: u32 = 100;
/// How many objects are shown by default.
const USUAL: u32 = 20;
/// The service's message about an expired cursor.
const CURSOR_REFUSED: &str = "cursor expired or malformed";

/// How many objects of a list are shown.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "List")]
pub(crate) struct Paging {
    /// Show at most this many, newest first
    #[arg(long, value_name = "N", default_value_t = USUAL, value_parser = count, conflicts_with = "all")]
    pub(crate) limit: u32,

    /// Show all, fetched page by page
    #[arg(long)]
    pub(crate) all: bool,
}

/// A walk through a list.
pub(crate) struct Walk<'a> {
    client: &'a Client,
    path: &'a str,
    filters: Vec<(&'static str, String)>,
    /// The member with an object's id, from which the walk goes on when a cursor has expired.
    id: Option<&'static str>,
    /// How many objects are still wanted. None: all.
    left: Option<u32>,
    from: From,
}

enum From {
    Beginning,
    Cursor { cursor: String, last: Option<String> },
    Id { direction: &'static str, id: String },
    End,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Box<RawValue>>,
    has_more: bool,
    next_cursor: Option<String>,
}

impl<'a> Walk<'a> {
    /// Begins at the newest object.
    pub(crate) fn new(
        client: &'a Client,
        path: &'a str,
        id: Option<&'static str>,
        filters: Vec<(&'static str, String)>,
        paging: &Paging,
    ) -> Self {
        let left = (!paging.all).then_some(paging.limit);
        Self { client, path, filters, id, left, from: From::Beginning }
    }

    /// Begins after the object with this `id`, towards the newest.
    pub(crate) fn newer_than(
        client: &'a Client,
        path: &'a str,
        filters: Vec<(&'static str, String)>,
        id: String,
    ) -> Self {
        Self {
            client,
            path,
            filters,
            id: None,
            left: None,
            from: From::Id { direction: "ending_before", id },
        }
    }

    /// The filters of the list.
    pub(crate) fn filters(&self) -> &[(&'static str, String)] {
        &self.filters
    }

    /// Whether more objects follow.
    pub(crate) fn has_more(&self) -> bool {
        !matches!(self.from, From::End)
    }

    /// The next page, which can be empty. None at the end.
    pub(crate) fn page(&mut self) -> Result<Option<Vec<Box<RawValue>>>, Failure> {
        if !self.has_more() || self.left == Some(0) {
            return Ok(None);
        }
        let body = match self.fetch() {
            Err(failure) if failure.message() == CURSOR_REFUSED && self.can_go_on_by_id() => self.fetch()?,
            other => other?,
        };
        let page: Page = serde_json::from_str(&body).map_err(|e| {
            Failure::new(Exit::UnknownAnswer, format!("the service's answer is not a list: {e}"))
        })?;
        let last = page.data.last().and_then(|item| crate::fields::text(item.get(), self.id?));
        self.from = match (page.next_cursor, &self.from) {
            (Some(cursor), _) if page.has_more && last.is_some() => From::Cursor { cursor, last },
            // A search without results on this page keeps the last object of the previous page.
            (Some(cursor), From::Cursor { last, .. }) if page.has_more => {
                From::Cursor { cursor, last: last.clone() }
            }
            (Some(cursor), _) if page.has_more => From::Cursor { cursor, last: None },
            _ => From::End,
        };
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(u32::try_from(page.data.len()).unwrap_or(u32::MAX));
        }
        Ok(Some(page.data))
    }

    fn fetch(&self) -> Result<String, Failure> {
        let mut query = self.filters.clone();
        query.push(("limit", self.left.map_or(MAX_PAGE, |left| left.min(MAX_PAGE)).to_string()));
        match &self.from {
            From::Cursor { cursor, .. } => query.push(("cursor", cursor.clone())),
            From::Id { direction, id } => query.push((direction, id.clone())),
            From::Beginning | From::End => {}
        }
        self.client.call(&Call::new(Method::GET, self.path, &query, None))
    }

    /// Replaces an expired cursor by the id of the last object, if there is one.
    fn can_go_on_by_id(&mut self) -> bool {
        let From::Cursor { last: Some(last), .. } = &self.from else { return false };
        self.from = From::Id { direction: "starting_after", id: last.clone() };
        true
    }
}
