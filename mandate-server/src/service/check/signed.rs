//! Checks what people have signed: that each assertion verifies under its passkey, and that the statement is about what it
//! has answered.

use std::collections::BTreeMap;

use mandate_core::json::Object;
use mandate_core::people::{Answer, Asked, RelyingParty, Statement, Subject};
use mandate_core::{AgentName, ReviewStatus};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::{Finding, Listener, MAX_FINDINGS};
use crate::error::Fault;
use crate::model::people::{Actor, AnswerRecord, Answered};
use crate::store::sql;
use crate::store::sql::environments::EnvironmentRecord;
use crate::store::tx::Tx;

const TABLE: &str = "answers";
/// How many answers are held in memory at a time.
const PAGE: i64 = 512;

/// What was found, and what was expected.
type Mismatch = (String, String);

pub(super) fn walk(tx: &mut Tx<'_>, listener: &mut dyn Listener) -> Result<(), Fault> {
    let environments = sql::environments::all(tx)?.into_iter().map(|of| (of.environment, of));
    let environments: BTreeMap<i64, EnvironmentRecord> = environments.collect();
    let mut findings = 0;
    let mut page = sql::answers::onward(tx, (i64::MIN, &[]), PAGE)?;
    while let Some(last) = page.last() {
        let next = (last.environment, last.hash);
        for record in &page {
            let Some(of) = environments.get(&record.environment) else { continue };
            // A row that cannot be read, or whose checksum does not hold, is a finding of its own.
            let wrong = match wrong(tx, record, of) {
                Err(Fault::Corrupt(_)) => None,
                wrong => wrong?,
            };
            let Some((found, expected)) = wrong else { continue };
            findings += 1;
            if findings > MAX_FINDINGS {
                return Ok(());
            }
            let id = match record.to {
                Answered::Review(review) => review.to_string(),
                Answered::Mandate(mandate) => mandate.to_string(),
            };
            listener.finding(Finding::row(TABLE, record.environment, id, found, expected));
        }
        page = sql::answers::onward(tx, (next.0, &next.1), PAGE)?;
    }
    Ok(())
}

/// What is wrong with an answer.
fn wrong(tx: &mut Tx<'_>, record: &AnswerRecord, of: &EnvironmentRecord) -> Result<Option<Mismatch>, Fault> {
    let mismatch = |found: String, expected: &str| Ok(Some((found, expected.to_owned())));
    let answer = match Object::parse(record.content.as_bytes()).and_then(Answer::read) {
        Ok(answer) => answer,
        Err(e) => return mismatch(format!("an answer that cannot be read: {e}"), "what a person signed"),
    };
    if <[u8; 32]>::from(Sha256::digest(&record.content)) != record.hash {
        return mismatch("an answer of another hash".to_owned(), "the hash of the answer");
    }
    let credential = &answer.assertion.credential;
    let Some(key) = sql::people::find_key(tx, record.environment, credential)? else {
        return mismatch(
            format!("the passkey {credential}, which is not there"),
            "a passkey that is enrolled",
        );
    };
    if key.person != record.person {
        return mismatch(format!("a passkey of {}", key.person), &format!("one of {}", record.person));
    }
    let signed = match answer.verify(&RelyingParty::of_origin(&key.origin)?, &key.key) {
        Ok(signed) => signed,
        Err(e) => {
            return mismatch(format!("{}: {e}", e.name()), "an assertion of the passkey over its statement");
        }
    };
    if signed.expires <= record.at {
        return mismatch(format!("an answer at {}", record.at), &format!("one before {}", signed.expires));
    }
    match record.to {
        Answered::Review(_) => to_review(tx, record, of, &signed),
        Answered::Mandate(id) => {
            // A mandate that is not there is reported elsewhere.
            let Some(mandate) = sql::mandates::find(tx, record.environment, id)? else { return Ok(None) };
            let agent = mandate.terms.agent;
            let meant =
                Statement { subject: Subject::Stop, mandate: id, agent, ..about(record, of, &signed)? };
            Ok(difference(&signed, &meant))
        }
    }
}

/// What is wrong with an answer to a review. A review or decision that is not there is reported elsewhere.
fn to_review(
    tx: &mut Tx<'_>,
    record: &AnswerRecord,
    of: &EnvironmentRecord,
    signed: &Statement,
) -> Result<Option<Mismatch>, Fault> {
    let Answered::Review(review) = record.to else { return Ok(None) };
    let Some(decision) = sql::reviews::decision(tx, record.environment, review)? else { return Ok(None) };
    let Some(whole) = sql::decisions::find(tx, record.environment, decision)? else { return Ok(None) };
    let Some(answered) = whole.review.filter(|answered| answered.id == review) else { return Ok(None) };
    let person = record.person.to_string();
    if answered.resolved_by.as_ref().is_none_or(|by: &Actor| by.id != person) {
        let by = answered.resolved_by.map_or_else(|| "none".to_owned(), |by| by.to_json());
        return Ok(Some((
            format!("a review resolved by {by}"),
            format!("by {person}, who signed the answer"),
        )));
    }
    let request = whole.decision.request;
    let asked = Asked {
        review,
        decision,
        amount: request.amount,
        currency: request.currency,
        recipient: request.recipient,
        category: request.category,
    };
    let subject = match answered.status {
        ReviewStatus::Approved => Subject::Approve(asked),
        ReviewStatus::Denied => Subject::Deny(asked, answered.reason),
        ReviewStatus::Pending | ReviewStatus::Expired => {
            let found = format!("an answer to a review that is {}", answered.status);
            return Ok(Some((found, "one that was approved or denied".to_owned())));
        }
    };
    let mandate = whole.decision.mandate.unwrap_or(signed.mandate);
    let meant = Statement { subject, mandate, agent: request.agent, ..about(record, of, signed)? };
    Ok(difference(signed, &meant))
}

/// The statement as it was signed, about the environment and the person of the answer. The issuer is not compared: it can
/// have had another address by then.
fn about(record: &AnswerRecord, of: &EnvironmentRecord, signed: &Statement) -> Result<Statement, Fault> {
    let organization = AgentName::parse(&of.organization)?;
    Ok(Statement { kind: of.kind, organization, person: record.person, ..signed.clone() })
}

/// The first member in which the statement that was signed differs from the one that was meant.
fn difference(signed: &Statement, meant: &Statement) -> Option<Mismatch> {
    if signed == meant {
        return None;
    }
    let members = |statement: &Statement| {
        serde_json::from_str::<Map<String, Value>>(&statement.to_json()).unwrap_or_default()
    };
    let (signed, meant) = (members(signed), members(meant));
    let shown = |of: &Map<String, Value>, name: &str| {
        of.get(name).map_or_else(|| "none".to_owned(), Value::to_string)
    };
    let mut names = signed.keys().chain(meant.keys());
    let name = names.find(|name| signed.get(*name) != meant.get(*name))?;
    Some((format!("{name} {} signed", shown(&signed, name)), shown(&meant, name)))
}
