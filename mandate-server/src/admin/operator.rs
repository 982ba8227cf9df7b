//! Who runs the command: what audit records call them.

use crate::clock::{Clock as _, SystemClock};
use crate::config;
use crate::service::audit::Operator;

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
