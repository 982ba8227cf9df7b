//! The public listener, which needs no key.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{StatusCode, Uri};
use tokio::sync::Semaphore;

use super::KEY_SET_PATH;
use super::accept::preferred;
use super::document::{Document, Published};
use super::fallback::{no_such_path, on_path};
use super::key_set::{self, KeySet};
use super::openapi::{self, CONTRACT_PATH, Hosts};
use super::pages::{self, LOG_PATH};
use super::public_log::{LOGS, OBJECT_OF_LOG, PublicLogs};
use super::reference;
use super::respond::{Failure, JSON, response};
use crate::clock::Clock;
use crate::error::{Code, Fault, Refusal};
use crate::service::escrows::{self, Address};
use crate::service::signing::Keyring;
use crate::store::Store;
use crate::store::tx::Tx;

/// The Content-Type of the contract (RFC 9512).
const YAML: &str = "application/yaml";
/// The contract of an escrow.
const CONTRACT_OF_ESCROW: &str = "/contracts/{address}";
/// The prefix of the path of a contract. The rest of the path is the address, which may be unknown.
const CONTRACTS: &str = "/contracts/";
/// The forms of an escrow's contract; the first is sent when none is asked for.
const CONTRACT_FORMS: [&str; 3] = ["application/json", JWT, PAGE];
const JWT: &str = "application/jwt";
const PAGE: &str = "text/html";
/// Leads to the console.
const CONSOLE: &str = "/console";
/// How many contracts are read at a time: requests without a key must not crowd out those with one.
const MAX_READING: usize = 64;

/// The public listener: the key set, a few documents, the contracts of escrows, and the public logs.
pub(crate) struct Public {
    keyring: Keyring,
    store: Store,
    clock: Arc<dyn Clock>,
    log: PublicLogs,
    /// The origin of the console, if there is one.
    console: Option<String>,
    /// Room for the contracts that are being read.
    room: Semaphore,
}

impl Public {
    pub(crate) fn new(
        keyring: Keyring,
        store: Store,
        clock: Arc<dyn Clock>,
        console: Option<String>,
    ) -> Self {
        let log = PublicLogs::new(store.clone());
        Self { keyring, store, clock, log, console, room: Semaphore::new(MAX_READING) }
    }

    /// An escrow's contract, for anyone who has its address: as JSON, as a token, or as a page.
    async fn contract(&self, address: &str, headers: &HeaderMap) -> Result<Response, Failure> {
        let form = preferred(headers, &CONTRACT_FORMS);
        let mut response = match self.contract_as(form, address, headers).await {
            Err(Failure::Refused(refusal)) if form == PAGE && refusal.code == Code::NotFound => {
                pages::contract::absent(self.keyring.issuer())?
            }
            answered => answered?,
        };
        response.headers_mut().insert(header::VARY, HeaderValue::from_name(header::ACCEPT));
        Ok(response)
    }

    async fn contract_as(&self, form: &str, address: &str, headers: &HeaderMap) -> Result<Response, Failure> {
        let address = Address::parse(address).ok_or_else(Refusal::not_found)?;
        let _room = self.room.try_acquire().map_err(|_| Failure::Overloaded)?;
        if form != PAGE && form != JWT {
            let contract = self.store.read(move |tx| escrows::contract(tx, address)).await??.body;
            return Ok(response(StatusCode::OK, [(header::CONTENT_TYPE, JSON)], contract));
        }
        let (keyring, now) = (self.keyring.clone(), self.clock.now());
        let read = move |tx: &mut Tx<'_>| escrows::with_token(tx, address, &keyring, now);
        let (escrow, token) = self.store.read(read).await??;
        if form == PAGE {
            let page = pages::contract::contract(self.keyring.issuer(), &escrow, &token)?;
            return Ok(page.respond(headers));
        }
        let form = (header::CONTENT_TYPE, HeaderValue::from_static(JWT));
        Ok(response(StatusCode::OK, [form], token))
    }

    /// Leads to the console, so that it is found from the issuer.
    fn console(&self) -> Result<Response, Failure> {
        let none = || Refusal::new(Code::NotFound, "this service has no console");
        let origin = self.console.as_deref().ok_or_else(none)?;
        let location = HeaderValue::try_from(format!("{origin}/")).map_err(|e| Fault::new(e.to_string()))?;
        Ok(response(StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)], ""))
    }

    /// The page of the public logs.
    async fn log_page(&self, uri: &Uri, headers: &HeaderMap) -> Result<Response, Failure> {
        let (issuer, now) = (self.keyring.issuer(), self.clock.now());
        self.log.page(issuer, now, uri.query().unwrap_or_default(), headers).await
    }
}

/// The router of the public listener of a server with these addresses.
pub(crate) fn router(public: Arc<Public>, hosts: Hosts<'_>) -> Result<Router, Fault> {
    let (keyring, clock) = (public.keyring.clone(), Arc::clone(&public.clock));
    let key_set = get(key_set::get).with_state(Arc::new(KeySet { keyring, clock }));
    let contract = async |State(public): State<Arc<Public>>, uri: Uri, headers: HeaderMap| {
        public.contract(uri.path().strip_prefix(CONTRACTS).unwrap_or_default(), &headers).await
    };
    let console = async |State(public): State<Arc<Public>>| public.console();
    let log = async |State(public): State<Arc<Public>>, uri: Uri, headers: HeaderMap| {
        public.log.get(uri.path().strip_prefix(LOGS).unwrap_or_default(), &headers).await
    };
    let log_page = async |State(public): State<Arc<Public>>, uri: Uri, headers: HeaderMap| {
        public.log_page(&uri, &headers).await
    };
    let mut router = Router::new()
        .route(KEY_SET_PATH, on_path(KEY_SET_PATH, key_set))
        .route(CONTRACTS, on_path(CONTRACT_OF_ESCROW, get(contract)))
        .route("/contracts/{*address}", on_path(CONTRACT_OF_ESCROW, get(contract)))
        .route(LOG_PATH, on_path(LOG_PATH, get(log_page)))
        .route(CONSOLE, on_path(CONSOLE, get(console)))
        .route("/log/{kind}/{*object}", on_path(OBJECT_OF_LOG, get(log)))
        .fallback(no_such_path);
    for (path, recorded, document) in documents(hosts)? {
        let document = Arc::new(document);
        let handler = async move |headers: HeaderMap| document.respond(&headers);
        router = router.route(&path, on_path(recorded, get(handler)));
    }
    Ok(router.with_state(public))
}

/// The pages, the OpenAPI document and the files of the reference.
fn documents(hosts: Hosts<'_>) -> Result<Vec<Published>, Fault> {
    let contract = Document::new(YAML, Bytes::from(openapi::yaml(hosts)?))?;
    let mut documents = pages::documents(hosts.verdicts)?;
    documents.push((CONTRACT_PATH.to_owned(), CONTRACT_PATH, contract));
    documents.extend(reference::documents(hosts.verdicts)?);
    Ok(documents)
}
