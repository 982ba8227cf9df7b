//! The ops listener: whether the process lives, whether it can serve, and what it has counted.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, StatusCode};
use mandate_core::EnvironmentKind;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::exchange::{Site, Told};
use super::input::shown;
use super::reply::{Failure, Reply};
use crate::clock::{Clock, Skew};
use crate::error::{Code, Fault, Refusal};
use crate::metrics::{CONTENT_TYPE, Metrics, Reading};
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

/// What is said when the store writes nothing any more.
const STORE_STOPPED: &str = "the store has stopped; restart the server\n";

/// What is said when nothing is decided, since the others would be wronged.
const CLOCK_OFF: &str = "the clock is too far off by the database's; look after NTP\n";

/// The ops listener.
pub(crate) struct Ops {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) keyring: Keyring,
    pub(crate) skew: Arc<Skew>,
    /// Becomes true when the server begins to stop.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Ops {
    /// What the store answers to a script, within bounds of time.
    async fn asked<T>(
        &self,
        reading: impl Future<Output = Result<Result<T, Fault>, Fault>>,
    ) -> Result<T, &'static str> {
        match tokio::time::timeout(Duration::from_secs(READY_SECONDS), reading).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(fault)) | Err(fault)) => {
                warn!(reason = %fault, "not ready");
                Err("the store does not answer\n")
            }
            Err(_) => Err("the store does not answer in time\n"),
        }
    }

    async fn ready(&self) -> Reply {
        let unavailable = |why| Reply::text(StatusCode::SERVICE_UNAVAILABLE, why);
        if *self.stopping.borrow() {
            return unavailable("stopping\n");
        }
        if self.store.has_stopped() {
            return unavailable(STORE_STOPPED);
        }
        if !self.skew.is_bearable() {
            return unavailable(CLOCK_OFF);
        }
        match self.asked(self.store.read(keys::revision)).await {
            Ok(_) => match self.unsigned() {
                None => Reply::text(StatusCode::OK, "ready\n"),
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

    /// A kind of environment for which there is none.
    fn unsigned(&self) -> Option<EnvironmentKind> {
        self.signing_ready().into_iter().find(|(_, ready)| !ready).map(|(kind, _)| kind)
    }

    /// Everything counted and measured. What the store does not tell in time keeps the value that it had.
    async fn metrics(&self) -> Result<Reply, Failure> {
        let (now, store) = (self.clock.now(), self.store.clone());
        let stored = self.asked(self.store.read(move |tx| gauges::read(tx, now))).await.ok();
        let disk_usage = spawn_blocking(move || store.disk_usage()).await.ok().and_then(Result::ok);
        let signing_ready = self.signing_ready();
        let reading = Reading {
            now: Some(now),
            clock_ahead_millis: self.skew.ahead_millis(),
            ready: stored.is_some()
                && !self.store.has_stopped()
                && !*self.stopping.borrow()
                && self.skew.is_bearable()
                && signing_ready.iter().all(|(_, ready)| *ready),
            signing_ready,
            queue_jobs: self.store.waiting(),
            stored,
            disk_usage,
        };
        let content_type = [(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE))];
        Ok(Reply::new(StatusCode::OK, content_type, self.metrics.write(&reading)?))
    }
}

impl Site for Ops {
    async fn respond(self: Arc<Self>, request: Request<Incoming>, told: &mut Told) -> Result<Reply, Failure> {
        told.path = match request.uri().path() {
            LIVE_PATH => LIVE_PATH,
            READY_PATH => READY_PATH,
            METRICS_PATH => METRICS_PATH,
            _ => return Err(Refusal::new(Code::NotFound, "no such path").into()),
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let method = shown(request.method().as_str());
            return Err(Refusal::invalid(format!("{method} is not supported on {}", told.path)).into());
        }
        match told.path {
            LIVE_PATH => Ok(Reply::text(StatusCode::OK, "live\n")),
            READY_PATH => Ok(self.ready().await),
            _ => self.metrics().await,
        }
    }
}
