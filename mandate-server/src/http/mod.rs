//! HTTP: the listeners, each an axum router, served over connections with limits of their own.
//!
//! Read [`router`] first: the API as one table. A request passes `serve` (the connection), `log` (its id, and its
//! line in the log), `gate` (key, class, rate), `extract` (body and parameters), the handler in the file of its
//! resource, and `respond`.

mod accept;
pub mod agents;
pub mod authorizations;
mod body;
mod console;
mod cors;
pub mod decisions;
mod document;
pub mod enforcement;
pub mod escrows;
pub mod events;
pub mod exports;
mod extract;
mod fallback;
mod file;
mod free_text;
mod gate;
mod key;
mod key_cache;
pub mod key_set;
mod limit;
mod log;
pub mod mandates;
pub mod openapi;
mod ops;
mod pages;
mod public;
mod public_log;
mod reference;
mod respond;
pub mod reviews;
pub mod router;
mod serve;
pub mod usage;
pub mod webhooks;

use std::sync::Arc;

use hyper::header::HeaderValue;
use mandate_core::cursor::CursorKey;
use tokio::sync::Semaphore;

use crate::clock::{Clock, Entropy, Ids};
use crate::metrics::Metrics;
use crate::service::decide::Engine;
use crate::service::endpoint::EgressPolicy;
use crate::service::moments::Moments;
use crate::settlement::Settlement;
use crate::store::Store;
use crate::worker::export::Exports;

pub use respond::{IDEMPOTENCY_REPLAYED, X_REQUEST_ID};

pub(crate) use console::{Console, router as console_router};
pub(crate) use key_cache::KeyCache;
pub(crate) use limit::downloads::Downloads;
pub(crate) use limit::rate::{Rates, Shared};
pub(crate) use limit::slow_bodies::SlowBodies;
pub(crate) use limit::unread::UnreadAnswers;
pub(crate) use log::{RequestIds, Site};
pub(crate) use ops::{Ops, router as ops_router};
pub(crate) use public::{Public, router as public_router};
pub(crate) use router::router as api_router;
pub(crate) use serve::connections::{Limits, Listener, MAX_CONNECTIONS_PER_PEER, serve};
pub(crate) use serve::tls::{Identity, follow as follow_certificates};

/// The path at which the public listener publishes the key set.
pub const KEY_SET_PATH: &str = "/.well-known/jwks.json";

/// The state of the API: what its handlers work with.
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) engine: Arc<Engine>,
    pub(crate) ids: Arc<Ids>,
    pub(crate) moments: Arc<Moments>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) settlement: Arc<Settlement>,
    pub(crate) exports: Arc<Exports>,
    pub(crate) cursor_key: Arc<CursorKey>,
    pub(crate) keys: Arc<KeyCache>,
    pub(crate) rates: Arc<Rates>,
    pub(crate) metrics: Metrics,
    /// Which addresses webhooks may have.
    pub(crate) webhook_egress: EgressPolicy,
    /// Room for running requests, after the key check.
    pub(crate) room: Arc<Semaphore>,
    /// The requests that wait for their bodies, which take none of that room.
    pub(crate) slow_bodies: SlowBodies,
    /// The answers to reads that their peers have not read yet.
    pub(crate) unread_answers: UnreadAnswers,
    /// The downloads under way.
    pub(crate) downloads: Downloads,
    /// The address of the key set, at the public listener.
    pub(crate) key_set_location: HeaderValue,
}
