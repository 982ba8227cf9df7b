//! A server in this process on free ports, two organizations, and a client that holds every answer against the contract.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use mandate_server::app::{App, Running};
use mandate_server::clock::{Clock, Entropy, SystemEntropy, TestClock};
use mandate_server::config::{Config, Settings};
use mandate_server::http::routes::Key;
use mandate_server::http::{IDEMPOTENCY_REPLAYED, X_REQUEST_ID};
use mandate_server::service::organizations;
use mandate_server::service::signing::MasterKey;
use mandate_server::store;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::contract::Contract;

pub(crate) const START: &str = "2026-06-15T12:00:00Z";

/// Everything that a test talks to.
pub(crate) struct World {
    pub(crate) server: Running,
    pub(crate) ours: Tenant,
    pub(crate) theirs: Tenant,
    _folder: tempfile::TempDir,
}

/// One organization's sandbox, with two agents.
pub(crate) struct Tenant {
    pub(crate) client: Client,
    pub(crate) organization_key: String,
    pub(crate) agent_key: String,
    pub(crate) other_agent_key: String,
    /// Tells names apart.
    names: AtomicU32,
}

/// Talks to one server.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    pub(crate) host: String,
    contract: Arc<Contract>,
}

/// What was answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl World {
    pub(crate) async fn new() -> Self {
        let clock = Arc::new(TestClock::at(Timestamp::parse(START).unwrap()));
        Self::with(clock, Arc::new(SystemEntropy), |settings| settings).await
    }

    pub(crate) async fn with(
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        change: impl FnOnce(Settings) -> Settings,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = Settings {
            database: format!("sqlite://{}", folder.path().join("test.db").display()),
            api_address: free,
            public_address: free,
            ops_address: free,
            ..Settings::default()
        };
        store::migrate(&settings.database).unwrap();
        let keys = ["acme", "other"].map(|name| onboard(&settings.database, name));
        let config = Config { settings: change(settings), master_key: MasterKey::from_bytes([7; 32]) };
        let server = App::start(config, clock, entropy).await.unwrap();
        let host = server.urls.base.strip_suffix("/v1").unwrap().to_owned();
        let client = Client::new(host, Arc::new(Contract::of(&server.urls)));
        let [ours, theirs] = keys;
        let (ours, theirs) = (Tenant::new(&client, ours).await, Tenant::new(&client, theirs).await);
        Self { server, ours, theirs, _folder: folder }
    }
}

/// An organization; gives the key of its sandbox.
fn onboard(database: &str, name: &str) -> String {
    let key = |kind| {
        let mut random = [0; 32];
        SystemEntropy.fill(&mut random);
        ApiKey::from_random(KeyClass::Organization, kind, &random)
    };
    let create = organizations::Create {
        name: AgentName::parse(name).unwrap(),
        sandbox_key: key(EnvironmentKind::Sandbox),
        live_key: key(EnvironmentKind::Production),
        at: Timestamp::parse(START).unwrap(),
    };
    store::run_once(database, |tx| organizations::create(tx, &create)).unwrap().unwrap();
    create.sandbox_key.expose().to_owned()
}

impl Tenant {
    async fn new(client: &Client, organization_key: String) -> Self {
        let mut tenant = Self {
            client: client.clone(),
            organization_key,
            agent_key: String::new(),
            other_agent_key: String::new(),
            names: AtomicU32::new(0),
        };
        tenant.agent_key = tenant.agent().await.1;
        tenant.other_agent_key = tenant.agent().await.1;
        tenant
    }

    /// A name that no other agent has, in any tenant.
    pub(crate) fn name(&self) -> String {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.organization_key[11..19].to_lowercase())
    }

    /// A key that an operation takes.
    pub(crate) fn key(&self, class: Key) -> &str {
        if class == Key::Agent { &self.agent_key } else { &self.organization_key }
    }

    /// Registers an agent; gives its id and key.
    pub(crate) async fn agent(&self) -> (String, String) {
        let agent = self.create("/v1/agents", &json!({"name": self.name()})).await;
        (text(&agent["id"]), text(&agent["agent_key"]))
    }

    /// Posts `body` with the organization's key; what it asks for must be done.
    pub(crate) async fn create(&self, path: &str, body: &Value) -> Value {
        let answer = self.client.post(path, body).bearer_auth(&self.organization_key).asked().await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text);
        answer.json()
    }
}

impl Client {
    pub(crate) fn new(host: String, contract: Arc<Contract>) -> Self {
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        Self { http: http.build().unwrap(), host, contract }
    }

    pub(crate) fn request(&self, method: &Method, path: &str) -> Asking {
        let request = self.http.request(method.clone(), format!("{}{path}", self.host));
        Asking {
            request,
            method: method.clone(),
            path: path.to_owned(),
            contract: Arc::clone(&self.contract),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Asking {
        self.request(&Method::GET, path)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Asking {
        self.request(&Method::POST, path).json(body)
    }
}

/// A request that is being written.
pub(crate) struct Asking {
    request: RequestBuilder,
    method: Method,
    path: String,
    contract: Arc<Contract>,
}

impl Asking {
    fn with(self, change: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Self {
        Self { request: change(self.request), ..self }
    }

    pub(crate) fn bearer_auth(self, key: &str) -> Self {
        self.with(|request| request.bearer_auth(key))
    }

    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        self.with(|request| request.header(name, value))
    }

    pub(crate) fn body(self, body: impl Into<reqwest::Body>) -> Self {
        self.with(|request| request.body(body))
    }

    /// A body and its Content-Type.
    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("Content-Type", "application/json").body(body.to_string())
    }

    /// Sends it. Every answer carries the id of its request, and is one that the contract has.
    pub(crate) async fn asked(self) -> Answer {
        let response = self.request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let answer = Answer { status, headers, text: response.text().await.unwrap() };
        let id = answer.header(X_REQUEST_ID.as_str()).unwrap_or_default();
        assert!(
            id.starts_with("req_") && id.len() == 30,
            "{} {}: X-Request-Id `{id}`",
            self.method,
            self.path
        );
        self.contract.check(&self.method, &self.path, &answer);
        answer
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    pub(crate) fn replayed(&self) -> bool {
        self.header(IDEMPOTENCY_REPLAYED.as_str()) == Some("true")
    }

    /// Checks that this is an error of `code`; gives its message.
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        let error = &self.json()["error"];
        assert_eq!(error["code"], code, "{}", self.text);
        if !self.replayed() {
            assert_eq!(error["request_id"], self.header(X_REQUEST_ID.as_str()).unwrap());
        }
        text(&error["message"])
    }

    /// Status and body, without the id of the request.
    pub(crate) fn anonymous(&self) -> (StatusCode, String) {
        (self.status, self.text.replace(self.header(X_REQUEST_ID.as_str()).unwrap(), "req_"))
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
