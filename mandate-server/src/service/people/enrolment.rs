//! Enrolment: a person registers a passkey by a link that the operator gave them. Opening the link uses nothing up.

use mandate_core::people::{CredentialId, Registration, RelyingParty};
use mandate_core::{AgentName, Timestamp};
use serde_json::json;

use super::refused::{lost, refuse};
use super::{Person, Secret, Viewer, acting, name, record_by, sessions, sign_in};
use crate::error::{Code, Refusal};
use crate::model::call::{Environment, ScriptError};
use crate::model::people::{EnrolmentRecord, PasskeyRecord, PersonRecord};
use crate::service::moments::Moments;
use crate::service::public_log::Governing;
use crate::store::sql;
use crate::store::tx::Tx;

/// How many passkeys a person may have, withdrawn ones included.
pub const MAX_PASSKEYS: usize = 50;

/// What a browser needs to make a passkey.
#[derive(Debug)]
pub struct Registering {
    /// What the registration is for.
    pub challenge: [u8; 32],
    /// Who registers.
    pub person: Person,
    /// The user handle: the person's id.
    pub user_handle: [u8; 16],
    /// The passkeys that the person has in force.
    pub excluded: Vec<CredentialId>,
}

/// A finished registration, as the browser hands it over.
#[derive(Debug)]
pub struct Finished {
    /// What it was made for.
    pub challenge: [u8; 32],
    /// The new passkey.
    pub registration: Registration,
    /// What the person calls it.
    pub label: String,
}

/// Begins a registration.
///
/// # Errors
/// The link is unknown, used or over; or too many passkeys are waited for.
pub fn begin(
    tx: &mut Tx<'_>,
    moments: &Moments,
    environment: &Environment,
    secret: &Secret,
) -> Result<Registering, ScriptError> {
    let now = moments.now(tx)?;
    let link = usable(tx, environment, secret, now)?;
    let record = sql::people::find(tx, environment.id, link.person)?.ok_or_else(lost)?;
    let keys = sql::people::keys_of(tx, environment.id, link.person)?;
    must_have_room(&keys)?;
    let challenge = sign_in::challenge(tx, moments, environment.id, Some(link.hash))?;
    let in_force = keys.into_iter().filter(|key| key.withdrawn_at.is_none());
    Ok(Registering {
        challenge,
        user_handle: link.person.to_bytes(),
        person: record.person,
        excluded: in_force.map(|key| key.credential).collect(),
    })
}

/// Enrols the passkey, uses the link up, and begins a session.
///
/// # Errors
/// The link or the challenge is not good any more, the registration is refused, or the passkey is enrolled already.
pub fn finish(
    tx: &mut Tx<'_>,
    moments: &Moments,
    party: &RelyingParty,
    (environment, organization): (&Environment, &AgentName),
    secret: &Secret,
    finished: &Finished,
) -> Result<(Viewer, Secret), ScriptError> {
    let Finished { challenge, registration, label } = finished;
    let now = moments.now(tx)?;
    let link = usable(tx, environment, secret, now)?;
    let label = name("label", label)?;
    sign_in::use_up(tx, moments, environment.id, (*challenge, Some(link.hash)))?;
    sql::people::hold(tx, environment.id, link.person)?;
    let now = moments.now(tx)?;
    // Read again, now that the person is locked.
    usable(tx, environment, secret, now)?;
    let record = sql::people::find(tx, environment.id, link.person)?.ok_or_else(lost)?;
    let of = (organization, environment.kind);
    must_have_room(&sql::people::keys_of(tx, environment.id, link.person)?)?;
    let new = match registration.verify(challenge, party) {
        Ok(new) => new,
        Err(refused) => {
            let why = ("person.enrolment_refused", refused.name());
            let refusal = Refusal::invalid(format!("the passkey is refused: {refused}"));
            return refuse(tx, of, (&record.person, now), why, (json!({ "label": label }), refusal));
        }
    };
    if sql::people::find_key(tx, environment.id, &new.credential)?.is_some() {
        let message = format!("the passkey `{}` is enrolled already; use another one", new.credential);
        let why = ("person.enrolment_refused", "enrolled");
        let details = json!({ "credential": new.credential });
        return refuse(tx, of, (&record.person, now), why, (details, Refusal::invalid(message)));
    }
    if !sql::sessions::use_enrolment(tx, environment.id, link.hash, now)? {
        return Err(used().into());
    }
    let key = PasskeyRecord {
        environment: environment.id,
        credential: new.credential,
        person: link.person,
        key: new.key,
        label,
        origin: party.origin().to_owned(),
        is_synced: new.is_synced,
        enrolled_at: now,
        withdrawn_at: None,
    };
    enrolled(tx, moments, (environment, organization), (record, key), now)
}

/// Writes a verified passkey, its governing record and its first session.
fn enrolled(
    tx: &mut Tx<'_>,
    moments: &Moments,
    (environment, organization): (&Environment, &AgentName),
    (record, key): (PersonRecord, PasskeyRecord),
    now: Timestamp,
) -> Result<(Viewer, Secret), ScriptError> {
    sql::people::insert_key(tx, &key)?;
    let (session, secret) = sessions::begin(tx, moments, &key, now)?;
    let written = Governing::PersonKey {
        at: now,
        person: key.person,
        name: &record.person.name,
        credential: &key.credential,
        key: key.key,
        origin: &key.origin,
    };
    written.record(tx, environment.id)?;
    let PasskeyRecord { credential, label, origin, is_synced, .. } = &key;
    let details = json!({ "credential": credential, "label": label, "origin": origin, "is_synced": is_synced,
        "session": session });
    let of = (organization, environment.kind);
    record_by(tx, &acting(&record.person, now), of, ("person.enrolled", key.person), details)?;
    let viewer = Viewer {
        session,
        environment: environment.clone(),
        organization: organization.clone(),
        person: record.person,
        credential: key.credential,
    };
    Ok((viewer, secret))
}

/// The link with this secret, if a passkey can be registered by it.
fn usable(
    tx: &mut Tx<'_>,
    environment: &Environment,
    secret: &Secret,
    now: Timestamp,
) -> Result<EnrolmentRecord, ScriptError> {
    let link = sql::sessions::find_enrolment(tx, environment.id, secret.hash())?;
    let link = link.filter(|link| now < link.expires_at).ok_or_else(unknown)?;
    if link.used_at.is_some() { Err(used().into()) } else { Ok(link) }
}

/// The refusal of a link that is none. It is the same where there is no such organization.
#[must_use]
pub fn unknown() -> Refusal {
    let message = "the enrolment link is unknown or over: it is good for a day, and until another is made; ask the operator for \
                   a new one";
    Refusal::new(Code::NotFound, message)
}

fn used() -> Refusal {
    Refusal::invalid(
        "the enrolment link was used: it is good once; sign in, or ask the operator for a new one",
    )
}

fn must_have_room(keys: &[PasskeyRecord]) -> Result<(), Refusal> {
    if keys.len() < MAX_PASSKEYS {
        return Ok(());
    }
    let message =
        format!("the person has {MAX_PASSKEYS} passkeys, withdrawn ones included, which is the most");
    Err(Refusal::invalid(message))
}
