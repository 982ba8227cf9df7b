//! The public listener: what strangers may see, without a key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use tokio::sync::Semaphore;

use super::KEY_SET_PATH;
use super::accept::preferred;
use super::contract::{self, CONTRACT_PATH, Hosts};
use super::document::Document;
use super::exchange::{Site, Told};
use super::input::shown;
use super::reference::{self, REFERENCE_PATH};
use super::reply::{Failure, JSON, Reply};
use crate::clock::Clock;
use crate::error::{Code, Fault, Refusal};
use crate::service::escrows::{self, Address};
use crate::service::signing::Keyring;
use crate::store::Store;

/// What the key set's Content-Type is (RFC 7517, section 8.5.2).
const JWK_SET: &str = "application/jwk-set+json";
/// What the contract's Content-Type is (RFC 9512).
const YAML: &str = "application/yaml";
/// The way in for people: it leads to the reference.
const ROOT_PATH: &str = "/";
/// Where contracts of escrows are read.
const CONTRACTS_PATH: &str = "/contracts/{address}";
/// What stands before the address.
const CONTRACTS: &str = "/contracts/";
/// The forms of an escrow's contract; the first is sent when none is asked for.
const CONTRACT_FORMS: [&str; 2] = ["application/json", JWT];
const JWT: &str = "application/jwt";
/// Contracts that are read at a time: strangers leave the store to those who have a key.
const MAX_READING: usize = 64;

/// The public listener: a few documents, each under its path, and the contracts of escrows.
pub(crate) struct Public {
    documents: HashMap<&'static str, Document>,
    keyring: Keyring,
    store: Store,
    clock: Arc<dyn Clock>,
    /// Room for the contracts that are being read.
    room: Semaphore,
}

impl Public {
    /// What `keyring` publishes, what is published of a server with these addresses, and the contracts of `store`.
    pub(crate) fn new(
        keyring: Keyring,
        hosts: Hosts<'_>,
        store: Store,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Fault> {
        let contract = Document::new(YAML, Bytes::from(contract::yaml(hosts)?))?;
        let mut documents = HashMap::from([(CONTRACT_PATH, contract)]);
        for (path, content_type, body) in reference::files()? {
            documents.insert(path, Document::new(content_type, body)?);
        }
        Ok(Self { documents, keyring, store, clock, room: Semaphore::new(MAX_READING) })
    }

    /// The key set of this moment. It may be kept, unless this server has not heard lately whether it has changed.
    fn key_set(&self) -> Result<Document, Fault> {
        let key_set = self.keyring.public_key_set(self.clock.now())?;
        let document = Document::new(JWK_SET, Bytes::from(key_set))?;
        Ok(if self.keyring.is_current(Instant::now()) { document } else { document.unpromised() })
    }

    /// An escrow's contract, for whoever holds its address: as JSON, or as a token.
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

/// What stands under a path.
enum Found<'a> {
    Root,
    KeySet,
    Document(&'a Document),
    Contract(&'a str),
}

impl Site for Public {
    async fn respond(self: Arc<Self>, request: Request<Incoming>, told: &mut Told) -> Result<Reply, Failure> {
        let path = request.uri().path();
        let found;
        (told.path, found) = match (self.documents.get_key_value(path), path.strip_prefix(CONTRACTS)) {
            (Some((path, document)), _) => (*path, Found::Document(document)),
            (None, Some(address)) => (CONTRACTS_PATH, Found::Contract(address)),
            (None, None) if path == ROOT_PATH => (ROOT_PATH, Found::Root),
            (None, None) if path == KEY_SET_PATH => (KEY_SET_PATH, Found::KeySet),
            (None, None) => return Err(Refusal::new(Code::NotFound, "no such path").into()),
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let method = shown(request.method().as_str());
            return Err(Refusal::invalid(format!("{method} is not supported on {}", told.path)).into());
        }
        match found {
            Found::Root => {
                let location = [(header::LOCATION, HeaderValue::from_static(REFERENCE_PATH))];
                Ok(Reply::new(StatusCode::FOUND, location, ""))
            }
            Found::KeySet => Ok(self.key_set()?.reply(request.headers())),
            Found::Document(document) => Ok(document.reply(request.headers())),
            Found::Contract(address) => self.contract(address, request.headers()).await,
        }
    }
}
