//! What a person may not do: refused, and written into the audit records where a person should see it.

use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use serde_json::{Value, json};

use super::{Person, acting, record_by};
use crate::error::{Code, Fault, Refusal};
use crate::model::call::ScriptError;
use crate::store::tx::Tx;

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
