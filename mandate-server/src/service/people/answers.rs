//! Answers: what a person has signed takes effect, in one transaction with the script of a review or a mandate.

use mandate_core::json::Object;
use mandate_core::people::{Answer, Assertion, RelyingParty, Statement, Subject};
use mandate_core::{DecisionId, MandateId, Principal, ReviewId, ReviewStatus, Timestamp, Verdict};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::refused::{self, refuse};
use super::statements::{REFUSED, must_be_allowed, must_be_of};
use super::{Actor, Viewer, acting, record_by, sessions};
use crate::error::{Fault, Refusal};
use crate::model::call::ScriptError;
use crate::model::people::{AnswerRecord, Answered, By, LATE, PasskeyRecord, PersonRecord, StatementRecord};
use crate::service::decide::Engine;
use crate::service::moments::Moments;
use crate::service::{mandates, reviews};
use crate::store::sql;
use crate::store::tx::Tx;

/// What has become of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The review is approved: the request was decided again.
    Approved {
        /// The fresh decision.
        decision: DecisionId,
        /// Its verdict, which can be a denial.
        verdict: Verdict,
        /// Why it is a denial, if it is one.
        reason: Option<String>,
    },
    /// The review is denied.
    Denied,
    /// The mandate is revoked: the agent is stopped.
    Stopped,
    /// Another answer was first.
    Lost {
        /// What the review is.
        status: ReviewStatus,
        /// Who answered.
        by: Actor,
    },
}

/// What a statement is found to be.
enum Used {
    /// Good until now.
    Now(StatementRecord),
    /// Answered before, with this outcome.
    Before(Outcome),
}

/// Why a used statement is refused whose answer was not kept.
const USED: &str = "the statement is used: it is good once; open the page again";

/// Takes an answer. Its statement is used up, whether the answer is good or not. An answer that was taken before has the same
/// outcome again.
///
/// # Errors
/// The session is over; its passkey was registered at another origin; the statement is unknown, of another session, used or late; the assertion is refused; the person may
/// not answer any more; or the review or the mandate cannot be answered.
pub fn answer(
    tx: &mut Tx<'_>,
    moments: &Moments,
    engine: &Engine,
    party: &RelyingParty,
    viewer: &Viewer,
    challenge: [u8; 32],
    assertion: &Assertion,
) -> Result<Outcome, ScriptError> {
    let (record, key, now) = sessions::hold(tx, moments, viewer)?;
    must_be_of(tx, viewer, (&record, &key), party, now)?;
    let issued = match used_up(tx, viewer, &record, (challenge, assertion), now)? {
        Used::Now(issued) => issued,
        Used::Before(outcome) => return Ok(outcome),
    };
    let answer = Answer { statement: issued.statement, assertion: assertion.clone() };
    let statement = signed(tx, viewer, (&record, &key), (&answer, party), now)?;
    let role = role(tx, viewer.environment.id, &statement)?;
    must_be_allowed(tx, viewer, &record, (statement.subject.answer(), &role), now)?;
    let content = answer.to_json();
    let until = Some(statement.expires);
    let by = By { actor: Actor::person(&record.person), answer: Some(answer.hash()), until };
    let (to, outcome) = match &statement.subject {
        Subject::Stop => {
            let id = statement.mandate;
            (Answered::Mandate(id), stop(tx, viewer.environment.id, id, &by, moments))
        }
        Subject::Approve(asked) => (
            Answered::Review(asked.review),
            reviews::approve_by(tx, &viewer.environment, asked.review, &by, engine).map(|approved| {
                let reviews::Approved { decision, verdict, reason, .. } = approved;
                Outcome::Approved { decision, verdict, reason }
            }),
        ),
        Subject::Deny(asked, reason) => {
            let said = (&by, reason.as_deref());
            let denied = reviews::deny_by(tx, &viewer.environment, asked.review, said, moments);
            (Answered::Review(asked.review), denied.map(|_| Outcome::Denied))
        }
    };
    let outcome = match (outcome, to) {
        (Err(ScriptError::Refused(refusal)), Answered::Review(review)) => {
            return beaten(tx, viewer, &record, (review, &statement), (refusal, now));
        }
        (Err(ScriptError::Refused(refusal)), Answered::Mandate(_)) => {
            return refused(tx, viewer, &record, ("mandate", said(&statement)), (refusal, now));
        }
        (outcome, _) => outcome?,
    };
    let (environment, person) = (viewer.environment.id, record.person.id);
    let hash = Sha256::digest(&content).into();
    sql::answers::insert(tx, &AnswerRecord { environment, hash, person, to, at: now, content })?;
    let of = (&viewer.organization, viewer.environment.kind);
    record_by(tx, &acting(&record.person, now), of, ("person.answered", person), said(&statement))?;
    Ok(outcome)
}

/// Stops the agent that a mandate governs.
fn stop(
    tx: &mut Tx<'_>,
    environment: i64,
    id: MandateId,
    by: &By,
    moments: &Moments,
) -> Result<Outcome, ScriptError> {
    match mandates::revoke_by(tx, environment, id, by, moments)? {
        (_, true) => Ok(Outcome::Stopped),
        (_, false) => {
            Err(Refusal::invalid(format!("mandate {id} is revoked already: the agent is stopped")).into())
        }
    }
}

/// What an audit record says of an answer.
fn said(statement: &Statement) -> Value {
    let answer = statement.subject.answer();
    match statement.subject.asked() {
        Some(asked) => json!({ "answer": answer, "review": asked.review, "decision": asked.decision }),
        None => json!({ "answer": answer, "mandate": statement.mandate }),
    }
}

/// Uses up the statement that was given to the session.
fn used_up(
    tx: &mut Tx<'_>,
    viewer: &Viewer,
    record: &PersonRecord,
    (challenge, assertion): ([u8; 32], &Assertion),
    now: Timestamp,
) -> Result<Used, ScriptError> {
    let found = sql::answers::find_statement(tx, viewer.environment.id, challenge)?;
    let found = found.filter(|statement| statement.session == viewer.session);
    let (check, message) = match found {
        None => ("unknown", "the statement is unknown to this session; open the page again".to_owned()),
        Some(statement) if statement.used_at.is_some() => {
            if let Some(outcome) = kept(tx, viewer.environment.id, &statement, assertion)? {
                return Ok(Used::Before(outcome));
            }
            ("used", USED.to_owned())
        }
        Some(statement) if statement.expires_at <= now => {
            ("late", format!("{LATE}; nothing has changed, open the page again"))
        }
        Some(statement) => {
            if sql::answers::use_statement(tx, viewer.environment.id, challenge, now)? {
                return Ok(Used::Now(statement));
            }
            ("used", USED.to_owned())
        }
    };
    refused(tx, viewer, record, (check, json!({})), (Refusal::invalid(message), now))
}

/// What has become of the answer to a statement that is used, if that is known. A page whose answer got lost on its way back
/// signs the statement of a review again; that of a mandate is known by what was signed.
fn kept(
    tx: &mut Tx<'_>,
    environment: i64,
    issued: &StatementRecord,
    assertion: &Assertion,
) -> Result<Option<Outcome>, Fault> {
    let lost = || Fault::corrupt("database: what an approval has decided is not there");
    let subject = Statement::parse(&issued.statement)?.subject;
    let Some(asked) = subject.asked() else {
        let answer = Answer { statement: issued.statement.clone(), assertion: assertion.clone() };
        let content = sql::answers::find(tx, environment, Sha256::digest(answer.to_json()).into())?;
        return Ok(content.map(|_| Outcome::Stopped));
    };
    let kept = sql::answers::of_review(tx, environment, asked.review)?;
    let kept = kept.map(|content| Object::parse(content.as_bytes()).and_then(Answer::read)).transpose()?;
    let review = sql::decisions::find(tx, environment, asked.decision)?.and_then(|whole| whole.review);
    let Some(review) = review else { return Ok(None) };
    if kept.is_none_or(|answer| answer.statement != issued.statement) {
        return Ok(review.resolved_by.map(|by| Outcome::Lost { status: review.status, by }));
    }
    if matches!(subject, Subject::Deny(..)) {
        return Ok(Some(Outcome::Denied));
    }
    let fresh = review.fresh.ok_or_else(lost)?;
    let decision = sql::decisions::find(tx, environment, fresh)?.ok_or_else(lost)?.decision;
    Ok(Some(Outcome::Approved { decision: fresh, verdict: decision.verdict, reason: decision.reason }))
}

/// The statement of an answer whose signature holds, under the session's passkey.
fn signed(
    tx: &mut Tx<'_>,
    viewer: &Viewer,
    (record, key): (&PersonRecord, &PasskeyRecord),
    (answer, party): (&Answer, &RelyingParty),
    now: Timestamp,
) -> Result<Statement, ScriptError> {
    let why = match answer.verify(party, &key.key) {
        Ok(statement) => return Ok(statement),
        Err(why) => why,
    };
    let refusal = Refusal::invalid(format!("the passkey is refused: {why}; nothing has changed"));
    let details = json!({ "credential": answer.assertion.credential });
    refused(tx, viewer, record, (why.name(), details), (refusal, now))
}

/// The role that may answer what a statement is about.
fn role(tx: &mut Tx<'_>, environment: i64, statement: &Statement) -> Result<Principal, ScriptError> {
    let lost = || Fault::corrupt("database: what a statement is about is not there");
    let Some(asked) = statement.subject.asked() else {
        let mandate = sql::mandates::find(tx, environment, statement.mandate)?;
        return Ok(mandate.ok_or_else(lost)?.terms.principal);
    };
    let whole = sql::decisions::find(tx, environment, asked.decision)?;
    let review = whole.and_then(|whole| whole.review).filter(|review| review.id == asked.review);
    Ok(review.ok_or_else(Refusal::not_found)?.waits_for)
}

/// Another answer to the review was first, or its time was over.
fn beaten(
    tx: &mut Tx<'_>,
    viewer: &Viewer,
    record: &PersonRecord,
    (review, statement): (ReviewId, &Statement),
    (refusal, now): (Refusal, Timestamp),
) -> Result<Outcome, ScriptError> {
    let found = sql::reviews::lock(tx, viewer.environment.id, review)?;
    let by = found.as_ref().and_then(|review| review.resolved_by.clone());
    if let (Some(found), Some(by)) = (found, by) {
        let mut details = said(statement);
        if let Some(details) = details.as_object_mut() {
            details.insert("by".to_owned(), json!(by));
        }
        let of = (&viewer.environment, &viewer.organization);
        refused::record(tx, of, (Some(&record.person), now), (REFUSED, "lost"), details)?;
        return Ok(Outcome::Lost { status: found.status, by });
    }
    refused(tx, viewer, record, ("review", said(statement)), (refusal, now))
}

fn refused<T>(
    tx: &mut Tx<'_>,
    viewer: &Viewer,
    record: &PersonRecord,
    (check, details): (&str, Value),
    (refusal, now): (Refusal, Timestamp),
) -> Result<T, ScriptError> {
    let of = (&viewer.environment, &viewer.organization);
    refuse(tx, of, (Some(&record.person), now), (REFUSED, check), (details, refusal))
}
