//! The three listeners, and the one way of a request through them: gate, input, handler, reply.

mod accept;
mod agents;
mod authorizations;
mod awaited;
mod body;
mod callers;
pub mod contract;
mod counts;
mod decisions;
mod document;
mod enforcement;
mod escrows;
mod events;
mod exchange;
mod exports;
mod file;
mod gate;
mod input;
mod listen;
mod mandates;
mod ops;
mod peers;
mod public;
mod rate;
mod reference;
mod reply;
mod reviews;
pub mod routes;
mod tls;
mod usage;
mod webhooks;
mod wire;

use std::sync::Arc;

use hyper::header::HeaderValue;
use mandate_core::cursor::CursorKey;
use tokio::sync::Semaphore;

use crate::clock::{Clock, Entropy, Ids};
use crate::metrics::Metrics;
use crate::service::decide::Engine;
use crate::service::endpoint::Reach;
use crate::settlement::Settlement;
use crate::store::Store;
use crate::worker::export::Exports;

pub use reply::{IDEMPOTENCY_REPLAYED, X_REQUEST_ID};

pub(crate) use awaited::Awaited;
pub(crate) use callers::Callers;
pub(crate) use exchange::{RequestIds, Site};
pub(crate) use listen::{Door, Limits, MAX_CONNECTIONS_PER_PEER, serve};
pub(crate) use ops::Ops;
pub(crate) use public::Public;
pub(crate) use rate::{Rates, Shared};
pub(crate) use routes::Routes;
pub(crate) use tls::{Identity, follow as follow_certificates};

/// Where a site publishes its keys.
pub const KEY_SET_PATH: &str = "/.well-known/jwks.json";

/// The API: what its handlers work with.
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) engine: Arc<Engine>,
    pub(crate) ids: Arc<Ids>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) settlement: Arc<Settlement>,
    pub(crate) exports: Arc<Exports>,
    pub(crate) cursor_key: Arc<CursorKey>,
    pub(crate) callers: Arc<Callers>,
    pub(crate) rates: Arc<rate::Rates>,
    pub(crate) metrics: Metrics,
    pub(crate) routes: routes::Routes,
    /// How far webhooks may be.
    pub(crate) webhook_reach: Reach,
    /// Room for the requests that are under way behind the gate.
    pub(crate) room: Arc<Semaphore>,
    /// Whose bodies are waited for, without such room.
    pub(crate) awaited: Awaited,
    /// Where the key set is in fact.
    pub(crate) key_set_location: HeaderValue,
}
