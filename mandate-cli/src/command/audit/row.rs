//! Checks of a single line, on any thread: its form, its signature, and its verdict computed again.

use mandate_core::jwks::KeySet;
use mandate_core::verify::audit_verdict_ignoring_expiry;
use mandate_core::{Evaluation, Mandate, Timestamp, Verdict, VerdictClaims, evaluate};

use super::Finding;
use super::trailer::Sealed;
use crate::export::{Decision, Entry, Header, Mandates, Raw};

/// How much earlier than its commit a revocation's time may be, in milliseconds: decisions that waited before
/// it are made first.
const REVOCATION_MILLIS: i64 = 30_000;

/// What every line is checked against.
#[derive(Clone, Copy)]
pub(super) struct Auditor<'a> {
    pub(super) issuers: &'a [String],
    pub(super) keys: &'a KeySet,
    pub(super) header: Option<&'a Header>,
    pub(super) mandates: &'a Mandates,
}

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
            findings.push(Finding::new(
                line,
                Some(&claims.jti),
                check,
                found.to_string(),
                expected.to_string(),
            ));
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
        if decision.drawn_at().seconds() < claims.iat {
            found(
                "id",
                &format!("an id drawn at {}", decision.drawn_at()),
                &format!("{} or later", decision.at()),
            );
        }
        if decision.review.is_some() != (claims.verdict == Verdict::Review) {
            let has = |there| if there { "a review" } else { "no review" };
            found("review", &has(decision.review.is_some()), &has(claims.verdict == Verdict::Review));
        }
        self.filter(decision, &mut found);
        match claims.mandate {
            None => again(decision, None, &mut found),
            Some(id) => match self.mandates.get(&id) {
                None => found("mandate", &format!("{id}, which is not in the export"), &"one that is"),
                Some(mandate) if mandate.terms.agent != claims.request.agent => {
                    found("mandate", &format!("one of {}", mandate.terms.agent), &claims.request.agent);
                }
                Some(mandate) => again(decision, Some(mandate), &mut found),
            },
        }
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
        if !header.covers(decision.drawn_at()) {
            found("filter", &decision.drawn_at(), &"a time within the export's");
        }
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
    let mandate = mandate.map(|mandate| as_it_stood(mandate, decision));
    let outcome = evaluate(mandate.as_ref(), &decision.basis, &claims.request, decision.at(), evaluation);
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

/// The mandate at the time of the decision: revoked or not. Close to the revocation, the decision itself
/// decides.
fn as_it_stood(mandate: &Mandate, decision: &Decision) -> Mandate {
    let at = decision.drawn_at();
    let said = decision.denials.iter().any(|denial| denial == Verdict::DenyRevoked);
    let was_revoked = |revoked: &Timestamp| {
        let late = at.millis_since(*revoked);
        if (-1000..=REVOCATION_MILLIS).contains(&late) { said } else { late > 0 }
    };
    Mandate { revoked_at: mandate.revoked_at.filter(was_revoked), ..mandate.clone() }
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
