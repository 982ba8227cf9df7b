//! `backup restore`: replaces the database by a backup.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tempfile::NamedTempFile;

use super::{Common, Contents, Failure, Manifest, file, operator, verify};
use crate::admin::terminal;
use crate::clock::{Clock as _, SystemClock};
use crate::config;
use crate::error::Fault;
use crate::model::database::SQLITE;
use crate::model::master_key::MasterKey;
use crate::service::public_log::operated;
use crate::store::Owned;
use crate::store::{Holder, upkeep};

/// The files that SQLite keeps for a database. The log of one database must never be used with another.
const BESIDE: [&str; 3] = ["", WAL, "-shm"];
const WAL: &str = "-wal";
/// The file that a command keeps locked while it uses a database.
const LOCK: &str = ".lock";

/// The result of a restore.
#[derive(Serialize)]
struct Restored<'a> {
    database: &'a Path,
    backup: &'a Path,
    taken_at: &'a str,
    schema_version: i64,
    signing_keys: &'a [String],
    /// Whether the master key opens the signing keys. None if no master key is set.
    master_key_opens: Option<bool>,
    /// Where the previous database is now.
    set_aside: Option<&'a Path>,
}

pub(super) fn run(backup: &Path, force: bool, common: &Common) -> Result<(), Failure> {
    let settings = common.settings()?;
    let master_key = config::master_key_if_set().map_err(Failure::unusable)?;
    let database = upkeep::file(&settings.database).map_err(Failure::failed)?;
    // A server that starts has the file before it opens it, and one that comes later waits for the end of this.
    let _owned = Owned::take(&settings.database, Duration::ZERO).map_err(Failure::failed)?;
    let _held = upkeep::claim(&settings.database, Holder::Alone).map_err(Failure::failed)?;
    if database.exists() && !force {
        let message = "exists; --force renames and keeps it";
        return Err(Failure::failed(format!("{} {message}", database.display())));
    }
    let (manifest, contents) = verify(backup).map_err(Failure::failed)?;
    if let Some(master_key) = &master_key {
        must_open(&contents, master_key).map_err(Failure::failed)?;
    }
    let set_aside = replace(&settings.database, backup, &manifest).map_err(Failure::failed)?;
    let restored = Restored {
        database: &database,
        backup,
        taken_at: &manifest.taken_at,
        schema_version: manifest.schema_version,
        signing_keys: &manifest.signing_keys,
        master_key_opens: master_key.map(|_| true),
        set_aside: set_aside.as_deref(),
    };
    restored.print(common.json).map_err(Failure::failed)
}

/// Refuses a master key that does not open the newest signing keys.
fn must_open(contents: &Contents, master_key: &MasterKey) -> Result<(), Fault> {
    let closed = contents.newest_keys().find(|key| !master_key.opens(&key.kid, &key.sealed));
    closed.map_or(Ok(()), |key| {
        Err(Fault::new(format!(
            "signing key {} does not open under the master key that is set: find the one that was in use at the time of \
             the backup",
            key.kid
        )))
    })
}

/// Replaces the database by a copy of the backup. Returns where the previous one is now, if there was one.
fn replace(database: &str, backup: &Path, manifest: &Manifest) -> Result<Option<PathBuf>, Fault> {
    let place = upkeep::file(database)?;
    let mut fresh = file::unfinished(&place)?;
    let (sha256, _) = file::copied(backup, &mut fresh)?;
    if sha256 != manifest.sha256 {
        return Err(Fault::new(format!("{} has changed while it was copied", backup.display())));
    }
    record(&fresh, backup, manifest)?;
    file::synced(&fresh)?;
    upkeep::adopt(fresh.as_file(), &file::directory(&place));
    file::name(fresh, &upkeep::pending_name(database, &SystemClock.now().to_string())?)?;
    upkeep::replace(database)
}

/// Writes an audit record of the restore into the copy.
fn record(fresh: &NamedTempFile, backup: &Path, manifest: &Manifest) -> Result<(), Fault> {
    let details = json!({ "taken_at": manifest.taken_at, "sha256": manifest.sha256 });
    let database = format!("{SQLITE}{}", fresh.path().display());
    let written = operator::record(&database, "backup.restore", backup, details)
        .and_then(|()| terminal::run(&database, operated::stop_after_restore));
    // Writing the record has emptied the copy's log, unless that failed.
    let emptied = !beside(fresh.path(), WAL).exists();
    BESIDE.iter().chain(&[LOCK]).filter(|suffix| !suffix.is_empty()).for_each(|suffix| {
        file::remove(&beside(fresh.path(), suffix));
    });
    written.map_err(|why| Fault::new(why.to_string()))?;
    emptied
        .then_some(())
        .ok_or_else(|| Fault::new("the record of the restore cannot be written into the copy"))
}

/// The path of a file with a suffix.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl Restored<'_> {
    fn print(&self, json: bool) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if json {
            serde_json::to_writer(&mut out, self)?;
            return writeln!(out);
        }
        writeln!(out, "database       {}", self.database.display())?;
        writeln!(out, "restored from  {}, taken at {}", self.backup.display(), self.taken_at)?;
        if let Some(aside) = self.set_aside {
            writeln!(out, "set aside      {}", aside.display())?;
        }
        let opened = match self.master_key_opens {
            Some(_) => "opened by the master key that is set",
            None => "no master key is set: the server needs the one that they are sealed under",
        };
        writeln!(out, "signing keys   {} ({opened})", self.signing_keys.join(", "))?;
        writeln!(
            out,
            "public logs    stopped: `mandate-server log continue`, or `log new-origin` if checkpoints were published \
             after the backup"
        )
    }
}
