//! Checks of a single line, on any thread: its form, its signature, and its verdict computed again.

use mandate_core::verify::audit_verdict_ignoring_expiry;
use mandate_core::{Evaluation, Mandate, ReviewStatus, Verdict, VerdictClaims, evaluate};

use super::auditor::Auditor;
use super::trailer::Sealed;
use super::{Finding, answers, records};
use crate::export::{Decision, Entry, Raw, with_revocation};

/// A checked line.
pub(super) struct Audited {
    pub(super) line: u64,
    pub(super) decision: Option<Box<Decision>>,
    pub(super) trailer: Option<Sealed>,
    pub(super) findings: Vec<Finding>,
}

impl Auditor<'_> {
    /// Checks a line.
    pub(super) fn audit(&self, raw: &Raw) -> Audited {
        let line = raw.line.number;
        let mut audited = Audited { line, decision: None, trailer: None, findings: Vec::new() };
        let found = if raw.line.too_long {
            "a line that is too long to be read".to_owned()
        } else {
            match Entry::read(&raw.line.bytes) {
                Ok(Entry::Decision(decision)) => {
                    self.decision(line, &decision, &mut audited.findings);
                    audited.decision = Some(decision);
                    return audited;
                }
                Ok(Entry::Trailer(token)) => {
                    let sealed =
                        Sealed::open(line, &token, raw.before.as_deref(), self, &mut audited.findings);
                    audited.trailer = Some(sealed);
                    return audited;
                }
                Ok(Entry::Mandate(mandate)) => format!("the mandate {} among the decisions", mandate.id),
                Ok(Entry::Governing(..)) => "a governing record among the decisions".to_owned(),
                Ok(Entry::Export(_)) => "a second header".to_owned(),
                Err(e) => e.to_string(),
            }
        };
        audited.findings.push(Finding::new(line, None, "line", found, "a decision or the trailer"));
        audited
    }

    fn decision(&self, line: u64, decision: &Decision, findings: &mut Vec<Finding>) {
        let claims = &decision.claims;
        let mut found = |check, found: &dyn ToString, expected: &dyn ToString| {
            let finding =
                Finding::new(line, Some(&claims.jti), check, found.to_string(), expected.to_string());
            findings.push(finding.of(&claims.request.agent, decision.sequence));
        };
        let issuer = self.issuers.iter().find(|issuer| **issuer == claims.iss).or(self.issuers.first());
        match audit_verdict_ignoring_expiry(
            &decision.verdict_token,
            self.keys,
            issuer.map_or("", String::as_str),
        ) {
            Err(e) => found("signature", &e, &"a token that the issuer signed"),
            Ok(signed) => {
                if let Some((name, said, meant)) = difference(claims, signed.claims()) {
                    found("claims", &format!("{name} {said}"), &format!("{meant}, as it is signed"));
                }
                let environment = if signed.kid().is_sandbox() { "sandbox" } else { "production" };
                if let Some(header) = self.header.filter(|header| header.environment != environment) {
                    found("environment", &format!("a key of the {environment}"), &header.environment);
                }
            }
        }
        if decision.decided_at.seconds() != claims.iat {
            found(
                "decided_at",
                &decision.decided_at,
                &format!("an instant of the second {}, its iat", claims.iat),
            );
        }
        if decision.review.is_some() != (claims.verdict == Verdict::Review) {
            let has = |there| if there { "a review" } else { "no review" };
            found("review", &has(decision.review.is_some()), &has(claims.verdict == Verdict::Review));
        }
        resolved_after(decision, &mut found);
        let recorded = records::of_review(decision, self, &mut found);
        answers::of_review(decision, recorded, self, &mut found);
        self.filter(decision, &mut found);
        self.mandate(decision, &mut found);
    }

    /// Checks that the mandate governed the decision's sequence, and was revoked by then or not. Computes the
    /// verdict again.
    fn mandate(
        &self,
        decision: &Decision,
        found: &mut impl FnMut(&'static str, &dyn ToString, &dyn ToString),
    ) {
        let (agent, sequence) = (&decision.claims.request.agent, decision.sequence);
        let Some(id) = decision.claims.mandate else {
            if let Some(governs) = self.mandates.written_before(agent, sequence) {
                let expected = format!(
                    "{}, which governs from {}, or one in its place",
                    governs.id, governs.governs_from
                );
                found("mandate", &"none", &expected);
            } else if let Some(granted) = self.people.grants.written_before(agent, sequence, self.newest) {
                let expected = format!(
                    "{}, which governs from {}, by its record",
                    granted.mandate, granted.governs_from
                );
                found("mandate_record", &"none", &expected);
            }
            return again(decision, None, found);
        };
        let Some(mandate) = self.mandates.get(&id) else {
            return found("mandate", &format!("{id}, which is not in the export"), &"one that is");
        };
        if mandate.terms.agent != *agent {
            return found("mandate", &format!("one of {}", mandate.terms.agent), agent);
        }
        if !mandate.governs(sequence) {
            let what = match mandate.governed_until.filter(|last| sequence > *last) {
                Some(last) => format!("{id}, which governed until {last}"),
                None => format!("{id}, which governs from {}", mandate.governs_from),
            };
            let governs = self.mandates.governing(agent, sequence);
            found("mandate", &what, &governs.map_or("one that governs".to_owned(), |m| m.id.to_string()));
        }
        let is_denied = decision.is_denied_as_revoked();
        if is_denied != mandate.is_revoked_for(sequence) {
            let revoked = mandate.revoked_after.map_or_else(
                || format!("{id} is not revoked"),
                |last| format!("{id} is revoked after {last}"),
            );
            let named = |denied| if denied { "deny_revoked" } else { "no deny_revoked" };
            found("revocation", &named(is_denied), &format!("{}: {revoked}", named(!is_denied)));
        }
        again(decision, Some(&with_revocation(mandate, is_denied)), found);
    }

    /// Whether the decision matches the export's filter.
    fn filter(
        &self,
        decision: &Decision,
        found: &mut impl FnMut(&'static str, &dyn ToString, &dyn ToString),
    ) {
        let Some(header) = self.header else { return };
        let claims = &decision.claims;
        if let Some(agent) = header.agent.as_ref().filter(|agent| **agent != claims.request.agent) {
            found("filter", &claims.request.agent, agent);
        }
        if let Some(verdict) = header.verdict.filter(|verdict| *verdict != claims.verdict) {
            found("filter", &claims.verdict, &verdict);
        }
        if !header.covers(decision.placed_at()) {
            found("filter", &format!("an id of {}", decision.placed_at()), &"one from since to until");
        }
    }
}

/// Checks that a denial, and nothing else, says how many decisions its agent had.
fn resolved_after(decision: &Decision, found: &mut impl FnMut(&'static str, &dyn ToString, &dyn ToString)) {
    let Some(review) = &decision.review else { return };
    let sequence = decision.sequence;
    match (review.status == ReviewStatus::Denied, review.resolved_after) {
        (true, None) => found("review", &"denied without resolved_after", &"both, or neither"),
        (true, Some(after)) if after < sequence => {
            found("review", &format!("resolved_after {after}"), &format!("{sequence} or greater"));
        }
        (false, Some(after)) => {
            found(
                "review",
                &format!("{}, with resolved_after {after}", review.status),
                &"none, unless denied",
            );
        }
        _ => {}
    }
}

/// Computes verdict, denials and reason again.
fn again(
    decision: &Decision,
    mandate: Option<&Mandate>,
    found: &mut impl FnMut(&'static str, &dyn ToString, &dyn ToString),
) {
    let claims = &decision.claims;
    let evaluation = if decision.supersedes.is_some() { Evaluation::Approval } else { Evaluation::Request };
    let outcome = evaluate(mandate, &decision.basis, &claims.request, decision.decided_at, evaluation);
    if outcome.verdict != claims.verdict {
        found("verdict", &claims.verdict, &outcome.verdict);
        return;
    }
    if outcome.denials != decision.denials {
        let named = |denials: mandate_core::Denials| {
            if denials.is_empty() { "none".to_owned() } else { denials.to_string() }
        };
        found("denials", &named(decision.denials), &named(outcome.denials));
    }
    let reason = outcome.reason.map(|reason| reason.to_string());
    if reason != decision.reason {
        let none = || "none".to_owned();
        found("reason", &decision.reason.clone().unwrap_or_else(none), &reason.unwrap_or_else(none));
    }
}

/// The first claim in which the row differs from the token: its name, the row's value, the signed value.
fn difference(row: &VerdictClaims, signed: &VerdictClaims) -> Option<(&'static str, String, String)> {
    if row == signed {
        return None;
    }
    let mandate =
        |claims: &VerdictClaims| claims.mandate.map_or_else(|| "none".to_owned(), |id| id.to_string());
    let named = |claims: &VerdictClaims| {
        [
            ("iss", claims.iss.clone()),
            ("jti", claims.jti.to_string()),
            ("iat", claims.iat.to_string()),
            ("verdict", claims.verdict.to_string()),
            ("mandate", mandate(claims)),
            ("policy_version", claims.policy_version.to_string()),
            ("nonce", claims.nonce.to_string()),
            ("agent", claims.request.agent.to_string()),
            ("amount", claims.request.amount.to_string()),
            ("currency", claims.request.currency.to_string()),
            ("recipient", claims.request.recipient.to_string()),
            ("category", claims.request.category.to_string()),
        ]
    };
    let mut pairs = named(row).into_iter().zip(named(signed));
    pairs.find(|((_, row), (_, signed))| row != signed).map(|((name, row), (_, signed))| (name, row, signed))
}
