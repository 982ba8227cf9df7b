//! What people have signed: whether each answer is one of an enrolled passkey over these digits, and who answered how often.

use std::collections::BTreeMap;

use mandate_core::people::{Answer, Asked, Statement, Subject};
use mandate_core::{AgentId, EnvironmentKind, MandateId, PersonId, ReviewStatus};
use serde::Serialize;

use super::Finding;
use super::auditor::Auditor;
use crate::export::{Actor, Decision, Header, Moment, NoPasskey, People, Resolution, Stop};
use crate::output::Output;
use crate::style::printable;

/// The answers of one person.
#[derive(Debug, Default, Serialize)]
struct Count {
    /// As the records of their passkeys have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    approved: u64,
    denied: u64,
    stopped: u64,
}

/// The answers of each person.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct ByPerson(BTreeMap<PersonId, Count>);

/// What the answer must be to.
struct Question<'a> {
    issuer: &'a str,
    environment: &'a str,
    person: PersonId,
    agent: &'a AgentId,
    mandate: Option<MandateId>,
    /// None: a status that no answer leads to.
    subject: Option<Subject>,
}

/// Checks the answer of a decision's review, whose governing record is `recorded`.
pub(super) fn of_review(
    decision: &Decision,
    recorded: Option<&Resolution>,
    auditor: &Auditor<'_>,
    found: &mut impl FnMut(&'static str, &dyn ToString, &dyn ToString),
) {
    let (people, header) = (auditor.people, auditor.header);
    let Some(review) = &decision.review else { return };
    if let Some(by) = &review.resolved_by {
        named(by, people, found);
    }
    let (person, answer) = match (&review.resolved_by, &review.answer) {
        (Some(Actor::Person { id, .. }), Some(answer)) => (*id, answer),
        (Some(Actor::Person { id, .. }), None) => {
            return found("answer", &"none", &format!("what {id} signed"));
        }
        (_, Some(_)) => return found("answer", &"one", &"the person who gave it, in resolved_by"),
        (_, None) => return,
    };
    let claims = &decision.claims;
    let asked = review.id.map(|review| Asked {
        review,
        decision: claims.jti,
        amount: claims.request.amount,
        currency: claims.request.currency.clone(),
        recipient: claims.request.recipient.clone(),
        category: claims.request.category.clone(),
    });
    let question = Question {
        issuer: accepted(answer, auditor.issuers).unwrap_or(&claims.iss),
        environment: header.map_or("", |header| &header.environment),
        person,
        agent: &claims.request.agent,
        mandate: claims.mandate,
        subject: match review.status {
            ReviewStatus::Approved => asked.map(Subject::Approve),
            ReviewStatus::Denied => asked.map(|asked| Subject::Deny(asked, review.reason.clone())),
            ReviewStatus::Pending | ReviewStatus::Expired => None,
        },
    };
    let recorded_at = recorded.map(|recorded| recorded.at);
    let at = recorded_at.or(review.resolved_at).unwrap_or(decision.decided_at);
    let number = recorded.map(|recorded| recorded.number);
    check(answer, &question, people, Moment { number, at }, found);
}

/// Checks that a person is named as in the records of their passkeys.
fn named(by: &Actor, people: &People, found: &mut impl FnMut(&'static str, &dyn ToString, &dyn ToString)) {
    let Actor::Person { id, name } = by else { return };
    if let Some(enrolled) = people.name(*id).filter(|enrolled| enrolled != name) {
        found("answer_name", &format!("{id} as `{name}`"), &format!("`{enrolled}`, as enrolled"));
    }
}

/// Checks the answers by which people stopped agents.
pub(super) fn of_stops(people: &People, issuers: &[String], header: Option<&Header>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for stop in people.grants.stops().filter(|stop| stop.is_signed()) {
        let mut found = |check: &'static str, found: &dyn ToString, expected: &dyn ToString| {
            let finding =
                Finding::new(1, Some(&stop.mandate), check, found.to_string(), expected.to_string());
            findings.push(Finding { agent: Some(stop.agent.clone()), ..finding });
        };
        of_stop(stop, people, issuers, header, &mut found);
    }
    findings
}

fn of_stop(
    stop: &Stop,
    people: &People,
    issuers: &[String],
    header: Option<&Header>,
    found: &mut impl FnMut(&'static str, &dyn ToString, &dyn ToString),
) {
    named(&stop.by, people, found);
    let Actor::Person { id, .. } = &stop.by else {
        return found("answer", &"the hash of one", &"the person who gave it, in by of the record");
    };
    let Some(answer) = &stop.answer else {
        return found("answer", &"none", &format!("what {id} signed to stop {}", stop.agent));
    };
    if stop.hash.as_deref() != Some(&answer.hash()) {
        found("answer", &"one that its governing record does not name", &"its hash in the record");
    }
    let first = || issuers.first().map_or("", String::as_str);
    let question = Question {
        issuer: accepted(answer, issuers).unwrap_or_else(first),
        environment: header.map_or("", |header| &header.environment),
        person: *id,
        agent: &stop.agent,
        mandate: Some(stop.mandate),
        subject: Some(Subject::Stop),
    };
    check(answer, &question, people, Moment { number: Some(stop.number), at: stop.at }, found);
}

/// The issuer that a statement names, if it is one of those accepted: the service can have had another one when it signed the
/// decision, and a record of a stop names none.
fn accepted<'a>(answer: &Answer, issuers: &'a [String]) -> Option<&'a str> {
    let said = Statement::parse(&answer.statement).ok()?.issuer;
    issuers.iter().map(String::as_str).find(|issuer| *issuer == said)
}

fn check(
    answer: &Answer,
    question: &Question<'_>,
    people: &People,
    then: Moment,
    found: &mut impl FnMut(&'static str, &dyn ToString, &dyn ToString),
) {
    let signed = match Statement::parse(&answer.statement) {
        Ok(signed) => signed,
        Err(e) => return found("answer_digits", &e, &"a statement as the service writes it"),
    };
    if let Some((name, said, meant)) = difference(&signed, question) {
        found("answer_digits", &format!("{name} {said} signed"), &meant);
    }
    if signed.expires <= then.at {
        let said = format!("an answer at {}", then.at);
        found("answer_late", &said, &format!("one before {}, when its statement expired", signed.expires));
    }
    let credential = &answer.assertion.credential;
    let passkey = match people.passkey(credential, then) {
        Ok(passkey) if passkey.person == question.person => passkey,
        Ok(passkey) => {
            return found("answer_key", &format!("a passkey of {}", passkey.person), &question.person);
        }
        Err(NoPasskey::NotEnrolled) => {
            let expected = "a passkey that was enrolled before, by a governing record";
            return found("answer_key", &format!("the passkey {credential}"), &expected);
        }
        Err(NoPasskey::Withdrawn(at)) => {
            let said = format!("the passkey {credential}, withdrawn at {at}");
            return found("answer_withdrawn", &said, &"one that was not withdrawn before");
        }
    };
    if let Err(e) = answer.verify(&passkey.party, &passkey.key) {
        found("answer_assertion", &format!("{}: {e}", e.name()), &"an assertion of the passkey");
    }
}

/// The first member in which the statement differs from the question: its name, what was signed, and what was asked. An
/// export does not name its organization.
fn difference(signed: &Statement, question: &Question<'_>) -> Option<(&'static str, String, String)> {
    let none = || "none".to_owned();
    let asked = |subject: Option<&Subject>| subject.and_then(Subject::asked).cloned();
    let (said, meant) = (asked(Some(&signed.subject)), asked(question.subject.as_ref()));
    let of = |asked: &Option<Asked>, text: fn(&Asked) -> String| asked.as_ref().map_or_else(none, text);
    let both = |name, text: fn(&Asked) -> String| (name, of(&said, text), of(&meant, text));
    let kind = EnvironmentKind::parse(question.environment).unwrap_or(signed.kind);
    let reason = |subject: Option<&Subject>| {
        subject.and_then(Subject::reason).map_or_else(none, |reason| format!("`{}`", printable(reason)))
    };
    let pairs = [
        (
            "answer",
            signed.subject.answer().to_owned(),
            question.subject.as_ref().map_or_else(none, |s| s.answer().to_owned()),
        ),
        both("amount", |asked| asked.amount.to_string()),
        both("currency", |asked| asked.currency.to_string()),
        both("recipient", |asked| asked.recipient.to_string()),
        both("category", |asked| asked.category.to_string()),
        both("review", |asked| asked.review.to_string()),
        both("decision", |asked| asked.decision.to_string()),
        ("reason", reason(Some(&signed.subject)), reason(question.subject.as_ref())),
        ("mandate", signed.mandate.to_string(), question.mandate.map_or_else(none, |id| id.to_string())),
        ("agent", signed.agent.to_string(), question.agent.to_string()),
        ("person", signed.person.to_string(), question.person.to_string()),
        ("issuer", signed.issuer.clone(), question.issuer.to_owned()),
        ("kind", signed.kind.to_string(), kind.to_string()),
    ];
    pairs.into_iter().find(|(_, said, meant)| said != meant)
}

impl ByPerson {
    /// Counts the answer to a decision's review, if a person gave it: by its governing record, where there is one.
    pub(super) fn take(&mut self, decision: &Decision, people: &People, newest: u64) {
        let Some(review) = &decision.review else { return };
        let Some(by) = people.answered_by(review, newest) else { return };
        let Some(count) = self.of(by, people) else { return };
        match review.status {
            ReviewStatus::Approved => count.approved = count.approved.saturating_add(1),
            ReviewStatus::Denied => count.denied = count.denied.saturating_add(1),
            ReviewStatus::Pending | ReviewStatus::Expired => {}
        }
    }

    /// Counts the agents that people stopped.
    pub(super) fn stops(&mut self, people: &People) {
        for stop in people.grants.stops() {
            if let Some(count) = self.of(&stop.by, people) {
                count.stopped = count.stopped.saturating_add(1);
            }
        }
    }

    fn of(&mut self, by: &Actor, people: &People) -> Option<&mut Count> {
        let Actor::Person { id, .. } = by else { return None };
        let name = || people.name(*id).map(ToOwned::to_owned);
        Some(self.0.entry(*id).or_insert_with(|| Count { name: name(), ..Count::default() }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A line for each person.
    pub(super) fn print(&self, output: &mut Output) {
        for (id, Count { name, approved, denied, stopped }) in &self.0 {
            let name = name.as_deref().map_or("a person without a passkey".into(), printable);
            output.line(
                "answers",
                format_args!("{approved} approved, {denied} denied, {stopped} stopped, by {name} ({id})"),
            );
        }
    }
}
