//! The public listener, which needs no key.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{StatusCode, Uri};
use tokio::sync::Semaphore;

use super::KEY_SET_PATH;
use super::accept::preferred;
use super::document::Document;
use super::fallback::{no_such_path, on_path};
use super::key_set::{self, KeySet};
use super::openapi::{self, CONTRACT_PATH, Hosts};
use super::reference::{self, REFERENCE_PATH};
use super::respond::{Failure, JSON, response};
use crate::clock::Clock;
use crate::error::{Fault, Refusal};
use crate::service::escrows::{self, Address};
use crate::service::signing::Keyring;
use crate::store::Store;

/// The Content-Type of the contract (RFC 9512).
const YAML: &str = "application/yaml";
/// Redirects to the reference, for people.
const ROOT_PATH: &str = "/";
/// The contract of an escrow.
const CONTRACT_OF_ESCROW: &str = "/contracts/{address}";
/// The prefix of the path of a contract. The rest of the path is the address, which may be unknown.
const CONTRACTS: &str = "/contracts/";
/// The forms of an escrow's contract; the first is sent when none is asked for.
const CONTRACT_FORMS: [&str; 2] = ["application/json", JWT];
const JWT: &str = "application/jwt";
/// How many contracts are read at a time: requests without a key must not crowd out those with one.
const MAX_READING: usize = 64;

/// The public listener: the key set, a few documents, and the contracts of escrows.
pub(crate) struct Public {
    keyring: Keyring,
    store: Store,
    clock: Arc<dyn Clock>,
    /// Room for the contracts that are being read.
    room: Semaphore,
}

impl Public {
    pub(crate) fn new(keyring: Keyring, store: Store, clock: Arc<dyn Clock>) -> Self {
        Self { keyring, store, clock, room: Semaphore::new(MAX_READING) }
    }

    /// An escrow's contract, for anyone who has its address: as JSON, or as a token.
    async fn contract(&self, address: &str, headers: &HeaderMap) -> Result<Response, Failure> {
        let address = Address::parse(address).ok_or_else(Refusal::not_found)?;
        let _room = self.room.try_acquire().map_err(|_| Failure::Overloaded)?;
        let vary = (header::VARY, HeaderValue::from_name(header::ACCEPT));
        if preferred(headers, &CONTRACT_FORMS) == JWT {
            let (keyring, now) = (self.keyring.clone(), self.clock.now());
            let token =
                self.store.read(move |tx| escrows::signed_contract(tx, address, &keyring, now)).await??.body;
            let form = (header::CONTENT_TYPE, HeaderValue::from_static(JWT));
            return Ok(response(StatusCode::OK, [form, vary], token));
        }
        let contract = self.store.read(move |tx| escrows::contract(tx, address)).await??.body;
        Ok(response(StatusCode::OK, [(header::CONTENT_TYPE, JSON), vary], contract))
    }
}

/// The router of the public listener of a server with these addresses.
pub(crate) fn router(public: Arc<Public>, hosts: Hosts<'_>) -> Result<Router, Fault> {
    let root = async || {
        let location = [(header::LOCATION, HeaderValue::from_static(REFERENCE_PATH))];
        response(StatusCode::FOUND, location, Body::empty())
    };
    let (keyring, clock) = (public.keyring.clone(), Arc::clone(&public.clock));
    let key_set = get(key_set::get).with_state(Arc::new(KeySet { keyring, clock }));
    let contract = async |State(public): State<Arc<Public>>, uri: Uri, headers: HeaderMap| {
        public.contract(uri.path().strip_prefix(CONTRACTS).unwrap_or_default(), &headers).await
    };
    let mut router = Router::new()
        .route(ROOT_PATH, on_path(ROOT_PATH, get(root)))
        .route(KEY_SET_PATH, on_path(KEY_SET_PATH, key_set))
        .route(CONTRACTS, on_path(CONTRACT_OF_ESCROW, get(contract)))
        .route("/contracts/{*address}", on_path(CONTRACT_OF_ESCROW, get(contract)))
        .fallback(no_such_path);
    for (path, document) in documents(hosts)? {
        let document = Arc::new(document);
        let handler = async move |headers: HeaderMap| document.respond(&headers);
        router = router.route(path, on_path(path, get(handler)));
    }
    Ok(router.with_state(public))
}

/// The OpenAPI document and the files of the reference, each with its path.
fn documents(hosts: Hosts<'_>) -> Result<Vec<(&'static str, Document)>, Fault> {
    let contract = Document::new(YAML, Bytes::from(openapi::yaml(hosts)?))?;
    let files = reference::files()?.into_iter();
    let files = files.map(|(path, content_type, body)| Ok((path, Document::new(content_type, body)?)));
    std::iter::once(Ok((CONTRACT_PATH, contract))).chain(files).collect()
}
