//! Wiring: from the configuration to a store and three listeners, and the way back.

mod listeners;
mod signals;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::warn;

pub use signals::{Hangup, StopSignal};

use crate::clock::{Clock, Entropy, Ids};
use crate::config::Config;
use crate::error::Fault;
use crate::http::contract::Hosts;
use crate::http::{
    Api, Callers, Door, KEY_SET_PATH, Ops, Public, Rates, RequestIds, Routes, Site, follow_certificates,
    serve,
};
use crate::metrics::{Listener, Metrics};
use crate::service::Stop;
use crate::service::decide::Engine;
use crate::service::endpoint::Reach;
use crate::service::signing::{self, Keyring, MasterKey};
use crate::settlement::Settlement;
use crate::store::{self, Decider, Presence, Store};
use crate::worker::deliver::Deliverer;
use crate::worker::dial::Dialer;
use crate::worker::export::Exports;
use crate::worker::sweep::Sweep;
use crate::worker::{export, settle};
use listeners::{Doors, Socket, Sockets, Tls};

/// The server.
#[derive(Debug)]
pub struct App;

/// A server that runs. [`Running::stop`] ends it in order; dropping it ends it without waiting.
pub struct Running {
    /// Where the API listens.
    pub api: SocketAddr,
    /// Where the public listener listens.
    pub public: SocketAddr,
    /// Where the ops listener listens.
    pub ops: SocketAddr,
    /// The addresses under which clients know them.
    pub urls: Urls,
    store: Store,
    serving: Tasks,
    observing: Tasks,
    /// Becomes true when the server begins to say that it is not ready.
    draining: watch::Sender<bool>,
    drain_delay: Duration,
    certificates: Arc<Notify>,
    /// Held until the end.
    presence: Presence,
}

/// The addresses of a server's hosts, as clients know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Urls {
    /// The API; ends in `/v1`.
    pub base: String,
    /// The issuer of tokens, where the key set is published.
    pub verdicts: String,
    /// Where the contract is published.
    pub docs: String,
    /// Liveness and readiness.
    pub ops: String,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("urls", &self.urls).finish_non_exhaustive()
    }
}

impl App {
    /// Starts a server: when this returns, all three listeners answer.
    ///
    /// # Errors
    /// An address cannot be listened on, or the database cannot be brought up to date and opened.
    pub async fn start(
        config: Config,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Running, Fault> {
        let Config { settings, master_key } = config;
        let metrics = Metrics::new();
        metrics.started(clock.now());
        let tls = Tls::read(&settings, clock.now())?;
        let presence = take_place(&settings.database).await?;
        let sockets = Sockets::bind(&settings).await?;
        let urls = sockets.urls(&settings);
        let cursor_key = Arc::new(master_key.cursor_key()?);
        let keyring = {
            let (database, issuer) = (settings.database.clone(), urls.verdicts.clone());
            let (clock, entropy) = (Arc::clone(&clock), Arc::clone(&entropy));
            blocking(move || prepare(&database, &master_key, &issuer, &*clock, &*entropy)).await?
        };
        let ids = Arc::new(Ids::new(Arc::clone(&entropy)));
        let request_ids = Arc::new(RequestIds { ids: Arc::clone(&ids), clock: Arc::clone(&clock) });
        let review_seconds = settings.review_expiry_seconds;
        let reach =
            Reach { loopback: settings.loopback_webhooks, networks: settings.webhook_networks.clone() };
        let drain_delay = Duration::from_secs(settings.drain_delay_seconds);
        let proxied = settings.behind_proxy;
        let exports = Arc::new(Exports::new(settings.exports_directory()));
        let settlement = Arc::new(Settlement::new(&settings.settlement, keyring.clone())?);
        let engine =
            Arc::new(Engine::new(keyring.clone(), Arc::clone(&ids), Arc::clone(&clock), review_seconds));
        let store = {
            let (database, decider) = (settings.database, Arc::clone(&engine) as Arc<dyn Decider>);
            let metrics = metrics.clone();
            blocking(move || Store::open(&database, decider, metrics)).await?
        };
        let hosts = Hosts { base: &urls.base, verdicts: &urls.verdicts };
        let public = Arc::new(Public::new(keyring.clone(), hosts, store.clone(), Arc::clone(&clock))?);
        let callers = Arc::new(Callers::new(store.clone(), metrics.clone()));
        let location = format!("{}{KEY_SET_PATH}", urls.verdicts);
        let api = Arc::new(Api {
            store: store.clone(),
            engine,
            ids: Arc::clone(&ids),
            clock: Arc::clone(&clock),
            entropy: Arc::clone(&entropy),
            settlement: Arc::clone(&settlement),
            exports: Arc::clone(&exports),
            cursor_key,
            callers: Arc::clone(&callers),
            rates: Rates::new(),
            metrics: metrics.clone(),
            routes: Routes::new()?,
            webhook_reach: reach.clone(),
            room: Semaphore::new(settings.max_under_way),
            key_set_location: HeaderValue::try_from(location).map_err(|e| Fault::new(e.to_string()))?,
        });

        let dialer = Arc::new(Dialer::new(reach)?);
        let deliverer = Deliverer::new(
            store.clone(),
            keyring.clone(),
            dialer,
            Arc::clone(&clock),
            entropy,
            metrics.clone(),
        );
        let (mut serving, mut observing) = (Tasks::new(), Tasks::new());
        let (draining, certificates) = (watch::Sender::new(false), Arc::new(Notify::new()));
        let ops = Arc::new(Ops {
            store: store.clone(),
            clock: Arc::clone(&clock),
            metrics: metrics.clone(),
            stopping: draining.subscribe(),
        });
        serving.spawn(|stopping| callers.follow(stopping));
        serving.spawn(|stopping| deliverer.run(stopping));
        let counting = metrics.clone();
        serving
            .spawn(|stopping| settle::run(store.clone(), settlement, Arc::clone(&clock), counting, stopping));
        let sweep = Sweep::new(store.clone(), Arc::clone(&exports), ids, Arc::clone(&clock));
        serving.spawn(|stopping| sweep.run(stopping));
        serving.spawn(|stopping| export::run(store.clone(), exports, keyring, Arc::clone(&clock), stopping));
        let (identities, counting, look) = (tls.identities, metrics.clone(), Arc::clone(&certificates));
        serving.spawn(|stopping| follow_certificates(identities, clock, counting, look, stopping));
        let doors = Doors { ids: request_ids, metrics, proxied };
        let api = serving.listen(sockets.api, |at| doors.door(Listener::Api, at, api, tls.api));
        let public =
            serving.listen(sockets.public, |at| doors.door(Listener::Public, at, public, tls.public));
        let ops = observing.listen(sockets.ops, |at| doors.door(Listener::Ops, at, ops, None));
        Ok(Running {
            api,
            public,
            ops,
            urls,
            store,
            serving,
            observing,
            draining,
            drain_delay,
            certificates,
            presence,
        })
    }
}

impl Running {
    /// Looks at once whether a certificate or its key has changed. It is looked every few seconds anyway.
    pub fn renew_certificates(&self) {
        self.certificates.notify_one();
    }

    /// Ends the server as [`Running::stop`] does, or at once when the sign to stop comes again.
    ///
    /// # Errors
    /// It came again, and requests that were under way have no answer.
    pub async fn stop_or_abort(self, again: &mut StopSignal) -> Result<(), Fault> {
        tokio::select! {
            () = self.stop() => Ok(()),
            () = again.received() => Err(Fault::new("told twice to stop: what was under way was cut off")),
        }
    }

    /// Says that the server is not ready, takes requests for as long as the settings say, ends those under way within a
    /// bound of time, and closes the store. The ops listener answers until then.
    pub async fn stop(self) {
        let Self { store, serving, observing, draining, drain_delay, presence, .. } = self;
        draining.send_replace(true);
        tokio::time::sleep(drain_delay).await;
        serving.stop().await;
        // It joins threads. There is nobody left to tell of a failure.
        let _ = spawn_blocking(move || store.close()).await;
        observing.stop().await;
        drop(presence);
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

    /// Becomes true when the tasks are told to end.
    fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        task: impl FnOnce(watch::Receiver<bool>) -> F,
    ) {
        self.running.push(tokio::spawn(task(self.stopping())));
    }

    fn listen<S: Site>(&mut self, socket: Socket, door: impl FnOnce(SocketAddr) -> Door<S>) -> SocketAddr {
        let door = Arc::new(door(socket.address));
        self.spawn(|stopping| serve(socket.listener, door, stopping));
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

/// Takes the place of the server at the database, and warns when another one has it.
async fn take_place(database: &str) -> Result<Presence, Fault> {
    let name = database.to_owned();
    let presence = blocking(move || store::take_place(&name)).await?;
    if !presence.is_alone() {
        warn!(
            database,
            "another server works on this database: spending limits hold together, request rates are counted by each"
        );
    }
    Ok(presence)
}

/// Brings the database up to date and opens the signing keys, making them at the first start.
fn prepare(
    database: &str,
    master_key: &MasterKey,
    issuer: &str,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
) -> Result<Keyring, Fault> {
    store::migrate(database)?;
    let keyring = store::run_once(database, |tx| {
        signing::ensure(tx, master_key, entropy, clock.now())?;
        Keyring::load(tx, master_key, issuer).map_err(Stop::Fault)
    })?;
    keyring.map_err(|refusal| Fault::new(refusal.message))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    spawn_blocking(work).await.map_err(|e| Fault::new(e.to_string()))?
}
