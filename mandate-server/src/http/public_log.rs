//! The public logs over HTTP, as C2SP's tlog-tiles names what is in them. No key is asked for.

use axum::response::Response;
use bytes::Bytes;
use hyper::header::HeaderMap;
use mandate_core::log::{HASH_BYTES, Hash, Tile};
use mandate_core::{EnvironmentKind, Timestamp};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::document::Document;
use super::pages::log::{self as page, Lookup};
use super::respond::Failure;
use crate::error::{Code, Fault, Refusal};
use crate::service::public_log::{serve, shown};
use crate::store::Store;
use crate::store::tx::Tx;

/// The prefix of all paths of the logs. A kind of environment comes next.
pub(super) const LOGS: &str = "/log/";
/// What a log has, as it is named in the request log.
pub(super) const OBJECT_OF_LOG: &str = "/log/{kind}/{object}";
/// How many objects are read at a time: requests without a key must not crowd out those with one.
const MAX_READING: usize = 16;
/// How many hashes are looked up at a time, or wait for it. A hash that is in no log is sought among all recent entries.
const MAX_LOOKUPS: usize = 16;
/// How many are looked up at a time: fewer than the readers that a store has.
const LOOKUPS_AT_ONCE: usize = 2;
const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";

/// Serves the logs.
pub(super) struct PublicLogs {
    store: Store,
    room: Semaphore,
    lookups: Semaphore,
    looking_up: Semaphore,
}

/// A place among those that read. It is left when this is dropped.
struct Room<'a> {
    _taken: SemaphorePermit<'a>,
    _reading: Option<SemaphorePermit<'a>>,
}

/// What a path names.
enum Object {
    Key,
    Keys,
    Next,
    Checkpoint,
    Tile(Tile),
    Proof(Hash),
}

impl PublicLogs {
    pub(super) fn new(store: Store) -> Self {
        let [room, lookups, looking_up] = [MAX_READING, MAX_LOOKUPS, LOOKUPS_AT_ONCE].map(Semaphore::new);
        Self { store, room, lookups, looking_up }
    }

    /// Takes a place. Lookups, which read much, have places of their own, so that a checkpoint is always read.
    async fn room(&self, is_lookup: bool) -> Result<Room<'_>, Failure> {
        let places = if is_lookup { &self.lookups } else { &self.room };
        let taken = places.try_acquire().map_err(|_| Failure::Overloaded)?;
        let reading = if is_lookup { self.looking_up.acquire().await.ok() } else { None };
        Ok(Room { _taken: taken, _reading: reading })
    }

    /// The page of the logs, with what `query` looks up: `hash=`, as in the path of a proof.
    pub(super) async fn page(
        &self,
        issuer: &str,
        now: Timestamp,
        query: &str,
        headers: &HeaderMap,
    ) -> Result<Response, Failure> {
        let asked = query.split('&').find_map(|pair| pair.strip_prefix("hash="));
        let hash = asked.and_then(hexadecimal);
        let _room = self.room(hash.is_some()).await?;
        let read = move |tx: &mut Tx<'_>| {
            let place = hash.map(|hash| shown::look_up(tx, &hash)).transpose()?.flatten();
            Ok::<_, Fault>((shown::logs(tx)?, place))
        };
        let (logs, place) = self.store.read(read).await??;
        let lookup = match (asked, hash) {
            (None, _) => Lookup::Nothing,
            (Some(_), None) => Lookup::Malformed,
            (Some(asked), Some(_)) => Lookup::Hash(asked, place),
        };
        Ok(page::log(issuer, &logs, lookup, now)?.respond(headers))
    }

    /// What `path`, which follows [`LOGS`], names.
    pub(super) async fn get(&self, path: &str, headers: &HeaderMap) -> Result<Response, Failure> {
        let (kind, object) = path.split_once('/').ok_or_else(no_such_path)?;
        let kind = EnvironmentKind::ALL.into_iter().find(|known| known.as_str() == kind);
        let (number, object) = numbered(object);
        let (which, object) = ((kind.ok_or_else(no_such_path)?, number), Object::parse(object)?);
        let _room = self.room(matches!(object, Object::Proof(_))).await?;
        let document = match object {
            Object::Key => {
                let key = self.store.read(move |tx| serve::key(tx, which)).await??;
                Document::new(TEXT, key.ok_or_else(no_such_path)?.into())?.no_cache()
            }
            Object::Keys => {
                let lines = self.store.read(move |tx| serve::key_entries(tx, which)).await??;
                Document::new(TEXT, lines.ok_or_else(no_such_path)?.into())?.no_cache()
            }
            Object::Next => {
                let key = self.store.read(move |tx| serve::next(tx, which)).await??;
                let none = || absent("no other log has begun in place of this one");
                Document::new(TEXT, key.ok_or_else(none)?.into())?.no_cache()
            }
            Object::Checkpoint => {
                let checkpoint = self.store.read(move |tx| serve::checkpoint(tx, which)).await??;
                let none = || absent("the log has no checkpoint yet");
                Document::new(TEXT, checkpoint.ok_or_else(none)?.into())?.no_cache()
            }
            Object::Tile(tile) => {
                let content = self.store.read(move |tx| serve::tile(tx, which, tile)).await??;
                let none = || absent("the log has no such tile, or is not that large yet");
                Document::new(BYTES, Bytes::from(content.ok_or_else(none)?))?.immutable()
            }
            Object::Proof(token) => {
                let proof = self.store.read(move |tx| serve::proof(tx, which.0, &token)).await??;
                let none = || {
                    absent(
                        "the log has no decision whose token has this signing input, or not yet: it is there some seconds after it was signed",
                    )
                };
                Document::new(TEXT, proof.ok_or_else(none)?.into())?.no_cache()
            }
        };
        Ok(document.respond(headers))
    }
}

impl Object {
    fn parse(path: &str) -> Result<Self, Refusal> {
        match path {
            "key" => return Ok(Self::Key),
            "keys" => return Ok(Self::Keys),
            "next" => return Ok(Self::Next),
            "checkpoint" => return Ok(Self::Checkpoint),
            _ => {}
        }
        if let Some(hash) = path.strip_prefix("proof/") {
            let hash = hexadecimal(hash).ok_or_else(|| {
                Refusal::invalid(
                    "the hash must be the SHA-256 of the token up to its second full stop, as 64 digits 0-9 and a-f",
                )
            });
            return hash.map(Self::Proof);
        }
        if !path.starts_with("tile/") {
            return Err(no_such_path());
        }
        Tile::parse(path).map(Self::Tile).map_err(|e| Refusal::invalid(e.to_string()))
    }
}

/// The number of a log from the second on, which comes before what it has; and that.
fn numbered(path: &str) -> (u64, &str) {
    let parts =
        path.split_once('/').and_then(|(number, object)| Some((number.parse::<u64>().ok()?, number, object)));
    match parts {
        Some((number, text, object)) if number > 1 && u64::to_string(&number) == text => (number, object),
        _ => (1, path),
    }
}

/// Reads a hash of 64 digits, in its one spelling.
fn hexadecimal(text: &str) -> Option<Hash> {
    let (digits, rest) = text.as_bytes().as_chunks::<2>();
    if digits.len() != HASH_BYTES || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; HASH_BYTES];
    for (byte, digits) in bytes.iter_mut().zip(digits) {
        let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        let digits = std::str::from_utf8(digits).ok().filter(|d| d.as_bytes().iter().all(is_digit));
        *byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())?;
    }
    Some(Hash::new(bytes))
}

fn no_such_path() -> Refusal {
    absent("no such path")
}

fn absent(message: &str) -> Refusal {
    Refusal::new(Code::NotFound, message)
}
