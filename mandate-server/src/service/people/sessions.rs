//! Sessions: a person who has signed in, known by the secret in a cookie. All servers share them.

use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use serde_json::json;

use super::refused::{lost, session_over};
use super::{Secret, Viewer, acting, must_exist, record_by};
use crate::error::{Code, Fault, Refusal};
use crate::model::call::{Environment, ScriptError};
use crate::model::people::{PasskeyRecord, PersonRecord, SessionRecord};
use crate::service::audit::Operator;
use crate::service::moments::{BEHIND_MILLIS, Moments};
use crate::store::sql;
use crate::store::sql::sessions::Kept;
use crate::store::tx::Tx;

/// How long a session lasts that is not used, in seconds: 15 minutes.
pub const IDLE_SECONDS: i64 = 15 * 60;
/// How long a session lasts at most, in seconds: 8 hours.
pub const LONGEST_SECONDS: i64 = 8 * 60 * 60;
/// How long a link is kept after its end, in seconds, 30 days: who tries it then is refused as late, and recorded.
pub const KEPT_LINK_SECONDS: i64 = 30 * 24 * 60 * 60;
/// How many sessions a person has at a time. A further one ends the oldest.
pub const MAX_SESSIONS: i64 = 20;
/// How often it is written that a session is used, in seconds.
pub const TOUCH_SECONDS: i64 = 60;

/// A statement is kept as long after its end as a session can last that could answer it: so a late one is refused as late.
const KEPT: Kept = Kept { link: KEPT_LINK_SECONDS * 1_000, session: LONGEST_SECONDS * 1_000 };

/// A session as the operator sees it.
#[derive(Debug)]
pub struct Listed {
    /// The row.
    pub session: SessionRecord,
    /// The name of the person.
    pub name: String,
}

/// The person behind a cookie, and whether it is time to write that the session is used ([`touch`]). None if the session is
/// over, or the secret is of another environment.
///
/// # Errors
/// The database fails.
pub fn find(
    tx: &mut Tx<'_>,
    now: Timestamp,
    environment: &Environment,
    organization: &AgentName,
    secret: &Secret,
) -> Result<Option<(Viewer, bool)>, Fault> {
    let Some(session) = sql::sessions::by_hash(tx, environment.id, secret.hash())? else { return Ok(None) };
    let Some((record, _)) = living(tx, &session, now)? else { return Ok(None) };
    let is_due = now.millis_since(session.seen_at) >= TOUCH_SECONDS * 1_000;
    let viewer = Viewer {
        session: session.session,
        environment: environment.clone(),
        organization: organization.clone(),
        person: record.person,
        credential: session.credential,
    };
    Ok(Some((viewer, is_due)))
}

/// Writes that a session is used.
///
/// # Errors
/// The database fails.
pub fn touch(tx: &mut Tx<'_>, now: Timestamp, session: i64) -> Result<(), Fault> {
    sql::sessions::touch(tx, session, now)
}

/// Begins a session of a person who was just verified, and is locked. Those beyond [`MAX_SESSIONS`] end, the oldest first. Gives its number and its secret.
pub(super) fn begin(
    tx: &mut Tx<'_>,
    moments: &Moments,
    key: &PasskeyRecord,
    now: Timestamp,
) -> Result<(i64, Secret), Fault> {
    let secret = Secret::new(moments.ids().random());
    let whose = (key.person, &key.credential);
    let session = sql::sessions::insert(tx, key.environment, secret.hash(), whose, now)?;
    sql::sessions::end_older(tx, key.environment, key.person, MAX_SESSIONS)?;
    Ok((session, secret))
}

/// Ends a session: its person signs out.
///
/// # Errors
/// The database fails.
pub fn end(tx: &mut Tx<'_>, moments: &Moments, viewer: &Viewer) -> Result<(), Fault> {
    if !sql::sessions::end(tx, viewer.environment.id, viewer.session)? {
        return Ok(());
    }
    let by = acting(&viewer.person, moments.now(tx)?);
    let of = (&viewer.organization, viewer.environment.kind);
    record_by(tx, &by, of, ("session.ended", viewer.person.id), json!({ "session": viewer.session }))
}

/// The sessions of an environment that last, oldest first.
///
/// # Errors
/// There is no such organization.
pub fn list(
    tx: &mut Tx<'_>,
    moments: &Moments,
    of: (&AgentName, EnvironmentKind),
) -> Result<Vec<Listed>, ScriptError> {
    let environment = must_exist(tx, of)?.id;
    let now = moments.now(tx)?;
    let mut listed = Vec::new();
    for session in sql::sessions::of_environment(tx, environment)? {
        if let Some((record, _)) = living(tx, &session, now)? {
            listed.push(Listed { session, name: record.person.name });
        }
    }
    Ok(listed)
}

/// Ends a session, for the operator.
///
/// # Errors
/// There is no such organization or session.
pub fn end_by_operator(
    tx: &mut Tx<'_>,
    of: (&AgentName, EnvironmentKind),
    session: i64,
    by: &Operator,
) -> Result<(), ScriptError> {
    let environment = must_exist(tx, of)?.id;
    let Some(found) = sql::sessions::find(tx, environment, session)? else {
        let message = format!("there is no session {session}; `person sessions` shows those there are");
        return Err(Refusal::new(Code::NotFound, message).into());
    };
    sql::sessions::end(tx, environment, session)?;
    record_by(tx, by, of, ("session.ended", found.person), json!({ "session": session }))?;
    Ok(())
}

/// The person and passkey of a viewer, the person locked: as they are now, and not as they were when the page was asked for.
///
/// # Errors
/// The session is over.
pub(super) fn hold(
    tx: &mut Tx<'_>,
    moments: &Moments,
    viewer: &Viewer,
) -> Result<(PersonRecord, PasskeyRecord, Timestamp), ScriptError> {
    sql::people::hold(tx, viewer.environment.id, viewer.person.id)?;
    let now = moments.now(tx)?;
    let session = sql::sessions::find(tx, viewer.environment.id, viewer.session)?;
    let session = session.filter(|session| session.person == viewer.person.id).ok_or_else(session_over)?;
    let (record, key) = living(tx, &session, now)?.ok_or_else(session_over)?;
    Ok((record, key, now))
}

/// The person and passkey of a session, if it lasts at `now`.
fn living(
    tx: &mut Tx<'_>,
    session: &SessionRecord,
    now: Timestamp,
) -> Result<Option<(PersonRecord, PasskeyRecord)>, Fault> {
    let SessionRecord { environment, person, credential, created_at, seen_at, .. } = session;
    let is_over =
        now >= seen_at.plus_seconds(IDLE_SECONDS) || now >= created_at.plus_seconds(LONGEST_SECONDS);
    if is_over || (*seen_at).max(*created_at) > ahead(now) {
        return Ok(None);
    }
    let record = sql::people::find(tx, *environment, *person)?.ok_or_else(lost)?;
    let key = sql::people::find_key(tx, *environment, credential)?.ok_or_else(lost)?;
    let is_good = record.disabled_at.is_none() && key.withdrawn_at.is_none() && key.person == *person;
    Ok(is_good.then_some((record, key)))
}

/// When the first link, challenge, statement or session is not kept any more.
///
/// # Errors
/// The database fails.
pub fn next_end(tx: &mut Tx<'_>, moments: &Moments) -> Result<Option<Timestamp>, Fault> {
    let ahead = ahead(moments.now(tx)?);
    sql::sessions::next_end(tx, KEPT, ahead)
}

/// Deletes links, challenges, statements and sessions that are not kept any more, at most `limit` of each. Gives how many. A session
/// that is dated ahead of the clock would last again when the clock has come there.
///
/// # Errors
/// The database fails.
pub fn forget(tx: &mut Tx<'_>, moments: &Moments, now: Timestamp, limit: i64) -> Result<usize, Fault> {
    let ahead = ahead(moments.now(tx)?);
    let ended = sql::sessions::forget_ahead(tx, ahead, limit)?;
    Ok(ended + sql::sessions::forget(tx, now, KEPT, limit)?)
}

/// No session is dated later at `now` but by a clock that was ahead: nothing says how long ago that was.
fn ahead(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.millis().saturating_add(BEHIND_MILLIS))
}
