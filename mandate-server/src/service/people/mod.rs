//! People: the operator names them, a passkey proves them, and they answer reviews and stop agents by signed statements.
//!
//! - **Come in**: [`enrolment`] registers a passkey by a link, [`sign_in`] opens one of the [`sessions`] by a passkey.
//! - **Answer**: [`statements`] gives a session what is to be signed, [`answers`] takes what was signed.
//!
//! Each script that uses a passkey or withdraws one first locks the person, so that the public log has both in their order.

pub mod answers;
pub mod challenges;
pub mod enrolment;
pub mod refused;
pub mod sessions;
pub mod sign_in;
pub mod statements;

use mandate_core::api_key::holds_key;
use mandate_core::people::CredentialId;
use mandate_core::{AgentName, EnvironmentKind, Invalid, PersonId, Principal, Timestamp};
use serde_json::json;

use super::audit::{self, AuditEntry, Operator};
use super::moments::Moments;
use super::organizations;
use super::public_log::Governing;
use crate::error::{Code, Fault, Refusal};
use crate::model::call::{Environment, ScriptError};
use crate::model::people::{EnrolmentRecord, PasskeyRecord, PersonRecord};
use crate::model::text::is_bidirectional_control;
use crate::store::sql;
use crate::store::tx::Tx;

pub use crate::model::people::{Actor, ActorKind, May, Person, Secret};

/// How many people an environment may have, disabled ones included.
pub const MAX_PEOPLE: i64 = 1_000;
/// How many roles a person may have.
pub const MAX_ROLES: usize = 16;
/// How long a name or a label may be, in characters.
pub const MAX_NAME_CHARS: usize = 100;
/// How long an enrolment link is good, in seconds: a day.
pub const ENROLMENT_SECONDS: i64 = 24 * 60 * 60;

/// A person who has signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    /// The number of the session.
    pub session: i64,
    /// The tenant.
    pub environment: Environment,
    /// The name of its organization.
    pub organization: AgentName,
    /// Who.
    pub person: Person,
    /// The passkey that opened the session.
    pub credential: CredentialId,
}

/// A new person, and the link by which they register their first passkey.
#[derive(Debug)]
pub struct New {
    /// Their id, drawn before.
    pub id: PersonId,
    /// Their name.
    pub name: String,
    /// The principals that they are.
    pub roles: Vec<Principal>,
    /// What they may do.
    pub may: May,
    /// The secret of the link, drawn before.
    pub secret: Secret,
}

/// A person as the operator sees them.
#[derive(Debug)]
pub struct Listed {
    /// The row.
    pub record: PersonRecord,
    /// Their passkeys, withdrawn or not.
    pub keys: Vec<PasskeyRecord>,
}

/// The environment of this kind of an organization, if there is such an organization.
///
/// # Errors
/// The database fails.
pub fn environment(
    tx: &mut Tx<'_>,
    organization: &AgentName,
    kind: EnvironmentKind,
) -> Result<Option<Environment>, Fault> {
    let found = sql::environments::named(tx, organization.as_str(), kind)?;
    Ok(found.map(|(id, policy_version)| Environment { id, kind, policy_version }))
}

/// Reads the name of a person, or the label of a passkey: `field` says which.
///
/// # Errors
/// It is empty, too long, or has characters that change how a line is shown; or it has an API key, which would be kept.
pub fn name(field: &'static str, text: &str) -> Result<String, Invalid> {
    if holds_key(text) {
        return Err(Invalid::new(field, "must not hold an API key"));
    }
    let is_shown = |c: char| !c.is_control() && !is_bidirectional_control(c);
    let is_padded = text.trim() != text;
    if (1..=MAX_NAME_CHARS).contains(&text.chars().count()) && text.chars().all(is_shown) && !is_padded {
        return Ok(text.to_owned());
    }
    let accepted =
        "no space at either end, none of them a control character, or one that changes the order of the text";
    Err(Invalid::value(field, &format!("must be 1 to {MAX_NAME_CHARS} characters, {accepted}"), text))
}

/// Creates a person.
///
/// # Errors
/// There is no such organization, the environment has [`MAX_PEOPLE`], or there are no roles or too many.
pub fn create(
    tx: &mut Tx<'_>,
    moments: &Moments,
    of: (&AgentName, EnvironmentKind),
    new: &New,
    by: &Operator,
) -> Result<PersonRecord, ScriptError> {
    let environment = must_exist(tx, of)?.id;
    sql::environments::lock(tx, environment)?;
    if sql::people::count(tx, environment)? >= MAX_PEOPLE {
        let message = format!("the environment has {MAX_PEOPLE} people, which is the most");
        return Err(Refusal::invalid(message).into());
    }
    let mut roles = new.roles.clone();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() || roles.len() > MAX_ROLES {
        let message = format!("role must be given 1 to {MAX_ROLES} times; got {}", roles.len());
        return Err(Refusal::invalid(message).into());
    }
    let now = moments.now(tx)?;
    let person = Person { id: new.id, name: new.name.clone(), roles, may: new.may };
    let record = PersonRecord { environment, person, created_at: now, disabled_at: None };
    sql::people::insert(tx, &record)?;
    link(tx, &record, &new.secret, now)?;
    let Person { name, roles, may, .. } = &record.person;
    record_by(tx, by, of, ("person.created", new.id), json!({ "name": name, "roles": roles, "may": may }))?;
    Ok(record)
}

/// Makes another enrolment link for a person. Those before it that were not used end.
///
/// # Errors
/// There is no such person, or they are disabled.
pub fn enrol(
    tx: &mut Tx<'_>,
    moments: &Moments,
    of: (&AgentName, EnvironmentKind),
    (person, secret): (PersonId, &Secret),
    by: &Operator,
) -> Result<PersonRecord, ScriptError> {
    let record = must_hold(tx, of, person)?;
    if record.disabled_at.is_some() {
        let message = format!("{person} is disabled; create the person anew");
        return Err(Refusal::invalid(message).into());
    }
    let now = moments.now(tx)?;
    sql::sessions::end_enrolments(tx, record.environment, person, now)?;
    link(tx, &record, secret, now)?;
    record_by(tx, by, of, ("person.enrol", person), json!({ "name": record.person.name }))?;
    Ok(record)
}

fn link(tx: &mut Tx<'_>, of: &PersonRecord, secret: &Secret, now: Timestamp) -> Result<(), Fault> {
    let record = EnrolmentRecord {
        environment: of.environment,
        hash: secret.hash(),
        person: of.person.id,
        expires_at: now.plus_seconds(ENROLMENT_SECONDS),
        used_at: None,
    };
    sql::sessions::insert_enrolment(tx, &record)
}

/// The people of an environment, disabled or not, oldest first.
///
/// # Errors
/// There is no such organization.
pub fn list(tx: &mut Tx<'_>, of: (&AgentName, EnvironmentKind)) -> Result<Vec<Listed>, ScriptError> {
    let environment = must_exist(tx, of)?.id;
    Ok(all(tx, environment)?)
}

/// The people of an environment and their passkeys, oldest first.
///
/// # Errors
/// The database fails.
pub fn all(tx: &mut Tx<'_>, environment: i64) -> Result<Vec<Listed>, Fault> {
    let people = sql::people::of_environment(tx, environment)?.into_iter();
    people
        .map(|record| {
            let keys = sql::people::keys_of(tx, environment, record.person.id)?;
            Ok(Listed { record, keys })
        })
        .collect()
}

/// Disables a person for ever: all passkeys are withdrawn, and all sessions and links end.
///
/// # Errors
/// There is no such person, or they are disabled already.
pub fn disable(
    tx: &mut Tx<'_>,
    moments: &Moments,
    of: (&AgentName, EnvironmentKind),
    person: PersonId,
    by: &Operator,
) -> Result<PersonRecord, ScriptError> {
    let mut record = must_hold(tx, of, person)?;
    if record.disabled_at.is_some() {
        return Err(Refusal::invalid(format!("{person} is disabled already")).into());
    }
    let (now, environment) = (moments.now(tx)?, record.environment);
    record.disabled_at = Some(now);
    sql::people::disable(tx, &record)?;
    sql::sessions::end_enrolments(tx, environment, person, now)?;
    let sessions = sql::sessions::end_of(tx, environment, person, None)?;
    let mut withdrawn = Vec::new();
    for key in sql::people::keys_of(tx, environment, person)? {
        if key.withdrawn_at.is_none() {
            withdraw_key(tx, &key, now)?;
            withdrawn.push(key.credential);
        }
    }
    let details = json!({ "name": record.person.name, "withdrawn": withdrawn, "sessions_ended": sessions });
    record_by(tx, by, of, ("person.disabled", person), details)?;
    Ok(record)
}

/// Withdraws one passkey of a person, and ends the sessions that it opened.
///
/// # Errors
/// There is no such person or passkey, or it is withdrawn already.
pub fn withdraw(
    tx: &mut Tx<'_>,
    moments: &Moments,
    of: (&AgentName, EnvironmentKind),
    (person, credential): (PersonId, &CredentialId),
    by: &Operator,
) -> Result<PasskeyRecord, ScriptError> {
    let record = must_hold(tx, of, person)?;
    let found = sql::people::find_key(tx, record.environment, credential)?;
    let Some(mut key) = found.filter(|key| key.person == person) else {
        let message = format!("{person} has no passkey `{credential}`; `person list` shows those there are");
        return Err(Refusal::new(Code::NotFound, message).into());
    };
    if key.withdrawn_at.is_some() {
        return Err(Refusal::invalid(format!("the passkey `{credential}` is withdrawn already")).into());
    }
    let now = moments.now(tx)?;
    let sessions = sql::sessions::end_of(tx, record.environment, person, Some(credential))?;
    withdraw_key(tx, &key, now)?;
    key.withdrawn_at = Some(now);
    let details = json!({ "credential": credential, "label": key.label, "sessions_ended": sessions });
    record_by(tx, by, of, ("person.withdrawn", person), details)?;
    Ok(key)
}

/// The person is locked.
fn withdraw_key(tx: &mut Tx<'_>, key: &PasskeyRecord, now: Timestamp) -> Result<(), Fault> {
    sql::people::withdraw(tx, &PasskeyRecord { withdrawn_at: Some(now), ..key.clone() })?;
    let written = Governing::PersonWithdrawn { at: now, person: key.person, credential: &key.credential };
    written.record(tx, key.environment)
}

fn must_exist(
    tx: &mut Tx<'_>,
    (organization, kind): (&AgentName, EnvironmentKind),
) -> Result<Environment, ScriptError> {
    Ok(environment(tx, organization, kind)?.ok_or_else(|| organizations::unknown(organization))?)
}

/// A person, locked.
fn must_hold(
    tx: &mut Tx<'_>,
    of: (&AgentName, EnvironmentKind),
    person: PersonId,
) -> Result<PersonRecord, ScriptError> {
    let environment = must_exist(tx, of)?.id;
    sql::people::hold(tx, environment, person)?;
    let (organization, kind) = of;
    let absent = || {
        let message =
            format!("{organization} has no person {person} in {kind}; `person list` shows those there are");
        Refusal::new(Code::NotFound, message)
    };
    Ok(sql::people::find(tx, environment, person)?.ok_or_else(absent)?)
}

/// Writes an audit record about a person.
fn record_by(
    tx: &mut Tx<'_>,
    by: &Operator,
    (organization, kind): (&AgentName, EnvironmentKind),
    (action, person): (&'static str, PersonId),
    details: serde_json::Value,
) -> Result<(), Fault> {
    let entry = AuditEntry {
        action,
        organization: Some(organization.as_str()),
        environment: Some(kind),
        subject: &person.to_string(),
        details,
    };
    audit::write(tx, by, &entry)
}

/// A person as audit records name who acts.
fn acting(person: &Person, at: Timestamp) -> Operator {
    Operator { name: format!("{} ({})", person.name, person.id), at }
}
