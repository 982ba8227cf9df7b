//! Checks one agent's decisions in their order: their numbers and ids, and the basis of each, computed from those
//! before.

use std::collections::BTreeMap;

use mandate_core::{Currency, DecisionId, Month, RecentRequests, Total, Verdict};

use crate::model::records::{AgentKey, DecisionRecord};
use crate::store::sql::openings::Opening;

/// What was found, and what was expected.
type Mismatch = (String, String);

/// The decisions of one agent so far.
#[derive(Debug, Default)]
pub(super) struct Chain {
    last: Option<(i64, DecisionId)>,
    spent: BTreeMap<(Month, Currency), Total>,
    recent: RecentRequests,
    /// A decision could not be read, so that the following ones cannot be checked.
    broken: bool,
}

impl Chain {
    /// Goes on after the decisions that an opening counts, which have spent this much.
    pub(super) fn after(opening: Opening, spent: BTreeMap<(Month, Currency), Total>) -> Self {
        let last = Some((opening.sequence, opening.decision));
        Self { last, spent, recent: opening.recent, broken: false }
    }

    /// Where the agent's decisions go on after those taken so far.
    pub(super) fn opening(&self, agent: &AgentKey) -> Option<Opening> {
        let (sequence, decision) = self.last?;
        Some(Opening { agent: agent.clone(), sequence, decision, recent: self.recent.clone() })
    }

    /// Notes that a decision cannot be read.
    pub(super) fn break_off(&mut self) {
        self.broken = true;
    }

    /// Checks the next decision. An agent's first one is number 1, where no opening counts others.
    pub(super) fn take(&mut self, decision: &DecisionRecord) -> Vec<Mismatch> {
        if self.broken {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        let expected = self.last.map_or(1, |(sequence, _)| sequence.saturating_add(1));
        if decision.sequence != expected {
            wrong.push((format!("sequence {}", decision.sequence), format!("sequence {expected}")));
        }
        self.last = Some((decision.sequence, decision.id));
        self.spent(decision, &mut wrong);
        self.recent(decision, &mut wrong);
        wrong
    }

    fn spent(&mut self, decision: &DecisionRecord, wrong: &mut Vec<Mismatch>) {
        let said = decision.basis.spent;
        let key = (decision.decided_at.month(), decision.request.currency.clone());
        let spent = self.spent.entry(key).or_insert(Total::ZERO);
        if *spent != said {
            wrong.push((
                format!("spent {said}"),
                format!("spent {spent}, the sum of what was allowed before"),
            ));
        }
        if decision.verdict == Verdict::Allow {
            *spent = said.plus(decision.request.amount);
        }
    }

    fn recent(&mut self, decision: &DecisionRecord, wrong: &mut Vec<Mismatch>) {
        let (said, found) = (decision.basis.recent_requests, self.recent.count_at(decision.decided_at));
        if said != found {
            wrong.push((
                format!("recent_requests {said}"),
                format!("recent_requests {found}, by those before"),
            ));
        }
        // A decision that an approval made is no request.
        if decision.supersedes.is_none() {
            self.recent.record(decision.decided_at);
        }
    }

    /// The number of the newest decision.
    pub(super) fn last(&self) -> i64 {
        self.last.map_or(0, |(sequence, _)| sequence)
    }

    /// Compares the agent's row, which has the number and the id of the newest decision, with the decisions.
    pub(super) fn end(&self, stored: (i64, Option<DecisionId>)) -> Option<Mismatch> {
        let shown = |sequence: i64, last: Option<DecisionId>| {
            format!(
                "{sequence} decisions, the last {}",
                last.map_or_else(|| "none".to_owned(), |id| id.to_string())
            )
        };
        let counted = self.last.map_or((0, None), |(sequence, last)| (sequence, Some(last)));
        let same = stored == counted || self.broken;
        (!same).then(|| (shown(stored.0, stored.1), shown(counted.0, counted.1)))
    }
}
