//! Statements: what a person is given to sign, before they answer.

use mandate_core::people::{Asked, CredentialId, RelyingParty, Statement, Subject as Stated, challenge};
use mandate_core::{AgentId, MandateId, Principal, ReviewId, ReviewStatus, Timestamp};
use serde_json::{Value, json};

use super::refused::{ELSEWHERE, elsewhere, forbidden, refuse};
use super::{May, Viewer, sessions};
use crate::error::{Code, Fault, Refusal};
use crate::model::call::ScriptError;
use crate::model::people::{PasskeyRecord, PersonRecord, StatementRecord};
use crate::model::text;
use crate::service::moments::Moments;
use crate::service::reviews::MAX_REASON;
use crate::store::sql;
use crate::store::tx::Tx;

/// How long a statement waits for its signature, in seconds: two minutes.
pub const STATEMENT_SECONDS: i64 = 2 * 60;
/// How many statements a session may have been given in that time.
pub const MAX_STATEMENTS: i64 = 60;

/// The audit record of an answer that is refused, or of what was asked for before it.
pub(super) const REFUSED: &str = "person.answer_refused";

/// What a person wants to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Approve a review.
    Approve(ReviewId),
    /// Deny a review, with a reason: free text of at most [`MAX_REASON`] characters.
    Deny(ReviewId, Option<String>),
    /// Stop an agent: revoke the mandate that governs it.
    Stop(MandateId),
}

/// A statement to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// Its text, to be shown.
    pub json: String,
    /// Its SHA-256, to be signed.
    pub challenge: [u8; 32],
    /// The passkey that signs.
    pub credential: CredentialId,
    /// Until when.
    pub expires: Timestamp,
}

/// What a statement is about.
struct About {
    stated: Stated,
    mandate: MandateId,
    agent: AgentId,
    /// The role that may answer.
    role: Principal,
}

/// Gives a session a statement to be signed, which is good once.
///
/// # Errors
/// The session is over; its passkey was registered at another origin; the person may not review, or lacks the role; the review is not pending, or the mandate does not
/// govern; or [`MAX_STATEMENTS`] were given to the session.
pub fn issue(
    tx: &mut Tx<'_>,
    moments: &Moments,
    viewer: &Viewer,
    subject: &Subject,
    (issuer, party): (&str, &RelyingParty),
) -> Result<Issued, ScriptError> {
    let (record, key, now) = sessions::hold(tx, moments, viewer)?;
    must_be_of(tx, viewer, (&record, &key), party, now)?;
    let environment = viewer.environment.id;
    if sql::answers::open_statements(tx, environment, viewer.session, now)? >= MAX_STATEMENTS {
        let message = format!(
            "the session was given {MAX_STATEMENTS} statements in {STATEMENT_SECONDS} seconds, which is the most; wait"
        );
        return Err(Refusal::new(Code::RateLimited, message).into());
    }
    let about = match about(tx, environment, subject, now) {
        Err(ScriptError::Refused(refusal)) if refusal.code == Code::NotFound => {
            let of = (&viewer.environment, &viewer.organization);
            let why = (REFUSED, "not_found");
            return refuse(tx, of, (Some(&record.person), now), why, (asked(subject), refusal));
        }
        about => about?,
    };
    must_be_allowed(tx, viewer, &record, (about.stated.answer(), &about.role), now)?;
    let expires = now.plus_seconds(STATEMENT_SECONDS);
    let statement = Statement {
        issuer: issuer.to_owned(),
        kind: viewer.environment.kind,
        organization: viewer.organization.clone(),
        subject: about.stated,
        mandate: about.mandate,
        agent: about.agent,
        person: record.person.id,
        credential: key.credential.clone(),
        nonce: *moments.ids().random(),
        expires,
    };
    let json = statement.to_json();
    let written = StatementRecord {
        environment,
        challenge: challenge(&json),
        session: viewer.session,
        statement: json.clone(),
        expires_at: expires,
        used_at: None,
    };
    sql::answers::insert_statement(tx, &written)?;
    Ok(Issued { json, challenge: written.challenge, credential: key.credential, expires })
}

/// Refuses a passkey that was registered at another origin of the console, with an audit record.
pub(super) fn must_be_of(
    tx: &mut Tx<'_>,
    viewer: &Viewer,
    (record, key): (&PersonRecord, &PasskeyRecord),
    party: &RelyingParty,
    now: Timestamp,
) -> Result<(), ScriptError> {
    let Some(why) = elsewhere(key, party) else { return Ok(()) };
    let of = (&viewer.environment, &viewer.organization);
    let details = json!({ "credential": key.credential, "registered_at": key.origin });
    refuse(tx, of, (Some(&record.person), now), (REFUSED, ELSEWHERE), (details, forbidden(why)))
}

/// Refuses a person who may not review, or does not have the role, with an audit record.
pub(super) fn must_be_allowed(
    tx: &mut Tx<'_>,
    viewer: &Viewer,
    record: &PersonRecord,
    (answer, role): (&str, &Principal),
    now: Timestamp,
) -> Result<(), ScriptError> {
    let person = &record.person;
    let (check, refusal) = match person.may {
        May::Read => ("may", forbidden("you may read, not review; the operator says who may review")),
        May::Review if !person.roles.contains(role) => {
            let roles: Vec<_> = person.roles.iter().map(Principal::as_str).collect();
            let message =
                format!("only a person with the role `{role}` may answer this; yours: {}", roles.join(", "));
            ("role", forbidden(message))
        }
        May::Review => return Ok(()),
    };
    let of = (&viewer.environment, &viewer.organization);
    let details = json!({ "answer": answer, "role": role });
    refuse(tx, of, (Some(person), now), (REFUSED, check), (details, refusal))
}

/// What an audit record says of what was asked for.
fn asked(subject: &Subject) -> Value {
    match subject {
        Subject::Approve(review) => json!({ "answer": "approve", "review": review }),
        Subject::Deny(review, _) => json!({ "answer": "deny", "review": review }),
        Subject::Stop(mandate) => json!({ "answer": "stop", "mandate": mandate }),
    }
}

fn about(tx: &mut Tx<'_>, environment: i64, subject: &Subject, now: Timestamp) -> Result<About, ScriptError> {
    let (id, reason) = match subject {
        Subject::Approve(id) => (*id, None),
        Subject::Deny(id, reason) => (*id, reason.clone()),
        Subject::Stop(mandate) => return stop(tx, environment, *mandate),
    };
    if let Some(reason) = &reason {
        text::free(reason, 0..=MAX_REASON)
            .map_err(|problem| Refusal::invalid(format!("reason {problem}")))?;
    }
    let lost = || Fault::corrupt("database: a review's decision, or the decision's mandate, is not there");
    let decision = sql::reviews::decision(tx, environment, id)?.ok_or_else(Refusal::not_found)?;
    let whole = sql::decisions::find_sound(tx, environment, decision)?.ok_or_else(lost)?;
    let review = whole.review.ok_or_else(lost)?;
    let status = review.status.at(review.expires_at, now);
    if status != ReviewStatus::Pending {
        let by = review.resolved_by.map(|by| format!(", by {by}")).unwrap_or_default();
        let message = format!("the review is {status}{by}; only a pending review can be answered");
        return Err(Refusal::invalid(message).into());
    }
    let request = whole.decision.request;
    let asked = Asked {
        review: id,
        decision,
        amount: request.amount,
        currency: request.currency,
        recipient: request.recipient,
        category: request.category,
    };
    let stated = match subject {
        Subject::Deny(..) => Stated::Deny(asked, reason),
        Subject::Approve(_) | Subject::Stop(_) => Stated::Approve(asked),
    };
    let mandate = whole.decision.mandate.ok_or_else(lost)?;
    Ok(About { stated, mandate, agent: request.agent, role: review.waits_for })
}

fn stop(tx: &mut Tx<'_>, environment: i64, id: MandateId) -> Result<About, ScriptError> {
    let mandate = sql::mandates::find(tx, environment, id)?.ok_or_else(Refusal::not_found)?;
    if mandate.revoked_at.is_some() {
        return Err(Refusal::invalid(format!("mandate {id} is revoked already: the agent is stopped")).into());
    }
    if mandate.replaced_by.is_some() {
        let message =
            format!("mandate {id} was replaced and governs no agent; stop the agent by its newest one");
        return Err(Refusal::invalid(message).into());
    }
    let terms = mandate.terms;
    Ok(About { stated: Stated::Stop, mandate: id, agent: terms.agent, role: terms.principal })
}
