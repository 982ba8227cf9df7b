//! What governing records say of mandates: what each was written with, what took its place, and when it was revoked.

use std::collections::{BTreeMap, HashMap};

use mandate_core::json::{Field, Object};
use mandate_core::people::Answer;
use mandate_core::{AgentId, Invalid, Mandate, MandateId, Terms, Timestamp};

use super::people::Actor;

/// A mandate that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    number: u64,
    at: Timestamp,
    pub(crate) agent: AgentId,
    pub(crate) mandate: MandateId,
    terms: Terms,
    replaces: Option<MandateId>,
    pub(crate) governs_from: u64,
}

/// A mandate that was revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) number: u64,
    pub(crate) by: Actor,
    pub(crate) agent: AgentId,
    pub(crate) mandate: MandateId,
    pub(crate) at: Timestamp,
    /// The agent's last decision before.
    after: u64,
    /// The hash that the record holds.
    pub(crate) hash: Option<String>,
    pub(crate) answer: Option<Answer>,
}

/// The mandates of an environment, by their governing records.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    by_id: HashMap<MandateId, Granted>,
    /// Each agent's, in the order of the records.
    by_agent: HashMap<AgentId, Vec<MandateId>>,
    stops: BTreeMap<MandateId, Stop>,
}

impl Granted {
    pub(super) fn read(record: &mut Object<'_>, number: u64) -> Result<Self, Invalid> {
        Ok(Self {
            number,
            at: super::instant(&record.require("at")?)?,
            agent: AgentId::parse(&record.require("agent")?.string()?)?,
            mandate: MandateId::parse(&record.require("mandate")?.string()?)?,
            terms: Terms::read(record.require("terms")?.object()?)?,
            replaces: record.take("replaces").map(|id| MandateId::parse(&id.string()?)).transpose()?,
            governs_from: super::count(&record.require("governs_from")?, 1)?,
        })
    }
}

impl Stop {
    pub(super) fn read(
        record: &mut Object<'_>,
        number: u64,
        answer: Option<&Field<'_>>,
    ) -> Result<Self, Invalid> {
        Ok(Self {
            number,
            by: Actor::read(&record.require("by")?)?,
            agent: AgentId::parse(&record.require("agent")?.string()?)?,
            mandate: MandateId::parse(&record.require("mandate")?.string()?)?,
            at: super::instant(&record.require("at")?)?,
            after: super::count(&record.require("revoked_after")?, 0)?,
            hash: record.take("answer").map(|hash| hash.string()).transpose()?.map(Into::into),
            answer: answer.map(|answer| Answer::read(answer.object()?)).transpose()?,
        })
    }

    /// Whether a person gave it.
    pub(super) fn is_by_person(&self) -> bool {
        matches!(self.by, Actor::Person { .. })
    }

    /// Whether a person gave it, or the record says that one has signed it.
    pub(crate) fn is_signed(&self) -> bool {
        self.is_by_person() || self.hash.is_some()
    }
}

impl Grants {
    /// Takes the next record of a mandate that was written. Gives what contradicts the records before.
    pub(super) fn write(&mut self, granted: Granted) -> Option<String> {
        let id = granted.mandate;
        if let Some(first) = self.by_id.get(&id) {
            return Some(format!("{id}, which record {} has written", first.number));
        }
        self.by_agent.entry(granted.agent.clone()).or_default().push(id);
        self.by_id.insert(id, granted);
        None
    }

    /// Takes the next record of a mandate that was revoked. Gives what contradicts the records before.
    pub(super) fn revoke(&mut self, stop: Stop) -> Option<String> {
        let Stop { mandate, agent, .. } = &stop;
        if let Some(first) = self.stops.get(mandate) {
            return Some(format!("a revocation of {mandate}, which record {} has revoked", first.number));
        }
        let is_its = self.by_id.get(mandate).is_some_and(|granted| granted.agent == *agent);
        let found =
            (!is_its).then(|| format!("a revocation of {mandate}, which no record before gave {agent}"));
        self.stops.insert(*mandate, stop);
        found
    }

    /// The revocations.
    pub(crate) fn stops(&self) -> impl Iterator<Item = &Stop> {
        self.stops.values()
    }

    /// The mandate, by the records up to this number.
    pub(crate) fn mandate(&self, id: MandateId, newest: u64) -> Option<Mandate> {
        let granted = self.by_id.get(&id).filter(|granted| granted.number <= newest)?;
        let of_agent = self.by_agent.get(&granted.agent).map_or(&[][..], Vec::as_slice);
        let next = of_agent.iter().filter_map(|next| self.by_id.get(next));
        let next = next.filter(|next| next.number <= newest).find(|next| next.number > granted.number);
        let stop = self.stops.get(&id).filter(|stop| stop.number <= newest);
        Some(Mandate {
            governs_from: granted.governs_from,
            revoked_at: stop.map(|stop| stop.at),
            revoked_after: stop.map(|stop| stop.after),
            replaced_by: next.filter(|next| next.replaces == Some(id)).map(|next| next.mandate),
            governed_until: next.map(|next| next.governs_from.saturating_sub(1)),
            ..Mandate::new(id, granted.terms.clone(), granted.at)
        })
    }

    /// The last mandate that was written for the agent before its decision number `sequence`, by the records up to this number.
    pub(crate) fn written_before(&self, agent: &AgentId, sequence: u64, newest: u64) -> Option<&Granted> {
        let ids = self.by_agent.get(agent).map_or(&[][..], Vec::as_slice);
        let granted = ids.iter().rev().filter_map(|id| self.by_id.get(id));
        granted.filter(|granted| granted.number <= newest).find(|granted| granted.governs_from <= sequence)
    }
}
