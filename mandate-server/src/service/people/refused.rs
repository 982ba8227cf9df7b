//! What a person may not do: refused, and written into the audit records where a person should see it.

use mandate_core::people::RelyingParty;
use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use serde_json::{Value, json};

use super::{Person, acting, environment};
use crate::error::{Code, Fault, Refusal};
use crate::model::call::{Environment, ScriptError};
use crate::model::people::PasskeyRecord;
use crate::service::audit::{self, AuditEntry, Operator};
use crate::service::moments::Moments;
use crate::store::sql;
use crate::store::tx::Tx;

/// How many refusals of one action are recorded in [`RECORDED_SECONDS`] for each person, and for all unknown callers of an
/// environment together: they cannot fill the database, and those of one do not hide those of another.
pub const MAX_RECORDED: i64 = 60;
/// An hour.
pub const RECORDED_SECONDS: i64 = 60 * 60;
/// The check of [`elsewhere`], as audit records name it.
pub(super) const ELSEWHERE: &str = "registered_elsewhere";
/// Who acts, where nothing says who it is.
const STRANGER: &str = "no session";
/// What is concerned, where that is no person.
const CONSOLE: &str = "console";

/// Refuses what was tried in the name of a person, or by an unknown caller, and records it within the bound. Both are committed.
///
/// # Errors
/// Always: the refusal, or the database fails.
pub(super) fn refuse<T>(
    tx: &mut Tx<'_>,
    of: (&Environment, &AgentName),
    who: (Option<&Person>, Timestamp),
    why: (&'static str, &str),
    (details, refusal): (Value, Refusal),
) -> Result<T, ScriptError> {
    record(tx, of, who, why, details)?;
    Err(refusal.into())
}

/// Writes the audit record of a refusal, unless there are [`MAX_RECORDED`] of this action and of this person, or of unknown
/// callers. The last one says until when no further one is written.
///
/// # Errors
/// The database fails.
pub(super) fn record(
    tx: &mut Tx<'_>,
    (environment, organization): (&Environment, &AgentName),
    (person, at): (Option<&Person>, Timestamp),
    (action, check): (&'static str, &str),
    mut details: Value,
) -> Result<(), Fault> {
    let subject = person.map_or_else(|| CONSOLE.to_owned(), |person| person.id.to_string());
    let of = (organization.as_str(), environment.kind);
    let since = at.plus_seconds(-RECORDED_SECONDS);
    let recent = |tx: &mut Tx<'_>| sql::audit::recent(tx, of, (action, &subject, since), MAX_RECORDED);
    // Nothing is locked for what is not recorded.
    if recent(tx)?.0 >= MAX_RECORDED {
        return Ok(());
    }
    match person {
        Some(person) => sql::people::hold(tx, environment.id, person.id)?,
        None => sql::environments::lock(tx, environment.id)?,
    }
    let (count, oldest) = recent(tx)?;
    if count >= MAX_RECORDED {
        return Ok(());
    }
    if let Some(details) = details.as_object_mut() {
        details.insert("refused".to_owned(), json!(check));
        if let Some(oldest) = oldest.filter(|_| count + 1 == MAX_RECORDED) {
            let until = oldest.plus_seconds(RECORDED_SECONDS);
            details.insert("further".to_owned(), json!(format!("not recorded until {until}")));
        }
    }
    let entry = AuditEntry {
        action,
        organization: Some(organization.as_str()),
        environment: Some(environment.kind),
        subject: &subject,
        details,
    };
    let stranger = || Operator { name: STRANGER.to_owned(), at };
    audit::write(tx, &person.map_or_else(stranger, |person| acting(person, at)), &entry)
}

/// Refuses a request that changes something and that no page of the console has sent, at the address of an environment. If
/// that exists, there is an audit record, within the bound of [`MAX_RECORDED`].
///
/// # Errors
/// Always: the refusal, or the database fails.
pub fn forged<T>(
    tx: &mut Tx<'_>,
    moments: &Moments,
    (organization, kind): (&AgentName, EnvironmentKind),
    said: (Value, Refusal),
) -> Result<T, ScriptError> {
    let Some(environment) = environment(tx, organization, kind)? else { return Err(said.1.into()) };
    let now = moments.now(tx)?;
    refuse(tx, (&environment, organization), (None, now), ("console.refused", "origin"), said)
}

/// The refusal of a request without a session.
pub(super) fn session_over() -> Refusal {
    Refusal::new(Code::Unauthorized, "the session is over; sign in again")
}

/// 403 for the reason given.
pub(super) fn forbidden(message: impl Into<String>) -> Refusal {
    Refusal::new(Code::Forbidden, message)
}

/// Why a passkey is refused that was registered at another origin of the console, if it was. What it signs here would not hold
/// later: an answer is audited against the origin at which its passkey was registered.
pub(super) fn elsewhere(key: &PasskeyRecord, party: &RelyingParty) -> Option<String> {
    let (then, now) = (&key.origin, party.origin());
    (then != now).then(|| {
        format!(
            "this passkey was registered at {then}, and the console is at {now}; ask the operator for a link, and register a \
             passkey again"
        )
    })
}

/// The fault of a row whose person is not there.
pub(super) fn lost() -> Fault {
    Fault::corrupt("database: a passkey's or session's person is not there")
}
