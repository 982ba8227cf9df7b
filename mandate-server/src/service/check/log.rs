//! Computes the log again: each decision's token, and the verdict from its mandate and its basis.
//!
//! Pages come from one snapshot, agent by agent. While all cores check one page, the next is read.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use mandate_core::es256::{self, PublicKey, Verifier};
use mandate_core::jwks::Kid;
use mandate_core::{EnvironmentKind, Evaluation, Mandate, PolicyVersion, evaluate, jwt};

use super::usage::Counters;
use super::{CHECKSUM, Finding, Listener, shown};
use crate::error::Fault;
use crate::model::records::DecisionRecord;
use crate::service::decisions::claims;
use crate::store::sql::check::{self as rows, Entry, IdKind, ParsedEntry, SigningKeyRow};
use crate::store::tx::{Tx, Value};

const TABLE: &str = "decisions";
/// Half the number of decisions in memory: one page is checked while another is read.
const PAGE: i64 = 4_096;

/// The public keys, by number.
pub(super) type Keys = BTreeMap<i64, (Kid, EnvironmentKind, Arc<dyn Verifier>)>;

/// The result for one entry: the decision, if it could be read, and the findings.
pub(super) struct CheckedEntry {
    pub(super) environment: i64,
    pub(super) agent: String,
    pub(super) decision: Option<DecisionRecord>,
    pub(super) findings: Vec<Finding>,
}

/// Checks and counts every decision.
pub(super) fn walk(
    tx: &mut Tx<'_>,
    counters: &mut Counters,
    listener: &mut dyn Listener,
) -> Result<(), Fault> {
    let of = rows::counts(tx)?.into_iter().find(|(table, _)| *table == TABLE).map_or(0, |(_, rows)| rows);
    let keys = keys(tx, listener)?;
    let mut looked_at = 0;
    let mut page = rows::log(tx, (i64::MIN, "", &[]), PAGE)?;
    while let Some(last) = page.last() {
        let (environment, agent, decision) = (last.environment, last.agent.clone(), last.decision.clone());
        let (looked, next) = thread::scope(|scope| {
            let share = page.len().div_ceil(cores());
            let workers: Vec<_> = page
                .chunks_mut(share)
                .map(|share| scope.spawn(|| share.iter_mut().map(|e| look(e, &keys)).collect::<Vec<_>>()))
                .collect();
            let next = rows::log(tx, (environment, &agent, &decision), PAGE);
            let looked: Result<Vec<_>, _> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            (looked.map_err(|_| Fault::new("the check of a decision panicked")), next)
        });
        for one in looked?.into_iter().flatten() {
            looked_at += 1;
            one.findings.into_iter().for_each(|finding| listener.finding(finding));
            counters.count(tx, one.environment, &one.agent, one.decision.as_ref(), listener)?;
        }
        listener.looked_at(looked_at, of);
        page = next?;
    }
    Ok(())
}

/// Checks a page on all cores.
pub(super) fn look_at(page: &mut [Entry], keys: &Keys) -> Result<Vec<CheckedEntry>, Fault> {
    let share = page.len().div_ceil(cores()).max(1);
    let looked: Result<Vec<_>, _> = thread::scope(|scope| {
        let workers: Vec<_> = page
            .chunks_mut(share)
            .map(|share| scope.spawn(|| share.iter_mut().map(|e| look(e, keys)).collect::<Vec<_>>()))
            .collect();
        workers.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let looked = looked.map_err(|_| Fault::new("the check of a decision panicked"))?;
    Ok(looked.into_iter().flatten().collect())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The usable public keys. The others are reported.
pub(super) fn keys(tx: &mut Tx<'_>, listener: &mut dyn Listener) -> Result<Keys, Fault> {
    let mut keys = Keys::new();
    for row in rows::signing_keys(tx)? {
        match usable(&row) {
            Some(key) => {
                keys.insert(row.id, key);
            }
            None => listener.finding(Finding {
                id: Some(row.kid),
                ..Finding::whole(
                    "signing_keys",
                    "a public key that is not this one's",
                    "the key of that name",
                )
            }),
        }
    }
    Ok(keys)
}

/// The key, if its name is the thumbprint of its public part.
fn usable(row: &SigningKeyRow) -> Option<(Kid, EnvironmentKind, Arc<dyn Verifier>)> {
    let environment = EnvironmentKind::parse(&row.kind)?;
    let (x, y) = row.public_key.split_first_chunk::<32>()?;
    let public = PublicKey::from_coordinates(*x, y.try_into().ok()?).ok()?;
    let kid = Kid::for_key(&public, environment);
    (kid.as_str() == row.kid).then_some((kid, environment, es256::verifier(&public).ok()?))
}

fn look(entry: &mut Entry, keys: &Keys) -> CheckedEntry {
    let (environment, agent) = (entry.environment, entry.agent.clone());
    let id = shown(&Value::Blob(entry.decision.clone()), IdKind::Decision);
    let finding = |sequence| {
        let (agent, id) = (agent.clone(), &id);
        move |(found, expected): (String, &str)| {
            Finding::row(TABLE, environment, id, found, expected).of(Some(agent.clone()), sequence)
        }
    };
    let checksum = (!entry.holds()).then(|| (CHECKSUM.0.to_owned(), CHECKSUM.1));
    match entry.read() {
        Err(fault) => {
            let unreadable = Some((fault.to_string(), "a decision that can be read"));
            let findings = [checksum, unreadable].into_iter().flatten().map(finding(None)).collect();
            CheckedEntry { environment, agent, decision: None, findings }
        }
        Ok(parsed) => {
            let findings = [checksum, signature(&parsed, keys), verdict(&parsed)];
            let sequence = Some(parsed.decision.sequence);
            let findings = findings.into_iter().flatten().map(finding(sequence)).collect();
            CheckedEntry { environment, agent, decision: Some(parsed.decision), findings }
        }
    }
}

/// Checks the signature over the rebuilt token. A missing key or issuer is reported elsewhere.
fn signature(parsed: &ParsedEntry, keys: &Keys) -> Option<(String, &'static str)> {
    let ParsedEntry { named, decision, .. } = parsed;
    let (environment, policy_version, issuer) = named.as_ref()?;
    let (kid, signs_for, verifier) = keys.get(&decision.signing_key)?;
    let Ok(policy_version) = PolicyVersion::parse(policy_version) else {
        return Some((format!("policy version {policy_version}"), "pol_, a date and a number"));
    };
    if signs_for.as_str() != environment {
        return Some((format!("signed by {kid}"), "a key of its environment's kind"));
    }
    let claims = claims(decision, issuer, &policy_version).to_json();
    let input = jwt::signing_input(kid, &claims);
    let holds = verifier.verify(input.as_bytes(), &decision.signature);
    (!holds).then(|| (format!("a signature that {kid} has not made"), "the signature of its token"))
}

/// Computes the verdict again and compares it. A missing mandate is reported elsewhere.
fn verdict(parsed: &ParsedEntry) -> Option<(String, &'static str)> {
    let ParsedEntry { decision, mandate, .. } = parsed;
    if decision.mandate.is_some() && mandate.is_none() {
        return None;
    }
    let sequence = u64::try_from(decision.sequence).ok()?;
    if let Some(mandate) = mandate.as_ref().filter(|mandate| !mandate.governs(sequence)) {
        let until = mandate.governed_until.map_or_else(|| "now".to_owned(), |last| last.to_string());
        let found = format!(
            "sequence {sequence} under {} that governs {} to {until}",
            mandate.id, mandate.governs_from
        );
        return Some((found, "the mandate that governs this sequence"));
    }
    let as_of = mandate.as_ref().map(|mandate| {
        let revoked_at = mandate.revoked_at.filter(|_| mandate.is_revoked_for(sequence));
        Mandate { revoked_at, ..mandate.clone() }
    });
    let evaluation = if decision.supersedes.is_some() { Evaluation::Approval } else { Evaluation::Request };
    let outcome =
        evaluate(as_of.as_ref(), &decision.basis, &decision.request, decision.decided_at, evaluation);
    if (outcome.verdict, outcome.denials) == (decision.verdict, decision.denials) {
        return None;
    }
    let found =
        format!("verdict {} ({}); computed again: {}", decision.verdict, decision.denials, outcome.verdict);
    Some((found, "the verdict and denials that mandate and basis give"))
}
