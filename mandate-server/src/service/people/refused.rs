//! What a person may not do: refused, and written into the audit records where a person should see it.

use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use serde_json::{Value, json};

use super::{Person, acting, environment, record_by};
use crate::error::{Code, Fault, Refusal};
use crate::model::call::ScriptError;
use crate::service::audit::{self, AuditEntry, Operator};
use crate::service::moments::Moments;
use crate::store::sql;
use crate::store::tx::Tx;

/// How many refusals of one action are recorded for an environment in [`RECORDED_SECONDS`], of those who have no session: they
/// cannot fill the database.
pub const MAX_RECORDED: i64 = 60;
/// An hour.
pub const RECORDED_SECONDS: i64 = 60 * 60;
/// Among how many of an organization's newest records those are counted: far more than its environments can have of them.
const COUNTED_AMONG: i64 = 1_000;
/// Who acts, where nothing says who it is.
const STRANGER: &str = "no session";
/// What is concerned, where that is no person.
const CONSOLE: &str = "console";

/// Refuses what was tried without a session: in the name of a person, if one is given. There is an audit record, unless the
/// environment has [`MAX_RECORDED`] of this action. Both are committed.
///
/// # Errors
/// Always: the refusal, or the database fails.
pub(super) fn refuse_stranger<T>(
    tx: &mut Tx<'_>,
    of: (&AgentName, EnvironmentKind),
    (person, at): (Option<&Person>, Timestamp),
    (action, check): (&'static str, &str),
    (mut details, refusal): (Value, Refusal),
) -> Result<T, ScriptError> {
    let (organization, kind) = of;
    let since = at.plus_seconds(-RECORDED_SECONDS);
    let of = (organization.as_str(), kind);
    if sql::audit::recent(tx, of, (action, since), COUNTED_AMONG)? < MAX_RECORDED {
        if let Some(details) = details.as_object_mut() {
            details.insert("refused".to_owned(), json!(check));
        }
        let stranger = || Operator { name: STRANGER.to_owned(), at };
        let entry = AuditEntry {
            action,
            organization: Some(organization.as_str()),
            environment: Some(kind),
            subject: &person.map_or_else(|| CONSOLE.to_owned(), |person| person.id.to_string()),
            details,
        };
        audit::write(tx, &person.map_or_else(stranger, |person| acting(person, at)), &entry)?;
    }
    Err(refusal.into())
}

/// Refuses a request that changes something and that no page of the console has sent, at the address of an environment. If
/// that exists, there is an audit record, within the bound of [`MAX_RECORDED`].
///
/// # Errors
/// Always: the refusal, or the database fails.
pub fn forged<T>(
    tx: &mut Tx<'_>,
    moments: &Moments,
    of: (&AgentName, EnvironmentKind),
    (details, refusal): (Value, Refusal),
) -> Result<T, ScriptError> {
    let (organization, kind) = of;
    if environment(tx, organization, kind)?.is_none() {
        return Err(refusal.into());
    }
    let now = moments.now(tx)?;
    refuse_stranger(tx, of, (None, now), ("console.refused", "origin"), (details, refusal))
}

/// Refuses what a person tried, with an audit record. Both are committed.
///
/// # Errors
/// Always: the refusal, or the database fails.
pub(super) fn refuse<T>(
    tx: &mut Tx<'_>,
    of: (&AgentName, EnvironmentKind),
    (person, at): (&Person, Timestamp),
    (action, check): (&'static str, &str),
    (mut details, refusal): (Value, Refusal),
) -> Result<T, ScriptError> {
    if let Some(details) = details.as_object_mut() {
        details.insert("refused".to_owned(), json!(check));
    }
    record_by(tx, &acting(person, at), of, (action, person.id), details)?;
    Err(refusal.into())
}

/// The refusal of a request without a session.
pub(super) fn session_over() -> Refusal {
    Refusal::new(Code::Unauthorized, "the session is over; sign in again")
}

/// 403 for the reason given.
pub(super) fn forbidden(message: impl Into<String>) -> Refusal {
    Refusal::new(Code::Forbidden, message)
}

/// The fault of a row whose person is not there.
pub(super) fn lost() -> Fault {
    Fault::corrupt("database: a passkey's or session's person is not there")
}
