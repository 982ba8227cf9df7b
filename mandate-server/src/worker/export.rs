//! Builds requested exports one at a time, and deletes expired exports and files without an export.
//!
//! A file is complete before its export is ready: it is written under another name, synced, and renamed. What
//! a crash leaves unfinished is written again.

mod shared;

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mandate_core::{ExportId, Timestamp};
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use crate::clock::Clock;
use crate::error::Fault;
use crate::model::call::ScriptError;
use crate::service::exports::{self as service, Build, Written};
use crate::service::moments::Moments;
use crate::service::signing::Keyring;
use crate::store::Store;
use crate::store::sql::exports::{Export, ExportStatus};

/// How often exports to build are looked for, in seconds. New ones are taken up at once.
const LOOK_SECONDS: u64 = 60;
/// How often it is asked whether transactions under way have ended, and for how long at most.
const ASK_EVERY: Duration = Duration::from_millis(50);
const ASK_FOR: Duration = Duration::from_mins(1);
/// How many expired exports are deleted at a time.
const MAX_DELETED: i64 = 100;
/// An export holds all of an organization's decisions: its owner alone may read it.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// The suffix of a file that is still being written.
const UNFINISHED: &str = ".unfinished";
/// How much is written at a time, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// The files of exports, and how to wake the builder.
#[derive(Debug)]
pub struct Exports {
    directory: PathBuf,
    wake: Notify,
    /// Held while a request fetches content that another server has built.
    fetching: Mutex<()>,
}

impl Exports {
    /// Exports in `directory`, which is created when it is needed.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, wake: Notify::new(), fetching: Mutex::new(()) }
    }

    /// Wakes the builder: there may be a new export.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// The file of an export.
    #[must_use]
    pub fn file(&self, id: ExportId) -> PathBuf {
        self.directory.join(id.to_string())
    }

    /// The file of a ready export, with its content, whichever server built it.
    ///
    /// # Errors
    /// The content cannot be read, or does not match the record.
    pub async fn content(
        &self,
        store: &Store,
        environment: i64,
        id: ExportId,
        sha256: [u8; 32],
    ) -> Result<PathBuf, Fault> {
        shared::fetch(store, self, environment, id, sha256).await?;
        Ok(self.file(id))
    }

    fn unfinished(&self, id: ExportId) -> PathBuf {
        self.directory.join(format!("{id}{UNFINISHED}"))
    }
}

/// Builds exports until `stop` changes. An export in progress is then abandoned, and built at the next start.
pub(crate) async fn run(
    store: Store,
    exports: Arc<Exports>,
    keyring: Keyring,
    moments: Arc<Moments>,
    mut stop: watch::Receiver<bool>,
) {
    let mut look = tokio::time::interval(Duration::from_secs(LOOK_SECONDS));
    let mut closing = None;
    loop {
        tokio::select! {
            _ = look.tick() => {}
            () = exports.wake.notified() => {}
            () = until(moments.clock(), closing) => {}
            _ = stop.changed() => return,
        }
        let done = async {
            while !*stop.borrow() && build_next(&store, &exports, &keyring, &moments, &stop).await? {}
            let now = moments.clock().now();
            store.read(move |tx| service::next_closing(tx, now)).await?
        };
        closing = done.await.unwrap_or_else(|fault| {
            error!(kind = fault.kind(), reason = %fault, "exports cannot be built");
            None
        });
    }
}

/// Waits for an instant; for ever, if there is none.
async fn until(clock: &dyn Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Builds the oldest pending export whose period is over. False if there is none.
///
/// # Errors
/// The database fails. An export that cannot be written is marked as failed, which is no error here.
pub async fn build_next(
    store: &Store,
    exports: &Arc<Exports>,
    keyring: &Keyring,
    moments: &Arc<Moments>,
    stop: &watch::Receiver<bool>,
) -> Result<bool, Fault> {
    let now = moments.clock().now();
    let Some(export) = store.read(move |tx| service::next_pending(tx, now)).await?? else { return Ok(false) };
    if !close(store, &export, moments).await? {
        return Ok(false);
    }
    let lease = match shared::take(store, &export, now).await? {
        shared::Taken::Alone => None,
        shared::Taken::Leased(lease) => Some(lease),
        shared::Taken::ByAnother => return Ok(true),
    };
    let building = build(store, exports, keyring, &export, now, stop);
    let built = match &lease {
        None => building.await,
        Some(lease) => lease.keep_while(building).await,
    };
    if built.is_err() && *stop.borrow() {
        return match lease {
            Some(lease) => lease.give_back().await.map(|()| true),
            None => Ok(true),
        };
    }
    if let Some(lease) = lease {
        return shared::end(exports, *lease, built).await.map(|()| true);
    }
    let written = match finish(exports, &export, built).await {
        Ok(written) => {
            info!(export = %export.id, rows = written.rows, "an export is ready");
            Some(written)
        }
        Err(fault) => {
            error!(export = %export.id, kind = fault.kind(), reason = %fault, "an export could not be built");
            None
        }
    };
    let ended = store.write(move |tx| service::end(tx, &export, written).map_err(ScriptError::Fault)).await?;
    ended.map(|()| true).map_err(|refusal| Fault::new(refusal.message))
}

/// Closes the period of an export, and waits until all that was decided in it is there. False if that is not so yet.
async fn close(store: &Store, export: &Export, moments: &Arc<Moments>) -> Result<bool, Fault> {
    if export.filter.until.is_none() {
        return Ok(true);
    }
    let (closing, moments) = (export.clone(), Arc::clone(moments));
    let closed = store.write(move |tx| Ok(service::close(tx, &closing, &moments)?)).await?;
    let Some(closed) = closed.map_err(|refusal| Fault::new(refusal.message))? else { return Ok(false) };
    let began = Instant::now();
    loop {
        let closed = closed.clone();
        if store.read(move |tx| service::is_over(tx, &closed)).await?? {
            return Ok(true);
        }
        if began.elapsed() > ASK_FOR {
            warn!(export = %export.id, "an export waits for a transaction that does not end");
            return Ok(false);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Gives a complete file its name. Deletes an incomplete one.
async fn finish(exports: &Exports, export: &Export, built: Result<Written, Fault>) -> Result<Written, Fault> {
    let (unfinished, finished) = (exports.unfinished(export.id), exports.file(export.id));
    blocking(move || match built {
        Ok(written) => {
            fs::rename(&unfinished, &finished).map_err(|e| unusable(&finished, &e))?;
            sync_directory(&finished)?;
            Ok(written)
        }
        Err(fault) => {
            remove(&unfinished)?;
            Err(fault)
        }
    })
    .await
}

/// Writes the unfinished file from one snapshot.
async fn build(
    store: &Store,
    exports: &Arc<Exports>,
    keyring: &Keyring,
    export: &Export,
    now: Timestamp,
    stop: &watch::Receiver<bool>,
) -> Result<Written, Fault> {
    let path = exports.unfinished(export.id);
    let (keyring, export, stop) = (keyring.clone(), export.clone(), stop.clone());
    let written = store.read(move |tx| {
        let file = create(&path)?;
        let out = BufWriter::with_capacity(BUFFER_BYTES, file.try_clone().map_err(|e| unusable(&path, &e))?);
        let build = Build { export: &export, keyring: &keyring, now };
        let written = service::write(tx, &build, out, &|| !*stop.borrow())?;
        file.sync_all().map_err(|e| unusable(&path, &e))?;
        Ok(written)
    });
    written.await.and_then(|written| written)
}

/// Deletes the exports that have expired by `now`: the file before the record, so that no file is left
/// without one.
///
/// # Errors
/// The database fails, or a file cannot be deleted.
pub async fn delete_expired(store: &Store, exports: &Arc<Exports>, now: Timestamp) -> Result<(), Fault> {
    for export in store.read(move |tx| service::expired(tx, now, MAX_DELETED)).await?? {
        let (file, unfinished) = (exports.file(export.id), exports.unfinished(export.id));
        blocking(move || remove(&file).and_then(|()| remove(&unfinished))).await?;
        let forgotten =
            store.write(move |tx| service::forget(tx, &export).map_err(ScriptError::Fault)).await?;
        forgotten.map_err(|refusal| Fault::new(refusal.message))?;
    }
    Ok(())
}

/// Deletes files without an export: those whose export has no record, and unfinished ones that are not being
/// built.
///
/// # Errors
/// The database fails, or a file cannot be deleted.
pub async fn delete_orphans(store: &Store, exports: &Arc<Exports>) -> Result<(), Fault> {
    // List the files before the records: a file is only begun when its export has a record.
    let directory = exports.directory.clone();
    for (path, id, finished) in blocking(move || files(&directory)).await? {
        let status = store.read(move |tx| service::status(tx, id)).await??;
        let owned = status.is_some_and(|status| finished || status == ExportStatus::Pending);
        if !owned {
            blocking(move || remove(&path)).await?;
        }
    }
    Ok(())
}

/// The files in the directory that are named like exports, and whether each is finished.
fn files(directory: &Path) -> Result<Vec<(PathBuf, ExportId, bool)>, Fault> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| unusable(directory, &e))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| unusable(directory, &e))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let id = name.strip_suffix(UNFINISHED).unwrap_or(name);
        if let Ok(parsed) = ExportId::parse(id) {
            let finished = id == name;
            files.push((path, parsed, finished));
        }
    }
    Ok(files)
}

fn create(path: &Path) -> Result<File, Fault> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let made = fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory);
    made.map_err(|e| unusable(directory, &e))?;
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path);
    file.map_err(|e| unusable(path, &e))
}

/// Makes a rename durable.
fn sync_directory(path: &Path) -> Result<(), Fault> {
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|e| unusable(directory, &e))
}

fn remove(path: &Path) -> Result<(), Fault> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(unusable(path, &e)),
        _ => Ok(()),
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(format!("exports: {} cannot be used: {error}", path.display()))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    spawn_blocking(work).await.map_err(|e| Fault::new(e.to_string()))?
}
