//! Extractors: the arguments of handlers. Body, query and Idempotency-Key become typed values or a refusal.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use hyper::header::HeaderName;
use hyper::http::request::Parts;
use mandate_core::api_key::{ApiKey, KeyClass, holds_key};
use mandate_core::json::Object;
use mandate_core::{Invalid, Timestamp};
use tokio::sync::OwnedSemaphorePermit;

use super::Api;
use super::body;
use super::gate::Identified;
use super::key_cache::KeyHash;
use super::log::RequestLog;
use super::respond::{Failure, escaped};
use crate::error::{Fault, Refusal};
use crate::model::call::{Answer, Call, ScriptError, Scripted};
use crate::model::idempotency::Claim;
use crate::service::idempotency;
use crate::service::listing::{Cursors, From, Query};
use crate::store::tx::Tx;
use crate::worker::sweep::keep_hold;

/// How many objects a page holds unless `limit` says otherwise.
pub(super) const DEFAULT_LIMIT: u32 = 20;
/// How many objects a page holds at most.
pub(super) const MAX_LIMIT: u32 = 100;
/// The parameters of every list.
const PAGE: [&str; 4] = ["limit", "cursor", "starting_after", "ending_before"];
/// Which segment of a path is the id, in `/v1/{collection}/{id}`.
const ID_SEGMENT: usize = 3;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A request that has passed the gate. Its body has not been read.
pub(super) struct Admitted {
    pub(super) api: Arc<Api>,
    /// Who calls, and when. The idempotency key is not read yet.
    pub(super) call: Call,
    /// What log and trace hold of it.
    pub(super) log: Arc<RequestLog>,
    key: ApiKey,
    key_hash: KeyHash,
    /// The id in the path, as it was sent: nothing is percent-decoded. Empty where the path has none.
    pub(super) id: String,
    pub(super) head: Parts,
    body: Body,
    /// Its place among the running requests.
    room: OwnedSemaphorePermit,
}

impl FromRequest<Arc<Api>> for Admitted {
    type Rejection = Failure;

    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Failure> {
        let room = api.make_room()?;
        let (mut head, body) = request.into_parts();
        let missing = || Fault::new("a request that did not pass the gate");
        let Identified { caller, key, key_hash, at } = head.extensions.remove().ok_or_else(missing)?;
        let log: Arc<RequestLog> = head.extensions.remove().ok_or_else(missing)?;
        let id = raw_id(head.uri.path());
        let call = Call { caller, request_id: log.id, at, idempotency: None };
        Ok(Self { api: Arc::clone(api), call, log, key, key_hash, id, head, body, room })
    }
}

/// A POST whose body has arrived.
pub(super) struct Post {
    pub(super) api: Arc<Api>,
    pub(super) call: Call,
    /// What log and trace hold of it.
    pub(super) log: Arc<RequestLog>,
    /// The id in the path, as it was sent.
    pub(super) id: String,
    body: Result<Bytes, Refusal>,
    /// Its place among the running requests.
    #[expect(dead_code, reason = "the place is free again when this is dropped")]
    room: OwnedSemaphorePermit,
}

impl FromRequest<Arc<Api>> for Post {
    type Rejection = Failure;

    /// Reads the body. An invalid body is kept for the handler, so that it is refused under the idempotency
    /// key like any other request. While a slow body arrives, the request's place is free for others.
    async fn from_request(request: Request, api: &Arc<Api>) -> Result<Self, Failure> {
        let admitted = Admitted::from_request(request, api).await?;
        let Admitted { api, mut call, log, key, key_hash, id, head, body, room } = admitted;
        let mut room = Some(room);
        let content = body::read(body, || {
            drop(room.take());
            api.slow_bodies.acquire(&call.caller).ok_or_else(|| {
                api.metrics.rate_limited();
                Failure::TooManyBodies
            })
        });
        let content = content.await?;
        let room = room.map_or_else(|| api.make_room(), Ok)?;
        // While the body was on its way, the key may have been revoked and a review may have expired.
        call.at = api.clock.now();
        call.caller = api.caller(key_hash, call.at).await?;
        let forgetting = api.moments.forgetting();
        keep_hold(&api.store, &api.moments).await?;
        call.idempotency = claim(&head, &content.claimed(), &key, forgetting)?;
        let body = no_query(head.uri.query()).and_then(|()| content.checked(&head.headers));
        Ok(Self { api, call, log, id, body, room })
    }
}

/// The id in a path, as it was sent; empty where the path has none.
fn raw_id(path: &str) -> String {
    path.split('/').nth(ID_SEGMENT).unwrap_or_default().to_owned()
}

impl Admitted {
    /// Runs `script` on committed data.
    pub(super) async fn read<S>(self, script: S) -> Result<Answer, Failure>
    where
        S: Fn(&mut Tx<'_>, &Call) -> Scripted + Send + 'static,
    {
        let Self { api, call, .. } = self;
        Ok(api.store.read(move |tx| script(tx, &call)).await??)
    }

    /// Runs `script`, which deletes, in one transaction. A repetition finds nothing, so it needs no
    /// idempotency key.
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

    /// The key and the time that cursors are made and opened with.
    pub(super) fn cursors(&self) -> Cursors {
        Cursors { key: Arc::clone(&self.api.cursor_key), now: self.call.at }
    }

    /// The requested page of a list without filters.
    pub(super) fn page(&self) -> Result<Query, Refusal> {
        self.filtered([]).map(|(query, [])| query)
    }

    /// The requested page, and the values of the list's `filters`, in that order.
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

    /// The values of the parameters `known`, in that order. Others are refused.
    pub(super) fn parameters<const N: usize>(&self, known: [&str; N]) -> Result<Values<N>, Refusal> {
        parameters(self.head.uri.query(), known, []).map(|(values, [])| values)
    }

    /// Checks that there are no query parameters.
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

    /// Applies `parse` to the body, a JSON object.
    pub(super) fn parse<T>(
        &self,
        parse: impl FnOnce(Object<'_>) -> Result<T, Invalid>,
    ) -> Result<T, Refusal> {
        let body = self.body.as_ref().map_err(Clone::clone)?;
        if body.is_empty() {
            return Err(Refusal::invalid("body must be a JSON object; it is empty"));
        }
        let object = Object::parse(body)?;
        if may_hold_key(body) {
            object.strict_without_keys()?;
        }
        Ok(parse(object)?)
    }

    /// Applies `parse` to the body. An absent body counts as `{}`.
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

    /// Runs `script` with `command` in one transaction, at most once for each idempotency key. A refused
    /// command is kept under that key like any other.
    pub(super) async fn write<C, S>(self, command: Result<C, Refusal>, script: S) -> Result<Answer, Failure>
    where
        C: Send + 'static,
        S: Fn(&mut Tx<'_>, &Call, &C) -> Scripted + Send + 'static,
    {
        let Self { api, call, log, .. } = self;
        let id = call.request_id;
        let written = api.store.write(move |tx| {
            let answer = idempotency::once(tx, &call, |tx| match &command {
                Ok(command) => script(tx, &call, command),
                Err(refusal) => Err(ScriptError::Refused(refusal.clone())),
            });
            Ok(answer?)
        });
        let answer = written.await??.for_request(id)?;
        log.decided(&answer);
        Ok(answer)
    }
}

/// Whether an API key may be in a body: its prefix is there, or something is escaped.
fn may_hold_key(body: &[u8]) -> bool {
    let prefixes = [b"k_live_".as_slice(), b"k_sandbox_"];
    body.contains(&b'\\')
        || prefixes.iter().any(|prefix| body.windows(prefix.len()).any(|text| text == *prefix))
}

fn claim(head: &Parts, body: &[u8], key: &ApiKey, expiring: Timestamp) -> Result<Option<Claim>, Refusal> {
    let mut values = head.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refusal::invalid("Idempotency-Key must be sent once"));
    }
    let text = String::from_utf8_lossy(value.as_bytes());
    Claim::new(&text, head.method.as_str(), head.uri.path(), body, key, expiring).map(Some)
}

/// The values of parameters, each of them if given.
pub(super) type Values<const N: usize> = [Option<String>; N];

/// The values of the parameters `first` and `then`, in that order. Any other parameter, and a repeated one,
/// is refused.
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
        if holds_key(&value) {
            return Err(Refusal::invalid(format!("{name} must not hold an API key")));
        }
        if place.replace(value.into_owned()).is_some() {
            return Err(Refusal::invalid(format!("{name} must be given once")));
        }
    }
    Ok((found, also))
}

/// Applies `parse` to a parameter, if it was given.
pub(super) fn parameter<T>(
    name: &'static str,
    value: Option<String>,
    parse: impl FnOnce(&str) -> Result<T, Invalid>,
) -> Result<Option<T>, Refusal> {
    Ok(value.map(|value| parse(&value).map_err(|e| e.at(name))).transpose()?)
}

fn unknown(name: &str, known: &[&str]) -> Refusal {
    let known = if known.is_empty() {
        "this path takes no parameters".to_owned()
    } else {
        format!("known are {}", known.join(", "))
    };
    Refusal::invalid(format!("{} is not a known parameter; {known}", escaped(name)))
}

fn no_query(query: Option<&str>) -> Result<(), Refusal> {
    parameters(query, [], []).map(|([], [])| ())
}

pub(super) fn page_size(text: &str) -> Result<u32, Refusal> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let limit = text.parse().ok().filter(|limit| digits && (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| Refusal::invalid(format!("limit must be an integer between 1 and {MAX_LIMIT}")))
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
    fn parameters_are_known_and_given_once() {
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
            "x is not a known parameter; this path takes no parameters"
        );
    }

    #[test]
    fn the_id_in_a_path_is_taken_as_it_was_sent() {
        for (id, path) in [
            ("", "/v1/agents"),
            ("agt_a", "/v1/agents/agt_a"),
            ("%61gt_a", "/v1/agents/%61gt_a"),
            ("..", "/v1/agents/.."),
            ("mnd_1", "/v1/mandates/mnd_1/revoke"),
        ] {
            assert_eq!(raw_id(path), id, "{path}");
        }
    }
}
