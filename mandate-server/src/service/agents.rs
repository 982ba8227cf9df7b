//! Agents: registered by an organization, each with a key of its own.

use mandate_core::api_key::ApiKey;
use mandate_core::{AgentId, AgentName, MandateId, Timestamp};
use serde::Serialize;

use super::keys::DEFAULT_RATE;
use super::listing::{Cursors, Query, Walk};
use super::public_log::Governing;
use crate::error::{Code, Refusal};
use crate::model::call::{Answer, Call, Scripted};
use crate::store::sql;
use crate::store::sql::agents::Agent;
use crate::store::tx::Tx;

/// The command to register an agent.
#[derive(Debug)]
pub struct Create {
    /// Its name.
    pub name: AgentName,
    /// Its key, drawn before.
    pub key: ApiKey,
    /// Its position in the order of creation.
    pub id: [u8; 16],
    /// When.
    pub at: Timestamp,
}

#[derive(Serialize)]
struct View<'a> {
    id: &'a AgentId,
    name: &'a str,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    mandate: Option<MandateId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_key: Option<&'a str>,
}

impl<'a> View<'a> {
    fn of(agent: &'a Agent) -> Self {
        let Agent { id, created_at, governing, .. } = agent;
        Self { id, name: id.name(), created_at: *created_at, mandate: *governing, agent_key: None }
    }
}

/// Registers an agent. The answer is the only place where its key is ever shown.
///
/// # Errors
/// The name is taken in this environment.
pub fn create(tx: &mut Tx<'_>, call: &Call, command: &Create) -> Scripted {
    let environment = call.caller.environment.id;
    let (id, position, created_at) = (AgentId::of(&command.name), command.id, command.at);
    let agent = Agent { id, position, created_at, governing: None };
    if !sql::agents::insert(tx, environment, &agent)? {
        let message = format!("name `{}` is taken by another agent; choose another", command.name);
        return Err(Refusal::new(Code::NameTaken, message).into());
    }
    sql::keys::insert(tx, command.key.hash(), environment, Some(&agent.id), DEFAULT_RATE, command.at)?;
    Governing::AgentCreated { at: created_at, agent: &agent.id }.record(tx, environment)?;
    let view = View { agent_key: Some(command.key.expose()), ..View::of(&agent) };
    Ok(Answer { secret: true, ..Answer::new(201, &view)? })
}

/// The agents of the environment. Under an agent key, only that agent.
///
/// # Errors
/// The cursor does not open, or names another list.
pub fn list(tx: &mut Tx<'_>, call: &Call, query: &Query, cursors: &Cursors) -> Scripted {
    let environment = call.caller.environment.id;
    let own = call.caller.agent.as_ref();
    let place = |id: &str| match AgentId::parse(id) {
        // An agent must not learn whether another one exists.
        Ok(id) if own.is_none_or(|own| *own == id) => {
            Ok(sql::agents::find(tx, environment, &id)?.map(|agent| agent.position))
        }
        _ => Ok(None),
    };
    let walk = Walk::open("agents", String::new(), call, query, cursors, place)?;
    let found = match own {
        None => sql::agents::page(tx, environment, &walk.slice)?,
        Some(own) => {
            let own = sql::agents::find(tx, environment, own)?.into_iter();
            own.filter(|agent| walk.slice.contains(agent.position)).collect()
        }
    };
    let rows = found.iter().map(|agent| (agent.position, View::of(agent))).collect();
    walk.answer(rows, None)
}

/// One agent.
///
/// # Errors
/// There is none of that id in the environment, or, under an agent key, it is another.
pub fn get(tx: &mut Tx<'_>, call: &Call, id: &str) -> Scripted {
    let id = AgentId::parse(id).map_err(|_| Refusal::not_found())?;
    if call.caller.agent.as_ref().is_some_and(|own| *own != id) {
        return Err(Refusal::not_found().into());
    }
    let agent = sql::agents::find(tx, call.caller.environment.id, &id)?.ok_or_else(Refusal::not_found)?;
    Ok(Answer::new(200, &View::of(&agent))?)
}
