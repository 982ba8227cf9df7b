//! `tail`: the newest objects of a list, and each new one once.

use std::collections::BTreeMap;
use std::io::stdout;
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use serde_json::value::RawValue;

use crate::client::{Client, Paging, Walk};
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::output::{Output, note};
use crate::resource::{AnyOf, Filter, Listing, Resource, given, must_be_there};

/// How many objects the first request reads.
const FIRST_LOOK: u32 = 100;
/// An object may become visible so much later than one with a greater id: the bound that the service states.
const OVERLAP: Duration = Duration::from_mins(1);

/// What `tail` shows.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tail")]
pub(crate) struct Following {
    /// Start with this many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=i64::from(FIRST_LOOK)))]
    lines: u32,
    /// Keep running, and show new ones
    #[arg(short, long)]
    follow: bool,
    /// The time between two requests, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("must be 0.05 to 3600 seconds"),
    }
}

/// What was already shown, as far as it can appear again.
#[derive(Default)]
struct Seen {
    ids: BTreeMap<String, Instant>,
    /// Everything up to this id was shown.
    anchor: Option<String>,
}

impl Seen {
    /// The new objects, oldest first. Ids sort by creation.
    fn take_new(&mut self, items: Vec<Box<RawValue>>, id: &str, now: Instant) -> Vec<Box<RawValue>> {
        let mut fresh = BTreeMap::new();
        for item in items {
            let Some(id) = fields::text(item.get(), id) else { continue };
            if !self.ids.contains_key(&id) {
                self.ids.insert(id.clone(), now);
                fresh.insert(id, item);
            }
        }
        fresh.into_values().collect()
    }

    /// Moves the anchor up to where nothing older can appear any more, and forgets what is below.
    fn advance(&mut self, now: Instant) {
        let settled = |at: &Instant| now.saturating_duration_since(*at) >= OVERLAP;
        let Some(last) = self.ids.iter().take_while(|(_, at)| settled(at)).last().map(|(id, _)| id.clone())
        else {
            return;
        };
        self.ids = self.ids.split_off(&last);
        self.anchor = Some(last);
    }
}

impl Following {
    /// Shows the newest objects of `resource`, and follows if asked to. Of a member with several values, all are read,
    /// and those with another value are left out. Ends when standard output is closed.
    pub(crate) fn run(
        &self,
        client: &Client,
        resource: &Resource,
        filters: Vec<Filter>,
        any: AnyOf<'_>,
        output: &mut Output,
    ) -> Result<Exit, Failure> {
        let (id, filters) = (resource.id.unwrap_or_default(), given(filters));
        output.stream();
        let mut listing = Listing::new(resource.columns, output);
        let mut seen = Seen::default();
        let first = Paging { limit: FIRST_LOOK, all: false };
        let mut walk = Walk::new(client, resource.path, resource.id, filters.clone(), &first);
        let mut items = Vec::new();
        while let Some(page) = walk.page()? {
            items.extend(page);
        }
        if walk.has_more() {
            seen.anchor = items.last().and_then(|item| fields::text(item.get(), id));
        }
        if items.is_empty() {
            must_be_there(client, walk.filters())?;
        }
        let items = having(any, seen.take_new(items, id, Instant::now()));
        let skipped = items.len().saturating_sub(usize::try_from(self.lines).unwrap_or(usize::MAX));
        let mut reading = listing.page(items.get(skipped..).unwrap_or_default())?;
        let mut is_reported = false;
        while self.follow && reading {
            thread::sleep(self.interval);
            if is_hung_up() {
                break;
            }
            match look(client, resource, &filters, seen.anchor.clone()) {
                Ok(items) => {
                    is_reported = false;
                    reading = listing.page(&having(any, seen.take_new(items, id, Instant::now())))?;
                    seen.advance(Instant::now());
                }
                Err(failure) if failure.can_pass() => {
                    if !is_reported {
                        note(format_args!("{}; going on", failure.message()));
                    }
                    is_reported = true;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(Exit::Success)
    }
}

/// The objects that have one of these values.
fn having((name, values): AnyOf<'_>, mut items: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
    let has = |item: &RawValue| fields::text(item.get(), name).is_some_and(|value| values.contains(&value));
    items.retain(|item| values.is_empty() || has(item));
    items
}

/// Whether standard output is closed, which a pipe or terminal shows before anything is written. A file
/// cannot be asked, and is always open.
fn is_hung_up() -> bool {
    let asked = || -> std::io::Result<bool> {
        let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(1));
        poll.registry().register(&mut SourceFd(&stdout().as_raw_fd()), Token(0), Interest::WRITABLE)?;
        poll.poll(&mut events, Some(Duration::ZERO))?;
        Ok(events.iter().any(|event| event.is_error() || event.is_write_closed()))
    };
    asked().unwrap_or(false)
}

/// Everything newer than the anchor, or everything if there is none yet.
fn look(
    client: &Client,
    resource: &Resource,
    filters: &[(&'static str, String)],
    anchor: Option<String>,
) -> Result<Vec<Box<RawValue>>, Failure> {
    let mut walk = match anchor {
        Some(id) => Walk::newer_than(client, resource.path, filters.to_vec(), id),
        None => {
            Walk::new(client, resource.path, resource.id, filters.to_vec(), &Paging { limit: 1, all: true })
        }
    };
    let mut items = Vec::new();
    while let Some(page) = walk.page()? {
        items.extend(page);
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(ids: &[&str]) -> Vec<Box<RawValue>> {
        ids.iter().map(|id| RawValue::from_string(format!(r#"{{"id":"{id}"}}"#)).unwrap()).collect()
    }

    fn ids(items: &[Box<RawValue>]) -> Vec<String> {
        items.iter().map(|item| fields::text(item.get(), "id").unwrap()).collect()
    }

    #[test]
    fn what_appears_late_is_shown_once_and_never_missed() {
        let (mut seen, start) = (Seen::default(), Instant::now());
        let later = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(ids(&seen.take_new(items(&["e3", "e1"]), "id", start)), ["e1", "e3"]);
        seen.advance(later(59));
        assert_eq!(seen.anchor, None);
        // e2 was made before e3, and became visible after it.
        assert_eq!(ids(&seen.take_new(items(&["e3", "e2", "e1"]), "id", later(59))), ["e2"]);
        seen.advance(later(60));
        assert_eq!(seen.anchor.as_deref(), Some("e1"));
        assert_eq!(ids(&seen.take_new(items(&["e4", "e3", "e2"]), "id", later(60))), ["e4"]);
        seen.advance(later(120));
        assert_eq!(seen.anchor.as_deref(), Some("e4"));
        assert!(seen.take_new(items(&["e4"]), "id", later(120)).is_empty());
    }
}
