//! Enrolment: a person registers a passkey by a link that the operator gave them. Opening the link uses nothing up.

use mandate_core::people::{CredentialId, Registration, RelyingParty};
use mandate_core::{AgentName, Timestamp};
use serde_json::json;

use super::challenges::{Challenges, Purpose};
use super::refused::{lost, refuse};
use super::{Person, Secret, Viewer, acting, name, record_by, sessions, sign_in};
use crate::error::{Code, Refusal};
use crate::model::call::{Environment, ScriptError};
use crate::model::people::{EnrolmentRecord, PasskeyRecord, PersonRecord};
use crate::service::moments::Moments;
use crate::service::public_log::Governing;
use crate::store::sql;
use crate::store::tx::Tx;

const REFUSED: &str = "person.enrolment_refused";

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
    /// The passkeys that the person has in force and that were registered at this origin.
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
/// The link is unknown, used or over, or the person has [`MAX_PASSKEYS`].
pub fn begin(
    tx: &mut Tx<'_>,
    moments: &Moments,
    challenges: &Challenges,
    party: &RelyingParty,
    (environment, organization): (&Environment, &AgentName),
    secret: &Secret,
) -> Result<Registering, ScriptError> {
    let now = moments.now(tx)?;
    let (link, record) = usable(tx, (environment, organization), secret, now)?;
    let keys = sql::people::keys_of(tx, environment.id, link.person)?;
    must_have_room(&keys)?;
    let (of, random) = ((organization, environment.kind), moments.ids().random());
    let challenge = challenges.make(of, Purpose::Enrol(link.hash), now, &random);
    let in_force = keys.into_iter().filter(|key| key.withdrawn_at.is_none() && key.origin == party.origin());
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
    challenges: &Challenges,
    party: &RelyingParty,
    tenant: (&Environment, &AgentName),
    secret: &Secret,
    finished: &Finished,
) -> Result<(Viewer, Secret), ScriptError> {
    let (environment, organization) = tenant;
    let Finished { challenge, registration, label } = finished;
    let now = moments.now(tx)?;
    let (link, _) = usable(tx, tenant, secret, now)?;
    let label = name("label", label)?;
    sql::people::hold(tx, environment.id, link.person)?;
    let now = moments.now(tx)?;
    // Read again, now that the person is locked.
    let (link, record) = usable(tx, tenant, secret, now)?;
    let (of, who) = ((organization, environment.kind), (Some(&record.person), now));
    if let Err(check) = challenges.end(challenge, of, Purpose::Enrol(link.hash), now) {
        let details = json!({ "label": label });
        return refuse(tx, tenant, who, (REFUSED, check), (details, sign_in::not_good()));
    }
    must_have_room(&sql::people::keys_of(tx, environment.id, link.person)?)?;
    let new = match registration.verify(challenge, party) {
        Ok(new) => new,
        Err(refused) => {
            let refusal = Refusal::invalid(format!("the passkey is refused: {refused}"));
            let details = json!({ "label": label });
            return refuse(tx, tenant, who, (REFUSED, refused.name()), (details, refusal));
        }
    };
    if sql::people::find_key(tx, environment.id, &new.credential)?.is_some() {
        let message = format!("the passkey `{}` is enrolled already; use another one", new.credential);
        let details = json!({ "credential": new.credential });
        return refuse(tx, tenant, who, (REFUSED, "enrolled"), (details, Refusal::invalid(message)));
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
    enrolled(tx, moments, tenant, (record, key), now)
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

/// The link with this secret and its person, if a passkey can be registered by it.
fn usable(
    tx: &mut Tx<'_>,
    tenant: (&Environment, &AgentName),
    secret: &Secret,
    now: Timestamp,
) -> Result<(EnrolmentRecord, PersonRecord), ScriptError> {
    let environment = tenant.0;
    let link = sql::sessions::find_enrolment(tx, environment.id, secret.hash())?.ok_or_else(unknown)?;
    let record = sql::people::find(tx, environment.id, link.person)?.ok_or_else(lost)?;
    let (check, refusal) = if link.used_at.is_some() {
        ("used", used())
    } else if link.expires_at <= now {
        ("over", unknown())
    } else {
        return Ok((link, record));
    };
    refuse(tx, tenant, (Some(&record.person), now), (REFUSED, check), (json!({}), refusal))
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
