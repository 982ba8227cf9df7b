//! `/v1/agents`.

use mandate_core::AgentName;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::extract::{Admitted, Post};
use super::openapi::errors::NameTaken;
use super::openapi::page::{Page, PageParameters};
use super::openapi::values::{self, with};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::agents;

/// Register an agent
///
/// Registers an agent and gives it a key of its own. No later answer shows the key again.
#[utoipa::path(
    post, path = "/v1/agents", operation_id = "createAgent", tag = "Agents",
    security(("organizationKey" = [])),
    request_body(content = NewAgent, example = json!({"name": "buyer"})),
    responses(
        (
            status = 201, description = "The agent, and its key.", body = RegisteredAgent,
            links(
                ("getAgent" = (
                    operation_id = "getAgent", parameters(("id" = "$response.body#/id")),
                    description = "The agent.",
                )),
            ),
            example = json!(registered()),
        ),
        (status = 409, response = NameTaken),
    ),
)]
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let name = post.parse(|mut body| {
        let name = AgentName::parse(&body.require("name")?.string()?)?;
        body.finish().map(|()| name)
    });
    let command =
        name.map(|name| agents::Create { name, key: post.new_agent_key(), id: post.new_id(), at: post.at() });
    post.write(command, agents::create).await
}

/// List agents
///
/// The agents of the environment. An agent's key lists that agent alone.
#[utoipa::path(
    get, path = "/v1/agents", operation_id = "listAgents", tag = "Agents",
    security(("organizationKey" = []), ("agentKey" = [])),
    params(PageParameters),
    responses((
        status = 200, description = "A page, newest first.", body = AgentPage,
        example = json!({"data": [example()], "has_more": false}),
    )),
)]
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, cursors) = (request.page()?, request.cursors());
    request.read(move |tx, call| agents::list(tx, call, &page, &cursors)).await
}

/// Get an agent
///
/// One agent. An agent's key reaches that agent alone.
#[utoipa::path(
    get, path = "/v1/agents/{id}", operation_id = "getAgent", tag = "Agents",
    security(("organizationKey" = []), ("agentKey" = [])),
    params(("id" = values::AgentId, Path, description = "The agent's id.")),
    responses((
        status = 200, description = "The agent.", body = Agent,
        example = json!(example()),
    )),
)]
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let id = request.id.clone();
    request.read(move |tx, call| agents::get(tx, call, &id)).await
}

/// An agent to be registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    pub name: values::AgentName,
}

/// An agent.
#[derive(Debug, ToSchema)]
pub struct Agent {
    pub id: values::AgentId,
    pub name: values::AgentName,
    pub created_at: values::Timestamp,
    /// The mandate that governs it: the newest that was written for it, whatever its status. Absent when none was.
    #[schema(required = false)]
    pub mandate: values::MandateId,
}

/// An agent that was just registered, with its key.
#[derive(Debug, ToSchema)]
pub struct RegisteredAgent {
    pub id: values::AgentId,
    pub name: values::AgentName,
    pub created_at: values::Timestamp,
    pub agent_key: values::AgentKey,
}

type AgentPage = Page<Agent>;

fn example() -> Value {
    with(unmandated(), json!({"mandate": "mnd_01jxs6kx1v5n2m8p0c6t3h9d4e"}))
}

fn unmandated() -> Value {
    json!({"id": "agt_buyer", "name": "buyer", "created_at": "2026-06-15T12:00:00.000Z"})
}

fn registered() -> Value {
    let key = json!({"agent_key": "ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye"});
    with(unmandated(), key)
}
