//! A server on free ports over a database of its own, and clients that show every byte of an answer.

use std::net::SocketAddr;
use std::sync::Arc;

use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use mandate_server::admin::organization::new_key;
use mandate_server::app::{App, Running};
use mandate_server::clock::{Clock as _, SystemEntropy, TestClock};
use mandate_server::config::{Config, SQLITE, Settings};
use mandate_server::service::organizations;
use mandate_server::service::signing::MasterKey;
use mandate_server::store;
use mandate_server::store::tx::Value as Parameter;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A running server, its clock, and the keys of one organization.
pub(crate) struct World {
    pub(crate) server: Running,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) database: String,
    pub(crate) organization: String,
    _folder: TempDir,
}

/// An answer, as it came over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case, sorted; `date` is left out.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl World {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("{SQLITE}{}/test.db", folder.path().display());
        let clock = Arc::new(TestClock::at(Timestamp::parse("2026-06-15T12:00:00Z").unwrap()));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = Settings {
            database: database.clone(),
            api_address: any,
            public_address: any,
            ops_address: any,
            ..Settings::default()
        };
        let config = Config { settings, master_key: MasterKey::from_bytes([7; 32]) };
        let server = App::start(config, Arc::clone(&clock) as _, Arc::new(SystemEntropy)).await.unwrap();
        let organization = onboard(&database, "acme", &clock);
        Self { server, clock, database, organization, _folder: folder }
    }

    /// Another organization; returns the key of its sandbox.
    pub(crate) fn onboard(&self, name: &str) -> String {
        onboard(&self.database, name, &self.clock)
    }

    /// What another process does to the keys.
    pub(crate) fn change_keys(&self, sql: &'static str, parameters: &[Parameter]) {
        let changed = store::run_once(&self.database, |tx| {
            tx.execute_one(sql, parameters)?;
            Ok(tx.execute_one("UPDATE revisions SET revision = revision + 1 WHERE name = 'api_keys'", &[])?)
        });
        changed.unwrap().unwrap();
    }

    /// Registers an agent; returns its key.
    pub(crate) async fn agent(&self, name: &str) -> String {
        let created = self.post(&self.organization, "/v1/agents", &json!({ "name": name })).await;
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
        let created = self.post(&self.organization, "/v1/mandates", &mandate).await;
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
        exchange(self.server.api, method, path, &headers, body.as_bytes()).await
    }
}

/// An amount within the mandate that [`World::mandate`] writes.
pub(crate) fn spend(amount: u32) -> Value {
    json!({ "amount": amount, "currency": "USD", "recipient": "vendor:acme", "category": "software" })
}

fn onboard(database: &str, name: &str, clock: &TestClock) -> String {
    let create = organizations::Create {
        name: AgentName::parse(name).unwrap(),
        sandbox_key: new_key(EnvironmentKind::Sandbox, &SystemEntropy),
        live_key: new_key(EnvironmentKind::Production, &SystemEntropy),
        at: clock.now(),
    };
    store::run_once(database, |tx| organizations::create(tx, &create)).unwrap().unwrap();
    create.sandbox_key.expose().to_owned()
}

/// One request over a connection of its own, written as it stands.
pub(crate) async fn exchange(at: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n");
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that has seen enough may close before all of the body is written.
    let _ = stream.write_all(body).await;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    Reply::read(&bytes)
}

impl Reply {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let mut headers: Vec<_> = headers.map(|(n, v)| (n.to_lowercase(), v.to_owned())).collect();
        headers.retain(|(name, _)| name != "date");
        headers.sort();
        Self { status, headers, body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The error code, when the answer is the envelope of its own request.
    pub(crate) fn code(&self) -> String {
        let error = &self.json()["error"];
        assert_eq!(error["request_id"].as_str(), self.header("x-request-id"), "{}", self.body);
        assert_eq!(error.as_object().unwrap().len(), 3, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/json"));
        error["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_else(|| panic!("{}", self.body)).to_owned()
    }

    /// The answer with its request's id blotted out.
    pub(crate) fn anonymous(&self) -> Self {
        let id = self.header("x-request-id").unwrap().to_owned();
        let mut blotted = self.clone();
        blotted.body = blotted.body.replace(&id, "req_");
        blotted.headers.iter_mut().for_each(|(_, value)| *value = value.replace(&id, "req_"));
        blotted
    }
}
