//! The console: pages on which people answer reviews with their own passkeys.
//!
//! It has a listener of its own, and nothing of the API: no key opens it, and no session opens the API. The pages of an
//! organization are below `/{kind}/{organization}`, where its environment is looked up for each request. [`session`] says who
//! asks. Whatever changes something is a POST of the console's own script.

mod answers;
mod decisions;
mod feed;
mod frame;
mod lists;
mod mandates;
mod post;
mod refused;
mod reviews;
mod session;
mod sign_in;
mod words;

use std::hash::RandomState;
use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use hyper::header::{HeaderMap, HeaderValue};
use mandate_core::people::RelyingParty;
use tokio::sync::{Semaphore, watch};

use super::fallback::{no_such_path, on_path};
use super::limit::rate::Rates;
use super::pages::{asset, page, policy};
use super::respond::Failure;
use crate::clock::Clock;
use crate::error::{Fault, Repeated};
use crate::service::decide::Engine;
use crate::service::moments::Moments;
use crate::service::people::challenges::Challenges;
use crate::store::Store;
use crate::store::tx::Tx;
use feed::Feeds;

/// The page without an organization.
const ROOT: &str = "/";
/// A page without scripts.
const READ_ONLY: HeaderValue = policy!("form-action 'none'; ");
/// How many pages are read at a time: people must not crowd out agents.
const MAX_READING: usize = 4;

/// What the console works with.
pub(crate) struct Console {
    store: Store,
    engine: Arc<Engine>,
    moments: Arc<Moments>,
    clock: Arc<dyn Clock>,
    /// The issuer of tokens, where they are verified.
    issuer: String,
    /// What passkeys are bound to.
    party: RelyingParty,
    /// What passkeys sign to come in.
    challenges: Challenges,
    /// How often each client signs in, and each address is sent forged requests: by hashes, whose key no caller knows.
    rates: Rates,
    hasher: RandomState,
    feeds: Arc<Feeds>,
    room: Semaphore,
    /// What cannot be written meanwhile, and has no line of log each.
    repeated: Repeated,
}

#[derive(Debug, Template)]
#[template(path = "console/root.html")]
struct Root<'a> {
    style: &'a str,
    origin: &'a str,
}

impl Console {
    /// A console at an origin. Its pages stop to wait for news when `stopping` changes.
    pub(crate) fn new(
        store: Store,
        engine: Arc<Engine>,
        (moments, clock): (Arc<Moments>, Arc<dyn Clock>),
        (issuer, origin, challenges): (&str, &str, Challenges),
        stopping: watch::Receiver<bool>,
    ) -> Result<Self, Fault> {
        let party = RelyingParty::of_origin(origin).map_err(|e| Fault::new(e.to_string()))?;
        Ok(Self {
            feeds: Arc::new(Feeds::new(store.clone(), Arc::clone(&clock), stopping)),
            moments,
            store,
            engine,
            clock,
            issuer: issuer.to_owned(),
            party,
            challenges,
            rates: Rates::new(),
            hasher: RandomState::new(),
            room: Semaphore::new(MAX_READING),
            repeated: Repeated::default(),
        })
    }

    /// Whether people reach it over TLS.
    fn has_tls(&self) -> bool {
        self.party.origin().starts_with("https:")
    }

    /// Runs `script` on committed data, when there is room.
    async fn read<T, E, S>(&self, script: S) -> Result<T, Failure>
    where
        T: Send + 'static,
        E: Send + 'static,
        Failure: From<E>,
        S: Fn(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    {
        let _room = self.room.acquire().await.map_err(|_| Failure::Overloaded)?;
        Ok(self.store.read(script).await??)
    }
}

/// The router of the console.
pub(crate) fn router(console: Arc<Console>) -> Result<Router, Fault> {
    let root =
        Arc::new(page(&Root { style: &asset::STYLE.path, origin: console.party.origin() }, READ_ONLY)?);
    let root = get(async move |headers: HeaderMap| root.respond(&headers));
    let mut router = Router::new().route(ROOT, on_path(ROOT, root)).fallback(no_such_path);
    for asset in [&asset::STYLE, &asset::CONSOLE_STYLE, &asset::CONSOLE_SCRIPT] {
        let (path, recorded, document) = asset.published()?;
        let document = Arc::new(document);
        let file = get(async move |headers: HeaderMap| document.respond(&headers));
        router = router.route(&path, on_path(recorded, file));
    }
    let router = shown(router, "/{kind}/{organization}", session::to_queue);
    let router = shown(router, "/{kind}/{organization}/", reviews::queue);
    let router = shown(router, "/{kind}/{organization}/reviews", session::to_queue);
    let router = shown(router, "/{kind}/{organization}/reviews/", session::to_queue);
    let router = shown(router, "/{kind}/{organization}/reviews/{id}", reviews::one);
    let router = shown(router, "/{kind}/{organization}/decisions", decisions::list);
    let router = shown(router, "/{kind}/{organization}/decisions.csv", decisions::csv);
    let router = shown(router, "/{kind}/{organization}/decisions.ndjson", decisions::ndjson);
    let router = shown(router, "/{kind}/{organization}/decisions/{id}", decisions::one);
    let router = shown(router, "/{kind}/{organization}/usage", mandates::usage);
    let router = shown(router, "/{kind}/{organization}/mandates", mandates::list);
    let router = shown(router, "/{kind}/{organization}/mandates/{id}", mandates::one);
    let router = shown(router, "/{kind}/{organization}/agents", lists::agents);
    let router = shown(router, "/{kind}/{organization}/webhooks", lists::webhooks);
    let router = shown(router, "/{kind}/{organization}/exports", lists::exports);
    let router = shown(router, "/{kind}/{organization}/people", lists::people);
    let router = shown(router, "/{kind}/{organization}/events", feed::events);

    let sign_in = get(sign_in::sign_in_page).post(sign_in::begin_sign_in);
    let enrol = get(sign_in::enrol_page).post(sign_in::begin_enrol);
    let router = router
        .route("/{kind}/{organization}/sign-in", on_path("/{kind}/{organization}/sign-in", sign_in))
        .route("/{kind}/{organization}/enrol", on_path("/{kind}/{organization}/enrol", enrol));
    let router = taken(router, "/{kind}/{organization}/sign-in/passkey", sign_in::finish_sign_in);
    let router = taken(router, "/{kind}/{organization}/enrol/passkey", sign_in::finish_enrol);
    let router = taken(router, "/{kind}/{organization}/sign-out", sign_in::sign_out);
    let router = taken(router, "/{kind}/{organization}/statements", answers::issue);
    let router = taken(router, "/{kind}/{organization}/answers", answers::answer);
    Ok(router.layer(from_fn(refused::in_words)).with_state(console))
}

/// A page that is read.
fn shown<H, T>(router: Router<Arc<Console>>, path: &'static str, handler: H) -> Router<Arc<Console>>
where
    H: Handler<T, Arc<Console>>,
    T: 'static,
{
    router.route(path, on_path(path, get(handler)))
}

/// What the script posts.
fn taken<H, T>(router: Router<Arc<Console>>, path: &'static str, handler: H) -> Router<Arc<Console>>
where
    H: Handler<T, Arc<Console>>,
    T: 'static,
{
    router.route(path, on_path(path, post(handler)))
}
