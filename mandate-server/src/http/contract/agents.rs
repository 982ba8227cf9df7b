//! What is said of `/v1/agents`.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::values::{AgentId, AgentKey, AgentName, Timestamp};
use super::{Operation, with};
use crate::error::Code;

const TAG: &str = "Agents";

/// An agent to be registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    pub name: AgentName,
}

/// An agent.
#[derive(Debug, ToSchema)]
pub struct Agent {
    pub id: AgentId,
    pub name: AgentName,
    pub created_at: Timestamp,
}

/// An agent that was just registered, with its key.
#[derive(Debug, ToSchema)]
pub struct RegisteredAgent {
    pub id: AgentId,
    pub name: AgentName,
    pub created_at: Timestamp,
    pub agent_key: AgentKey,
}

pub(crate) fn create(operation: Operation) -> Operation {
    let key = json!({"agent_key": "ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye"});
    operation
        .named("createAgent", TAG, "Register an agent")
        .told("Registers an agent and gives it a key of its own. This answer is the only place where the key ever stands.")
        .takes::<NewAgent>(json!({"name": "buyer"}))
        .gives::<RegisteredAgent>(201, "The agent, and its key.", with(example(), key))
        .leads("getAgent", "/id", "The agent.")
        .refuses(Code::NameTaken)
}

pub(crate) fn list(operation: Operation) -> Operation {
    operation
        .named("listAgents", TAG, "List agents")
        .told("The agents of the environment. An agent's key lists that agent alone.")
        .pages::<Agent>(&example())
}

pub(crate) fn get(operation: Operation) -> Operation {
    operation
        .named("getAgent", TAG, "Get an agent")
        .told("One agent. An agent's key reaches that agent alone.")
        .id::<AgentId>("The agent's id.")
        .gives::<Agent>(200, "The agent.", example())
}

fn example() -> Value {
    json!({"id": "agt_buyer", "name": "buyer", "created_at": "2026-06-15T12:00:00.000Z"})
}
