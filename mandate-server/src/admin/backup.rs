//! `backup`: copies of the database, made beside a running server and verified before they are named; and how
//! to restore them.

pub(super) mod file;
mod restore;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Common, Failure, operator, terminal};
use crate::clock::{Clock as _, SystemClock};
use crate::error::Fault;
use crate::model::database::SQLITE;
use crate::service::check::{self, Finding, Listener};
use crate::store::sql::check::{SigningKeyRow, signing_keys};
use crate::store::{Schema, upkeep};

/// The suffix that a backup's manifest adds to the name of the backup.
const MANIFEST_SUFFIX: &str = ".manifest.json";

/// Backups.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copy the database into FILE; a server may be running
    #[command(after_help = CREATE_HELP)]
    Create {
        /// The backup to write; its manifest is FILE.manifest.json
        file: PathBuf,

        #[command(flatten)]
        common: Common,
    },
    /// Check a backup: its hash, its pages and the references between rows
    #[command(after_help = VERIFY_HELP)]
    Verify {
        /// The backup
        file: PathBuf,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Replace the database by a backup; no server may be running
    #[command(after_help = RESTORE_HELP)]
    Restore {
        /// The backup
        file: PathBuf,

        /// If there is a database, rename it and keep it
        #[arg(long)]
        force: bool,

        #[command(flatten)]
        common: Common,
    },
}

const CREATE_HELP: &str = "\
Examples:
  mandate-server backup create /backup/mandate-$(date +%F).db
  mandate-server backup create today.db \\
      --database sqlite:///var/lib/mandate/mandate.db --json

The backup holds everything that was acknowledged before the command began. A running server continues. FILE appears once \
it is complete and verified, readable by its owner only; an existing file is never overwritten. Exports are not included: \
request them again. A backup is of no use without the master key: keep that elsewhere.";

const VERIFY_HELP: &str = "\
Examples:
  mandate-server backup verify /backup/mandate-2026-11-21.db

`mandate-server check --database sqlite:///backup/mandate-2026-11-21.db` also reads the whole log.";

const RESTORE_HELP: &str = "\
Examples:
  mandate-server backup restore /backup/mandate-2026-11-21.db
  mandate-server backup restore /backup/mandate-2026-11-21.db --force \\
      --database sqlite:///var/lib/mandate/mandate.db

Refused while a server has the database open. If MANDATE_MASTER_KEY or MANDATE_MASTER_KEY_FILE is set, the command checks \
that this master key decrypts the signing keys. Changes made after the backup are lost. A key that was revoked since then \
is valid again: revoke it again.";

/// The manifest of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// When the backup began, RFC 3339: everything acknowledged before is in it.
    pub taken_at: String,
    /// The version of the program that took it.
    pub server_version: String,
    /// The version of its schema.
    pub schema_version: i64,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of all its bytes, hexadecimal.
    pub sha256: String,
    /// Its newest signing keys. The master key must be the one that encrypts them.
    pub signing_keys: Vec<String>,
    /// Rows by table.
    pub rows: BTreeMap<String, i64>,
}

/// The contents of a backup.
#[derive(Debug)]
pub(super) struct Contents {
    schema_version: i64,
    keys: Vec<SigningKeyRow>,
    rows: BTreeMap<String, i64>,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// A file could not be written, or a database or backup is not sound.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create { file, common } => {
                let settings = common.settings()?;
                let manifest = create(&settings.database, &file).map_err(Failure::failed)?;
                let details = json!({ "taken_at": manifest.taken_at, "sha256": manifest.sha256 });
                if let Err(why) = operator::record(&settings.database, "backup.create", &file, details) {
                    terminal::note(&format!("warning: the backup is whole, and has no audit record: {why}"));
                }
                print(&file, &manifest, common.json)
            }
            Self::Verify { file, json } => {
                let (manifest, _) = verify(&file).map_err(Failure::failed)?;
                print(&file, &manifest, json)
            }
            Self::Restore { file, force, common } => restore::run(&file, force, &common),
        }
    }
}

/// Copies `database` into the new file `to`, and writes the manifest beside it.
///
/// # Errors
/// The file exists, the database cannot be read, or the copy is not sound. Then no file is left.
pub fn create(database: &str, to: &Path) -> Result<Manifest, Fault> {
    let manifest_path = manifest_path(to);
    if to.exists() {
        return Err(Fault::new(format!("{} exists; name another file", to.display())));
    }
    let source = upkeep::file(database)?;
    must_be_ours(&upkeep::snapshot(database, upkeep::schema_in)?, &source.display().to_string())?;
    let taken_at = SystemClock.now().to_string();
    let unfinished = file::unfinished(to)?;
    file::clear_orphan(&manifest_path, to, &unfinished)?;
    let mut progress = Progress::new("copied pages");
    upkeep::copy(database, unfinished.path(), &mut |done, of| {
        progress.show(i64::from(done), i64::from(of));
    })?;
    let contents = sound(unfinished.path())?;
    let (sha256, bytes) = file::synced(&unfinished)?;
    let manifest = contents.manifest(taken_at, sha256, bytes);
    let text = serde_json::to_vec_pretty(&manifest).map_err(|e| Fault::new(e.to_string()))?;
    // The manifest comes first, so that no backup lacks one.
    file::write(&manifest_path, &text)?;
    if let Err(fault) = file::name(unfinished, to) {
        file::remove(&manifest_path);
        return Err(fault);
    }
    Ok(manifest)
}

/// Checks a backup against its manifest, and its contents. If the manifest is missing, one is made from what
/// the backup is now.
///
/// # Errors
/// The backup does not match its manifest, or is not sound.
pub(super) fn verify(backup: &Path) -> Result<(Manifest, Contents), Fault> {
    let (sha256, bytes) = file::digest(backup)?;
    let text = file::read(&manifest_path(backup))?;
    let kept: Option<Manifest> = text
        .map(|text| serde_json::from_slice(&text))
        .transpose()
        .map_err(|e| Fault::new(format!("{} is not a manifest: {e}", manifest_path(backup).display())))?;
    if let Some(kept) = kept.as_ref().filter(|kept| kept.sha256 != sha256 || kept.bytes != bytes) {
        return Err(Fault::new(format!(
            "{} has {bytes} bytes of SHA-256 {sha256}, and its manifest says {} bytes of SHA-256 {}",
            backup.display(),
            kept.bytes,
            kept.sha256
        )));
    }
    let contents = sound(backup)?;
    if kept.is_none() {
        let path = manifest_path(backup);
        let _ =
            writeln!(anstream::stderr(), "warning: there is no {}; its hash is not checked", path.display());
    }
    let manifest = kept.unwrap_or_else(|| contents.manifest("an unknown time".to_owned(), sha256, bytes));
    Ok((manifest, contents))
}

/// The contents of a file that can be restored: it has this program's schema, and no damage.
fn sound(path: &Path) -> Result<Contents, Fault> {
    let name = path.to_str().ok_or_else(|| Fault::new("the name of the backup is not UTF-8"))?;
    let database = format!("{SQLITE}{name}");
    let schema = upkeep::schema(&database)?;
    must_be_ours(&schema, name)?;
    let (findings, contents) = upkeep::snapshot(&database, |tx| {
        let mut findings = Findings::default();
        let whole = check::quick(tx, &mut findings)?;
        let rows = if whole { check::counts(tx)? } else { Vec::new() };
        let rows = rows.into_iter().map(|(table, rows)| (table.to_owned(), rows)).collect();
        Ok((findings.0, Contents { schema_version: schema.current, keys: signing_keys(tx)?, rows }))
    })?;
    match findings.first() {
        None => Ok(contents),
        Some(first) => Err(Fault::new(format!(
            "{name} is not sound: {} in {}, where {} is expected ({} findings; `mandate-server check` shows all of them)",
            first.found,
            first.table,
            first.expected,
            findings.len()
        ))),
    }
}

/// Refuses a file without this program's schema.
fn must_be_ours(schema: &Schema, name: &str) -> Result<(), Fault> {
    schema.must_be_known(name)?;
    if schema.is_newest() {
        return Ok(());
    }
    Err(Fault::new(format!("{name} is not a database of this program")))
}

impl Contents {
    fn newest_keys(&self) -> impl Iterator<Item = &SigningKeyRow> {
        newest_keys(&self.keys)
    }

    fn manifest(&self, taken_at: String, sha256: String, bytes: u64) -> Manifest {
        Manifest {
            taken_at,
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
            schema_version: self.schema_version,
            bytes,
            sha256,
            signing_keys: self.newest_keys().map(|key| key.kid.clone()).collect(),
            rows: self.rows.clone(),
        }
    }
}

/// The newest signing key of each kind of environment: the master key in use must open these.
pub(super) fn newest_keys(keys: &[SigningKeyRow]) -> impl Iterator<Item = &SigningKeyRow> {
    let by_kind: BTreeMap<&str, _> = keys.iter().map(|key| (key.kind.as_str(), key)).collect();
    by_kind.into_values()
}

fn manifest_path(backup: &Path) -> PathBuf {
    let mut name = backup.as_os_str().to_owned();
    name.push(MANIFEST_SUFFIX);
    PathBuf::from(name)
}

fn print(file: &Path, manifest: &Manifest, json: bool) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct View<'a> {
        file: &'a Path,
        #[serde(flatten)]
        manifest: &'a Manifest,
    }
    let mut out = std::io::stdout().lock();
    let written = if json {
        serde_json::to_writer(&mut out, &View { file, manifest }).map_err(Failure::failed)?;
        writeln!(out)
    } else {
        let decisions = manifest.rows.get("decisions").map_or("unknown".to_owned(), ToString::to_string);
        writeln!(
            out,
            "backup         {}\ntaken at       {}\nschema         {}\ndecisions      {decisions}\nsize           {} \
             bytes\nsha256         {}\nsigning keys   {}",
            file.display(),
            manifest.taken_at,
            manifest.schema_version,
            manifest.bytes,
            manifest.sha256,
            manifest.signing_keys.join(", ")
        )
    };
    written.map_err(Failure::failed)
}

/// Collects findings.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Listener for Findings {
    fn finding(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    fn looked_at(&mut self, _: i64, _: i64) {}
}

/// Reports the progress of long work on standard error, at every tenth of it.
#[derive(Debug)]
pub(super) struct Progress {
    what: &'static str,
    tenths: i64,
}

/// Work of fewer steps is not long.
const LONG: i64 = 50_000;

impl Progress {
    pub(super) fn new(what: &'static str) -> Self {
        Self { what, tenths: 0 }
    }

    pub(super) fn show(&mut self, done: i64, of: i64) {
        let tenths = done.saturating_mul(10) / of.max(1);
        if of >= LONG && tenths > self.tenths {
            self.tenths = tenths;
            let _ = writeln!(anstream::stderr(), "{} {done} of {of}", self.what);
        }
    }
}
