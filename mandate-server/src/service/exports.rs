//! Exports: the log, or a part of it, to keep and to verify offline. Requested here, built by a worker.

mod answers;
pub mod kept;
mod write;

use mandate_core::{ExportId, Timestamp};
use serde::{Serialize, Serializer};

use super::moments::{BEHIND_MILLIS, Moments};
use crate::error::{Fault, Refusal};
use crate::model::call::{Answer, Call, ScriptError, Scripted};
use crate::store::sql;
use crate::store::sql::exports::{Export, ExportStatus};
use crate::store::tx::Tx;

pub use crate::store::sql::decisions::Filter;
pub use crate::store::sql::exports::Format;
pub use write::{Build, Written, csv_rows, write};

/// How long an export is kept, in seconds: 7 days.
pub const KEPT_SECONDS: i64 = 7 * 24 * 60 * 60;
/// How many exports an environment may have at a time. Beyond that the oldest finished one gives way.
pub const MAX_EXPORTS: i64 = 200;

/// How long after `until` an export is built, in seconds: by then all that was decided in its period is there.
pub const CLOSES_SECONDS: i64 = 60;

/// The transaction that has closed a period, where several are under way at a time.
#[derive(Debug, Clone)]
pub struct Closed(Option<String>);

/// The command to create an export.
#[derive(Debug)]
pub struct Create {
    /// How it is written.
    pub format: Format,
    /// Which decisions are in it: by verdict, agent and time.
    pub filter: Filter,
    /// Its id, drawn before.
    pub id: ExportId,
    /// When it was requested.
    pub at: Timestamp,
}

#[derive(Serialize)]
struct View {
    export: ExportId,
    status: ExportStatus,
    format: Format,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256Hex>,
    created_at: Timestamp,
    expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete_since: Option<Timestamp>,
}

/// A hash, written in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sha256Hex(pub [u8; 32]);

impl std::fmt::Display for Sha256Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Sha256Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<&Export> for View {
    fn from(export: &Export) -> Self {
        Self {
            export: export.id,
            status: export.status,
            format: export.format,
            rows: export.content.map(|(rows, _)| rows),
            sha256: export.content.map(|(_, sha256)| Sha256Hex(sha256)),
            created_at: requested_at(export.expires_at),
            expires_at: export.expires_at,
            incomplete_since: export.incomplete_since,
        }
    }
}

/// When an export was requested. Its id does not show it: its time is no instant.
#[must_use]
pub fn requested_at(expires_at: Timestamp) -> Timestamp {
    expires_at.plus_seconds(-KEPT_SECONDS)
}

/// Requests an export.
///
/// # Errors
/// [`MAX_EXPORTS`] of the environment are being built or will be, or the requested period is empty or has not ended.
pub fn create(tx: &mut Tx<'_>, call: &Call, command: &Create) -> Scripted {
    let environment = &call.caller.environment;
    if let (Some(since), Some(until)) = (command.filter.since, command.filter.until)
        && until <= since
    {
        let message = format!("until must be after since; got `{until}`, since is {since}");
        return Err(Refusal::invalid(message).into());
    }
    if let Some(until) = command.filter.until.filter(|until| *until > command.at) {
        let message = format!(
            "until must not be in the future; got `{until}`, and it is {}. Leave it out for all decisions so far",
            command.at
        );
        return Err(Refusal::invalid(message).into());
    }
    sql::environments::lock(tx, environment.id)?;
    if sql::exports::count(tx, environment.id, command.at)? >= MAX_EXPORTS
        && !sql::kept_exports::give_way(tx, environment.id, command.at)?
    {
        let message =
            format!("{MAX_EXPORTS} exports of the environment are pending; retry when some are ready");
        return Err(Refusal::invalid(message).into());
    }
    let export = Export {
        environment: environment.id,
        kind: environment.kind,
        policy_version: environment.policy_version.clone(),
        id: command.id,
        format: command.format,
        filter: command.filter.clone(),
        status: ExportStatus::Pending,
        content: None,
        expires_at: command.at.plus_seconds(KEPT_SECONDS),
        incomplete_since: None,
    };
    sql::exports::insert(tx, &export)?;
    Ok(Answer::new(202, &View::from(&export))?)
}

/// One export.
///
/// # Errors
/// There is none of that id in the environment, or it has expired.
pub fn get(tx: &mut Tx<'_>, call: &Call, id: &str, now: Timestamp) -> Scripted {
    Ok(Answer::new(200, &View::from(&find(tx, call, id, now)?))?)
}

/// An export whose content can be read in `format`.
///
/// # Errors
/// There is none of that id, it is not ready, or it has another format.
pub fn content(
    tx: &mut Tx<'_>,
    call: &Call,
    id: &str,
    format: Format,
    now: Timestamp,
) -> Result<(ExportId, [u8; 32]), ScriptError> {
    let export = find(tx, call, id, now)?;
    if export.format != format {
        let message = format!("the export is {}; ask for that, or for the record", export.format.as_str());
        return Err(Refusal::invalid(message).into());
    }
    let status = export.status.as_str();
    let early =
        || Refusal::invalid(format!("the export is {status}; its content can be read when it is ready"));
    let (_, sha256) = export.content.ok_or_else(early)?;
    Ok((export.id, sha256))
}

fn find(tx: &mut Tx<'_>, call: &Call, id: &str, now: Timestamp) -> Result<Export, ScriptError> {
    let id = ExportId::parse(id).map_err(|_| Refusal::not_found())?;
    let export = sql::exports::find(tx, call.caller.environment.id, id)?;
    Ok(export.filter(|export| now < export.expires_at).ok_or_else(Refusal::not_found)?)
}

/// The oldest pending exports that can be built, as many as `limit`.
///
/// # Errors
/// The database fails.
pub fn pending(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<Vec<Export>, Fault> {
    sql::exports::pending(tx, now, now.plus_seconds(-CLOSES_SECONDS), limit)
}

/// When the next pending export can be built, as far as is known at `now`.
///
/// # Errors
/// The database fails.
pub fn next_closing(tx: &mut Tx<'_>, now: Timestamp) -> Result<Option<Timestamp>, Fault> {
    let until = sql::exports::next_until(tx, now.plus_seconds(-CLOSES_SECONDS))?;
    Ok(until.map(|until| until.plus_seconds(CLOSES_SECONDS)))
}

/// Closes the period of an export: no decision is made by an instant of it any more, unless a clock that was set back is
/// accepted. The period may be built once all transactions before this one have ended, which [`is_over`] says. Nothing if it
/// is too early to close it.
///
/// # Errors
/// The database fails.
pub fn close(tx: &mut Tx<'_>, export: &Export, moments: &Moments) -> Result<Option<Closed>, Fault> {
    let Some(until) = export.filter.until else { return Ok(Some(Closed(None))) };
    if moments.now(tx)? < until.plus_seconds(CLOSES_SECONDS) {
        return Ok(None);
    }
    sql::clock::raise(tx, Timestamp::from_millis(until.millis().saturating_add(BEHIND_MILLIS)))?;
    Ok(Some(Closed(sql::servers::transaction(tx)?)))
}

/// Whether all transactions have ended that may have decided something in the period before it was closed.
///
/// # Errors
/// The database fails.
pub fn is_over(tx: &mut Tx<'_>, closed: &Closed) -> Result<bool, Fault> {
    closed.0.as_ref().map_or(Ok(true), |number| sql::servers::is_oldest(tx, number))
}

/// Stores the result of building an export: its content, or that it failed.
///
/// # Errors
/// The database fails.
pub fn end(tx: &mut Tx<'_>, export: &Export, written: Option<Written>) -> Result<(), Fault> {
    let content = written.map(|written| (written.rows, written.sha256));
    let status = if content.is_some() { ExportStatus::Ready } else { ExportStatus::Failed };
    sql::clock::share(tx)?;
    sql::exports::end(tx, export, status, content)
}

/// Leases an export to one of several servers, which will build it. False if another has it.
///
/// # Errors
/// The database fails.
pub fn lease(tx: &mut Tx<'_>, export: &Export, now: Timestamp, until: Timestamp) -> Result<bool, Fault> {
    sql::export_pieces::lease(tx, export, now, until)
}

/// Moves the end of a lease. False if the lease was lost.
///
/// # Errors
/// The database fails.
pub fn renew(tx: &mut Tx<'_>, export: &Export, from: Timestamp, to: Timestamp) -> Result<bool, Fault> {
    sql::export_pieces::renew(tx, export, from, to)
}

/// Stores a piece of a leased export's content, and moves the end of the lease. False if the lease was lost.
///
/// # Errors
/// The database fails.
pub fn put_piece(
    tx: &mut Tx<'_>,
    export: &Export,
    (from, to): (Timestamp, Timestamp),
    number: i64,
    content: Vec<u8>,
) -> Result<bool, Fault> {
    if !sql::export_pieces::renew(tx, export, from, to)? {
        return Ok(false);
    }
    sql::export_pieces::put(tx, export, number, content)?;
    Ok(true)
}

/// Stores the result of building a leased export. False if the lease was lost.
///
/// # Errors
/// The database fails.
pub fn end_leased(
    tx: &mut Tx<'_>,
    export: &Export,
    leased_until: Timestamp,
    written: Option<Written>,
) -> Result<bool, Fault> {
    let content = written.map(|written| (written.rows, written.sha256));
    sql::clock::share(tx)?;
    sql::export_pieces::end(tx, export, leased_until, content)
}

/// A piece of the content of a ready export; none after the last.
///
/// # Errors
/// The database fails.
pub fn piece(tx: &mut Tx<'_>, environment: i64, id: ExportId, number: i64) -> Result<Option<Vec<u8>>, Fault> {
    sql::export_pieces::piece(tx, environment, id, number)
}

/// The status of the export with this id, whichever tenant owns it.
///
/// # Errors
/// The database fails.
pub fn status(tx: &mut Tx<'_>, id: ExportId) -> Result<Option<ExportStatus>, Fault> {
    sql::exports::status(tx, id)
}

/// When the first of the exports expires.
///
/// # Errors
/// The database fails.
pub fn next_end(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    sql::exports::next_end(tx)
}

/// At most `limit` expired exports.
///
/// # Errors
/// The database fails.
pub fn expired(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<Vec<Export>, Fault> {
    sql::exports::expired(tx, now, limit)
}

/// Deletes the record of an export whose file is gone.
///
/// # Errors
/// The database fails.
pub fn forget(tx: &mut Tx<'_>, export: &Export) -> Result<(), Fault> {
    sql::exports::delete(tx, export)
}
