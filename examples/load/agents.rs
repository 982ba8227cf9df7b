//! Agents to ask as: registered anew for each run, each with a mandate, or known by their keys.

use std::path::Path;
use std::time::Duration;

use mandate_core::api_key::{ApiKey, KeyClass};
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::target::Target;
use crate::{Failure, mix, tokens};

/// How many agents are registered at a time.
const REGISTRARS: usize = 16;
/// How often a request is made again that came too soon.
const RETRIES: usize = 100;

#[derive(Deserialize)]
struct Agent {
    id: String,
    agent_key: String,
}

/// Reads agents' keys, one a line.
pub(crate) fn read(path: &Path) -> Result<Vec<String>, Failure> {
    let unusable = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| unusable(&e))?;
    for line in text.lines() {
        let key = ApiKey::parse(line).map_err(|e| unusable(&e))?;
        if key.class() != KeyClass::Agent {
            return Err(unusable(&"holds an organization's key; must hold agents' keys, one a line").into());
        }
    }
    let keys: Vec<_> = text.lines().map(str::to_owned).collect();
    if keys.is_empty() { Err(unusable(&"holds no key").into()) } else { Ok(keys) }
}

/// Registers so many agents. Returns their keys.
pub(crate) async fn register(base_url: &Target, key: &ApiKey, count: usize) -> Result<Vec<String>, Failure> {
    let run = tokens::now().millis();
    let mut registrars = JoinSet::new();
    for first in 0..REGISTRARS {
        let (target, organization) = (base_url.clone(), key.expose().to_owned());
        registrars.spawn(async move {
            let connection = Connection::open(&target).await?;
            let mut registrar = Registrar { target, connection, organization };
            let mut keys = Vec::new();
            for number in (first..count).step_by(REGISTRARS) {
                keys.push(registrar.register(&format!("load-{run}-{number}")).await?);
            }
            Ok::<_, Failure>(keys)
        });
    }
    let mut keys = Vec::with_capacity(count);
    while let Some(registered) = registrars.join_next().await {
        keys.extend(registered??);
    }
    Ok(keys)
}

struct Registrar {
    target: Target,
    connection: Connection,
    organization: String,
}

impl Registrar {
    async fn register(&mut self, name: &str) -> Result<String, Failure> {
        let created = self.create("/agents", &format!(r#"{{"name":"{name}"}}"#)).await?;
        let agent: Agent = serde_json::from_slice(&created)?;
        self.create("/mandates", &mix::mandate(&agent.id)).await?;
        Ok(agent.agent_key)
    }

    /// Posts until the key's rate admits it.
    async fn create(&mut self, path: &str, body: &str) -> Result<Vec<u8>, Failure> {
        let request = self.target.post(path, &self.organization, body);
        for _ in 0..RETRIES {
            let response = self.connection.exchange(request.as_bytes()).await?;
            match response.status {
                201 => return Ok(response.body.to_vec()),
                429 => {
                    let seconds = response.header("retry-after").and_then(|text| text.parse().ok());
                    tokio::time::sleep(Duration::from_secs(seconds.unwrap_or(1))).await;
                    // The server ends connections that are idle for long.
                    self.connection = Connection::open(&self.target).await?;
                }
                status => return Err(format!("{path} answered {status}: {}", response.text()).into()),
            }
        }
        Err(format!("{path} did not admit a request in {RETRIES} tries").into())
    }
}
