//! Which mandate governs which agent, as the service says now.

use std::collections::BTreeMap;

use mandate_core::json::Object;
use mandate_core::{AgentId, MandateId, MandateStatus, Terms};

use crate::client::{Client, Paging, Walk};
use crate::exit::{Exit, Failure};
use crate::fields;

/// The fields of a mandate that a person writes, without those that the service adds.
pub(crate) const WRITTEN: [&str; 7] =
    ["principal", "agent", "limits", "categories", "review_above", "expires", "escrow"];

/// How often what governs an agent is read while it is being replaced.
const ATTEMPTS: usize = 5;

/// The mandate that governs an agent: the newest that was written for it, whatever its status.
#[derive(Debug, Clone)]
pub(crate) struct Governing {
    pub(crate) id: MandateId,
    pub(crate) status: MandateStatus,
    pub(crate) terms: Terms,
    /// The object, as the service shows it.
    pub(crate) shown: String,
}

impl Governing {
    fn read(shown: &str) -> Result<Self, Failure> {
        let unknown = |why: String| {
            Failure::new(Exit::UnknownAnswer, format!("the service's mandate is not understood: {why}"))
        };
        let text =
            |name: &str| fields::text(shown, name).ok_or_else(|| unknown(format!("{name} is required")));
        let terms = written(shown);
        Ok(Self {
            id: MandateId::parse(&text("id")?).map_err(|e| unknown(e.to_string()))?,
            status: MandateStatus::parse(&text("status")?).map_err(|e| unknown(e.to_string()))?,
            terms: Object::parse(terms.as_bytes())
                .and_then(Terms::read)
                .map_err(|e| unknown(e.to_string()))?,
            shown: shown.to_owned(),
        })
    }

    /// Whether it lets its agent spend.
    pub(crate) fn is_active(&self) -> bool {
        self.status == MandateStatus::Active
    }
}

/// The terms of a recorded mandate, as they were written.
pub(crate) fn written(recorded: &str) -> String {
    let members: Vec<String> = WRITTEN
        .iter()
        .filter_map(|name| Some(format!("\"{name}\":{}", fields::at(recorded, name)?)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// The agents of the environment, each with what governs it, if anything was ever written for it.
pub(crate) fn all(client: &Client) -> Result<BTreeMap<AgentId, Option<Governing>>, Failure> {
    let mut active = BTreeMap::new();
    for shown in list(client, "/mandates", vec![("status", MandateStatus::Active.to_string())])? {
        let mandate = Governing::read(&shown)?;
        active.insert(mandate.id, mandate);
    }
    let mut agents = BTreeMap::new();
    for shown in list(client, "/agents", Vec::new())? {
        let (agent, id) = named(&shown)?;
        let governing = match id {
            None => None,
            Some(id) => match active.remove(&id) {
                Some(mandate) => Some(mandate),
                // It was revoked, has expired, or was written since the list of the active ones was read.
                None => one(client, &agent)?,
            },
        };
        agents.insert(agent, governing);
    }
    Ok(agents)
}

/// What governs one agent now.
pub(crate) fn one(client: &Client, agent: &AgentId) -> Result<Option<Governing>, Failure> {
    for _ in 0..ATTEMPTS {
        let (_, id) = named(&client.get(&format!("/agents/{agent}"), &[])?)?;
        let Some(id) = id else { return Ok(None) };
        let mandate = Governing::read(&client.get(&format!("/mandates/{id}"), &[])?)?;
        // Between the two requests another one may have been written.
        if mandate.status != MandateStatus::Replaced {
            return Ok(Some(mandate));
        }
    }
    Err(Failure::new(Exit::Conflict, format!("the mandate of {agent} is replaced again and again")))
}

/// An agent's id, and that of the mandate that governs it.
fn named(agent: &str) -> Result<(AgentId, Option<MandateId>), Failure> {
    let unknown = || Failure::new(Exit::UnknownAnswer, "the service's agent is not understood");
    let id = fields::text(agent, "id").and_then(|id| AgentId::parse(&id).ok()).ok_or_else(unknown)?;
    let mandate = fields::text(agent, "mandate").map(|id| MandateId::parse(&id).map_err(|_| unknown()));
    Ok((id, mandate.transpose()?))
}

/// All objects of a list, newest first.
pub(crate) fn list(
    client: &Client,
    path: &str,
    filters: Vec<(&'static str, String)>,
) -> Result<Vec<String>, Failure> {
    let id = if path == "/decisions" { "jti" } else { "id" };
    let mut walk = Walk::new(client, path, Some(id), filters, &Paging { limit: 1, all: true });
    let mut found = Vec::new();
    while let Some(page) = walk.page()? {
        found.extend(page.iter().map(|item| item.get().to_owned()));
    }
    Ok(found)
}
