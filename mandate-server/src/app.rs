//! Starts a server from its configuration, with a store and its listeners, and stops it again.

mod listeners;
mod parts;
mod signals;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};

pub use signals::{Hangup, StopSignal};

use crate::clock::{Clock, Entropy};
use crate::config::{Config, Descriptors, Settings};
use crate::error::Fault;
use crate::http::{Listener, RequestIds, follow_certificates, serve};
use crate::metrics::{Listener as Name, Metrics};
use crate::store::Store;
use crate::traces::Traces;
use listeners::{Listeners, Socket, Sockets, Tls};
use parts::Parts;

/// The server.
#[derive(Debug)]
pub struct App;

/// A running server. [`Running::stop`] ends it gracefully. Dropping it ends it at once.
pub struct Running {
    /// Where the API listens.
    pub api: SocketAddr,
    /// Where the public listener listens.
    pub public: SocketAddr,
    /// Where the ops listener listens.
    pub ops: SocketAddr,
    /// Where the console listens, if this server has one.
    pub console: Option<SocketAddr>,
    /// The addresses under which clients know them.
    pub urls: Urls,
    store: Store,
    traces: Traces,
    serving: Tasks,
    observing: Tasks,
    /// Becomes true when the server begins to report that it is not ready.
    draining: watch::Sender<bool>,
    drain_delay: Duration,
    certificates: Arc<Notify>,
}

/// The addresses of a server's hosts, as clients know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Urls {
    /// The API's address, which ends in `/v1`.
    pub base: String,
    /// The issuer of tokens, where the key set is published.
    pub verdicts: String,
    /// Where the contract is published.
    pub docs: String,
    /// The console's origin as people see it, if there is a console on this or on another server.
    pub console: Option<String>,
    /// Liveness and readiness.
    pub ops: String,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("urls", &self.urls).finish_non_exhaustive()
    }
}

impl App {
    /// Starts a server: when this returns, all listeners answer.
    ///
    /// # Errors
    /// An address cannot be listened on, or the database cannot be brought up to date and opened.
    pub async fn start(
        config: Config,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Running, Fault> {
        let metrics = Metrics::new();
        metrics.started(clock.now());
        let tls = Tls::read(&config.settings, clock.now())?;
        let owned = parts::own(&config.settings).await?;
        // Not before: while this server waits for a database, nothing that connects is to wait with it.
        let sockets = Sockets::bind(&config.settings).await?;
        let urls = sockets.urls(&config.settings);
        let (proxied, descriptors) = (config.settings.behind_proxy, Descriptors::raise());
        let drain_delay = Duration::from_secs(config.settings.drain_delay_seconds);
        let traces = traces(&config.settings, &metrics).await?;
        let mut parts = Parts::open(config, owned, &urls, clock, entropy, metrics).await?;

        let (mut serving, mut observing) = (Tasks::new(), Tasks::new());
        let (draining, certificates) = (watch::Sender::new(false), Arc::new(Notify::new()));
        let (api, public) = (parts.api(&urls, &descriptors)?, parts.public(&urls)?);
        let console = match sockets.console {
            Some(socket) => Some((socket, parts.console(&urls, serving.stopping())?)),
            None => None,
        };
        let ops = parts.ops(draining.subscribe());
        parts.work(&traces, &urls, &descriptors, &mut serving)?;
        let Parts { clock, metrics, ids, store, .. } = parts;
        let ids = Arc::new(RequestIds { ids, clock: Arc::clone(&clock) });
        let (identities, counting, look) = (tls.identities, metrics.clone(), Arc::clone(&certificates));
        serving.spawn(|stopping| follow_certificates(identities, clock, counting, look, stopping));
        let listeners = Listeners { ids, metrics, traces: traces.clone(), proxied, descriptors };
        let api = serving.listen(sockets.api, |at| listeners.listener(Name::Api, at, api, tls.api));
        let public =
            serving.listen(sockets.public, |at| listeners.listener(Name::Public, at, public, tls.public));
        let console = console.map(|(socket, router)| {
            serving.listen(socket, |at| listeners.listener(Name::Console, at, router, tls.console))
        });
        let ops = observing.listen(sockets.ops, |at| listeners.listener(Name::Ops, at, ops, None));
        Ok(Running {
            api,
            public,
            ops,
            console,
            urls,
            store,
            traces,
            serving,
            observing,
            draining,
            drain_delay,
            certificates,
        })
    }
}

impl Running {
    /// Checks at once whether a certificate or its key has changed. Otherwise this is checked every few seconds.
    pub fn renew_certificates(&self) {
        self.certificates.notify_one();
    }

    /// Ends the server as [`Running::stop`] does, or at once after a second signal.
    ///
    /// # Errors
    /// A second signal came, and requests in progress were cut off.
    pub async fn stop_or_abort(self, again: &mut StopSignal) -> Result<(), Fault> {
        tokio::select! {
            () = self.stop() => Ok(()),
            () = again.received() => Err(Fault::new("stopped by a second signal; requests in progress were cut off")),
        }
    }

    /// Stops the server. It first reports that it is not ready, and accepts requests for the configured delay. Then
    /// it ends the requests in progress within a time limit, and closes the store. The ops listener answers until
    /// the end.
    pub async fn stop(self) {
        let Self { store, traces, serving, observing, draining, drain_delay, .. } = self;
        draining.send_replace(true);
        tokio::time::sleep(drain_delay).await;
        serving.stop().await;
        // `close` joins threads, and so blocks. No caller is left who could handle a failure.
        let _ = spawn_blocking(move || store.close()).await;
        let _ = spawn_blocking(move || traces.end()).await;
        observing.stop().await;
    }
}

/// Tasks that end together.
struct Tasks {
    stop: watch::Sender<bool>,
    running: Vec<JoinHandle<()>>,
}

impl Tasks {
    fn new() -> Self {
        Self { stop: watch::Sender::new(false), running: Vec::new() }
    }

    /// Becomes true when the tasks must end.
    fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        task: impl FnOnce(watch::Receiver<bool>) -> F,
    ) {
        self.running.push(tokio::spawn(task(self.stopping())));
    }

    fn listen(&mut self, socket: Socket, listener: impl FnOnce(SocketAddr) -> Listener) -> SocketAddr {
        let listener = Arc::new(listener(socket.address));
        self.spawn(|stopping| serve(socket.listener, listener, stopping));
        socket.address
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.running {
            // A task that panicked has ended too.
            let _ = task.await;
        }
    }
}

/// The sender of traces, if the operator names a collector.
async fn traces(settings: &Settings, metrics: &Metrics) -> Result<Traces, Fault> {
    let Some(collector) = settings.collector.clone() else { return Ok(Traces::default()) };
    let metrics = metrics.clone();
    blocking(move || Traces::to(&collector, move |spans| metrics.spans_lost(spans))).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    spawn_blocking(work).await.map_err(|e| Fault::new(e.to_string()))?
}
