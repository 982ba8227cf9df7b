//! The ops listener: whether the process lives, and whether it can serve.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use tokio::sync::watch;
use tracing::warn;

use super::input::shown;
use super::listen::{Site, Told};
use super::reply::{Failure, Reply};
use crate::error::{Code, Refusal};
use crate::service::keys;
use crate::store::Store;

/// Whether the process lives.
const LIVE_PATH: &str = "/livez";
/// Whether the server takes requests, and its store answers.
const READY_PATH: &str = "/readyz";
/// How long the store may take to answer, in seconds.
const READY_SECONDS: u64 = 1;

/// The ops listener.
pub(crate) struct Ops {
    pub(crate) store: Store,
    /// Becomes true when the server begins to stop.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Ops {
    async fn ready(&self) -> Reply {
        if *self.stopping.borrow() {
            return Reply::text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        }
        let reading = self.store.read(keys::revision);
        match tokio::time::timeout(Duration::from_secs(READY_SECONDS), reading).await {
            Ok(Ok(Ok(_))) => Reply::text(StatusCode::OK, "ready\n"),
            Ok(Ok(Err(fault)) | Err(fault)) => {
                warn!(reason = %fault, "not ready");
                Reply::text(StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n")
            }
            Err(_) => Reply::text(StatusCode::SERVICE_UNAVAILABLE, "the store does not answer in time\n"),
        }
    }
}

impl Site for Ops {
    async fn respond(self: Arc<Self>, request: Request<Incoming>, told: &mut Told) -> Result<Reply, Failure> {
        told.path = match request.uri().path() {
            LIVE_PATH => LIVE_PATH,
            READY_PATH => READY_PATH,
            _ => return Err(Refusal::new(Code::NotFound, "no such path").into()),
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let method = shown(request.method().as_str());
            return Err(Refusal::invalid(format!("{method} is not supported on {}", told.path)).into());
        }
        Ok(if told.path == LIVE_PATH { Reply::text(StatusCode::OK, "live\n") } else { self.ready().await })
    }
}
