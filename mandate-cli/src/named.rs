//! The ids of objects as people give them: whole, by their first characters, or not at all.
//!
//! Lists show the first characters of ids. Ids sort by creation, so that one page of a list says whether another object's
//! id begins alike: among all that the key sees, not on the page that was shown.

use std::ffi::OsStr;
use std::fmt::Display;

use anstream::adapter::strip_str;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use mandate_core::{
    AgentId, DecisionId, EscrowId, EventId, Invalid, MandateId, ReviewId, Timestamp, WebhookId,
};

use crate::client::{Client, Paging, Walk};
use crate::credential::Access;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::output::note;
use crate::prompt;
use crate::service::Service;
use crate::table::{Field, Look, Tabular, agent, id, recipient, seconds, state, text, time, whole};

/// The characters of an id after its prefix.
const ID_CHARS: usize = 26;
/// What they are, in ascending order: Crockford's base 32 without capitals.
const ID_ALPHABET: &str = "0123456789abcdefghjkmnpqrstvwxyz";
/// The fewest of them that are accepted: those of the millisecond.
const FEWEST_CHARS: usize = 10;
/// How many objects a person can choose from.
const CHOICES: u32 = 100;
/// The columns that a question needs beside a choice.
const MARK_WIDTH: u16 = 4;
/// How much the time in a review's id may differ from that in its decision's, in seconds.
const LEEWAY_SECONDS: i64 = 60;

/// A kind of object that commands name.
pub(crate) trait Named: Display + Clone + Send + Sync + 'static {
    /// Where its objects are listed.
    const LIST: List;
    /// Reads a whole id.
    fn parse(text: &str) -> Result<Self, Invalid>;
}

/// The list of the objects of a kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    noun: &'static str,
    /// What ids begin with. Empty if they cannot be shortened.
    prefix: &'static str,
    path: &'static str,
    /// The member with the id by which the list is walked.
    walked_by: &'static str,
    /// The member with the id that is named.
    id: &'static str,
    /// What can be chosen from.
    filters: &'static [(&'static str, &'static str)],
    /// How a choice is shown.
    columns: &'static [Field],
}

/// An id as it was given.
#[derive(Debug, Clone)]
pub(crate) enum Given<T> {
    Whole(T),
    /// Its first characters.
    Beginning(String),
}

macro_rules! named {
    ($($id:ident, $prefix:literal: $noun:literal at $path:literal by $by:literal, $member:literal, $filters:expr, $columns:expr;)*) => {$(
        impl Named for $id {
            const LIST: List = List {
                noun: $noun, prefix: $prefix, path: $path, walked_by: $by, id: $member, filters: &$filters, columns: &$columns,
            };
            fn parse(text: &str) -> Result<Self, Invalid> {
                Self::parse(text)
            }
        }
    )*};
}

named! {
    DecisionId, "dec_": "decision" at "/decisions" by "jti", "jti", [], [
        id("", "jti").spare(1), state("", "verdict"), whole("", "request.amount request.currency"),
        agent("", "request.agent"), recipient("", "request.recipient"), seconds("", "iat"),
    ];
    ReviewId, "rev_": "review" at "/decisions" by "jti", "review.id", [("review", "pending")], [
        id("", "review.id").spare(2), whole("", "request.amount request.currency"), agent("", "request.agent"),
        recipient("", "request.recipient"), text("", "request.category").spare(1), time("", "review.expires_at"),
    ];
    MandateId, "mnd_": "mandate" at "/mandates" by "id", "id", [], [
        id("", "id").spare(1), state("", "status"), agent("", "agent"), whole("", "limits.per_transaction limits.currency"),
        whole("", "expires"),
    ];
    EventId, "evt_": "event" at "/events" by "event", "event", [], [
        id("", "event"), whole("", "type"), time("", "created_at"),
    ];
    WebhookId, "whk_": "webhook" at "/webhooks" by "webhook", "webhook", [], [
        id("", "webhook"), state("", "status"), text("", "url"),
    ];
    EscrowId, "esc_": "escrow" at "/escrows" by "escrow", "escrow", [], [
        id("", "escrow").spare(1), state("", "state"), whole("", "amount currency"), agent("", "buyer"),
        recipient("", "seller"),
    ];
}

impl Named for AgentId {
    const LIST: List = List {
        noun: "agent",
        prefix: "",
        path: "/agents",
        walked_by: "id",
        id: "id",
        filters: &[],
        columns: &[agent("", "id"), time("", "created_at")],
    };
    fn parse(text: &str) -> Result<Self, Invalid> {
        crate::value::agent(text)
    }
}

/// Reads an id, or its first characters.
pub(crate) fn given<T: Named>(text: &str) -> Result<Given<T>, String> {
    let refused = match T::parse(text) {
        Ok(id) => return Ok(Given::Whole(id)),
        Err(refused) => refused,
    };
    let prefix = T::LIST.prefix;
    if prefix.is_empty() {
        return Err(refused.to_string());
    }
    let fewest = prefix.len().saturating_add(FEWEST_CHARS);
    let is_beginning = text.len() >= fewest && T::parse(&filled(text, prefix, '0')).is_ok();
    if is_beginning {
        Ok(Given::Beginning(text.to_owned()))
    } else {
        let refused = refused.to_string();
        let (accepted, got) = refused.split_at(refused.find("; got `").unwrap_or(refused.len()));
        Err(format!("{accepted}, or at least its first {fewest} characters{got}"))
    }
}

/// The first characters of an id, filled up with others.
fn filled(text: &str, prefix: &str, with: char) -> String {
    let left = prefix.len().saturating_add(ID_CHARS).saturating_sub(text.len());
    text.chars().chain(std::iter::repeat_n(with, left)).collect()
}

/// The smallest id behind all that begin like this: lists go on from it, and leave itself out. None if there is none.
fn first_after(text: &str, prefix: &str) -> Option<String> {
    let begin = text.trim_end_matches('z');
    let last = begin.get(prefix.len()..)?.chars().next_back()?;
    let next = ID_ALPHABET.chars().skip_while(|one| *one != last).nth(1)?;
    let kept = begin.strip_suffix(last)?;
    Some(filled(&format!("{kept}{next}"), prefix, '0'))
}

/// The object to read: the one that was given, or that a person at the terminal chooses.
pub(crate) fn to_read<T: Named>(given: Option<&Given<T>>, client: &Client) -> Result<T, Failure> {
    match given {
        Some(Given::Whole(id)) => Ok(id.clone()),
        Some(Given::Beginning(text)) => only(client, text),
        None => chosen(client),
    }
}

/// The object to change. Without a person at a terminal, only a whole id names it.
pub(crate) fn to_change<T: Named>(given: Option<&Given<T>>, client: &Client) -> Result<T, Failure> {
    let Some(Given::Beginning(text)) = given else { return to_read(given, client) };
    if !prompt::can_ask() {
        let why = format!("`{text}` is not a whole id, which a change needs where there is no terminal");
        return Err(Failure::new(Exit::Usage, why)
            .note("sent", "nothing")
            .next(format_args!("mandate {} list shows whole ids in a pipe, and with --json", T::LIST.noun)));
    }
    let id: T = only(client, text)?;
    note(format_args!("{text} is {id}"));
    Ok(id)
}

/// The object whose id begins like this, if there is exactly one among all that the key sees.
fn only<T: Named>(client: &Client, text: &str) -> Result<T, Failure> {
    let List { noun, prefix, .. } = T::LIST;
    let found = if T::LIST.id == T::LIST.walked_by {
        beginning::<T>(client, text, prefix)?
    } else {
        reviews(client, text)?
    };
    match found.as_slice() {
        [] => Err(Failure::new(Exit::NotFound, format!("there is no {noun} whose id begins with `{text}`"))),
        [id] => T::parse(id).map_err(|e| Failure::new(Exit::UnknownAnswer, e.to_string())),
        several => Err(Failure::new(Exit::Usage, format!("several ids begin with `{text}`"))
            .note("ids", several.join(", "))
            .next("give more of its characters")),
    }
}

/// The newest ids that begin like this, two if there are several.
fn beginning<T: Named>(client: &Client, text: &str, prefix: &str) -> Result<Vec<String>, Failure> {
    let after = first_after(text, prefix).filter(|id| T::parse(id).is_ok()).map(|id| ("starting_after", id));
    let query: Vec<_> = after.into_iter().chain([("limit", "2".to_owned())]).collect();
    let page = client.get(T::LIST.path, &query)?;
    let ids = fields::items(&page, "data").unwrap_or_default();
    let ids = ids.into_iter().filter_map(|item| fields::text(item, T::LIST.id));
    Ok(ids.filter(|id| id.starts_with(text)).collect())
}

/// The reviews whose ids begin like this, resolved ones too. They are listed by their decisions, made at the same time.
fn reviews(client: &Client, text: &str) -> Result<Vec<String>, Failure> {
    let at = |with, seconds| -> Result<Timestamp, Failure> {
        let id = ReviewId::parse(&filled(text, ReviewId::PREFIX, with))
            .map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
        Ok(id.created_at().plus_seconds(seconds))
    };
    let (since, until) = (at('0', -LEEWAY_SECONDS)?, at('z', LEEWAY_SECONDS)?);
    let filters =
        [("verdict", "review".to_owned()), ("since", since.to_string()), ("until", until.to_string())];
    let all = Paging { limit: 1, all: true };
    let mut walk = Walk::new(client, ReviewId::LIST.path, Some("jti"), filters.to_vec(), &all);
    let mut found = Vec::new();
    while let Some(page) = walk.page()? {
        let ids = page.iter().filter_map(|item| fields::text(item.get(), ReviewId::LIST.id));
        found.extend(ids.filter(|id| id.starts_with(text)));
    }
    Ok(found)
}

/// Asks a person at the terminal for one of the newest objects.
fn chosen<T: Named>(client: &Client) -> Result<T, Failure> {
    let List { noun, path, walked_by, id, filters, columns, .. } = T::LIST;
    if !prompt::can_ask() {
        return Err(Failure::new(Exit::Usage, format!("the {noun} is not named"))
            .next(format_args!("mandate {noun} list shows those that there are")));
    }
    let filters = filters.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let newest = Paging { limit: CHOICES, all: false };
    let mut walk = Walk::new(client, path, Some(walked_by), filters, &newest);
    let mut items = Vec::new();
    while let Some(page) = walk.page()? {
        items.extend(page);
    }
    if items.is_empty() {
        return Err(Failure::new(Exit::NotFound, format!("there is no {noun} to choose")));
    }
    let at = picked(noun, columns, items.iter().map(|item| item.get()))?;
    let id = items.get(at).and_then(|item| fields::text(item.get(), id)).unwrap_or_default();
    T::parse(&id).map_err(|e| Failure::new(Exit::UnknownAnswer, e.to_string()))
}

/// Asks a person at the terminal for one of these objects. Returns its number, from 0.
pub(crate) fn picked<'a>(
    noun: &str,
    columns: &'static [Field],
    objects: impl Iterator<Item = &'a str>,
) -> Result<usize, Failure> {
    let table = Tabular::new(columns, Look::of_question(MARK_WIDTH)).page(objects);
    let lines = strip_str(&table).to_string();
    prompt::choose(&format!("Which {noun}?"), lines.lines().skip(1).map(str::to_owned).collect())
}

/// Ids for a shell that completes: the newest that begin like the word so far, each with what it is. None if the service
/// cannot be asked, or not at once.
pub(crate) fn completed<T: Named>() -> ArgValueCompleter {
    ArgValueCompleter::new(candidates::<T>)
}

/// The same beside what else the argument may be.
pub(crate) fn completed_beside<T: Named>(
    others: impl Fn(&OsStr) -> Vec<CompletionCandidate> + Send + Sync + 'static,
) -> ArgValueCompleter {
    ArgValueCompleter::new(move |word: &OsStr| {
        others(word).into_iter().chain(candidates::<T>(word)).collect()
    })
}

fn candidates<T: Named>(word: &OsStr) -> Vec<CompletionCandidate> {
    known::<T>(&word.to_string_lossy()).unwrap_or_default()
}

fn known<T: Named>(word: &str) -> Option<Vec<CompletionCandidate>> {
    let List { path, id, filters, columns, .. } = T::LIST;
    let access = Access::find(&Service::default(), &Global::default(), None).ok()?;
    let client = Client::with(access, None, false).ok()?;
    let limit = [("limit", CHOICES.to_string())];
    let query: Vec<_> =
        filters.iter().map(|(name, value)| (*name, (*value).to_owned())).chain(limit).collect();
    let page = client.look(path, &query)?;
    let items = fields::items(&page, "data")?;
    let candidate = |item: &str| {
        let value = fields::text(item, id)?;
        // An agent's name is completed as well as its id.
        let name = value.strip_prefix(AgentId::PREFIX).filter(|_| T::LIST.prefix.is_empty());
        let value = [Some(value.as_str()), name].into_iter().flatten().find(|one| one.starts_with(word))?;
        let about: Vec<String> = columns.iter().skip(1).filter_map(|column| column.value(item)).collect();
        Some(CompletionCandidate::new(value).help(Some(about.join("  ").into())))
    };
    Some(items.into_iter().filter_map(candidate).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_walked_from_behind_all_that_begin_alike() {
        for (text, first) in [
            ("dec_01hf7yat00", "dec_01hf7yat010000000000000000"),
            ("dec_01hf7yat0h", "dec_01hf7yat0j0000000000000000"),
            ("dec_01hf7yat0zz", "dec_01hf7yat100000000000000000"),
            ("dec_01hf7yat00000000000000000z", "dec_01hf7yat000000000000000010"),
            ("dec_01hf7yat0000000000000000z", "dec_01hf7yat000000000000000100"),
        ] {
            let found = first_after(text, "dec_").unwrap();
            assert_eq!(found, first);
            assert!(found.as_str() > filled(text, "dec_", 'z').as_str());
            assert!(DecisionId::parse(&found).is_ok());
        }
        assert_eq!(first_after("dec_zzzzzzzzzz", "dec_"), None);
    }

    #[test]
    fn an_id_is_given_whole_or_by_its_beginning() {
        let whole = "dec_01hf7yat000000000000000007";
        assert!(matches!(given::<DecisionId>(whole), Ok(Given::Whole(id)) if id.to_string() == whole));
        for length in 14..30 {
            let text = &whole[..length];
            assert!(
                matches!(given::<DecisionId>(text), Ok(Given::Beginning(found)) if found == text),
                "{text}"
            );
        }
        let refused = given::<DecisionId>(&whole[..13]).unwrap_err();
        assert!(refused.ends_with(", or at least its first 14 characters; got `dec_01hf7yat0`"), "{refused}");
        for text in [
            "rev_01hf7yat00",
            "dec_01hf7yat0u",
            "dec_91hf7yat00",
            "dec_01hf7yat0000000000000000070",
            "",
            "agt_a",
        ] {
            assert!(given::<DecisionId>(text).unwrap_err().contains("must be `dec_` and 26"), "{text}");
        }
        assert!(matches!(given::<AgentId>("buyer"), Ok(Given::Whole(_))));
        assert!(given::<AgentId>("Buyer").is_err());
    }
}
