//! Wiring: from the configuration to a store and three listeners, and the way back.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::header::HeaderValue;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::clock::{Clock, Entropy, Ids};
use crate::config::{Config, Settings, VERSION_PATH};
use crate::error::Fault;
use crate::http::contract::Hosts;
use crate::http::{Api, Callers, KEY_SET_PATH, Ops, Public, Rates, RequestIds, Routes, Site, serve};
use crate::metrics::Metrics;
use crate::service::Stop;
use crate::service::decide::Engine;
use crate::service::endpoint::Reach;
use crate::service::signing::{self, Keyring, MasterKey};
use crate::settlement::Settlement;
use crate::store::{self, Decider, Store};
use crate::worker::export::Exports;
use crate::worker::sweep::Sweep;
use crate::worker::{export, settle};

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
            entropy,
            settlement: Arc::clone(&settlement),
            exports: Arc::clone(&exports),
            cursor_key,
            callers: Arc::clone(&callers),
            rates: Rates::new(),
            metrics: metrics.clone(),
            routes: Routes::new()?,
            webhook_reach: if settings.loopback_webhooks { Reach::Loopback } else { Reach::Public },
            room: Semaphore::new(settings.max_under_way),
            key_set_location: HeaderValue::try_from(location).map_err(|e| Fault::new(e.to_string()))?,
        });

        let (mut serving, mut observing) = (Tasks::new(), Tasks::new());
        let ops = Arc::new(Ops {
            store: store.clone(),
            clock: Arc::clone(&clock),
            metrics: metrics.clone(),
            stopping: serving.stopping(),
        });
        serving.spawn(|stopping| callers.follow(stopping));
        serving
            .spawn(|stopping| settle::run(store.clone(), settlement, Arc::clone(&clock), metrics, stopping));
        let sweep = Sweep::new(store.clone(), Arc::clone(&exports), ids, Arc::clone(&clock));
        serving.spawn(|stopping| sweep.run(stopping));
        serving.spawn(|stopping| export::run(store.clone(), exports, keyring, clock, stopping));
        let api = serving.listen(sockets.api, api, &request_ids);
        let public = serving.listen(sockets.public, public, &request_ids);
        let ops = observing.listen(sockets.ops, ops, &request_ids);
        Ok(Running { api, public, ops, urls, store, serving, observing })
    }
}

impl Running {
    /// Takes no more requests, ends those under way within a bound of time, and closes the store. The ops listener
    /// answers until then.
    pub async fn stop(self) {
        let Self { store, serving, observing, .. } = self;
        serving.stop().await;
        // It joins threads. There is nobody left to tell of a failure.
        let _ = spawn_blocking(move || store.close()).await;
        observing.stop().await;
    }
}

/// The sign to stop: Ctrl-C, or SIGTERM. What arrives before anybody waits for it is not lost.
#[derive(Debug)]
pub struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    /// Begins to listen for the sign, which from now on does not end the process by itself.
    ///
    /// # Errors
    /// The operating system does not tell of signals.
    pub fn listen() -> Result<Self, Fault> {
        let listen = |kind| signal(kind).map_err(|e| Fault::new(format!("signals cannot be received: {e}")));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the sign.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
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

    fn listen<S: Site>(&mut self, socket: Socket, site: Arc<S>, ids: &Arc<RequestIds>) -> SocketAddr {
        self.spawn(|stopping| serve(socket.listener, site, Arc::clone(ids), stopping));
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

/// A socket, and where it listens in fact.
struct Socket {
    listener: TcpListener,
    address: SocketAddr,
}

struct Sockets {
    api: Socket,
    public: Socket,
    ops: Socket,
}

impl Sockets {
    async fn bind(settings: &Settings) -> Result<Self, Fault> {
        Ok(Self {
            api: bind("api_address", settings.api_address).await?,
            public: bind("public_address", settings.public_address).await?,
            ops: bind("ops_address", settings.ops_address).await?,
        })
    }

    fn urls(&self, settings: &Settings) -> Urls {
        let public = format!("http://{}", self.public.address);
        let base = || format!("http://{}{VERSION_PATH}", self.api.address);
        Urls {
            base: settings.base_url.clone().unwrap_or_else(base),
            verdicts: settings.verdicts_url.clone().unwrap_or_else(|| public.clone()),
            docs: settings.docs_url.clone().unwrap_or(public),
            ops: format!("http://{}", self.ops.address),
        }
    }
}

async fn bind(setting: &str, address: SocketAddr) -> Result<Socket, Fault> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        Ok::<_, std::io::Error>(Socket { address: listener.local_addr()?, listener })
    };
    bound.await.map_err(|e| Fault::new(format!("cannot listen on {address} ({setting}): {e}")))
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
