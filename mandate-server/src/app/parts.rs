//! Builds the parts of a server, and gives each what it needs.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::header::HeaderValue;
use tokio::sync::{Semaphore, watch};
use tracing::warn;

use super::{Tasks, Urls, blocking};
use crate::clock::{Clock, CorrectedClock, Entropy, Ids, Skew};
use crate::config::{Config, Descriptors, Settings};
use crate::error::Fault;
use crate::http::openapi::Hosts;
use crate::http::{
    Api, Console, Downloads, KEY_SET_PATH, KeyCache, Ops, Public, Rates, Shared, SlowBodies, UnreadAnswers,
    api_router, console_router, ops_router, public_router,
};
use crate::metrics::Metrics;
use crate::model::call::ScriptError;
use crate::model::master_key::MasterKey;
use crate::service::decide::Engine;
use crate::service::endpoint::EgressPolicy;
use crate::service::moments::Moments;
use crate::service::people::challenges::Challenges;
use crate::service::public_log;
use crate::service::signing::rotation::Maker;
use crate::service::signing::{self, Keyring};
use crate::settlement::Settlement;
use crate::store::{self, Decider, Owned, Store};
use crate::traces::Traces;
use crate::worker::deliver::Deliverer;
use crate::worker::dial::Dialer;
use crate::worker::export::Exports;
use crate::worker::public_log::LogKeeper;
use crate::worker::rotate::Rotation;
use crate::worker::sweep::Sweep;
use crate::worker::{export, rotate, settle};
use mandate_core::cursor::CursorKey;
use zeroize::Zeroizing;

/// How long another server on the same SQLite file may take to end after its drain delay: connections end within 15 seconds,
/// the store within 5.
const ENDING_SECONDS: u64 = 30;

/// What the listeners and the workers share. Only the store runs already.
pub(super) struct Parts {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    pub(super) ids: Arc<Ids>,
    pub(super) store: Store,
    settings: Settings,
    entropy: Arc<dyn Entropy>,
    keyring: Keyring,
    cursor_key: Arc<CursorKey>,
    challenge_key: Zeroizing<[u8; 32]>,
    engine: Arc<Engine>,
    moments: Arc<Moments>,
    keys: Arc<KeyCache>,
    exports: Arc<Exports>,
    settlement: Arc<Settlement>,
    egress: EgressPolicy,
    rates: Arc<Rates>,
    skew: Arc<Skew>,
    /// Exchanges request rates with the other servers on the database.
    shared: Option<Shared>,
}

/// Takes the database for this server, and waits for the end of another one that has it.
pub(super) async fn own(settings: &Settings) -> Result<Owned, Fault> {
    let database = settings.database.clone();
    let patience = Duration::from_secs(settings.drain_delay_seconds + ENDING_SECONDS);
    blocking(move || Owned::take(&database, patience)).await
}

impl Parts {
    /// Migrates the database, opens the signing keys, and starts the store.
    pub(super) async fn open(
        config: Config,
        owned: Owned,
        urls: &Urls,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        metrics: Metrics,
    ) -> Result<Self, Fault> {
        let Config { settings, master_key } = config;
        let (cursor_key, challenge_key) = (Arc::new(master_key.cursor_key()), master_key.challenge_key());
        let (owned, keyring) = {
            let (database, issuer) = (settings.database.clone(), urls.verdicts.clone());
            let (clock, entropy) = (Arc::clone(&clock), Arc::clone(&entropy));
            blocking(move || {
                let keyring = prepare(&owned, &database, &master_key, &issuer, &*clock, &*entropy)?;
                Ok((owned, keyring))
            })
            .await?
        };
        let ids = Arc::new(Ids::new(Arc::clone(&entropy)));
        let seconds = settings.review_expiry_seconds;
        let (own, skew) = (clock, Arc::new(Skew::default()));
        let clock: Arc<dyn Clock> = Arc::new(CorrectedClock::new(Arc::clone(&own), Arc::clone(&skew)));
        let moments = Arc::new(Moments::new(Arc::clone(&clock), Arc::clone(&ids)));
        let engine = Arc::new(Engine::new(keyring.clone(), Arc::clone(&moments), seconds));
        let store = {
            let decider = Arc::clone(&engine) as Arc<dyn Decider>;
            let metrics = metrics.clone();
            blocking(move || Store::open(owned, decider, metrics)).await?
        };
        let rates = Arc::new(Rates::new());
        let clocks = (Arc::clone(&clock), own, Arc::clone(&skew));
        let mut shared = Shared::new(Arc::clone(&rates), clocks, store.clone(), &*entropy);
        let shared = if store.leases().is_some() {
            shared.begin().await?;
            Some(shared)
        } else {
            None
        };
        let beginning = Arc::clone(&moments);
        store.read(move |tx| beginning.begin(tx)).await??;
        let settlement = Settlement::new(&settings.settlement, keyring.clone(), Arc::clone(&clock))?;
        Ok(Self {
            keys: Arc::new(KeyCache::new(store.clone(), metrics.clone())),
            exports: Arc::new(Exports::new(settings.exports_directory())),
            settlement: Arc::new(settlement),
            egress: EgressPolicy {
                loopback: settings.loopback_webhooks,
                networks: settings.webhook_networks.clone(),
            },
            rates,
            shared,
            skew,
            clock,
            metrics,
            ids,
            store,
            settings,
            entropy,
            keyring,
            cursor_key,
            challenge_key,
            engine,
            moments,
        })
    }

    /// The router of the API.
    pub(super) fn api(&self, urls: &Urls, descriptors: &Descriptors) -> Result<Router, Fault> {
        let location = format!("{}{KEY_SET_PATH}", urls.verdicts);
        Ok(api_router(Arc::new(Api {
            store: self.store.clone(),
            engine: Arc::clone(&self.engine),
            ids: Arc::clone(&self.ids),
            moments: Arc::clone(&self.moments),
            clock: Arc::clone(&self.clock),
            entropy: Arc::clone(&self.entropy),
            settlement: Arc::clone(&self.settlement),
            exports: Arc::clone(&self.exports),
            cursor_key: Arc::clone(&self.cursor_key),
            keys: Arc::clone(&self.keys),
            rates: Arc::clone(&self.rates),
            metrics: self.metrics.clone(),
            webhook_egress: self.egress.clone(),
            room: Arc::new(Semaphore::new(self.settings.max_under_way)),
            slow_bodies: SlowBodies::default(),
            unread_answers: UnreadAnswers::default(),
            downloads: Downloads::new(descriptors.downloads),
            key_set_location: HeaderValue::try_from(location).map_err(|e| Fault::new(e.to_string()))?,
        })))
    }

    /// The router of the public listener.
    pub(super) fn public(&self, urls: &Urls) -> Result<Router, Fault> {
        let (store, clock) = (self.store.clone(), Arc::clone(&self.clock));
        let public = Arc::new(Public::new(self.keyring.clone(), store, clock, urls.console.clone()));
        public_router(public, Hosts { base: &urls.base, verdicts: &urls.verdicts })
    }

    /// The router of the console.
    pub(super) fn console(&self, urls: &Urls, stopping: watch::Receiver<bool>) -> Result<Router, Fault> {
        let origin = urls.console.as_deref().ok_or_else(|| Fault::new("a console without an address"))?;
        let (store, engine) = (self.store.clone(), Arc::clone(&self.engine));
        let time = (Arc::clone(&self.moments), Arc::clone(&self.clock));
        let at = (&*urls.verdicts, origin, Challenges::new(self.challenge_key.clone()));
        let console = Console::new(store, engine, time, at, stopping)?;
        console_router(Arc::new(console))
    }

    /// The router of the ops listener.
    pub(super) fn ops(&self, stopping: watch::Receiver<bool>) -> Router {
        let (clock, metrics, keyring) = (Arc::clone(&self.clock), self.metrics.clone(), self.keyring.clone());
        let (skew, moments) = (Arc::clone(&self.skew), Arc::clone(&self.moments));
        let store = self.store.clone();
        ops_router(Arc::new(Ops { store, clock, metrics, keyring, skew, moments, stopping }))
    }

    /// Starts the background work.
    pub(super) fn work(
        &mut self,
        traces: &Traces,
        urls: &Urls,
        descriptors: &Descriptors,
        tasks: &mut Tasks,
    ) -> Result<(), Fault> {
        if let Some(shared) = self.shared.take() {
            tasks.spawn(|stopping| shared.run(stopping));
        }
        let (store, keyring, metrics) = (&self.store, &self.keyring, &self.metrics);
        let clock = || Arc::clone(&self.clock);
        let (keys, exports) = (Arc::clone(&self.keys), Arc::clone(&self.exports));
        tasks.spawn(|stopping| keys.follow(stopping));
        tasks.spawn(|stopping| rotate::follow(store.clone(), keyring.clone(), stopping));
        let dialer = Arc::new(Dialer::new(self.egress.clone(), descriptors.idle)?);
        let entropy = Arc::clone(&self.entropy);
        let deliverer =
            Deliverer::new(store.clone(), keyring.clone(), dialer, clock(), entropy, metrics.clone());
        let deliverer = deliverer.traced(traces.clone()).at_most(descriptors.deliveries);
        let deliverer = deliverer.linking_to(urls.console.as_deref());
        tasks.spawn(|stopping| deliverer.run(stopping));
        let (settlement, moments) = (Arc::clone(&self.settlement), Arc::clone(&self.moments));
        tasks.spawn(|stopping| settle::run(store.clone(), settlement, moments, metrics.clone(), stopping));
        let rotation = self.settings.signing_key_rotation_days.map(|days| Rotation {
            days,
            keyring: keyring.clone(),
            entropy: Arc::clone(&self.entropy),
        });
        let keeper =
            LogKeeper::new(store.clone(), keyring.clone(), clock(), self.settings.checkpoints_directory())?;
        let keeper = keeper.measured(metrics.clone());
        tasks.spawn(|stopping| keeper.run(stopping));
        let sweep = Sweep::new(store.clone(), Arc::clone(&exports), Arc::clone(&self.moments), clock());
        tasks.spawn(|stopping| sweep.rotating(rotation).run(stopping));
        tasks.spawn(|stopping| {
            export::run(store.clone(), exports, keyring.clone(), Arc::clone(&self.moments), stopping)
        });
        Ok(())
    }
}

/// Migrates the database, and opens the signing keys. The first start creates both.
fn prepare(
    owned: &Owned,
    database: &str,
    master_key: &MasterKey,
    issuer: &str,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
) -> Result<Keyring, Fault> {
    owned.migrate(&|shown| clock.database(shown))?;
    let keyring = store::run_once(database, |tx| {
        signing::ensure(tx, Maker { master: master_key, entropy }, issuer, clock.now())?;
        for log in public_log::keys::of_another_issuer(tx, issuer)? {
            let (kind, log) = (log.kind, log.origin);
            warn!(%kind, log, issuer, "the public log has the name of another issuer; see `mandate-server log new-origin`");
        }
        Keyring::load(tx, master_key, issuer).map_err(ScriptError::Fault)
    })?;
    keyring.map_err(|refusal| Fault::new(refusal.message))
}
