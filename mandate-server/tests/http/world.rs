//! A server on free ports over a database of its own, an organization, and the bytes that go over the wire.

use std::sync::Arc;

use mandate_core::api_key::ApiKey;
use mandate_core::{AgentName, Timestamp};
use mandate_server::admin::organization;
use mandate_server::app::{App, Running};
use mandate_server::clock::{Clock, Entropy, SystemEntropy, TestClock};
use mandate_server::config::{Config, Settings};
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::audit::Operator;
use mandate_server::service::{moments, organizations};
use mandate_server::store::sql::keys::{self, IssuedKey};
use mandate_server::store::tx::Tx;
use mandate_tests::{Database, Kind};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::apart;
use crate::oracle;
use crate::wire::{Reply, exchange};

/// A running server, its clock, and the keys of one organization.
pub(crate) struct World {
    pub(crate) running: Running,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) settings: Settings,
    /// The organization's key for its sandbox.
    pub(crate) organization_key: String,
    /// The organization's key for production.
    pub(crate) live_key: String,
    _folder: TempDir,
    _held: Option<Database>,
}

/// A clock that shows noon of 15 June 2026 and does not move.
pub(crate) fn noon() -> Arc<TestClock> {
    Arc::new(TestClock::at(Timestamp::parse("2026-06-15T12:00:00Z").unwrap()))
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// A server whose settings were changed by `change`.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let clock = noon();
        Self::made_of(Arc::clone(&clock), clock, Arc::new(SystemEntropy), change).await
    }

    /// A server that is shown `time`, which follows `clock`.
    pub(crate) async fn made_of(
        clock: Arc<TestClock>,
        time: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        Self::on(crate::KIND, clock, time, entropy, change).await
    }

    /// The same on a database of this kind.
    pub(crate) async fn on(
        kind: Kind,
        clock: Arc<TestClock>,
        time: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let (folder, held) = (tempfile::tempdir().unwrap(), apart::migrated(kind));
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let mut settings = Settings {
            database: held.url().to_owned(),
            exports_directory: Some(folder.path().join("exports")),
            api_address: anywhere,
            public_address: anywhere,
            ops_address: anywhere,
            ..Settings::default()
        };
        change(&mut settings);
        let config = Config { settings: settings.clone(), master_key: MasterKey::from_bytes([7; 32]) };
        let running = App::start(config, time, Arc::clone(&entropy)).await.unwrap();
        let created = create_organization(&settings, "acme", &clock, &*entropy);
        let [organization_key, live_key] =
            [created.sandbox_key, created.live_key].map(|key| key.expose().to_owned());
        Self { running, clock, settings, organization_key, live_key, _folder: folder, _held: Some(held) }
    }

    /// Another server on the same database, that is shown its own time.
    #[allow(dead_code, reason = "the suite of one database has no such case")]
    pub(crate) async fn beside(&self, clock: Arc<TestClock>) -> Self {
        let verdicts_url = Some(self.running.urls.verdicts.clone());
        let settings = Settings { verdicts_url, ..self.settings.clone() };
        let config = Config { settings, master_key: MasterKey::from_bytes([7; 32]) };
        let running = App::start(config, Arc::clone(&clock) as _, Arc::new(SystemEntropy)).await.unwrap();
        let (organization_key, live_key) = (self.organization_key.clone(), self.live_key.clone());
        let (settings, folder) = (self.settings.clone(), tempfile::tempdir().unwrap());
        Self { running, clock, settings, organization_key, live_key, _folder: folder, _held: None }
    }

    /// The same again, after an orderly stop.
    pub(crate) async fn restart(self) -> Self {
        self.running.stop().await;
        let config = Config { settings: self.settings.clone(), master_key: MasterKey::from_bytes([7; 32]) };
        let running =
            App::start(config, Arc::clone(&self.clock) as _, Arc::new(SystemEntropy)).await.unwrap();
        Self { running, ..self }
    }

    /// A server on another database, to which `transfer` moves what this one has, once it has stopped.
    #[allow(dead_code, reason = "the suite of one database has no such case")]
    pub(crate) async fn moved(self, to: Database, transfer: impl FnOnce(&str, &str)) -> Self {
        self.running.stop().await;
        transfer(&self.settings.database, to.url());
        let settings = Settings { database: to.url().to_owned(), ..self.settings.clone() };
        let config = Config { settings: settings.clone(), master_key: MasterKey::from_bytes([7; 32]) };
        let running =
            App::start(config, Arc::clone(&self.clock) as _, Arc::new(SystemEntropy)).await.unwrap();
        Self { running, settings, _held: Some(to), ..self }
    }

    /// Stops the server, and moves what it has to another database.
    #[allow(dead_code, reason = "the suite of one database has no such case")]
    pub(crate) async fn stopped(self, to: &Database, transfer: impl FnOnce(&str, &str)) {
        self.running.stop().await;
        transfer(&self.settings.database, to.url());
    }

    /// What the operator does once a clock that was wrong is right.
    pub(crate) fn accept_clock(&self) {
        let by = Operator { name: "test".to_owned(), at: self.clock.now() };
        let accept = |tx: &mut Tx<'_>| moments::accept(tx, &*self.clock, &by).map(drop);
        apart::run_once(&self.settings.database, accept).unwrap().unwrap();
    }

    /// Holds the database against all that can be computed again; gives how many decisions there are.
    pub(crate) fn holds(&self) -> usize {
        oracle::holds(&self.settings.database)
    }

    /// Another organization; returns the key of its sandbox.
    pub(crate) fn onboard(&self, name: &str) -> String {
        create_organization(&self.settings, name, &self.clock, &SystemEntropy).sandbox_key.expose().to_owned()
    }

    /// What another process does to the keys.
    pub(crate) fn change_key(&self, key: &str, change: impl Fn(&mut IssuedKey) + Send) {
        let hash = ApiKey::parse(key).unwrap().hash();
        let changed = apart::run_once(&self.settings.database, move |tx| {
            let mut key = keys::with_hash(tx, hash, hash)?.pop().unwrap();
            change(&mut key);
            Ok(keys::update(tx, &key)?)
        });
        changed.unwrap().unwrap();
    }

    /// Registers an agent; returns its key.
    pub(crate) async fn agent(&self, name: &str) -> String {
        let created = self.post(&self.organization_key, "/v1/agents", &json!({ "name": name })).await;
        assert_eq!(created.status, 201, "{}", created.body);
        created.json()["agent_key"].as_str().unwrap().to_owned()
    }

    /// Writes a mandate that allows up to 500 USD for software, above 200 with a review.
    pub(crate) async fn mandate(&self, agent: &str) -> String {
        let mandate = json!({
            "principal": "role:finance",
            "agent": agent,
            "limits": { "per_transaction": 500, "currency": "USD" },
            "categories": ["software"],
            "review_above": 200,
            "expires": "2026-12-31",
        });
        let created = self.post(&self.organization_key, "/v1/mandates", &mandate).await;
        assert_eq!(created.status, 201, "{}", created.body);
        created.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn post(&self, key: &str, path: &str, body: &Value) -> Reply {
        self.post_text(key, path, "", &body.to_string()).await
    }

    /// A POST with a JSON body and more headers, each with its line break.
    pub(crate) async fn post_text(&self, key: &str, path: &str, headers: &str, body: &str) -> Reply {
        let headers =
            format!("{headers}Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        self.send("POST", path, key, &headers, body).await
    }

    pub(crate) async fn get(&self, key: &str, path: &str) -> Reply {
        self.send("GET", path, key, "", "").await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, key: &str, headers: &str, body: &str) -> Reply {
        let headers = format!("Authorization: Bearer {key}\r\n{headers}");
        exchange(self.running.api, method, path, &headers, body.as_bytes()).await
    }
}

/// An amount within the mandate that [`World::mandate`] writes.
pub(crate) fn spend(amount: u32) -> Value {
    json!({ "amount": amount, "currency": "USD", "recipient": "vendor:acme", "category": "software" })
}

fn create_organization(
    settings: &Settings,
    name: &str,
    clock: &TestClock,
    entropy: &dyn Entropy,
) -> organizations::Create {
    let create = organization::draw(AgentName::parse(name).unwrap(), clock.now(), entropy);
    apart::run_once(&settings.database, |tx| organizations::create(tx, &create)).unwrap().unwrap();
    create
}
