//! The same world, spoken to in JSON below `/v1`: what is asked for must be answered with the status that is named.

use std::ops::Deref;

use mandate_server::config::Settings;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::world::World;

/// A world with a client.
pub(crate) struct Server {
    pub(crate) world: World,
    pub(crate) http: Client,
}

impl Deref for Server {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// A server whose settings were changed by `change`.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let http = Client::builder().no_proxy().build().unwrap();
        Self { world: World::start_with(change).await, http }
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
        Self { world: self.world.restart().await, ..self }
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, seconds: i64) {
        self.clock.advance(seconds);
    }

    /// Another organization's key.
    pub(crate) fn stranger(&self) -> String {
        self.onboard("other")
    }
}

async fn answered(response: Response, status: u16) -> Value {
    let found = response.status().as_u16();
    let body = response.text().await.unwrap();
    assert_eq!(found, status, "{body}");
    serde_json::from_str(&body).unwrap()
}
