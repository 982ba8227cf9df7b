//! The mandates themselves: what each says of its sequences, that no two of an agent govern at once, and that several
//! exports show one alike.

use mandate_core::{AgentId, Mandate, MandateId};

use super::Finding;
use crate::export::{Contradiction, Header, History, Listed, Mandates};

/// What is found of the mandates of all exports. `names` are those of the exports, where there are several.
pub(super) fn check(
    mandates: &Mandates,
    contradictions: &[Contradiction],
    names: &[String],
) -> Vec<(usize, Finding)> {
    let mut findings = Vec::new();
    for Contradiction { again, field, known: (part, line) } in contradictions {
        let at = names.get(*part).map_or("", String::as_str);
        let expected = format!("that of line {line} of {at}");
        let from = again.mandate.governs_from;
        findings.push(finding(again, from, format!("another {field}"), &expected));
    }
    for of_agent in mandates.by_agent() {
        for listed in &of_agent {
            alone(listed, &mut findings);
        }
        for (before, next) in of_agent.iter().zip(of_agent.iter().skip(1)) {
            let (mandate, from) = (&before.mandate, next.mandate.governs_from);
            if mandate.governed_until.is_none_or(|last| last >= from) {
                let found = format!("{}, while {} governs it too", next.mandate.id, mandate.id);
                findings.push(finding(next, from, found, "one mandate for each sequence"));
            }
        }
    }
    findings
}

/// What contradicts itself in one mandate.
fn alone(listed: &Listed, findings: &mut Vec<(usize, Finding)>) {
    let Mandate { governs_from, revoked_at, revoked_after, governed_until, .. } = listed.mandate;
    let before = governs_from.saturating_sub(1);
    let mut found = |found: String, expected: String| {
        findings.push(finding(listed, governs_from, found, &expected));
    };
    if let Some(until) = governed_until.filter(|until| *until < before) {
        found(
            format!("governed_until {until}"),
            format!("{before} or greater, since it governs from {governs_from}"),
        );
    }
    match (revoked_at, revoked_after) {
        (Some(_), None) => {
            found("revoked_at without revoked_after".to_owned(), "both, or neither".to_owned());
        }
        (None, Some(_)) => {
            found("revoked_after without revoked_at".to_owned(), "both, or neither".to_owned());
        }
        (_, Some(after)) if after < before || governed_until.is_some_and(|until| after > until) => {
            let until = governed_until.map_or_else(String::new, |until| format!(", and {until} or smaller"));
            found(
                format!("revoked_after {after}"),
                format!("{before} or greater{until}: it governed when it was revoked"),
            );
        }
        _ => {}
    }
}

/// A sequence that a mandate names. Its agent's decisions must reach it.
pub(super) struct Named {
    line: u64,
    id: MandateId,
    agent: AgentId,
    governs_from: u64,
    field: &'static str,
    sequence: u64,
}

/// The sequences that the mandates of an export name. None where it has an end or a filter on the verdict: then it need
/// not hold the decisions. Those of an earlier export of several may be from after the later one was written.
pub(super) fn named(mandates: &Mandates, header: Option<&Header>) -> Vec<Named> {
    if !header.is_none_or(|header| header.is_complete() && header.until.is_none()) {
        return Vec::new();
    }
    let of_one = |listed: &Listed| {
        let Listed { line, mandate, .. } = listed;
        let Mandate { id, governs_from, revoked_after, governed_until, .. } = *mandate;
        let (line, agent) = (*line, mandate.terms.agent.clone());
        let fields = [("revoked_after", revoked_after), ("governed_until", governed_until)];
        fields.into_iter().filter_map(move |(field, sequence)| {
            Some(Named { line, id, agent: agent.clone(), governs_from, field, sequence: sequence? })
        })
    };
    mandates.iter().flat_map(of_one).collect()
}

/// At the end of all exports: what mandates name beyond their agent's last decision.
pub(super) fn beyond(named: &[Named], history: &History) -> Vec<Finding> {
    let beyond = |named: &Named| {
        let Named { line, id, agent, governs_from, field, sequence } = named;
        let last = history.last(agent).filter(|last| sequence > last)?;
        let expected = format!("{last} or smaller: the agent's last sequence");
        let finding = Finding::new(*line, Some(id), "mandate", format!("{field} {sequence}"), expected);
        Some(finding.of(agent, *governs_from))
    };
    named.iter().filter_map(beyond).collect()
}

fn finding(listed: &Listed, sequence: u64, found: String, expected: &str) -> (usize, Finding) {
    let Listed { part, line, mandate } = listed;
    let finding = Finding::new(*line, Some(&mandate.id), "mandate", found, expected);
    (*part, finding.of(&mandate.terms.agent, sequence))
}
