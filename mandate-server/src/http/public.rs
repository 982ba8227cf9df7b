//! The public listener: what strangers may see, without a key.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use sha2::{Digest as _, Sha256};

use tokio::sync::Semaphore;

use super::KEY_SET_PATH;
use super::accept::preferred;
use super::input::shown;
use super::listen::{Site, Told};
use super::reply::{Failure, JSON, Reply};
use crate::clock::Clock;
use crate::error::{Code, Fault, Refusal};
use crate::service::escrows::{self, Address};
use crate::service::signing::Keyring;
use crate::store::Store;

/// What the key set's Content-Type is (RFC 7517, section 8.5.2).
const JWK_SET: HeaderValue = HeaderValue::from_static("application/jwk-set+json");
/// Anybody may keep the key set for five minutes.
const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// Where contracts are read.
const CONTRACTS_PATH: &str = "/contracts/{address}";
/// What stands before the address.
const CONTRACTS: &str = "/contracts/";
/// The forms of a contract; the first is sent when none is asked for.
const CONTRACT_FORMS: [&str; 2] = ["application/json", JWT];
const JWT: &str = "application/jwt";
/// Contracts that are read at a time: strangers leave the store to those who have a key.
const MAX_READING: usize = 64;

/// The public listener.
pub(crate) struct Public {
    key_set: KeySetFile,
    keyring: Keyring,
    store: Store,
    clock: Arc<dyn Clock>,
    /// Room for the contracts that are being read.
    room: Semaphore,
}

/// The key set, as it is sent.
struct KeySetFile {
    bytes: Bytes,
    /// A strong one (RFC 9110, section 8.8.3): the hash of the bytes.
    etag: HeaderValue,
}

impl KeySetFile {
    /// Publishes `key_set`, a JWK Set.
    fn new(key_set: &str) -> Result<Self, Fault> {
        let hash = Bytes::copy_from_slice(&Sha256::digest(key_set.as_bytes()));
        let etag = HeaderValue::try_from(format!("\"{hash:x}\"")).map_err(|e| Fault::new(e.to_string()))?;
        Ok(Self { bytes: Bytes::copy_from_slice(key_set.as_bytes()), etag })
    }

    fn reply(&self, headers: &HeaderMap) -> Reply {
        let validators = [(header::CACHE_CONTROL, CACHED), (header::ETAG, self.etag.clone())];
        if matches(headers, &self.etag) {
            return Reply::new(StatusCode::NOT_MODIFIED, validators, "");
        }
        let [cached, etag] = validators;
        Reply::new(StatusCode::OK, [(header::CONTENT_TYPE, JWK_SET), cached, etag], self.bytes.clone())
    }
}

impl Public {
    /// What `keyring` publishes, and the contracts of `store`.
    pub(crate) fn new(keyring: Keyring, store: Store, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        let key_set = KeySetFile::new(keyring.public_key_set())?;
        Ok(Self { key_set, keyring, store, clock, room: Semaphore::new(MAX_READING) })
    }

    /// A contract, for whoever holds its address: as JSON, or as a token.
    async fn contract(&self, address: &str, headers: &HeaderMap) -> Result<Reply, Failure> {
        let address = Address::parse(address).ok_or_else(Refusal::not_found)?;
        let _room = self.room.try_acquire().map_err(|_| Failure::Overloaded)?;
        let vary = (header::VARY, HeaderValue::from_name(header::ACCEPT));
        if preferred(headers, &CONTRACT_FORMS) == JWT {
            let (keyring, now) = (self.keyring.clone(), self.clock.now());
            let token =
                self.store.read(move |tx| escrows::signed_contract(tx, address, &keyring, now)).await??.body;
            let form = (header::CONTENT_TYPE, HeaderValue::from_static(JWT));
            return Ok(Reply::new(StatusCode::OK, [form, vary], token));
        }
        let contract = self.store.read(move |tx| escrows::contract(tx, address)).await??.body;
        Ok(Reply::new(StatusCode::OK, [(header::CONTENT_TYPE, JSON), vary], contract))
    }
}

impl Site for Public {
    async fn respond(self: Arc<Self>, request: Request<Incoming>, told: &mut Told) -> Result<Reply, Failure> {
        let path = request.uri().path();
        let address = path.strip_prefix(CONTRACTS);
        told.path = match address {
            Some(_) => CONTRACTS_PATH,
            None if path == KEY_SET_PATH => KEY_SET_PATH,
            None => return Err(Refusal::new(Code::NotFound, "no such path").into()),
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let method = shown(request.method().as_str());
            return Err(Refusal::invalid(format!("{method} is not supported on {}", told.path)).into());
        }
        match address {
            Some(address) => self.contract(address, request.headers()).await,
            None => Ok(self.key_set.reply(request.headers())),
        }
    }
}

/// Whether If-None-Match names `etag` (RFC 9110, section 13.1.2: compared weakly).
fn matches(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(',')).any(|candidate| {
        let candidate = candidate.trim();
        candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate).as_bytes() == etag.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_have_the_same_etag_and_others_another() {
        let etag = |text: &str| KeySetFile::new(text).unwrap().etag;
        assert_eq!(etag("{}"), etag("{}"));
        assert_ne!(etag("{}"), etag("{ }"));
        assert!(etag("{}").to_str().unwrap().starts_with('"'), "a strong one");
    }

    #[test]
    fn if_none_match_is_a_list() {
        let etag = HeaderValue::from_static("\"a\"");
        for (found, value) in [
            (true, "\"a\""),
            (true, "*"),
            (true, "W/\"a\""),
            (true, "\"b\", \"a\""),
            (false, "\"b\""),
            (false, "a"),
            (false, ""),
        ] {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(value))]);
            assert_eq!(matches(&headers, &etag), found, "{value}");
        }
        assert!(!matches(&HeaderMap::new(), &etag));
    }
}
