//! The operator's work on a whole database: its schema, snapshots, copies, and the lock against other processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mandate_core::Timestamp;

#[cfg(test)]
mod tests;

use super::tx::{Backend, Tx};
use super::{Holder, Owned, Place, Schema, place, postgres, sqlite};
use crate::error::Fault;
use crate::model::database::redacted;

/// The schema of a database. Changes nothing.
///
/// # Errors
/// The name is of no known kind of database, or it cannot be opened.
pub fn schema(database: &str) -> Result<Schema, Fault> {
    match place(database)? {
        Place::Sqlite(path) => sqlite::upkeep::schema(&path),
        Place::Postgres(url) => postgres::upkeep::schema(url),
    }
}

/// The schema of a snapshot.
///
/// # Errors
/// The database does not answer.
pub fn schema_in(tx: &mut Tx<'_>) -> Result<Schema, Fault> {
    match tx.backend() {
        Backend::Sqlite => sqlite::upkeep::schema_in(tx),
        Backend::Postgres => postgres::upkeep::schema_in(tx),
    }
}

/// Refuses a database that an interrupted restore is to replace, and one that a transfer is filling.
///
/// # Errors
/// It is such a database, or its directory cannot be read.
pub fn must_be_complete(database: &str) -> Result<(), Fault> {
    match place(database)? {
        Place::Sqlite(path) => sqlite::upkeep::must_be_complete(&path),
        Place::Postgres(url) => postgres::upkeep::must_be_complete(url),
    }
}

/// Runs `script` over one snapshot, beside other processes. The script can change nothing.
///
/// # Errors
/// The database cannot be opened, or the script fails.
pub fn snapshot<T>(database: &str, script: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
    match place(database)? {
        Place::Sqlite(path) => sqlite::upkeep::snapshot(&path, script),
        Place::Postgres(url) => postgres::upkeep::snapshot(url, script),
    }
}

/// Whether a database is used over a connection, and is no file of this machine.
///
/// # Errors
/// The URL is not valid.
pub fn is_remote(database: &str) -> Result<bool, Fault> {
    Ok(matches!(place(database)?, Place::Postgres(_)))
}

/// The damage that the database finds in its own file, a sentence each.
///
/// # Errors
/// The file is damaged so badly that the search itself fails.
pub fn damage(tx: &mut Tx<'_>) -> Result<Vec<String>, Fault> {
    match tx.backend() {
        Backend::Sqlite => sqlite::upkeep::damage(tx),
        // PostgreSQL's server owns the pages: `pg_amcheck` checks them.
        Backend::Postgres => Ok(Vec::new()),
    }
}

/// Whether the database notices a flipped bit in what it reads. On SQLite the rows have checksums instead.
///
/// # Errors
/// The database does not answer.
pub fn has_page_checksums(tx: &mut Tx<'_>) -> Result<bool, Fault> {
    match tx.backend() {
        Backend::Sqlite => Ok(true),
        Backend::Postgres => postgres::upkeep::has_page_checksums(tx),
    }
}

/// Until when decisions and events have partitions, without a gap, as known at `now`. None where the database has no
/// partitions.
///
/// # Errors
/// The database does not answer.
pub fn partitions_end(tx: &mut Tx<'_>, now: Timestamp) -> Result<Option<Timestamp>, Fault> {
    match tx.backend() {
        Backend::Sqlite => Ok(None),
        Backend::Postgres => postgres::upkeep::partitions_end(tx, now).map(Some),
    }
}

/// Until when there are partitions, if that is soon by the database's clock: within 90 days.
///
/// # Errors
/// The database does not answer.
pub fn partitions_short(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    match tx.backend() {
        Backend::Sqlite => Ok(None),
        Backend::Postgres => postgres::upkeep::partitions_short(tx),
    }
}

/// The tables that are in the place of partitions which must exist at `now`, each with the statement that makes it one.
///
/// # Errors
/// The database does not answer.
pub fn detached_partitions(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<(String, String)>, Fault> {
    match tx.backend() {
        Backend::Sqlite => Ok(Vec::new()),
        Backend::Postgres => postgres::upkeep::detached_partitions(tx, now),
    }
}

/// The rights that the database's role lacks for closing a month, with the name of the role. None if it lacks none.
///
/// # Errors
/// The database does not answer.
pub fn lacks_to_close(tx: &mut Tx<'_>) -> Result<Option<(String, String)>, Fault> {
    match tx.backend() {
        Backend::Sqlite => Ok(None),
        Backend::Postgres => postgres::upkeep::lacks_to_close(tx),
    }
}

/// The rows that refer to missing rows: their table, and the table referred to.
///
/// # Errors
/// The database does not answer.
pub fn dangling(tx: &mut Tx<'_>) -> Result<Vec<(String, String)>, Fault> {
    match tx.backend() {
        Backend::Sqlite => sqlite::upkeep::dangling(tx),
        Backend::Postgres => postgres::upkeep::dangling(tx),
    }
}

/// Copies what is committed into the empty file `to`, beside a server that goes on writing. Calls `progress` with
/// the number of pages that are copied, and the number of all.
///
/// # Errors
/// The database cannot be read, or the file not written.
pub fn copy(database: &str, to: &Path, progress: &mut dyn FnMut(i32, i32)) -> Result<(), Fault> {
    sqlite::upkeep::copy(&path(database)?, to, progress)
}

/// Gives a file that this process has made to the owner of its directory. So a command that root runs locks no server out.
pub fn adopt(file: &File, directory: &Path) {
    sqlite::beside::adopt(file, directory);
}

/// Brings a database up to the newest schema, as [`Owned::migrate`] does, by the database's clock.
///
/// # Errors
/// A server owns the database, or as with [`Owned::migrate`].
pub fn migrate(database: &str) -> Result<Schema, Fault> {
    Owned::take(database, Duration::ZERO)?.migrate(&|shown| shown)
}

/// Locks a database, which need not exist, until the returned file is dropped.
///
/// # Errors
/// Another process has locked it, or its lock file cannot be written.
pub fn claim(database: &str, holder: Holder) -> Result<File, Fault> {
    sqlite::upkeep::claim(&path(database)?, holder)
}

/// The path of a database that is a file.
fn path(database: &str) -> Result<String, Fault> {
    match place(database)? {
        Place::Sqlite(path) => Ok(path),
        Place::Postgres(_) => Err(Fault::new(
            "database: PostgreSQL has its own tools for that: pg_dump and pg_restore for a copy of its contents, \
             pg_basebackup with an archive of its log for any point in time",
        )),
    }
}

/// The name of a database in audit records: the path of its file, or its URL without the password.
///
/// # Errors
/// The name is of no known kind of database, or a link leads nowhere.
pub fn subject(database: &str) -> Result<String, Fault> {
    Ok(match place(database)? {
        Place::Sqlite(path) => path,
        Place::Postgres(url) => redacted(url),
    })
}

/// The canonical path of a database's file, which need not exist.
///
/// # Errors
/// The name is of no known kind of database, or a link leads nowhere.
pub fn file(database: &str) -> Result<PathBuf, Fault> {
    path(database).map(PathBuf::from)
}

/// The name of a complete and synced file that is to replace a database. A file with this name will replace the
/// database: by [`replace`], or if that is interrupted, by the next process that claims the database.
///
/// # Errors
/// The name is of no known kind of database.
pub fn pending_name(database: &str, time: &str) -> Result<PathBuf, Fault> {
    Ok(sqlite::replace::pending_name(&path(database)?, time))
}

/// Replaces a database, which the caller has claimed alone, by the file with the [`pending_name`]. Returns the path
/// of the previous database.
///
/// # Errors
/// A file cannot be renamed.
pub fn replace(database: &str) -> Result<Option<PathBuf>, Fault> {
    sqlite::replace::finish(&path(database)?)
}
