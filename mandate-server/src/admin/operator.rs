//! Who runs the command: what audit records call them.

use std::path::Path;

use serde_json::Value;

use super::{Failure, terminal};
use crate::clock::{Clock as _, SystemClock};
use crate::config;
use crate::service::audit::{self, Deed, Operator};

/// Who runs this process, and now: the user of the operating system, and who became that user through sudo.
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

/// Writes down, in `database`, what was done to a whole database file.
///
/// # Errors
/// The database does not answer, or its schema is not the newest.
pub fn record(database: &str, action: &'static str, subject: &Path, details: Value) -> Result<(), Failure> {
    // A path that tells nothing without the directory that it was said in is of no use.
    let subject = std::path::absolute(subject).map_err(Failure::failed)?.display().to_string();
    record_named(database, action, &subject, details)
}

/// The same of a database that is no file, by its name without a password.
///
/// # Errors
/// As with [`record`].
pub fn record_named(
    database: &str,
    action: &'static str,
    subject: &str,
    details: Value,
) -> Result<(), Failure> {
    let by = here();
    let deed = Deed { action, organization: None, environment: None, subject, details };
    terminal::run(database, |tx| Ok(audit::write(tx, &by, &deed)?))
}
