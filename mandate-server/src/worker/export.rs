//! Builds requested exports, and deletes expired exports and files without an export.
//!
//! A file is complete before its export is ready: it is written under a name that only its builder has, synced, compared
//! with its hash, and renamed. What a crash leaves unfinished is written again.

mod shared;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mandate_core::{ExportId, Timestamp};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;
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
use crate::store::tx::Tx;

/// How often exports to build are looked for, in seconds. New ones are taken up at once.
const LOOK_SECONDS: u64 = 60;
/// How often it is asked whether transactions under way have ended, and for how long at most.
const ASK_EVERY: Duration = Duration::from_millis(50);
const ASK_FOR: Duration = Duration::from_mins(1);
/// How many expired exports are deleted at a time.
const MAX_DELETED: i64 = 100;
/// How many exports are built at a time, so that a long one holds up no other.
const BUILDERS: usize = 2;
/// Among how many pending exports the next one is chosen: some are being built, others wait for the end of their period.
const MAX_LOOKED_AT: i64 = 32;
/// An export holds all of an organization's decisions: its owner alone may read it.
const DIRECTORY_MODE: u32 = 0o700;
/// The suffix of a file that is still being written. Before it come the export's id and what is its builder's alone.
const UNFINISHED: &str = ".unfinished";
/// How much is written at a time, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// The files of exports, and how to wake the builder.
#[derive(Debug)]
pub struct Exports {
    directory: PathBuf,
    wake: Notify,
    /// The exports that this server builds.
    building: SyncMutex<Vec<ExportId>>,
    /// Held while a request fetches content that another server has built.
    fetching: Mutex<()>,
}

impl Exports {
    /// Exports in `directory`, which is created when it is needed.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        let building = SyncMutex::default();
        Self { directory, wake: Notify::new(), building, fetching: Mutex::new(()) }
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

    /// A file for the content of an export, for the caller alone. It is deleted unless it gets a name.
    fn unfinished(&self, id: ExportId) -> Result<NamedTempFile, Fault> {
        let made = fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&self.directory);
        let file = made.and_then(|()| {
            let prefix = format!("{id}.");
            tempfile::Builder::new().prefix(&prefix).suffix(UNFINISHED).tempfile_in(&self.directory)
        });
        file.map_err(|e| unusable(&self.directory, &e))
    }

    /// Takes an export to build, unless this server builds it already.
    fn begin(&self, id: ExportId) -> Option<Building<'_>> {
        let mut building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        if building.contains(&id) {
            return None;
        }
        building.push(id);
        Some(Building { exports: self, id })
    }
}

/// An export that this server builds.
struct Building<'a> {
    exports: &'a Exports,
    id: ExportId,
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        let mut building = self.exports.building.lock().unwrap_or_else(PoisonError::into_inner);
        building.retain(|id| *id != self.id);
    }
}

/// Builds exports until `stop` changes. An export in progress is then abandoned, and built at the next start.
pub(crate) async fn run(
    store: Store,
    exports: Arc<Exports>,
    keyring: Keyring,
    moments: Arc<Moments>,
    stop: watch::Receiver<bool>,
) {
    let builders = (0..BUILDERS).map(|_| build_all(&store, &exports, &keyring, &moments, stop.clone()));
    join_all(builders).await;
}

/// Builds one export after another.
async fn build_all(
    store: &Store,
    exports: &Arc<Exports>,
    keyring: &Keyring,
    moments: &Arc<Moments>,
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
            while !*stop.borrow() && build_next(store, exports, keyring, moments, &stop).await? {}
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

/// Builds the oldest pending export whose period is over, and that is not being built. False if there is none.
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
    for export in store.read(move |tx| service::pending(tx, now, MAX_LOOKED_AT)).await?? {
        let Some(_building) = exports.begin(export.id) else { continue };
        // There may be more, for another builder.
        exports.wake();
        if build_one(store, exports, keyring, moments, &export, now, stop).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Closes the period of an export and builds it, unless another server does. False if it cannot be closed yet.
async fn build_one(
    store: &Store,
    exports: &Arc<Exports>,
    keyring: &Keyring,
    moments: &Arc<Moments>,
    export: &Export,
    now: Timestamp,
    stop: &watch::Receiver<bool>,
) -> Result<bool, Fault> {
    let lease = match shared::take(store, export, now).await? {
        shared::LeaseOutcome::Alone => None,
        shared::LeaseOutcome::Leased(lease) => Some(lease),
        shared::LeaseOutcome::ByAnother => return Ok(true),
    };
    let closed = shared::keep_while(lease.as_deref(), close(store, export, moments)).await;
    if !matches!(closed, Ok(true)) {
        shared::give_back(lease.as_deref()).await?;
        return closed;
    }
    let building = build(store, exports, keyring, export, now, stop);
    let built = shared::keep_while(lease.as_deref(), building).await;
    if built.is_err() && *stop.borrow() {
        shared::give_back(lease.as_deref()).await?;
        return Ok(true);
    }
    let failed = |fault: &Fault| {
        error!(export = %export.id, kind = fault.kind(), reason = %fault, "an export could not be built");
    };
    let content = built.inspect_err(failed).ok();
    let written = match (lease, content) {
        (Some(lease), content) => shared::end(exports, *lease, content).await?,
        (None, content) => {
            let finished = match content {
                Some(content) => content.finish(exports, export.id).await.inspect_err(failed).ok(),
                None => None,
            };
            let export = export.clone();
            let end = move |tx: &mut Tx<'_>| service::end(tx, &export, finished).map_err(ScriptError::Fault);
            store.write(end).await?.map_err(|refusal| Fault::new(refusal.message))?;
            finished
        }
    };
    if let Some(written) = written {
        info!(export = %export.id, rows = written.rows, "an export is ready");
    }
    Ok(true)
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

/// The complete content of an export, under a name that only its builder has.
struct Content {
    file: NamedTempFile,
    written: Written,
}

impl Content {
    /// Refuses a file whose content is not what was written.
    fn compared(self) -> Result<Self, Fault> {
        let path = self.file.path();
        if hash(path)? == self.written.sha256 {
            Ok(self)
        } else {
            Err(Fault::corrupt(format!("exports: {} is not what was written", path.display())))
        }
    }

    /// Gives the file its name.
    async fn finish(self, exports: &Exports, id: ExportId) -> Result<Written, Fault> {
        let (Self { file, written }, finished) = (self, exports.file(id));
        blocking(move || {
            file.persist(&finished).map_err(|e| unusable(&finished, &e.error))?;
            sync_directory(&finished)?;
            Ok(written)
        })
        .await
    }
}

/// Writes the content from one snapshot.
async fn build(
    store: &Store,
    exports: &Arc<Exports>,
    keyring: &Keyring,
    export: &Export,
    now: Timestamp,
    stop: &watch::Receiver<bool>,
) -> Result<Content, Fault> {
    let (exports, keyring, export, stop) =
        (Arc::clone(exports), keyring.clone(), export.clone(), stop.clone());
    let written = store.read_long(move |tx| {
        let file = exports.unfinished(export.id)?;
        let failed = |e| unusable(file.path(), &e);
        let out = BufWriter::with_capacity(BUFFER_BYTES, file.as_file().try_clone().map_err(failed)?);
        let build = Build { export: &export, keyring: &keyring, now };
        let written = service::write(tx, &build, out, &|| !*stop.borrow())?;
        file.as_file().sync_all().map_err(failed)?;
        Ok(Content { file, written })
    });
    let content = written.await.and_then(|content: Result<Content, Fault>| content)?;
    blocking(move || content.compared()).await
}

/// The SHA-256 of a file.
fn hash(path: &Path) -> Result<[u8; 32], Fault> {
    let failed = |e| unusable(path, &e);
    let (mut file, mut hash) = (File::open(path).map_err(failed)?, Sha256::new());
    let mut chunk = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(read) => hash.update(chunk.get(..read).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed(e)),
        }
    }
}

/// Deletes the exports that have expired by `now`, while this server has the scheduled jobs: the file before the record, so
/// that no file is left without one.
///
/// # Errors
/// The database fails, or a file cannot be deleted.
pub async fn delete_expired(store: &Store, exports: &Arc<Exports>, now: Timestamp) -> Result<(), Fault> {
    for export in store.read(move |tx| service::expired(tx, now, MAX_DELETED)).await?? {
        if !store.has_jobs().await? {
            break;
        }
        let file = exports.file(export.id);
        blocking(move || remove(&file)).await?;
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
        let unfinished =
            name.strip_suffix(UNFINISHED).map(|name| name.split_once('.').map_or(name, |(id, _)| id));
        if let Ok(parsed) = ExportId::parse(unfinished.unwrap_or(name)) {
            let finished = unfinished.is_none();
            files.push((path, parsed, finished));
        }
    }
    Ok(files)
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
    Fault::of_file(format!("exports: {} cannot be used: {error}", path.display()), error)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    spawn_blocking(work).await.map_err(|e| Fault::new(e.to_string()))?
}
