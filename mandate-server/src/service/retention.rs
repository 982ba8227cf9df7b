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
use super::exports::Sha256Hex;
use crate::error::Fault;
use crate::store::sql;
use crate::store::sql::decisions::Filter;
use crate::store::sql::environments::EnvironmentRecord;
use crate::store::sql::exports::{Export, ExportStatus, Format};
use crate::store::tx::Tx;

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

/// How far the counting of a month has come.
#[derive(Debug, Clone)]
pub struct CountProgress {
    place: closing::Place,
    /// How many decisions were counted with the last step.
    pub decisions: usize,
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

    /// Refuses the month of `now`, the one before, and later ones.
    ///
    /// # Errors
    /// It is one of them.
    pub fn must_be_over(&self, now: Timestamp) -> Result<(), Fault> {
        let last = check::instants(now.month())?.start.plus_seconds(-DAY_SECONDS).month();
        if self.month < last {
            return Ok(());
        }
        Err(Fault::new(format!(
            "month must be before {last}, the last one; got `{}`. The current month and the last one stay",
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

/// What closing a month at `now` would delete: its rows, and what was left of the months before it. Changes nothing.
///
/// # Errors
/// An earlier month is to be closed first, or the database fails.
pub fn plan(tx: &mut Tx<'_>, period: &Period, now: Timestamp) -> Result<Plan, Fault> {
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

/// Refuses a month before which there are decisions that no closed month has counted.
///
/// # Errors
/// There are such decisions, or the database fails.
pub fn must_be_next(tx: &mut Tx<'_>, period: &Period) -> Result<(), Fault> {
    for environment in sql::environments::all(tx)? {
        if let Some(oldest) = sql::retention::without_opening(tx, environment.environment, period.first())? {
            return Err(Fault::new(format!(
                "months are closed one after the other: close {} before {}. {oldest} was decided then",
                oldest.created_at().month(),
                period.month
            )));
        }
    }
    Ok(())
}

/// Begins to close a month with files in `directory`, or goes on with it.
///
/// # Errors
/// It is not over, or closed; it was begun with another directory; another month was begun; or the database fails.
pub fn begin(tx: &mut Tx<'_>, period: &Period, directory: &str, now: Timestamp) -> Result<Closing, Fault> {
    period.must_be_over(now)?;
    let month = period.month;
    if let Some(closing) = sql::retention::hold(tx, month)? {
        if closing.step == ClosingStep::Closed {
            return Err(Fault::new(format!(
                "{month} is closed. Its files were written into {}",
                closing.directory
            )));
        }
        if closing.directory != directory {
            return Err(Fault::new(format!(
                "closing {month} has begun with --to {}: go on with that; got `{directory}`",
                closing.directory
            )));
        }
        return Ok(closing);
    }
    if let Some(other) = sql::retention::unfinished(tx)? {
        return Err(Fault::new(format!(
            "closing {} was cut short: run `mandate-server retention close {} --to {}` first",
            other.month, other.month, other.directory
        )));
    }
    let (directory, step) = (directory.to_owned(), ClosingStep::Writing);
    let closing = Closing { month, directory, step, behind: period.behind(), began_at: now };
    sql::retention::begin(tx, &closing)?;
    Ok(closing)
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

/// The export that an environment's file of a month is.
#[must_use]
pub fn export(period: &Period, of: &EnvironmentRecord, id: ExportId) -> Export {
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
        expires_at: id.created_at(),
        incomplete_since: None,
    }
}

/// Stores which file an environment's decisions of a month are in.
///
/// # Errors
/// Another command closes the month, or the database fails.
pub fn store(tx: &mut Tx<'_>, month: Month, file: &MonthFile) -> Result<(), Fault> {
    locked(tx, month, ClosingStep::Writing)?;
    sql::retention::insert_file(tx, month, file)
}

/// Checks the next decisions of a month, at most `limit`, and counts them in their agents' openings. `from` is what the step
/// before returned. None when all are counted; from then on rows may be deleted.
///
/// # Errors
/// A decision is not sound: nothing is deleted. Or the database fails.
pub fn count(
    tx: &mut Tx<'_>,
    month: Month,
    from: Option<&CountProgress>,
    limit: i64,
) -> Result<Option<CountProgress>, Fault> {
    let closing = locked(tx, month, ClosingStep::Writing)?;
    let start = closing::start();
    let after = from.map_or(&start, |from| &from.place);
    if let Some((place, decisions)) = closing::advance(tx, after, closing.behind, limit)? {
        return Ok(Some(CountProgress { place, decisions }));
    }
    sql::log_end::begin_after(tx, closing.behind)?;
    sql::retention::advance(tx, month, ClosingStep::Deleting, None)?;
    Ok(None)
}

/// Deletes rows of a table: of the next `limit` ids of an environment after `after` those that do not stay. None at the end.
///
/// # Errors
/// Another command closes the month, or the database fails.
pub fn delete(
    tx: &mut Tx<'_>,
    month: Month,
    table: Table,
    (environment, after): (i64, [u8; 16]),
    limit: i64,
) -> Result<Option<DeletedRows>, Fault> {
    let closing = locked(tx, month, ClosingStep::Deleting)?;
    match table {
        Table::Decisions => sql::retention::delete_decisions(tx, &closing, environment, after, limit),
        Table::Events => sql::retention::delete_events(tx, &closing, environment, after, limit),
    }
}

/// Closes a month whose rows are deleted, with an audit record.
///
/// # Errors
/// Another command closes the month, or the database fails.
pub fn end(tx: &mut Tx<'_>, month: Month, by: &Operator) -> Result<(), Fault> {
    let closing = locked(tx, month, ClosingStep::Deleting)?;
    sql::retention::advance(tx, month, ClosingStep::Closed, Some(by.at))?;
    let details = json!({ "directory": closing.directory });
    let (subject, organization, environment) = (month.to_string(), None, None);
    audit::write(
        tx,
        by,
        &AuditEntry { action: ACTION, organization, environment, subject: &subject, details },
    )
}

/// The closing of a month, which no other command works on until this transaction ends.
fn locked(tx: &mut Tx<'_>, month: Month, step: ClosingStep) -> Result<Closing, Fault> {
    let closing = sql::retention::hold(tx, month)?.filter(|closing| closing.step == step);
    closing.ok_or_else(|| {
        Fault::new(format!("another command closes {month}; run it again when that has ended"))
    })
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
