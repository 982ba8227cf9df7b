//! Checks across decisions: their order, and each approval with the decision it supersedes.

use std::collections::HashMap;

use mandate_core::{AgentId, DecisionId, Request, ReviewStatus};

use super::{Finding, Step};
use crate::export::{Follows, Header, History, Order};

/// The state after the decisions so far.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// The greatest id so far.
    last: Option<DecisionId>,
    /// Decisions that approvals must lead to, each with the decision it supersedes.
    expected: HashMap<DecisionId, Approved>,
    /// Of each agent the denial that says the greatest last sequence.
    denied: HashMap<AgentId, Denied>,
    outside: u64,
}

#[derive(Debug)]
struct Approved {
    line: u64,
    original: DecisionId,
    /// That of the decision that it supersedes.
    sequence: u64,
    request: Request,
}

#[derive(Debug)]
struct Denied {
    line: u64,
    id: DecisionId,
    sequence: u64,
    resolved_after: u64,
}

impl Chain {
    /// Checks the next decision. Returns false if it repeats or precedes an earlier one of its agent.
    pub(super) fn take(&mut self, step: &mut Step<'_>, follows: &Follows) -> bool {
        if !self.order(step, follows) {
            return false;
        }
        self.supersedes(step);
        self.approved(step);
        true
    }

    fn order(&mut self, step: &mut Step<'_>, follows: &Follows) -> bool {
        let (id, sequence) = (step.decision.claims.jti, step.decision.sequence);
        let descends = match self.last {
            Some(last) if id == last => {
                step.found("order", "the decision before, again", "the next one");
                return false;
            }
            last => last.filter(|last| id < *last),
        };
        match (follows.order, descends) {
            (Order::Behind(before), Some(_)) => {
                let found = format!("a decision behind that of sequence {before}");
                step.found("order", found, "the decisions in the order of their ids");
                return false;
            }
            (Order::Behind(before), None) => {
                let found = format!("{sequence} after {before}, under a greater id");
                step.found("sequence", found, before.saturating_add(1));
                return false;
            }
            (Order::Missing(first), _) => {
                step.found("sequence", sequence, format!("{first}, the next of the agent"));
            }
            (Order::Next, _) => {}
        }
        match descends {
            Some(_) if !follows.ids_ascend => {
                let found = format!("sequence {sequence} under a smaller id than that before it");
                step.found("sequence", found, "ids that ascend with the sequence");
            }
            Some(last) => step.found("order", "an id", format!("one after {last}")),
            None => self.last = Some(id),
        }
        true
    }

    /// A decision that results from an approval.
    fn supersedes(&mut self, step: &mut Step<'_>) {
        let (decision, part) = (step.decision, step.part);
        let expected = self.expected.remove(&decision.claims.jti);
        let mut found = |found: String, expected: String| step.found("supersedes", found, expected);
        match (decision.supersedes, expected) {
            (None, None) => {}
            (Some(original), Some(approved)) if original == approved.original => {
                if decision.claims.request != approved.request {
                    found(
                        "another request than that which was approved".to_owned(),
                        format!("that of line {}", approved.line),
                    );
                }
            }
            (said, Some(approved)) => {
                let said = said.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
                found(said, format!("{}, whose review names this decision", approved.original));
            }
            (Some(original), None) => {
                // An earlier export may have been written before its review was approved. Then it does not name this one.
                let is_there =
                    part.is_none_or(|part| part.is_complete() && part.covers(original.created_at()));
                if is_there {
                    found(original.to_string(), "a decision before, whose review names this one".to_owned());
                } else {
                    self.outside = self.outside.saturating_add(1);
                    if !step.is_approved_by_record(original) {
                        let said = format!("{original} without a governing record of its approval");
                        step.found(
                            "answer_record",
                            said,
                            "the record of the approval that led to this decision",
                        );
                    }
                }
            }
        }
    }

    /// A decision whose review was approved: the resulting decision must follow.
    fn approved(&mut self, step: &mut Step<'_>) {
        let (line, decision, header) = (step.line, step.decision, step.header);
        let Some(review) = &decision.review else { return };
        let original = decision.claims.jti;
        match (review.status, review.decision) {
            (ReviewStatus::Approved, Some(fresh)) => {
                let is_there = header.is_none_or(|h| h.is_complete() && h.covers(fresh.created_at()));
                if is_there && step.is_bounded_behind(fresh) {
                    let request = decision.claims.request.clone();
                    let sequence = decision.sequence;
                    self.expected.insert(fresh, Approved { line, original, sequence, request });
                }
            }
            (ReviewStatus::Approved, None) => {
                step.found("review", "an approval without a decision", "its decision");
            }
            (ReviewStatus::Denied, None) => self.denied(step, review.resolved_after),
            (status, Some(fresh)) => {
                step.found("review", format!("{status}, with {fresh}"), "a decision when approved");
            }
            (_, None) => {}
        }
    }

    /// A decision whose review was denied. An export without an end has all that its agent had decided by then.
    fn denied(&mut self, step: &Step<'_>, resolved_after: Option<u64>) {
        let is_whole = step.part.is_none_or(|part| part.is_complete() && part.until.is_none());
        let Some(resolved_after) = resolved_after.filter(|_| is_whole) else { return };
        let claims = &step.decision.claims;
        let greatest = self.denied.get(&claims.request.agent).map(|denied| denied.resolved_after);
        if greatest < Some(resolved_after) {
            let (line, id, sequence) = (step.line, claims.jti, step.decision.sequence);
            let denied = Denied { line, id, sequence, resolved_after };
            self.denied.insert(claims.request.agent.clone(), denied);
        }
    }

    /// Reports at the end what did not follow.
    pub(super) fn end(&mut self, header: Option<&Header>, history: &History, findings: &mut Vec<Finding>) {
        if let Some(said) = header.and_then(|header| header.last).filter(|said| self.last != Some(*said)) {
            let found = self.last.map_or_else(|| "no decision".to_owned(), |last| last.to_string());
            findings.push(Finding::new(1, None, "last", found, format!("{said}, as the first line says")));
        }
        let mut missing: Vec<_> = self.expected.drain().collect();
        missing.sort_by_key(|(fresh, _)| *fresh);
        for (fresh, Approved { line, original, sequence, request }) in missing {
            let expected = format!("its decision {fresh} in the export");
            let finding = Finding::new(line, Some(&original), "supersedes", "an approval", expected);
            findings.push(finding.of(&request.agent, sequence));
        }
        let mut denied: Vec<_> = self.denied.drain().collect();
        denied.sort_by_key(|(_, denied)| denied.id);
        for (agent, Denied { line, id, sequence, resolved_after }) in denied {
            if let Some(last) = history.last(&agent).filter(|last| resolved_after > *last) {
                let found = format!("resolved_after {resolved_after}");
                let expected = format!("{last} or smaller: the agent's last sequence");
                findings.push(Finding::new(line, Some(&id), "review", found, expected).of(&agent, sequence));
            }
        }
    }

    /// How many approvals supersede a decision that is not in their export.
    pub(super) fn outside(&self) -> u64 {
        self.outside
    }
}
