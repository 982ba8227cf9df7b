//! Signing in: a passkey signs a random challenge.

use mandate_core::people::{Assertion, CredentialId, RelyingParty};
use mandate_core::{AgentName, EnvironmentKind};
use serde_json::json;

use super::refused::{lost, refuse};
use super::{Secret, Viewer, acting, record_by, sessions};
use crate::error::{Code, Refusal};
use crate::model::call::{Environment, ScriptError};
use crate::service::moments::Moments;
use crate::store::sql;
use crate::store::tx::Tx;

/// How long a challenge waits for a passkey, in seconds: five minutes.
pub const CHALLENGE_SECONDS: i64 = 5 * 60;
/// How many challenges of an environment may wait at a time.
pub const MAX_CHALLENGES: i64 = 10_000;

/// Gives a challenge to be signed.
///
/// # Errors
/// [`MAX_CHALLENGES`] wait.
pub fn begin(tx: &mut Tx<'_>, moments: &Moments, environment: &Environment) -> Result<[u8; 32], ScriptError> {
    challenge(tx, moments, environment.id, None)
}

/// Writes a challenge: to sign in, or for an enrolment.
pub(super) fn challenge(
    tx: &mut Tx<'_>,
    moments: &Moments,
    environment: i64,
    enrolment: Option<[u8; 32]>,
) -> Result<[u8; 32], ScriptError> {
    if sql::sessions::open_challenges(tx, environment, MAX_CHALLENGES)? >= MAX_CHALLENGES {
        let message = format!("{MAX_CHALLENGES} passkeys are waited for, which is the most; try again later");
        return Err(Refusal::new(Code::RateLimited, message).into());
    }
    let (challenge, now) = (*moments.ids().random(), moments.now(tx)?);
    let end = now.plus_seconds(CHALLENGE_SECONDS);
    sql::sessions::insert_challenge(tx, environment, challenge, enrolment, end)?;
    Ok(challenge)
}

/// Uses up a challenge of an enrolment, or to sign in.
pub(super) fn use_up(
    tx: &mut Tx<'_>,
    moments: &Moments,
    environment: i64,
    challenge: ([u8; 32], Option<[u8; 32]>),
) -> Result<(), ScriptError> {
    let now = moments.now(tx)?;
    let is_good = sql::sessions::use_challenge(tx, environment, challenge)?.is_some_and(|end| now < end);
    let minutes = CHALLENGE_SECONDS / 60;
    let message =
        format!("the challenge is unknown, used, or older than {minutes} minutes; open the page again");
    if is_good { Ok(()) } else { Err(Refusal::invalid(message).into()) }
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

/// Begins a session for the person whose passkey signed the challenge. The challenge is used up in any case.
///
/// # Errors
/// The challenge is not good any more, the passkey is not in force here, or the assertion is refused.
pub fn finish(
    tx: &mut Tx<'_>,
    moments: &Moments,
    party: &RelyingParty,
    (environment, organization): (&Environment, &AgentName),
    challenge: [u8; 32],
    assertion: &Assertion,
) -> Result<(Viewer, Secret), ScriptError> {
    let is_used_up = use_up(tx, moments, environment.id, (challenge, None));
    let credential = &assertion.credential;
    let unknown = || not_enrolled(credential, (organization, environment.kind));
    let key = sql::people::find_key(tx, environment.id, credential)?.ok_or_else(unknown)?;
    is_used_up?;
    sql::people::hold(tx, environment.id, key.person)?;
    let now = moments.now(tx)?;
    // Read again, now that the person is locked.
    let key = sql::people::find_key(tx, environment.id, credential)?.ok_or_else(unknown)?;
    let record = sql::people::find(tx, environment.id, key.person)?.ok_or_else(lost)?;
    let of = (organization, environment.kind);
    let (who, action) = ((&record.person, now), "person.sign_in_failed");
    let details = json!({ "credential": credential });
    if key.withdrawn_at.is_some() || record.disabled_at.is_some() {
        return refuse(tx, of, who, (action, "withdrawn"), (details, unknown()));
    }
    if let Err(refused) = assertion.verify(&challenge, party, &key.key) {
        let refusal = Refusal::new(Code::Unauthorized, format!("the passkey is refused: {refused}"));
        return refuse(tx, of, who, (action, refused.name()), (details, refusal));
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
