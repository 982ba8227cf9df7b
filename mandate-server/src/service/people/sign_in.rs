//! Signing in: a passkey signs a random challenge.

use mandate_core::people::{Assertion, CredentialId, RelyingParty};
use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use serde_json::json;

use super::challenges::{CHALLENGE_SECONDS, Challenges, Purpose};
use super::refused::{ELSEWHERE, elsewhere, lost, refuse};
use super::{Secret, Viewer, acting, record_by, sessions};
use crate::error::{Code, Refusal};
use crate::model::call::{Environment, ScriptError};
use crate::model::people::{PasskeyRecord, PersonRecord};
use crate::service::moments::Moments;
use crate::store::sql;
use crate::store::tx::Tx;

const FAILED: &str = "person.sign_in_failed";

/// The refusal of a challenge.
pub(super) fn not_good() -> Refusal {
    let minutes = CHALLENGE_SECONDS / 60;
    Refusal::invalid(format!(
        "the challenge is unknown, used, or older than {minutes} minutes; open the page again"
    ))
}

/// The refusal of a passkey that is not in force in an environment. It is the same where there is no such organization.
#[must_use]
pub fn not_enrolled(
    credential: &CredentialId,
    (organization, kind): (&AgentName, EnvironmentKind),
) -> Refusal {
    let message = format!(
        "the passkey `{credential}` is not enrolled for {organization} in {kind}; ask the operator for a link"
    );
    Refusal::new(Code::Unauthorized, message)
}

/// Begins a session for the person whose passkey signed the challenge, which is good once. Nothing is locked or written for an
/// assertion that is refused, but for the audit record.
///
/// # Errors
/// The challenge is not good any more, the passkey is not in force here or was registered at another origin, or the assertion is
/// refused.
pub fn finish(
    tx: &mut Tx<'_>,
    moments: &Moments,
    challenges: &Challenges,
    party: &RelyingParty,
    (environment, organization): (&Environment, &AgentName),
    challenge: [u8; 32],
    assertion: &Assertion,
) -> Result<(Viewer, Secret), ScriptError> {
    let (tenant, of) = ((environment, organization), (organization, environment.kind));
    let credential = &assertion.credential;
    let now = moments.now(tx)?;
    let (record, key) = in_force(tx, tenant, credential, now)?;
    let details = json!({ "credential": credential });
    if let Err(refused) = assertion.verify(&challenge, party, &key.key) {
        let refusal = Refusal::new(Code::Unauthorized, format!("the passkey is refused: {refused}"));
        let who = (Some(&record.person), now);
        return refuse(tx, tenant, who, (FAILED, refused.name()), (details, refusal));
    }
    if let Some(why) = elsewhere(&key, party) {
        let details = json!({ "credential": credential, "registered_at": key.origin });
        let refusal = Refusal::new(Code::Unauthorized, why);
        return refuse(tx, tenant, (Some(&record.person), now), (FAILED, ELSEWHERE), (details, refusal));
    }
    let end = match challenges.end(&challenge, of, Purpose::SignIn, now) {
        Ok(end) => end,
        Err(check) => {
            let who = (Some(&record.person), now);
            return refuse(tx, tenant, who, (FAILED, check), (details, not_good()));
        }
    };
    sql::people::hold(tx, environment.id, key.person)?;
    let now = moments.now(tx)?;
    // Read again, now that the person is locked.
    let (record, key) = in_force(tx, tenant, credential, now)?;
    if !sql::sessions::use_challenge(tx, environment.id, challenge, end)? {
        return refuse(tx, tenant, (Some(&record.person), now), (FAILED, "used"), (details, not_good()));
    }
    let (session, secret) = sessions::begin(tx, moments, &key, now)?;
    let details = json!({ "credential": credential, "session": session });
    record_by(tx, &acting(&record.person, now), of, ("person.signed_in", key.person), details)?;
    let viewer = Viewer {
        session,
        environment: environment.clone(),
        organization: organization.clone(),
        person: record.person,
        credential: key.credential,
    };
    Ok((viewer, secret))
}

/// A passkey and its person, if it is in force in the environment.
fn in_force(
    tx: &mut Tx<'_>,
    tenant: (&Environment, &AgentName),
    credential: &CredentialId,
    now: Timestamp,
) -> Result<(PersonRecord, PasskeyRecord), ScriptError> {
    let (environment, organization) = tenant;
    let of = (organization, environment.kind);
    let (details, refusal) = (json!({ "credential": credential }), not_enrolled(credential, of));
    let Some(key) = sql::people::find_key(tx, environment.id, credential)? else {
        return refuse(tx, tenant, (None, now), (FAILED, "credential"), (details, refusal));
    };
    let record = sql::people::find(tx, environment.id, key.person)?.ok_or_else(lost)?;
    if key.withdrawn_at.is_some() || record.disabled_at.is_some() {
        let who = (Some(&record.person), now);
        return refuse(tx, tenant, who, (FAILED, "withdrawn"), (details, refusal));
    }
    Ok((record, key))
}
