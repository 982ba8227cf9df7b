//! Checks across decisions: their order, their nonces, and each approval with the decision it supersedes.

use std::collections::{BTreeMap, HashMap};

use mandate_core::{DecisionId, Nonce, Request, ReviewStatus};

use super::{Finding, Step};

/// How far the time in a nonce may differ from that in its decision's id, in milliseconds. Equal nonces that
/// keep to this are at most twice as far apart, so only recent nonces must be kept.
const NONCE_MILLIS: i64 = 60_000;

/// The state after the decisions so far.
#[derive(Debug, Default)]
pub(super) struct Chain {
    last: Option<DecisionId>,
    /// The recent nonces, with their lines.
    nonces: BTreeMap<Nonce, u64>,
    /// Decisions that approvals must lead to, each with the decision it supersedes.
    awaited: HashMap<DecisionId, Approved>,
    outside: u64,
}

#[derive(Debug)]
struct Approved {
    line: u64,
    original: DecisionId,
    request: Request,
}

impl Chain {
    /// Checks the next decision. Returns false if it is not a decision, or repeats the previous one.
    pub(super) fn take(&mut self, step: &mut Step<'_>) -> bool {
        let id = step.decision.claims.jti;
        match self.last {
            Some(last) if id == last => {
                step.found("order", "the decision before, again", "the next one");
                return false;
            }
            Some(last) if id < last => step.found("order", "an id", format!("one after {last}")),
            _ => self.last = Some(id),
        }
        self.nonce(step);
        self.supersedes(step);
        self.approved(step);
        true
    }

    fn nonce(&mut self, step: &mut Step<'_>) {
        let (decision, nonce) = (step.decision, step.decision.claims.nonce);
        let distance = nonce.created_at().millis_since(decision.drawn_at());
        if !(-NONCE_MILLIS..=NONCE_MILLIS).contains(&distance) {
            let found = format!("{nonce}, drawn at {}", nonce.created_at());
            let expected = format!("one drawn at about {}, with the decision", decision.drawn_at());
            step.found("nonce", found, expected);
            return;
        }
        while let Some(entry) = self.nonces.first_entry() {
            if decision.drawn_at().millis_since(entry.key().created_at()) <= NONCE_MILLIS.saturating_mul(2) {
                break;
            }
            entry.remove();
        }
        if let Some(first) = self.nonces.insert(nonce, step.line) {
            step.found("nonce", format!("{nonce}, that of line {first}"), "one of its own");
        }
    }

    /// A decision that results from an approval.
    fn supersedes(&mut self, step: &mut Step<'_>) {
        let (decision, header) = (step.decision, step.header);
        let awaited = self.awaited.remove(&decision.claims.jti);
        let mut found = |found: String, expected: String| step.found("supersedes", found, expected);
        match (decision.supersedes, awaited) {
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
                let is_there = header.is_none_or(|h| h.is_complete() && h.covers(original.created_at()));
                if is_there {
                    found(original.to_string(), "a decision before, whose review names this one".to_owned());
                } else {
                    self.outside = self.outside.saturating_add(1);
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
                if header.is_none_or(|h| h.is_complete() && h.covers(fresh.created_at())) {
                    let request = decision.claims.request.clone();
                    self.awaited.insert(fresh, Approved { line, original, request });
                }
            }
            (ReviewStatus::Approved, None) => {
                step.found("review", "an approval without a decision", "its decision");
            }
            (status, Some(fresh)) => {
                step.found("review", format!("{status}, with {fresh}"), "a decision when approved");
            }
            (_, None) => {}
        }
    }

    /// Reports at the end what did not follow.
    pub(super) fn end(&mut self, findings: &mut Vec<Finding>) {
        let mut missing: Vec<_> = self.awaited.drain().collect();
        missing.sort_by_key(|(fresh, _)| *fresh);
        for (fresh, Approved { line, original, .. }) in missing {
            findings.push(Finding::new(
                line,
                Some(&original),
                "supersedes",
                "an approval",
                format!("its decision {fresh} in the export"),
            ));
        }
    }

    /// How many approvals supersede a decision that is not in the export.
    pub(super) fn outside(&self) -> u64 {
        self.outside
    }
}
