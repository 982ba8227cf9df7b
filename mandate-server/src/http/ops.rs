//! The ops listener: whether the process lives, whether it can serve, and what it has counted.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use mandate_core::EnvironmentKind;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::fallback::{no_such_path, on_path};
use super::respond::{Failure, response, text};
use crate::clock::{Clock, Skew};
use crate::error::Fault;
use crate::metrics::{CONTENT_TYPE, Metrics, Reading};
use crate::service::moments::{Moments, behind_millis};
use crate::service::signing::Keyring;
use crate::service::{gauges, keys};
use crate::store::Store;

/// Whether the process lives.
const LIVE_PATH: &str = "/livez";
/// Whether the server takes requests, its store answers and writes, its clock is right, and it can sign for every kind of
/// environment.
const READY_PATH: &str = "/readyz";
/// What was counted and measured, for Prometheus.
const METRICS_PATH: &str = "/metrics";
/// How long the store may take to answer, in seconds.
const READY_SECONDS: u64 = 1;

/// How long those that decide may have work without a commit, in seconds. A wait for one lock may take 3.
const DECIDING_SECONDS: u64 = 5;

/// The answer when nothing is decided.
const NOT_DECIDING: &str =
    "nothing is decided: the database grants no connection, no lock or no commit, or lacks what it needs\n";

/// The answer when the store no longer writes.
const STORE_STOPPED: &str = "the store has stopped; restart the server\n";

/// The answer when what the store would write is not found by others, or is not this server's alone.
const STORE_LOST: &str = "the database's file, its write-ahead log, or the file that locks it for this server was deleted or replaced: nothing is \
    written; end all servers on the database, then restart this one\n";

/// The answer when nothing is decided, because decisions would carry a wrong time.
const CLOCK_BEHIND: &str = "the clock is behind its mark (the latest instant decided by, at most a second more); \
    nothing is decided until it has caught up\n";

/// The ops listener.
pub(crate) struct Ops {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) keyring: Keyring,
    pub(crate) skew: Arc<Skew>,
    pub(crate) moments: Arc<Moments>,
    /// Becomes true when the server begins to stop.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Ops {
    /// What the store answers, within [`READY_SECONDS`].
    async fn asked<T>(
        &self,
        reading: impl Future<Output = Result<Result<T, Fault>, Fault>>,
    ) -> Result<T, &'static str> {
        match tokio::time::timeout(Duration::from_secs(READY_SECONDS), reading).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(fault)) | Err(fault)) => {
                warn!(kind = fault.kind(), reason = %fault, "not ready");
                Err("the store does not answer\n")
            }
            Err(_) => Err("the store does not answer in time\n"),
        }
    }

    /// Whether those that decide do, or have only just begun to try.
    async fn decides(&self) -> bool {
        let _ = tokio::time::timeout(Duration::from_secs(READY_SECONDS), self.store.prove()).await;
        self.store.stuck() < Duration::from_secs(DECIDING_SECONDS)
    }

    /// Why the store writes no more, if it does not.
    fn stopped(&self) -> Option<&'static str> {
        let why = |is_so: bool, why| is_so.then_some(why);
        why(self.store.is_lost(), STORE_LOST).or_else(|| why(self.store.has_stopped(), STORE_STOPPED))
    }

    async fn ready(&self) -> Response {
        let unavailable = |why| text(StatusCode::SERVICE_UNAVAILABLE, why);
        if *self.stopping.borrow() {
            return unavailable("stopping\n");
        }
        if let Some(why) = self.stopped() {
            return unavailable(why);
        }
        let moments = Arc::clone(&self.moments);
        let read = self.store.read(move |tx| {
            keys::revision(tx)?;
            moments.behind(tx)
        });
        let (read, decides) = tokio::join!(self.asked(read), self.decides());
        match read {
            Ok(_) if !decides => unavailable(NOT_DECIDING),
            Ok(Some(_)) => unavailable(CLOCK_BEHIND),
            Ok(None) => match self.unsigned() {
                None => text(StatusCode::OK, "ready\n"),
                Some(EnvironmentKind::Sandbox) => {
                    unavailable("nothing is signed for sandbox; restart the server\n")
                }
                Some(EnvironmentKind::Production) => {
                    unavailable("nothing is signed for production; restart the server\n")
                }
            },
            Err(why) => unavailable(why),
        }
    }

    /// Whether there is a key of each kind of environment that this server can sign with now.
    fn signing_ready(&self) -> Vec<(EnvironmentKind, bool)> {
        let now = self.clock.now();
        EnvironmentKind::ALL.into_iter().map(|kind| (kind, self.keyring.signing(kind, now).is_ok())).collect()
    }

    /// A kind of environment for which there is no such key.
    fn unsigned(&self) -> Option<EnvironmentKind> {
        self.signing_ready().into_iter().find(|(_, ready)| !ready).map(|(kind, _)| kind)
    }

    /// Everything counted and measured. A value that the store does not give in time stays as it was.
    async fn metrics(&self) -> Result<Response, Failure> {
        let (now, store) = (self.clock.now(), self.store.clone());
        let stored = self.asked(self.store.read(move |tx| gauges::read(tx, now)));
        let (stored, decides) = tokio::join!(stored, self.decides());
        let stored = stored.ok();
        let asked = spawn_blocking(move || (store.disk_usage().ok(), store.cluster(now).ok().flatten()));
        let (disk_usage, cluster) = asked.await.unwrap_or_default();
        let signing_ready = self.signing_ready();
        let reading = Reading {
            now: Some(now),
            clock_ahead_millis: self.skew.ahead_millis(),
            ready: decides
                && self.stopped().is_none()
                && !*self.stopping.borrow()
                && stored.as_ref().is_some_and(|stored| behind_millis(now, stored.clock_mark).is_none())
                && signing_ready.iter().all(|(_, ready)| *ready),
            signing_ready,
            queue_jobs: self.store.waiting(),
            stored,
            disk_usage,
            cluster,
            connections: self.store.connections(),
        };
        let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE))];
        Ok(response(StatusCode::OK, content_type, self.metrics.write(&reading)?))
    }
}

/// The router of the ops listener.
pub(crate) fn router(ops: Arc<Ops>) -> Router {
    let live = async || text(StatusCode::OK, "live\n");
    let ready = async |State(ops): State<Arc<Ops>>| ops.ready().await;
    let metrics = async |State(ops): State<Arc<Ops>>| ops.metrics().await;
    Router::new()
        .route(LIVE_PATH, on_path(LIVE_PATH, get(live)))
        .route(READY_PATH, on_path(READY_PATH, get(ready)))
        .route(METRICS_PATH, on_path(METRICS_PATH, get(metrics)))
        .fallback(no_such_path)
        .with_state(ops)
}
