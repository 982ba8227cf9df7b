//! The mandates of an export, and which of them governs which decision. No clock is asked.

use std::collections::{BTreeMap, HashMap};

use mandate_core::{AgentId, Mandate, MandateId, Timestamp};

/// The mandates that the decisions of an export were made under.
#[derive(Debug, Default)]
pub(crate) struct Mandates {
    by_id: BTreeMap<MandateId, Listed>,
    /// Each agent's, in the order in which they govern.
    by_agent: HashMap<AgentId, Vec<MandateId>>,
}

/// A mandate, and the line that it is on.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) line: u64,
    pub(crate) mandate: Mandate,
}

impl Mandates {
    /// Adds the mandate of a line.
    pub(crate) fn insert(&mut self, line: u64, mandate: Mandate) {
        let id = mandate.id;
        let ids = self.by_agent.entry(mandate.terms.agent.clone()).or_default();
        self.by_id.insert(id, Listed { line, mandate });
        ids.push(id);
        let range = |id: &MandateId| {
            let mandate = self.by_id.get(id).map(|listed| &listed.mandate);
            mandate.map(|m| (m.governs_from, m.governed_until.unwrap_or(u64::MAX)))
        };
        ids.sort_by_key(range);
    }

    /// The mandate of that id.
    pub(crate) fn get(&self, id: &MandateId) -> Option<&Mandate> {
        self.by_id.get(id).map(|listed| &listed.mandate)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Each agent's mandates, in the order in which they govern; agents in the order of their first mandate's id.
    pub(crate) fn by_agent(&self) -> impl Iterator<Item = Vec<&Listed>> {
        let mut agents: Vec<_> = self.by_agent.values().collect();
        agents.sort_unstable();
        agents.into_iter().map(|ids| ids.iter().filter_map(|id| self.by_id.get(id)).collect())
    }

    /// The agent's mandates, in the order in which they govern.
    fn of<'a>(&'a self, agent: &AgentId) -> impl DoubleEndedIterator<Item = &'a Mandate> {
        self.by_agent.get(agent).into_iter().flatten().filter_map(|id| self.get(id))
    }

    /// The mandate that governs the agent's decision number `sequence`.
    pub(crate) fn governing(&self, agent: &AgentId, sequence: u64) -> Option<&Mandate> {
        self.of(agent).rev().find(|mandate| mandate.governs(sequence))
    }

    /// The last mandate that was written for the agent before its decision number `sequence`. From then on one governs, be it
    /// this one or one that took its place.
    pub(crate) fn written_before(&self, agent: &AgentId, sequence: u64) -> Option<&Mandate> {
        self.of(agent).rev().find(|mandate| mandate.governs_from <= sequence)
    }
}

/// The mandate as it was for a decision: revoked, or not.
pub(crate) fn with_revocation(mandate: &Mandate, is_revoked: bool) -> Mandate {
    let revoked_at = is_revoked.then(|| mandate.revoked_at.unwrap_or(Timestamp::from_seconds(0)));
    Mandate { revoked_at, ..mandate.clone() }
}
