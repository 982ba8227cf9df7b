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

/// A mandate, and the line that it is on, of which export of several.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) part: usize,
    pub(crate) line: u64,
    pub(crate) mandate: Mandate,
}

/// A mandate that an export shows with another value than an earlier export.
#[derive(Debug)]
pub(crate) struct Contradiction {
    pub(crate) again: Listed,
    pub(crate) field: &'static str,
    /// Where the earlier one is: the export and the line.
    pub(crate) known: (usize, u64),
}

impl Mandates {
    /// Those of an export's lines.
    pub(crate) fn of_lines(lines: impl IntoIterator<Item = (u64, Mandate)>) -> Self {
        let mut mandates = Self::default();
        for (line, mandate) in lines {
            mandates.add(Listed { part: 0, line, mandate });
        }
        mandates.sort();
        mandates
    }

    /// Adds one. [`Self::sort`] must follow.
    fn add(&mut self, listed: Listed) {
        let id = listed.mandate.id;
        self.by_agent.entry(listed.mandate.terms.agent.clone()).or_default().push(id);
        self.by_id.insert(id, listed);
    }

    fn sort(&mut self) {
        let range = |id: &MandateId| {
            let mandate = self.by_id.get(id).map(|listed| &listed.mandate);
            mandate.map(|m| (m.governs_from, m.governed_until.unwrap_or(u64::MAX)))
        };
        for ids in self.by_agent.values_mut() {
            ids.sort_by_key(range);
        }
    }

    /// Joins those of exports of adjoining periods, each mandate once, with all that any of them knows of it. Gives what
    /// contradicts.
    pub(crate) fn join(parts: Vec<Self>) -> (Self, Vec<Contradiction>) {
        let (mut all, mut contradictions) = (Self::default(), Vec::new());
        for (part, mut of_part) in parts.into_iter().enumerate() {
            for listed in of_part.by_id.values_mut() {
                listed.part = part;
            }
            if all.len() == 0 {
                all = of_part;
                continue;
            }
            for again in of_part.by_id.into_values() {
                let Some(known) = all.by_id.get_mut(&again.mandate.id) else {
                    all.add(again);
                    continue;
                };
                if let Some(field) = known.learn(&again) {
                    contradictions.push(Contradiction { again, field, known: (known.part, known.line) });
                }
            }
        }
        all.sort();
        all.end_what_was_replaced();
        (all, contradictions)
    }

    /// An export that was written before a mandate was replaced does not show its end. The next mandate, of another
    /// export, does.
    fn end_what_was_replaced(&mut self) {
        for ids in self.by_agent.values() {
            for (id, next) in ids.iter().zip(ids.iter().skip(1)) {
                let next = self.by_id.get(next).map(|next| (next.part, next.mandate.governs_from));
                if let (Some(listed), Some((part, from))) = (self.by_id.get_mut(id), next)
                    && listed.part != part
                {
                    listed.mandate.governed_until.get_or_insert(from.saturating_sub(1));
                }
            }
        }
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

    /// The mandates, in no order of the agents.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Listed> {
        self.by_id.values()
    }

    /// The agent's mandates that were written before its decision number `sequence`, the last first.
    fn before<'a>(&'a self, agent: &AgentId, sequence: u64) -> impl Iterator<Item = &'a Mandate> {
        let ids = self.by_agent.get(agent).map_or(&[][..], Vec::as_slice);
        let is_before = |id: &MandateId| self.get(id).is_some_and(|m| m.governs_from <= sequence);
        let (before, _) = ids.split_at(ids.partition_point(is_before));
        before.iter().rev().filter_map(|id| self.get(id))
    }

    /// The mandate that governs the agent's decision number `sequence`.
    pub(crate) fn governing(&self, agent: &AgentId, sequence: u64) -> Option<&Mandate> {
        self.before(agent, sequence).find(|mandate| mandate.governs(sequence))
    }

    /// The last mandate that was written for the agent before its decision number `sequence`. From then on one governs, be it
    /// this one or one that took its place.
    pub(crate) fn written_before(&self, agent: &AgentId, sequence: u64) -> Option<&Mandate> {
        self.before(agent, sequence).next()
    }
}

impl Listed {
    /// Takes over what another export knows of the mandate. Gives the field in which they differ.
    fn learn(&mut self, again: &Self) -> Option<&'static str> {
        let (known, again) = (&mut self.mandate, &again.mandate);
        if known.terms != again.terms {
            return Some("terms");
        }
        if known.created_at != again.created_at {
            return Some("created_at");
        }
        if known.governs_from != again.governs_from {
            return Some("governs_from");
        }
        let fields = [
            ("revoked_at", learn(&mut known.revoked_at, again.revoked_at)),
            ("revoked_after", learn(&mut known.revoked_after, again.revoked_after)),
            ("replaced_by", learn(&mut known.replaced_by, again.replaced_by)),
            ("governed_until", learn(&mut known.governed_until, again.governed_until)),
        ];
        fields.into_iter().find(|(_, holds)| !holds).map(|(name, _)| name)
    }
}

/// Takes over what is known once. False if it was known to be something else.
fn learn<T: Copy + PartialEq>(known: &mut Option<T>, again: Option<T>) -> bool {
    again.is_none_or(|again| *known.get_or_insert(again) == again)
}

/// The mandate as it was for a decision: revoked, or not.
pub(crate) fn with_revocation(mandate: &Mandate, is_revoked: bool) -> Mandate {
    let revoked_at = is_revoked.then(|| mandate.revoked_at.unwrap_or(Timestamp::from_seconds(0)));
    Mandate { revoked_at, ..mandate.clone() }
}
