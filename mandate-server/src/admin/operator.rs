//! The user who runs the command, as audit records name them.

use std::path::Path;

use serde_json::Value;

use super::{Failure, terminal};
use crate::clock::{Clock as _, SystemClock};
use crate::config;
use crate::service::audit::{self, AuditEntry, Operator};

/// The user of this process, the user before sudo, and the current time.
#[must_use]
pub fn here() -> Operator {
    let uid = uzers::get_current_uid();
    let name = uzers::get_user_by_uid(uid).map(|user| user.name().to_string_lossy().into_owned());
    let user = format!("{} (uid {uid})", name.as_deref().unwrap_or("?"));
    let name = match config::sudo_user() {
        Some(sudoer) => format!("{user}, {sudoer} by sudo"),
        None => user,
    };
    Operator { name, at: SystemClock.now() }
}

/// Writes an audit record into `database`, about an action on a whole database file.
///
/// # Errors
/// The database does not answer, or its schema is not the newest.
pub fn record(database: &str, action: &'static str, subject: &Path, details: Value) -> Result<(), Failure> {
    // A relative path means nothing without its directory.
    let subject = std::path::absolute(subject).map_err(Failure::failed)?.display().to_string();
    record_named(database, action, &subject, details)
}

/// The same for a database that is not a file, named without its password.
///
/// # Errors
/// As for [`record`].
pub fn record_named(
    database: &str,
    action: &'static str,
    subject: &str,
    details: Value,
) -> Result<(), Failure> {
    let by = here();
    let entry = AuditEntry { action, organization: None, environment: None, subject, details };
    terminal::run(database, |tx| Ok(audit::write(tx, &by, &entry)?))
}
