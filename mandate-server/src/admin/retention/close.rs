//! How a month is closed: step by step, each in a transaction of its own, so that what is cut short goes on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mandate_core::{ExportId, Month, Timestamp};
use serde::Serialize;

use super::file::{self, Verifier};
use crate::clock::{Entropy, Ids};
use crate::error::Fault;
use crate::model::call::ScriptError;
use crate::model::master_key::MasterKey;
use crate::service::audit::Operator;
use crate::service::exports::Build;
use crate::service::retention::{self, Clocks, Closing, ClosingStep, MonthFile, Period, Table};
use crate::service::signing::{self, Keyring};
use crate::store::sql::environments::{self, EnvironmentRecord};
use crate::store::tx::Tx;
use crate::store::{self, Owned, transfer, upkeep};

/// What is to be closed, and how.
pub struct Order<'a> {
    /// The database.
    pub database: &'a str,
    /// The month.
    pub month: Month,
    /// The directory for the files.
    pub directory: &'a Path,
    /// Opens the signing keys: the trailers are signed.
    pub master: &'a MasterKey,
    /// The issuer of the trailers. Where there is none: the newest that the database knows.
    pub issuer: Option<&'a str>,
    /// How many ids are counted, or deleted, in one transaction.
    pub piece: i64,
    /// Who closes it, and when.
    pub by: &'a Operator,
    /// The time that counts where the database's clock shows the given one.
    pub time: &'a dyn Fn(Timestamp) -> Timestamp,
    /// Draws the ids of the files.
    pub entropy: Arc<dyn Entropy>,
}

impl std::fmt::Debug for Order<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Order").field("month", &self.month).finish_non_exhaustive()
    }
}

/// A step that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// The closing has begun.
    Begun,
    /// A file is written, verified, named and recorded.
    Written(&'a str),
    /// So many more decisions are checked and counted in balances.
    Counted(usize),
    /// All is written and counted: from here on rows are deleted.
    Ready,
    /// So many more rows are deleted.
    Deleted(usize),
    /// The month is closed.
    Closed,
}

/// Receives the progress of a closing.
pub trait Listener {
    /// A step is durable.
    ///
    /// # Errors
    /// The closing must stop here. It can be continued.
    fn done(&mut self, step: &Step<'_>) -> Result<(), Fault>;
}

/// A month that is closed.
#[derive(Debug, Serialize)]
pub struct ClosedMonth {
    /// The month.
    pub month: Month,
    /// Where its files are.
    pub directory: String,
}

/// Closes a month, or goes on where closing it was cut short.
///
/// # Errors
/// A server owns the SQLite file; the database's role lacks a right; the month is not over, closed, or not the next; a file cannot be written or verified, or is
/// gone; a decision is not sound; another command closes it; or the database fails.
pub fn close(order: &Order<'_>, listener: &mut dyn Listener) -> Result<ClosedMonth, Fault> {
    let period = Period::of(order.month)?;
    let _owned = Owned::take(order.database, Duration::ZERO)?;
    upkeep::must_be_complete(order.database)?;
    upkeep::snapshot(order.database, must_be_granted)?;
    transfer::count_all(order.database)?;
    let clocks = Clocks { operator: order.by.at, database: order.time };
    let now = upkeep::snapshot(order.database, |tx| {
        let now = retention::time(tx, &period, clocks)?;
        retention::must_be_next(tx, &period).map(|()| now)
    })?;
    let directory = file::directory(order.directory)?;
    let name = directory
        .to_str()
        .ok_or_else(|| Fault::new(format!("--to: the path must be UTF-8; got `{}`", directory.display())))?;
    let closing = run(order, |tx| retention::begin(tx, &period, name, clocks))?;
    listener.done(&Step::Begun)?;
    if closing.step == ClosingStep::Writing {
        write_all(order, &closing, (&period, now), listener)?;
        count_all(order, &closing, listener)?;
        let files = upkeep::snapshot(order.database, |tx| retention::compare(tx, &period))?;
        verify_all(&directory, &files)?;
        run(order, |tx| retention::ready(tx, &closing, &files))?;
        listener.done(&Step::Ready)?;
    } else {
        verify_all(&directory, &run(order, |tx| retention::files(tx, order.month))?)?;
    }
    for environment in run(order, environments::all)? {
        for table in [Table::Decisions, Table::Events] {
            delete_all(order, &closing, (table, environment.environment), listener)?;
        }
    }
    run(order, |tx| retention::end(tx, &closing, order.by))?;
    listener.done(&Step::Closed)?;
    Ok(ClosedMonth { month: order.month, directory: name.to_owned() })
}

/// Refuses a role of the database that could write files, and then delete nothing.
fn must_be_granted(tx: &mut Tx<'_>) -> Result<(), Fault> {
    let Some((role, rights)) = upkeep::lacks_to_close(tx)? else { return Ok(()) };
    Err(Fault::Setup(format!(
        "database: the role {role} may not close a month: it lacks {rights}. Run this with the role that owns the tables"
    )))
}

/// Refuses to delete a row while a file of the month is gone or has changed.
fn verify_all(directory: &Path, files: &[MonthFile]) -> Result<(), Fault> {
    for MonthFile { file, sha256, .. } in files {
        file::must_have(&directory.join(file), *sha256).map_err(|fault| {
            Fault::new(format!("{fault}. No row is deleted without it: put it back, and run this again"))
        })?;
    }
    Ok(())
}

fn run<T>(order: &Order<'_>, script: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
    let ran = store::run_once(order.database, |tx| script(tx).map_err(ScriptError::Fault))?;
    ran.map_err(|refusal| Fault::new(refusal.message))
}

/// Writes the files that are not there yet, or not any more as they were written.
fn write_all(
    order: &Order<'_>,
    closing: &Closing,
    (period, now): (&Period, Timestamp),
    listener: &mut dyn Listener,
) -> Result<(), Fault> {
    let directory = Path::new(&closing.directory);
    for MonthFile { environment, file, sha256, .. } in run(order, |tx| retention::files(tx, order.month))? {
        if file::must_have(&directory.join(file), sha256).is_err() {
            run(order, |tx| retention::forget(tx, closing, environment))?;
        }
    }
    let keyring = run(order, |tx| keyring(tx, order))?;
    let ids = Ids::new(Arc::clone(&order.entropy));
    for environment in run(order, |tx| retention::unwritten(tx, period.month))? {
        let id = ExportId::from_bytes(ids.fresh(now));
        if let Some(file) = write_one(order, (period, now), directory, &environment, (id, &keyring))? {
            if let Err(fault) = run(order, |tx| retention::store(tx, closing, &file)) {
                file::remove(&directory.join(&file.file));
                return Err(fault);
            }
            listener.done(&Step::Written(&file.file))?;
        }
    }
    Ok(())
}

fn keyring(tx: &mut Tx<'_>, order: &Order<'_>) -> Result<Keyring, Fault> {
    let issuers = signing::issuers(tx)?;
    let issuer = order.issuer.or_else(|| issuers.last().map(String::as_str));
    let issuer = issuer.ok_or_else(|| {
        Fault::NoSigningKey(
            "the database names no issuer; start the server once to make signing keys".to_owned(),
        )
    })?;
    Keyring::load(tx, order.master, issuer)
}

/// Writes the file of an environment, if it has a decision in the month.
fn write_one(
    order: &Order<'_>,
    (period, now): (&Period, Timestamp),
    directory: &Path,
    environment: &EnvironmentRecord,
    (id, keyring): (ExportId, &Keyring),
) -> Result<Option<MonthFile>, Fault> {
    let export = retention::export(period, environment, id, order.by.at);
    let ((unnamed, written), keys, issuers) = upkeep::snapshot(order.database, |tx| {
        let build = Build { export: &export, keyring, now };
        let written = file::write(tx, &build, directory)?;
        Ok((written, signing::all(tx)?, signing::issuers(tx)?))
    })?;
    let verifier = Verifier { export: id, keys: &keys, issuers: &issuers };
    let Some((first, last)) = verifier.verify(unnamed.path(), &written)? else { return Ok(None) };
    // With the id, so that no file of another installation or of an earlier attempt is in its place.
    let name = format!("{}-{}-{}-{id}.ndjson", environment.organization, environment.kind, period.month);
    file::name(unnamed, &directory.join(&name))?;
    let (sha256, rows) = (written.sha256, written.rows);
    Ok(Some(MonthFile { environment: environment.environment, file: name, sha256, rows, first, last }))
}

/// Checks all decisions of the month, and counts them in balances.
fn count_all(order: &Order<'_>, closing: &Closing, listener: &mut dyn Listener) -> Result<(), Fault> {
    let mut last = None;
    loop {
        let next =
            upkeep::snapshot(order.database, |tx| retention::look(tx, closing, last.as_ref(), order.piece))?;
        let Some(next) = next else { return Ok(()) };
        run(order, |tx| retention::count(tx, closing, &next))?;
        listener.done(&Step::Counted(next.len()))?;
        last = Some(next);
    }
}

/// Deletes the rows of a table of an environment.
fn delete_all(
    order: &Order<'_>,
    closing: &Closing,
    (table, environment): (Table, i64),
    listener: &mut dyn Listener,
) -> Result<(), Fault> {
    let mut after = [0; 16];
    loop {
        let place = (environment, after);
        let deleted = run(order, |tx| retention::delete(tx, closing, table, place, order.piece))?;
        let Some(deleted) = deleted else { return Ok(()) };
        listener.done(&Step::Deleted(deleted.rows))?;
        after = deleted.up_to;
    }
}
