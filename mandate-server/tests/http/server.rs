//! A server on free ports, an organization with one agent, and a client.

use std::sync::Arc;

use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use mandate_server::admin::organization::new_key;
use mandate_server::app::{App, Running};
use mandate_server::clock::{SystemEntropy, TestClock};
use mandate_server::config::{Config, Settings};
use mandate_server::service::organizations;
use mandate_server::service::signing::MasterKey;
use mandate_server::store;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};

/// A running server and everything that a test talks to.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) http: Client,
    pub(crate) organization_key: String,
    /// The organization's key for production.
    pub(crate) live_key: String,
    pub(crate) settings: Settings,
    clock: Arc<TestClock>,
    _folder: tempfile::TempDir,
}

/// Noon of 15 June 2026.
fn noon() -> Timestamp {
    Timestamp::parse("2026-06-15T12:00:00Z").unwrap()
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// A server whose settings were changed by `change`.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let mut settings = Settings {
            database: format!("sqlite://{}", folder.path().join("test.db").display()),
            api_address: anywhere,
            public_address: anywhere,
            ops_address: anywhere,
            ..Settings::default()
        };
        change(&mut settings);
        let clock = Arc::new(TestClock::at(noon()));
        let running = run(&settings, &clock).await;
        let http = Client::builder().no_proxy().build().unwrap();
        let (organization_key, live_key) = create_organization(&settings, "acme");
        Self { running, clock, http, organization_key, live_key, settings, _folder: folder }
    }

    pub(crate) fn get(&self, key: &str, path: &str) -> RequestBuilder {
        self.http.get(format!("{}{path}", self.running.urls.base)).bearer_auth(key)
    }

    /// GETs with a key; the answer must be of this status.
    pub(crate) async fn read(&self, key: &str, path: &str, status: u16) -> Value {
        answered(self.get(key, path).send().await.unwrap(), status).await
    }

    /// POSTs with a key; the answer must be of this status.
    pub(crate) async fn post(&self, key: &str, path: &str, body: &Value, status: u16) -> Value {
        let request = self.http.post(format!("{}{path}", self.running.urls.base)).bearer_auth(key).json(body);
        answered(request.send().await.unwrap(), status).await
    }

    /// Registers an agent with a mandate for USD in category `c`, 500 at a time, 1,000 a month. Gives its key.
    pub(crate) async fn agent(&self, name: &str) -> String {
        self.agent_of(&self.organization_key, name).await
    }

    /// Registers an agent with such a mandate in the environment of `key`.
    pub(crate) async fn agent_of(&self, key: &str, name: &str) -> String {
        let agent = self.post(key, "/agents", &json!({ "name": name }), 201).await;
        let mandate = json!({"principal": "role:cfo", "agent": agent["id"], "categories": ["c"],
            "limits": {"per_transaction": 500, "per_month": 1000, "currency": "USD"}, "expires": "2026-12-31"});
        self.post(key, "/mandates", &mandate, 201).await;
        agent["agent_key"].as_str().unwrap().to_owned()
    }

    /// Asks for an authorization.
    pub(crate) async fn ask(&self, agent_key: &str, amount: Value) -> Value {
        let request = json!({"amount": amount, "currency": "USD", "recipient": "vendor:v", "category": "c"});
        self.post(agent_key, "/authorizations", &request, 201).await
    }

    /// The same again, after an orderly stop.
    pub(crate) async fn restart(self) -> Self {
        let Self { running, http, organization_key, live_key, settings, clock, _folder: folder } = self;
        running.stop().await;
        let running = run(&settings, &clock).await;
        Self { running, http, organization_key, live_key, settings, clock, _folder: folder }
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, seconds: i64) {
        self.clock.advance(seconds);
    }

    /// Another organization's key.
    pub(crate) fn stranger(&self) -> String {
        create_organization(&self.settings, "other").0
    }
}

async fn run(settings: &Settings, clock: &Arc<TestClock>) -> Running {
    let config = Config { settings: settings.clone(), master_key: MasterKey::from_bytes([7; 32]) };
    App::start(config, Arc::clone(clock) as _, Arc::new(SystemEntropy)).await.unwrap()
}

fn create_organization(settings: &Settings, name: &str) -> (String, String) {
    let create = organizations::Create {
        name: AgentName::parse(name).unwrap(),
        sandbox_key: new_key(EnvironmentKind::Sandbox, &SystemEntropy),
        live_key: new_key(EnvironmentKind::Production, &SystemEntropy),
        at: noon(),
    };
    store::run_once(&settings.database, |tx| organizations::create(tx, &create)).unwrap().unwrap();
    (create.sandbox_key.expose().to_owned(), create.live_key.expose().to_owned())
}

async fn answered(response: Response, status: u16) -> Value {
    let found = response.status().as_u16();
    let body = response.text().await.unwrap();
    assert_eq!(found, status, "{body}");
    serde_json::from_str(&body).unwrap()
}
