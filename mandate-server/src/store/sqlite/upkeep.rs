//! What the operator does to a database file as a whole: look at it, copy it, claim it, bring it up to date.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use refinery::Runner;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tracing::warn;

use super::{
    BUSY_TIMEOUT, CACHE_KIB, STATEMENT_CACHE, SqliteSession, beside, connect, migrations, owner, replace, wal,
};
use crate::error::Fault;
use crate::store::schema::{self, Schema};
use crate::store::tx::Tx;

/// Where processes tell each other that they have the database open. It cannot be the database itself: closing any
/// file descriptor of that would drop the locks that SQLite holds on it.
const LOCK_SUFFIX: &str = ".lock";
/// How many pages are copied between two words on how far the copy is.
const COPIED_PAGES: i32 = 2_048;
/// How much of what is damaged SQLite tells at most.
const INTEGRITY: &str = "/* sqlite_upkeep.integrity */ PRAGMA integrity_check(100)";
const FOREIGN_KEYS: &str = "/* sqlite_upkeep.foreign_keys */ PRAGMA foreign_key_check";
const HAS_HISTORY: &str = "/* sqlite_upkeep.has_history */
    SELECT COUNT(*) FROM sqlite_schema WHERE name = 'refinery_schema_history'";

/// What a process locks a database for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// To work in it beside others.
    Server,
    /// To replace it.
    Alone,
}

/// Takes the database for this process, as one of its servers or for itself alone, until what is returned is dropped. A
/// restore that a crash has interrupted is ended before. For a server its log must be whole.
pub(in crate::store) fn claim(path: &str, holder: Holder) -> Result<File, Fault> {
    let name = format!("{path}{LOCK_SUFFIX}");
    let unusable = |e| beside::unusable(&name, &e);
    let file = beside::open(&name).map_err(unusable)?;
    let lock = |holder| {
        let locked = match holder {
            Holder::Server => file.try_lock_shared(),
            Holder::Alone => file.try_lock(),
        };
        match locked {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(Fault::InUse(match holder {
                // A restore and a transfer, which take it alone, have written themselves down as its owner.
                Holder::Server => format!(
                    "database: {path} is taken by {}; wait until that has ended",
                    owner::written_down(path)
                ),
                Holder::Alone => {
                    format!("database: {path} is in use by another process: wait until that has ended")
                }
            })),
            Err(TryLockError::Error(e)) => Err(unusable(e)),
        }
    };
    lock(holder)?;
    // A restore begins under the exclusive lock: none begins from here on.
    if replace::is_pending(path)? {
        lock(Holder::Alone)?;
        let aside = replace::finish(path)?;
        warn!(database = path, ?aside, "a restore that was interrupted has been ended");
        lock(holder)?;
    }
    beside::must_lead_nowhere(path)?;
    // What is to be replaced may be damaged.
    if holder == Holder::Server {
        wal::must_be_whole(path)?;
    }
    Ok(file)
}

/// Refuses a database whose place another is to take: it is neither the old one any more nor the new one yet.
pub(in crate::store) fn must_be_complete(path: &str) -> Result<(), Fault> {
    if replace::is_pending(path)? {
        let remedy = "start the server, or run `mandate-server migrate`, to end it";
        return Err(Fault::new(format!("database: {path}: a restore of it was interrupted: {remedy}")));
    }
    Ok(())
}

/// What changes whenever anything is written into a database: the size and the time of its file and of its log. A log
/// without content is as good as none.
pub(in crate::store) fn stamp(path: &str) -> Result<String, Fault> {
    let of = |name: &str| match Path::new(name).metadata() {
        Ok(file) if file.len() > 0 => Ok(format!("{} {}.{:09}", file.len(), file.mtime(), file.mtime_nsec())),
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Fault::new(format!("database: the size and time of {name} cannot be read: {e}")))
        }
        _ => Ok("0".to_owned()),
    };
    Ok(format!("{}, {}", of(path)?, of(&format!("{path}-wal"))?))
}

/// Opens a database without a way to change it, not even its journal mode.
fn open_to_read(path: &str) -> Result<Connection, Fault> {
    must_be_complete(path)?;
    if !Path::new(path).exists() {
        return Err(Fault::Unavailable(format!("database: there is no file {path}")));
    }
    beside::must_lead_nowhere(path)?;
    wal::must_be_whole(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .map_err(|e| Fault::Unavailable(format!("database: cannot open {path}: {e}")))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(connection)
}

/// Runs `script` over one snapshot.
pub(in crate::store) fn snapshot<T>(
    path: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let connection = open_to_read(path)?;
    connection.execute_batch("BEGIN")?;
    script(&mut Tx::new(&mut SqliteSession::reading(&connection, None)))
}

/// What SQLite finds wrong with the pages and indexes of the file, a sentence each.
pub(in crate::store) fn damage(tx: &mut Tx<'_>) -> Result<Vec<String>, Fault> {
    let reported = tx.query(INTEGRITY, &[])?.into_iter().map(|mut row| row.text());
    Ok(reported.collect::<Result<Vec<_>, _>>()?.into_iter().filter(|text| text != "ok").collect())
}

/// The rows that refer to others which are not there: the table, and the table referred to.
pub(in crate::store) fn dangling(tx: &mut Tx<'_>) -> Result<Vec<(String, String)>, Fault> {
    let reported = tx.query(FOREIGN_KEYS, &[])?.into_iter().map(|mut row| {
        let table = row.text()?;
        row.maybe_integer()?;
        Ok((table, row.text()?))
    });
    reported.collect()
}

/// Copies what is committed into the empty file `to`, which becomes one file without a log beside it.
///
/// One read transaction holds the snapshot for the whole copy. A writer beside it goes on undisturbed: it appends to its
/// log, which is checkpointed once the copy has ended. Without that transaction, each commit would start the copy over.
pub(in crate::store) fn copy(from: &str, to: &Path, tell: &mut dyn FnMut(i32, i32)) -> Result<(), Fault> {
    let from = open_to_read(from)?;
    from.execute_batch("BEGIN")?;
    from.query_row(HAS_HISTORY, [], |_| Ok(()))?;
    let mut to = Connection::open(to)?;
    // The file is not the backup before it has been synced as a whole.
    to.pragma_update(None, "synchronous", "OFF")?;
    {
        let backup = Backup::new(&from, &mut to)?;
        loop {
            let step = backup.step(COPIED_PAGES)?;
            let progress = backup.progress();
            tell(progress.pagecount - progress.remaining, progress.pagecount);
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                _ => {
                    return Err(Fault::new(
                        "database: the copy found the database locked by another process",
                    ));
                }
            }
        }
    }
    to.pragma_update(None, "journal_mode", "DELETE")?;
    to.close().map_err(|(_, e)| e.into())
}

/// The schema that a snapshot has.
pub(in crate::store) fn schema_in(tx: &mut Tx<'_>) -> Result<Schema, Fault> {
    Ok(Schema::of(&schema::applied(tx, HAS_HISTORY)?, &runner()))
}

/// The schema that the database has, and what leads from it to the newest one. A file that is not there has version 0.
pub(in crate::store) fn schema(path: &str) -> Result<Schema, Fault> {
    must_be_complete(path)?;
    if !Path::new(path).exists() {
        return Ok(Schema::of(&[], &runner()));
    }
    snapshot(path, schema_in).map_err(|fault| naming(path, fault))
}

/// SQLite does not name the file that it finds damaged.
fn naming(path: &str, fault: Fault) -> Fault {
    match fault {
        Fault::Corrupt(why) if !why.contains(path) => Fault::corrupt(format!("{why}: {path}")),
        other => other,
    }
}

/// The schema, read by a connection that may write. SQLite then first takes back what a killed process has left half
/// written, which a connection that only reads cannot.
fn schema_to_change(path: &str) -> Result<Schema, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .map_err(|e| Fault::Unavailable(format!("database: cannot open {path}: {e}")))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // A database of another program stays as it is.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    schema_in(&mut Tx::new(&mut SqliteSession::reading(&connection, None)))
        .map_err(|fault| naming(path, fault))
}

/// Brings the database up to the newest schema: all of the way, or not at all. Says what it was before.
pub(in crate::store) fn migrate(path: &str) -> Result<Schema, Fault> {
    let held = claim(path, Holder::Server)?;
    make(path)?;
    let before = schema_to_change(path)?;
    before.must_be_known(path)?;
    let mut connection = connect(path)?;
    let failed = |e| Fault::new(format!("database: cannot migrate {path}: {e}"));
    let ran = runner().run(&mut connection).map(|_| before).map_err(failed);
    drop(held);
    ran
}

/// Makes the file of a database that is not there, for its owner alone; SQLite gives its log the same mode.
fn make(path: &str) -> Result<(), Fault> {
    // One that is there is not opened: to close a descriptor of it would drop SQLite's locks.
    let made = beside::make(path).map_err(|e| Fault::new(format!("database: cannot make {path}: {e}")))?;
    drop(made);
    Ok(())
}

/// One transaction for all that is missing: what a crash interrupts has not begun.
fn runner() -> Runner {
    migrations::migrations::runner().set_grouped(true)
}
