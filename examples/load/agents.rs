//! Agents to ask as: registered anew for each run, each with a mandate.

use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderValue, RETRY_AFTER};
use mandate_core::api_key::ApiKey;
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::Failure;
use crate::http::{Connection, Response, Target};
use crate::{mix, tokens};

/// How many agents are registered at a time.
const REGISTRARS: usize = 16;
/// How often a request is made again that came too soon.
const RETRIES: usize = 100;

#[derive(Deserialize)]
struct Agent {
    id: String,
    agent_key: String,
}

/// What each agent sends as `Authorization`.
pub(crate) async fn register(
    base_url: &Target,
    key: &ApiKey,
    count: usize,
) -> Result<Vec<HeaderValue>, Failure> {
    let organization = bearer(key.expose())?;
    let run = tokens::now().millis();
    let mut registrars = JoinSet::new();
    for first in 0..REGISTRARS {
        let (base_url, organization) = (base_url.clone(), organization.clone());
        registrars.spawn(async move {
            let mut registrar = Registrar::new(&base_url, organization).await?;
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
    connection: Connection,
    organization: HeaderValue,
    agents: Uri,
    mandates: Uri,
}

impl Registrar {
    async fn new(base_url: &Target, organization: HeaderValue) -> Result<Self, Failure> {
        let path = |name| format!("{}/{name}", base_url.path()).parse::<Uri>();
        let (agents, mandates) = (path("agents")?, path("mandates")?);
        Ok(Self { connection: base_url.connect().await?, organization, agents, mandates })
    }

    async fn register(&mut self, name: &str) -> Result<HeaderValue, Failure> {
        let created = self.create(&self.agents.clone(), format!(r#"{{"name":"{name}"}}"#)).await?;
        let agent: Agent = serde_json::from_slice(&created.body)?;
        self.create(&self.mandates.clone(), mix::mandate(&agent.id)).await?;
        bearer(&agent.agent_key)
    }

    /// Posts until the key's rate admits it.
    async fn create(&mut self, path: &Uri, body: String) -> Result<Response, Failure> {
        for _ in 0..RETRIES {
            let response = self.connection.post(path, &self.organization, body.clone()).await?;
            match response.status.as_u16() {
                201 => return Ok(response),
                429 => {
                    let seconds = response.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(1);
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                }
                status => {
                    return Err(format!(
                        "{path} answered {status}: {}",
                        String::from_utf8_lossy(&response.body)
                    )
                    .into());
                }
            }
        }
        Err(format!("{path} did not admit a request in {RETRIES} tries").into())
    }
}

fn bearer(key: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(&format!("Bearer {key}"))?;
    value.set_sensitive(true);
    Ok(value)
}
