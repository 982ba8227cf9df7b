//! Two organizations on one server, and a client that holds every answer against the contract.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mandate_server::http::X_REQUEST_ID;
use mandate_server::http::router::Key;
use reqwest::Method;
use serde_json::{Value, json};

use crate::contract::Contract;
use crate::wire::{Reply, exchange};
use crate::world::World;

/// A world with two tenants.
pub(crate) struct Tenants {
    pub(crate) world: World,
    pub(crate) ours: Tenant,
    pub(crate) theirs: Tenant,
}

/// One organization's sandbox, with two agents.
pub(crate) struct Tenant {
    pub(crate) client: Client,
    pub(crate) organization_key: String,
    pub(crate) agent_key: String,
    pub(crate) other_agent_key: String,
    /// Makes names unique.
    names: AtomicU32,
}

/// Talks to one server.
#[derive(Clone)]
pub(crate) struct Client {
    host: SocketAddr,
    contract: Arc<Contract>,
}

impl Tenants {
    pub(crate) async fn new() -> Self {
        Self::of(World::start().await).await
    }

    pub(crate) async fn of(world: World) -> Self {
        let client =
            Client { host: world.running.api, contract: Arc::new(Contract::of(&world.running.urls)) };
        let ours = Tenant::new(&client, world.organization_key.clone()).await;
        let theirs = Tenant::new(&client, world.onboard("other")).await;
        Self { world, ours, theirs }
    }
}

impl Tenant {
    pub(crate) async fn new(client: &Client, organization_key: String) -> Self {
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

    /// Registers an agent. Returns its id and key.
    pub(crate) async fn agent(&self) -> (String, String) {
        let agent = self.create("/v1/agents", &json!({"name": self.name()})).await;
        (text(&agent["id"]), text(&agent["agent_key"]))
    }

    /// Posts `body` with the organization's key. The request must succeed.
    pub(crate) async fn create(&self, path: &str, body: &Value) -> Value {
        let answer = self.client.post(path, body).bearer_auth(&self.organization_key).asked().await;
        assert!(answer.succeeded(), "{path}: {}", answer.body);
        answer.json()
    }
}

impl Client {
    pub(crate) fn request(&self, method: &Method, path: &str) -> Asking {
        let (client, method, path) = (self.clone(), method.clone(), path.to_owned());
        Asking { client, method, path, headers: String::new(), body: Vec::new() }
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
    client: Client,
    method: Method,
    path: String,
    headers: String,
    body: Vec<u8>,
}

impl Asking {
    pub(crate) fn bearer_auth(self, key: &str) -> Self {
        self.header("Authorization", &format!("Bearer {key}"))
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.extend([name, ": ", value, "\r\n"]);
        self
    }

    pub(crate) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self { body: body.clone(), ..self.header("Content-Length", &body.len().to_string()) }
    }

    /// A body and its Content-Type.
    pub(crate) fn json(self, body: &Value) -> Self {
        self.text(&body.to_string())
    }

    /// A body that says that it is JSON.
    pub(crate) fn text(self, body: &str) -> Self {
        self.header("Content-Type", "application/json").body(body)
    }

    /// Sends it. Every answer carries the id of its request, and is one that the contract has.
    pub(crate) async fn asked(self) -> Reply {
        let Self { client, method, path, headers, body } = self;
        let reply = exchange(client.host, method.as_str(), &path, &headers, &body).await;
        let id = reply.header(X_REQUEST_ID.as_str()).unwrap_or_default();
        assert!(id.starts_with("req_") && id.len() == 30, "{method} {path}: X-Request-Id `{id}`");
        client.contract.check(&method, &path, &reply);
        reply
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
