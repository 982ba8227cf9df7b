//! What a handler reads of a request: body, query and Idempotency-Key become typed values or a refusal.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::HeaderName;
use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_core::json::Object;
use mandate_core::{Invalid, Timestamp};
use tokio::sync::OwnedSemaphorePermit;

use super::Api;
use super::body;
use super::gate::Admitted;
use super::reply::Failure;
use crate::error::Refusal;
use crate::model::call::{Answer, Call, ScriptError, Scripted};
use crate::model::idempotency::Claim;
use crate::service::idempotency;
use crate::service::listing::{Cursors, From, Query};
use crate::store::tx::Tx;
use crate::traces::Traced;

/// How many objects a page holds when nothing is said.
pub(super) const DEFAULT_LIMIT: u32 = 20;
/// How many objects a page holds at most.
pub(super) const MAX_LIMIT: u32 = 100;
/// The parameters of every list.
const PAGE: [&str; 4] = ["limit", "cursor", "starting_after", "ending_before"];
/// The longest piece of what was sent that a message repeats, in characters.
const SHOWN_CHARS: usize = 200;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A POST whose body has arrived.
pub(super) struct Post {
    pub(super) api: Arc<Api>,
    pub(super) call: Call,
    /// Its place in a trace, if it is among those sampled.
    pub(super) traced: Option<Traced>,
    /// What stands in the path in the place of `{id}`.
    pub(super) id: String,
    body: Result<Bytes, Refusal>,
    /// Its place among the requests that are under way.
    #[expect(dead_code, reason = "it is given back when it is dropped")]
    room: OwnedSemaphorePermit,
}

impl Admitted {
    /// Takes the body in. What is wrong with it is kept for the handler, so that it is refused under the idempotency
    /// key like anything else. While the body is waited for, the request gives its place to others.
    pub(super) async fn post(self) -> Result<Post, Failure> {
        let Self { api, mut call, traced, key, key_hash, id, head, body, room } = self;
        let mut room = Some(room);
        let content = body::read(body, || {
            drop(room.take());
            api.awaited.wait(&call.caller).ok_or_else(|| {
                api.metrics.rate_limited();
                Failure::TooManyBodies
            })
        });
        let content = content.await?;
        let room = room.map_or_else(|| api.make_room(), Ok)?;
        // A body can be held back for seconds, in which the key may have been revoked and a review expired.
        call.at = api.clock.now();
        call.caller = api.caller(key_hash, call.at).await?;
        call.idempotency = claim(&head, &content.claimed(), &key)?;
        let body = no_query(head.uri.query()).and_then(|()| content.checked(&head.headers));
        Ok(Post { api, call, traced, id, body, room })
    }

    /// Runs `script` over what is committed.
    pub(super) async fn read<S>(self, script: S) -> Result<Answer, Failure>
    where
        S: Fn(&mut Tx<'_>, &Call) -> Scripted + Send + 'static,
    {
        let Self { api, call, .. } = self;
        Ok(api.store.read(move |tx| script(tx, &call)).await??)
    }

    /// Runs `script`, which deletes, in one transaction. Made twice, it finds nothing: it needs no idempotency key.
    pub(super) async fn delete<S>(self, script: S) -> Result<Answer, Failure>
    where
        S: Fn(&mut Tx<'_>, &Call) -> Scripted + Send + 'static,
    {
        let Self { api, call, .. } = self;
        Ok(api.store.write(move |tx| script(tx, &call)).await??)
    }

    /// When the request arrived.
    pub(super) fn at(&self) -> Timestamp {
        self.call.at
    }

    /// What cursors are issued and opened with.
    pub(super) fn cursors(&self) -> Cursors {
        Cursors { key: Arc::clone(&self.api.cursor_key), now: self.call.at }
    }

    /// The page asked for, of a list without filters.
    pub(super) fn page(&self) -> Result<Query, Refusal> {
        self.filtered([]).map(|(query, [])| query)
    }

    /// The page asked for, and the values of the list's `filters`, in that order.
    pub(super) fn filtered<const N: usize>(
        &self,
        filters: [&'static str; N],
    ) -> Result<(Query, Values<N>), Refusal> {
        let ([limit, cursor, after, before], values) = parameters(self.head.uri.query(), PAGE, filters)?;
        let limit = limit.as_deref().map_or(Ok(DEFAULT_LIMIT), page_size)?;
        let from = match (cursor, after, before) {
            (None, None, None) => From::Newest,
            (Some(cursor), None, None) => From::Cursor(cursor),
            (None, Some(id), None) => From::After(id),
            (None, None, Some(id)) => From::Before(id),
            _ => {
                return Err(Refusal::invalid(
                    "only one of cursor, starting_after and ending_before can be given",
                ));
            }
        };
        Ok((Query { limit, from }, values))
    }

    /// The values of the parameters `known`, in that order; no others are accepted.
    pub(super) fn parameters<const N: usize>(&self, known: [&str; N]) -> Result<Values<N>, Refusal> {
        parameters(self.head.uri.query(), known, []).map(|(values, [])| values)
    }

    /// Checks that nothing is asked for that is not known.
    pub(super) fn no_query(&self) -> Result<(), Refusal> {
        no_query(self.head.uri.query())
    }
}

impl Post {
    /// When the request had arrived, with its body.
    pub(super) fn at(&self) -> Timestamp {
        self.call.at
    }

    /// The 128 bits of a new id.
    pub(super) fn new_id(&self) -> [u8; 16] {
        self.api.ids.next(self.call.at)
    }

    /// A new key of an agent in the caller's environment.
    pub(super) fn new_agent_key(&self) -> ApiKey {
        let mut random = zeroize::Zeroizing::new([0; 32]);
        self.api.entropy.fill(&mut *random);
        ApiKey::from_random(KeyClass::Agent, self.call.caller.environment.kind, &random)
    }

    /// What `parse` makes of the body, a JSON object.
    pub(super) fn parse<T>(
        &self,
        parse: impl FnOnce(Object<'_>) -> Result<T, Invalid>,
    ) -> Result<T, Refusal> {
        let body = self.body.as_ref().map_err(Clone::clone)?;
        if body.is_empty() {
            return Err(Refusal::invalid("body must be a JSON object; it is empty"));
        }
        Ok(Object::parse(body).and_then(parse)?)
    }

    /// What `parse` makes of a body that may also be absent, which is the same as `{}`.
    pub(super) fn parse_optional<T>(
        &self,
        parse: impl FnOnce(Object<'_>) -> Result<T, Invalid>,
    ) -> Result<T, Refusal> {
        match &self.body {
            Ok(body) if body.is_empty() => Ok(Object::parse(b"{}").and_then(parse)?),
            _ => self.parse(parse),
        }
    }

    /// Checks that the body is absent or `{}`.
    pub(super) fn no_body(&self) -> Result<(), Refusal> {
        self.parse_optional(|body| {
            body.finish()?;
            Ok(())
        })
    }

    /// Runs `script` with `command` in one transaction, at most once under one idempotency key. A command that is
    /// refused is kept under that key like one that is carried out.
    pub(super) async fn write<C, S>(self, command: Result<C, Refusal>, script: S) -> Result<Answer, Failure>
    where
        C: Send + 'static,
        S: Fn(&mut Tx<'_>, &Call, &C) -> Scripted + Send + 'static,
    {
        let Self { api, call, .. } = self;
        let written = api.store.write(move |tx| {
            let answer = idempotency::once(tx, &call, |tx| match &command {
                Ok(command) => script(tx, &call, command),
                Err(refusal) => Err(ScriptError::Refused(refusal.clone())),
            });
            Ok(answer?)
        });
        Ok(written.await??)
    }
}

fn claim(head: &hyper::http::request::Parts, body: &[u8], key: &ApiKey) -> Result<Option<Claim>, Refusal> {
    let mut values = head.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refusal::invalid("Idempotency-Key must be sent once"));
    }
    let text = String::from_utf8_lossy(value.as_bytes());
    Claim::new(&text, head.method.as_str(), head.uri.path(), body, key).map(Some)
}

/// The values of parameters, each if it was given.
pub(super) type Values<const N: usize> = [Option<String>; N];

/// The values of the parameters `first` and `then`, in that order; any other parameter, and any that stands twice, is
/// refused.
fn parameters<const N: usize, const M: usize>(
    query: Option<&str>,
    first: [&str; N],
    then: [&str; M],
) -> Result<(Values<N>, Values<M>), Refusal> {
    let (mut found, mut also) = ([const { None }; N], [const { None }; M]);
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let mut places = first.iter().zip(&mut found).chain(then.iter().zip(&mut also));
        let Some((_, place)) = places.find(|(known, _)| **known == name) else {
            return Err(unknown(&name, &[first.as_slice(), &then].concat()));
        };
        if place.replace(value.into_owned()).is_some() {
            return Err(Refusal::invalid(format!("{name} must be given once")));
        }
    }
    Ok((found, also))
}

/// What `parse` makes of a parameter that was given.
pub(super) fn parameter<T>(
    name: &'static str,
    value: Option<String>,
    parse: impl FnOnce(&str) -> Result<T, Invalid>,
) -> Result<Option<T>, Refusal> {
    Ok(value.map(|value| parse(&value).map_err(|e| e.at(name))).transpose()?)
}

fn unknown(name: &str, known: &[&str]) -> Refusal {
    let known = if known.is_empty() {
        "none is known here".to_owned()
    } else {
        format!("known are {}", known.join(", "))
    };
    Refusal::invalid(format!("{} is not a known parameter; {known}", shown(name)))
}

fn no_query(query: Option<&str>) -> Result<(), Refusal> {
    parameters(query, [], []).map(|([], [])| ())
}

fn page_size(text: &str) -> Result<u32, Refusal> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let limit = text.parse().ok().filter(|limit| digits && (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| Refusal::invalid(format!("limit must be an integer between 1 and {MAX_LIMIT}")))
}

/// `text` made safe to repeat in a message: control characters escaped, cut at a bound.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_page() {
        for (limit, text) in [(Some(1), "1"), (Some(100), "100"), (Some(20), "020")] {
            assert_eq!(page_size(text).ok(), limit, "{text}");
        }
        for text in ["0", "101", "1.0", "ten", "", "-1", "+1", " 1", "1e1", "4294967297", "１"] {
            let refused = page_size(text).unwrap_err();
            assert_eq!(refused.message, "limit must be an integer between 1 and 100", "{text}");
        }
    }

    #[test]
    fn parameters_are_known_and_stand_once() {
        let read = |query| parameters(query, ["limit"], ["cursor"]).map_err(|refused| refused.message);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read(None), Ok(([None], [None])));
        assert_eq!(read(Some("cursor=cur_a%2Db&limit=5")), Ok(([some("5")], [some("cur_a-b")])));
        assert_eq!(read(Some("limit=")), Ok(([some("")], [None])));
        assert_eq!(read(Some("limit=1&limit=1")), Err("limit must be given once".to_owned()));
        assert_eq!(
            read(Some("Limit=1")),
            Err("Limit is not a known parameter; known are limit, cursor".to_owned())
        );
        assert!(no_query(Some("")).is_ok());
        assert_eq!(
            no_query(Some("x=1")).unwrap_err().message,
            "x is not a known parameter; none is known here"
        );
    }

    #[test]
    fn what_is_repeated_is_bounded_and_escaped() {
        assert_eq!(shown("a\u{1b}b"), "a\\u{1b}b");
        assert_eq!(shown(&"x".repeat(300)).chars().count(), SHOWN_CHARS + 1);
    }
}
