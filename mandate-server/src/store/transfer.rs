//! Moves a whole installation from one database into another. Tables are moved in the order of their references,
//! and rows in the order of their keys. So the last row that has arrived shows where to go on.

use std::fs::File;
use std::time::Duration;

use mandate_core::Timestamp;

use super::sql::uncounted;
use super::tx::{Tx, Value};
use super::{Holder, Owned, Place, place, postgres, sqlite, upkeep};
use crate::error::Fault;
use crate::model::call::ScriptError;
use crate::model::database::redacted;

mod layout;

pub use super::postgres::TargetState;
pub use layout::{Table, tables};

/// How many agents are counted in one transaction.
const AGENTS_AT_ONCE: usize = 1_000;
/// Before all agents.
const FIRST: (i64, &str) = (0, "");

/// The installation to be moved. No server works in it meanwhile.
#[derive(Debug)]
pub struct Source {
    database: String,
    /// The state of its files when they were claimed.
    stamp: String,
    _held: (Owned, File),
}

/// A database that is being filled. No server starts on it until [`Target::complete`].
pub struct Target {
    filling: postgres::Filling,
    /// Its state at the begin.
    pub begun: TargetState,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// Refuses a transfer that is not supported. For now the source is a file, and the target is PostgreSQL.
///
/// # Errors
/// The databases are another pair, or a name is unknown.
pub fn must_be_possible(from: &str, to: &str) -> Result<(), Fault> {
    match (place(from)?, place(to)?) {
        (Place::Sqlite(_), Place::Postgres(_)) => Ok(()),
        _ => Err(Fault::new(
            "a transfer goes from a sqlite:// database to a postgres:// database, and no other way",
        )),
    }
}

/// Refuses a source without the newest schema. A transfer changes nothing in its source, and so does not migrate it.
///
/// # Errors
/// The source has another schema.
pub fn must_be_newest(source: &mut Tx<'_>, name: &str) -> Result<(), Fault> {
    upkeep::schema_in(source)?.must_be_newest(name)
}

/// Returns what a transfer would find in the target. Changes nothing.
///
/// # Errors
/// The target holds other data, or cannot be read.
pub fn look(to: &str) -> Result<TargetState, Fault> {
    let Place::Postgres(url) = place(to)? else { return Err(Fault::new("the target is not PostgreSQL")) };
    postgres::Filling::look(url)
}

impl Source {
    /// Locks the source for this process alone, until it is dropped.
    ///
    /// # Errors
    /// The database is missing, or a server works in it.
    pub fn claim(from: &str) -> Result<Self, Fault> {
        let Place::Sqlite(path) = place(from)? else { return Err(Fault::new("the source is not a file")) };
        // A claim makes a file beside the database, which must not happen where there is no database.
        if upkeep::schema(from)?.current == 0 {
            return Err(Fault::new(format!("database: {path} is not there, or nothing is in it")));
        }
        let mut owned = Owned::take(from, Duration::ZERO)?;
        owned.say("transfers it to another database")?;
        count_all(from)?;
        let held = upkeep::claim(from, Holder::Alone)?;
        if !upkeep::snapshot(from, |tx| uncounted::agents(tx, FIRST, 1))?.is_empty() {
            return Err(Fault::new(format!(
                "database: {path} was changed during the transfer: run the command again"
            )));
        }
        Ok(Self { database: from.to_owned(), stamp: sqlite::upkeep::stamp(&path)?, _held: (owned, held) })
    }

    /// Runs `script` over one snapshot of it.
    ///
    /// # Errors
    /// It cannot be read, or the script fails.
    pub fn read<T>(&self, script: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        upkeep::snapshot(&self.database, script)
    }
}

/// Has agents' rows hold all that the log says, as they do where they are written with each batch. Writes nothing where
/// they do: a transfer that goes on knows its source by its file. No server works in the database meanwhile.
///
/// # Errors
/// The database does not answer.
pub fn count_all(from: &str) -> Result<(), Fault> {
    let mut after = (FIRST.0, FIRST.1.to_owned());
    loop {
        let found = upkeep::snapshot(from, |tx| uncounted::agents(tx, (after.0, &after.1), AGENTS_AT_ONCE))?;
        let Some(last) = found.last() else { return Ok(()) };
        after = (last.environment, last.agent.as_str().to_owned());
        let counted = super::run_once(from, |tx| {
            found.iter().try_for_each(|agent| uncounted::count(tx, agent)).map_err(ScriptError::Fault)
        })?;
        counted.map_err(|refusal| Fault::new(refusal.message))?;
    }
}

impl Target {
    /// Migrates the target to the newest schema, and marks it as unfinished. A marked target is continued, or
    /// emptied if the source has changed.
    ///
    /// # Errors
    /// The target holds other data, or the database does not answer.
    pub fn begin(to: &str, source: &Source, at: Timestamp) -> Result<Self, Fault> {
        let Place::Postgres(url) = place(to)? else { return Err(Fault::new("the target is not PostgreSQL")) };
        let from = redacted(&source.database);
        let (filling, begun) = postgres::Filling::begin(url, &from, &source.stamp, at)?;
        Ok(Self { filling, begun })
    }

    /// The key of the last row of a table that has arrived, and the number of rows that have.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn arrived(&mut self, table: &'static Table) -> Result<(Option<Vec<Value>>, i64), Fault> {
        self.filling.arrived(table)
    }

    /// Writes rows that follow those that have arrived, all or none.
    ///
    /// # Errors
    /// The target refuses them, or another transfer has taken the target.
    pub fn put(&mut self, table: &'static Table, rows: &[Vec<Value>]) -> Result<(), Fault> {
        self.filling.put(table, rows)
    }

    /// Runs `script`, and opens the target to servers, in one transaction.
    ///
    /// # Errors
    /// The script fails, or the database does not answer.
    pub fn complete(mut self, script: impl Fn(&mut Tx<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
        self.filling.complete(&script)
    }
}
