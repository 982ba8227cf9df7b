//! Closing a month: its decisions are in files, balances are in their place, and their rows are deleted.
//!
//! An operator's command runs these scripts, each in a transaction, and writes the files between them. Each can be run
//! again: where a command was cut short, the next one goes on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mandate_core::{DecisionId, EnvironmentKind, ExportId, Month, Timestamp};
use serde::Serialize;
use serde_json::json;

use super::audit::{self, AuditEntry, Operator};
use super::check::{self, closing};
use super::exports::{KEPT_SECONDS, Sha256Hex};
use crate::error::Fault;
use crate::store::sql;
use crate::store::sql::decisions::Filter;
use crate::store::sql::environments::EnvironmentRecord;
use crate::store::sql::exports::{Export, ExportStatus, Format};
use crate::store::tx::{Backend, Tx};

pub use super::check::closing::Piece;
pub use crate::store::sql::retention::{Closing, ClosingStep, DeletedRows, MonthFile};

/// The action in audit records.
const ACTION: &str = "retention.close";
/// Every month is longer, in seconds.
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// A calendar month, UTC.
#[derive(Debug, Clone, Copy)]
pub struct Period {
    /// The month.
    pub month: Month,
    /// Its first instant.
    pub since: Timestamp,
    /// The first instant of the next month.
    pub until: Timestamp,
}

/// What closing a month would delete.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// The month.
    pub month: Month,
    /// How many decisions up to its end stay: a review or an escrow names them.
    pub decisions_that_stay: i64,
    /// What is deleted, table by table.
    pub tables: BTreeMap<&'static str, TableSize>,
}

/// Rows of one table.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TableSize {
    /// How many.
    pub rows: i64,
    /// About how many bytes they have, without indexes.
    pub bytes: i64,
}

/// What a closing goes through, in this order. Rows of the second are deleted when those of the first are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Decisions and reviews.
    Decisions,
    /// Events, deliveries and attempts.
    Events,
}

/// A file that may have a decision, as it is shown.
#[derive(Debug, Serialize)]
pub struct FileView {
    /// The organization.
    pub organization: String,
    /// The kind of its environment.
    pub environment: &'static str,
    /// The month.
    pub month: Month,
    /// Where the file was written.
    pub directory: String,
    /// Its name.
    pub file: String,
    /// The SHA-256 of its bytes.
    pub sha256: Sha256Hex,
    /// How many decisions are in it.
    pub rows: i64,
}

impl FileView {
    /// Where the file was written.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new(&self.directory).join(&self.file)
    }
}

impl Period {
    /// A month.
    ///
    /// # Errors
    /// Never, for a month that was parsed.
    pub fn of(month: Month) -> Result<Self, Fault> {
        let instants = check::instants(month)?;
        Ok(Self { month, since: instants.start, until: instants.end })
    }

    /// Refuses the month of `now`, the one before, and later ones. `by` names what shows that time.
    fn must_be_over(&self, now: Timestamp, by: &str) -> Result<(), Fault> {
        let last = check::instants(now.month())?.start.plus_seconds(-DAY_SECONDS).month();
        if self.month < last {
            return Ok(());
        }
        Err(Fault::new(format!(
            "month must be before {last}, the last one by {by}; got `{}`. The current month and the last one stay",
            self.month
        )))
    }

    fn first(&self) -> DecisionId {
        DecisionId::new(self.since, 0)
    }

    fn behind(&self) -> DecisionId {
        DecisionId::new(self.until, 0)
    }
}

/// What shows the time of an operator's command.
#[derive(Clone, Copy)]
pub struct Clocks<'a> {
    /// The time of the operator's machine.
    pub operator: Timestamp,
    /// The time that counts where the database's clock shows the given one, if it has a clock.
    pub database: &'a dyn Fn(Timestamp) -> Timestamp,
}

impl std::fmt::Debug for Clocks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clocks").field("operator", &self.operator).finish_non_exhaustive()
    }
}

/// The time, by the clock that is behind. Refuses a month that is not over by it, or by the newest decision: no clock that is
/// ahead closes a month in which servers decide.
///
/// # Errors
/// The month is not over, nothing was ever decided, or the database fails.
pub fn time(tx: &mut Tx<'_>, period: &Period, clocks: Clocks<'_>) -> Result<Timestamp, Fault> {
    period.must_be_over(clocks.operator, "this machine's clock")?;
    let now = match tx.backend() {
        Backend::Sqlite => clocks.operator,
        Backend::Postgres => (clocks.database)(sql::servers::now(tx)?),
    };
    period.must_be_over(now, "the database's clock")?;
    let newest = sql::retention::newest(tx)?
        .ok_or_else(|| Fault::new("nothing was ever decided: there is no month to close"))?;
    period.must_be_over(newest.created_at(), "the newest decision")?;
    Ok(now.min(clocks.operator))
}

/// What closing a month would delete: its rows, and what was left of the months before it. Changes nothing.
///
/// # Errors
/// The month is not over, another one is to be closed first, or the database fails.
pub fn plan(tx: &mut Tx<'_>, period: &Period, clocks: Clocks<'_>) -> Result<Plan, Fault> {
    let now = time(tx, period, clocks)?;
    must_be_next(tx, period)?;
    let (mut tables, mut decisions) = (BTreeMap::<_, TableSize>::new(), 0);
    for environment in sql::environments::all(tx)? {
        decisions += sql::retention::decisions_before(tx, environment.environment, period.behind())?;
        for (table, rows, bytes) in sql::retention::sizes(tx, environment.environment, period.behind(), now)?
        {
            let size = tables.entry(table).or_default();
            (size.rows, size.bytes) = (size.rows + rows, size.bytes + bytes);
        }
    }
    let deleted = tables.get("decisions").map_or(0, |size| size.rows);
    Ok(Plan { month: period.month, decisions_that_stay: decisions - deleted, tables })
}

/// Refuses each month but the one of the oldest decision that no closed month has counted, and those that were begun.
///
/// # Errors
/// It is another month, or the database fails.
pub fn must_be_next(tx: &mut Tx<'_>, period: &Period) -> Result<(), Fault> {
    if sql::retention::find(tx, period.month)?.is_some() {
        return Ok(());
    }
    no_other_is_begun(tx)?;
    let (mut oldest, last) = (None, DecisionId::from_bytes([0xff; 16]));
    for environment in sql::environments::all(tx)? {
        let uncounted = sql::retention::without_opening(tx, environment.environment, last)?;
        oldest = [oldest, uncounted].into_iter().flatten().min();
    }
    let why = match oldest {
        Some(oldest) if oldest.created_at().month() == period.month => return Ok(()),
        Some(oldest) => {
            let next = oldest.created_at().month();
            format!(
                "month must be {next}, the next one: {oldest} was decided then, and is in no closed month"
            )
        }
        None => "there is no month to close: each decision is in a closed one".to_owned(),
    };
    Err(Fault::new(format!("{why}; got `{}`. Months are closed one after the other", period.month)))
}

/// Refuses to begin with a month while another is begun.
fn no_other_is_begun(tx: &mut Tx<'_>) -> Result<(), Fault> {
    let Some(other) = sql::retention::unfinished(tx)? else { return Ok(()) };
    Err(Fault::new(format!(
        "closing {} was cut short: run `mandate-server retention close {} --to {}` first",
        other.month, other.month, other.directory
    )))
}

/// Begins to close a month with files in `directory`, or goes on with it. While all rows are there, it may go on with another
/// directory: all files are written again.
///
/// # Errors
/// It is not over, or closed; rows are deleted since its files are in another directory; another month was begun; or the
/// database fails.
pub fn begin(
    tx: &mut Tx<'_>,
    period: &Period,
    directory: &str,
    clocks: Clocks<'_>,
) -> Result<Closing, Fault> {
    let now = time(tx, period, clocks)?;
    let month = period.month;
    if let Some(begun) = sql::retention::hold(tx, month)? {
        return go_on(tx, begun, directory);
    }
    no_other_is_begun(tx)?;
    let (directory, step) = (directory.to_owned(), ClosingStep::Writing);
    let closing = Closing { month, directory, step, behind: period.behind(), began_at: now };
    if sql::retention::begin(tx, &closing)? { Ok(closing) } else { Err(beside(month)) }
}

fn go_on(tx: &mut Tx<'_>, begun: Closing, directory: &str) -> Result<Closing, Fault> {
    let Closing { month, directory: before, step, .. } = &begun;
    match step {
        ClosingStep::Closed => {
            Err(Fault::new(format!("{month} is closed. Its files were written into {before}")))
        }
        _ if before == directory => Ok(begun),
        ClosingStep::Deleting => Err(Fault::new(format!(
            "closing {month} deletes rows that are in files in {before}: go on with --to {before}; got `{directory}`"
        ))),
        ClosingStep::Writing => {
            for file in sql::retention::files_of(tx, *month)? {
                sql::retention::forget_file(tx, file.environment, *month)?;
            }
            sql::retention::move_to(tx, *month, directory)?;
            Ok(Closing { directory: directory.to_owned(), ..begun })
        }
    }
}

/// The files of a month that are written.
///
/// # Errors
/// The database fails.
pub fn files(tx: &mut Tx<'_>, month: Month) -> Result<Vec<MonthFile>, Fault> {
    sql::retention::files_of(tx, month)
}

/// Has the file of an environment be written again: it is gone, or has changed.
///
/// # Errors
/// Another command closes the month, or the database fails.
pub fn forget(tx: &mut Tx<'_>, closing: &Closing, environment: i64) -> Result<(), Fault> {
    locked(tx, closing, ClosingStep::Writing)?;
    sql::retention::forget_file(tx, environment, closing.month)
}

/// The environments whose file of a month is to be written yet.
///
/// # Errors
/// The database fails.
pub fn unwritten(tx: &mut Tx<'_>, month: Month) -> Result<Vec<EnvironmentRecord>, Fault> {
    let mut unwritten = Vec::new();
    for environment in sql::environments::all(tx)? {
        if !sql::retention::has_file(tx, environment.environment, month)? {
            unwritten.push(environment);
        }
    }
    Ok(unwritten)
}

/// The export that an environment's file of a month is, which is written at `at`.
#[must_use]
pub fn export(period: &Period, of: &EnvironmentRecord, id: ExportId, at: Timestamp) -> Export {
    let filter = Filter { since: Some(period.since), until: Some(period.until), ..Filter::default() };
    Export {
        environment: of.environment,
        kind: of.kind,
        policy_version: of.policy_version.clone(),
        id,
        format: Format::Ndjson,
        filter,
        status: ExportStatus::Pending,
        content: None,
        expires_at: at.plus_seconds(KEPT_SECONDS),
        incomplete_since: None,
    }
}

/// Stores which file an environment's decisions of a month are in.
///
/// # Errors
/// Another command closes the month, or the database fails.
pub fn store(tx: &mut Tx<'_>, closing: &Closing, file: &MonthFile) -> Result<(), Fault> {
    locked(tx, closing, ClosingStep::Writing)?;
    if sql::retention::has_file(tx, file.environment, closing.month)? {
        return Err(beside(closing.month));
    }
    sql::retention::insert_file(tx, closing.month, file)
}

/// Checks the next decisions of a month, at most `limit`, behind a piece. None at the end.
///
/// # Errors
/// A decision is not sound: nothing is deleted. Or the database fails.
pub fn look(
    tx: &mut Tx<'_>,
    closing: &Closing,
    after: Option<&Piece>,
    limit: i64,
) -> Result<Option<Piece>, Fault> {
    closing::look(tx, after, closing.behind, limit)
}

/// Counts decisions in their agents' openings.
///
/// # Errors
/// A decision is not what follows those before it: nothing is deleted. Another command closes the month, or the database
/// fails.
pub fn count(tx: &mut Tx<'_>, closing: &Closing, piece: &Piece) -> Result<(), Fault> {
    locked(tx, closing, ClosingStep::Writing)?;
    closing::count(tx, piece)
}

/// Compares the decisions of a month, all of them counted, with those in its files. Returns the files.
///
/// # Errors
/// They differ, or the database fails.
pub fn compare(tx: &mut Tx<'_>, period: &Period) -> Result<Vec<MonthFile>, Fault> {
    let files = sql::retention::files_of(tx, period.month)?;
    for EnvironmentRecord { environment, organization, kind, .. } in sql::environments::all(tx)? {
        let before = sql::retention::decisions_before(tx, environment, period.first())?;
        let rows = sql::retention::decisions_before(tx, environment, period.behind())? - before;
        let file = files.iter().find(|file| file.environment == environment);
        let written = file.map_or(0, |file| file.rows);
        let uncounted = sql::retention::without_opening(tx, environment, period.behind())?;
        if rows != written || uncounted.is_some() {
            return Err(Fault::new(format!(
                "{organization} {kind}: {rows} decisions of {}, and {written} in its file: a decision was added meanwhile. \
                 Nothing is deleted. Go on with another --to to write all files again",
                period.month
            )));
        }
    }
    Ok(files)
}

/// Begins to delete the rows of a month, which are in `files`.
///
/// # Errors
/// Another command closes the month, or the database fails.
pub fn ready(tx: &mut Tx<'_>, closing: &Closing, files: &[MonthFile]) -> Result<(), Fault> {
    locked(tx, closing, ClosingStep::Writing)?;
    if sql::retention::files_of(tx, closing.month)? != files {
        return Err(beside(closing.month));
    }
    sql::log_end::begin_after(tx, closing.behind)?;
    sql::retention::advance(tx, closing.month, ClosingStep::Deleting, None)
}

/// Deletes rows of a table: of the next `limit` ids of an environment after a place those that do not stay. None at the end.
///
/// # Errors
/// Another command closes the month, or the database fails.
pub fn delete(
    tx: &mut Tx<'_>,
    closing: &Closing,
    table: Table,
    place: (i64, [u8; 16]),
    limit: i64,
) -> Result<Option<DeletedRows>, Fault> {
    locked(tx, closing, ClosingStep::Deleting)?;
    match table {
        Table::Decisions => sql::retention::delete_decisions(tx, closing, place, limit),
        Table::Events => sql::retention::delete_events(tx, closing, place, limit),
    }
}

/// Closes a month whose rows are deleted, with an audit record.
///
/// # Errors
/// Another command closes the month, or the database fails.
pub fn end(tx: &mut Tx<'_>, closing: &Closing, by: &Operator) -> Result<(), Fault> {
    locked(tx, closing, ClosingStep::Deleting)?;
    sql::retention::advance(tx, closing.month, ClosingStep::Closed, Some(by.at))?;
    let details = json!({ "directory": closing.directory });
    let (subject, organization, environment) = (closing.month.to_string(), None, None);
    audit::write(
        tx,
        by,
        &AuditEntry { action: ACTION, organization, environment, subject: &subject, details },
    )
}

/// Has no other command work on the closing until this transaction ends. Refuses if another one has come further, or writes
/// its files elsewhere.
fn locked(tx: &mut Tx<'_>, closing: &Closing, step: ClosingStep) -> Result<(), Fault> {
    let found = sql::retention::hold(tx, closing.month)?;
    let is_same = found.is_some_and(|found| found.step == step && found.directory == closing.directory);
    if is_same { Ok(()) } else { Err(beside(closing.month)) }
}

fn beside(month: Month) -> Fault {
    Fault::new(format!("another command closes {month}; run this again when that has ended"))
}

/// The files of closed months that may have a decision: one of each environment at most.
///
/// # Errors
/// The database fails.
pub fn find(tx: &mut Tx<'_>, decision: DecisionId) -> Result<Vec<FileView>, Fault> {
    let files = sql::retention::files(tx, decision)?.into_iter();
    let found = files.map(|file| FileView {
        organization: file.organization,
        environment: EnvironmentKind::as_str(file.kind),
        month: file.month,
        directory: file.directory,
        file: file.file,
        sha256: Sha256Hex(file.sha256),
        rows: file.rows,
    });
    Ok(found.collect())
}
