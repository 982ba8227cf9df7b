//! Exports where several servers share a database: one server builds each, and any of them serves it.
//!
//! The builder holds a lease, which others take over when it has ended. The database keeps the content in
//! pieces. The files here are those that this server has built or was asked for.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mandate_core::{ExportId, Timestamp};
use sha2::{Digest as _, Sha256};
use tracing::{error, info, warn};

use super::{Exports, blocking, create, finish, remove, sync_directory, unusable};
use crate::error::Fault;
use crate::model::call::ScriptError;
use crate::service::exports::{self as service, Written};
use crate::store::Store;
use crate::store::sql::exports::Export;
use crate::store::tx::Tx;

/// How long a lease lasts, in seconds, unless it is renewed.
const LEASE_SECONDS: i64 = 60;
/// How often it is renewed, in seconds.
const RENEW_SECONDS: u64 = 15;
/// How much content a piece holds, in bytes.
const PIECE_BYTES: u64 = 1024 * 1024;

/// The result of taking an export to build.
pub(super) enum Taken {
    /// There is no other server.
    Alone,
    /// This server holds the lease.
    Leased(Box<Lease>),
    /// Another server holds the lease.
    ByAnother,
}

/// An export that this server has leased.
pub(super) struct Lease {
    store: Store,
    export: Export,
    began: (Timestamp, Instant),
    until: Mutex<Timestamp>,
}

/// Takes an export, if other servers could take it too.
pub(super) async fn take(store: &Store, export: &Export, now: Timestamp) -> Result<Taken, Fault> {
    if !store.is_shared() {
        return Ok(Taken::Alone);
    }
    let until = now.plus_seconds(LEASE_SECONDS);
    let leased = export.clone();
    if !write(store, move |tx| service::lease(tx, &leased, now, until)).await? {
        return Ok(Taken::ByAnother);
    }
    let (store, export) = (store.clone(), export.clone());
    let lease = Lease { store, export, began: (now, Instant::now()), until: Mutex::new(until) };
    Ok(Taken::Leased(Box::new(lease)))
}

impl Lease {
    /// When the lease ends, as the database has it.
    fn until(&self) -> Timestamp {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the lease would end if it were renewed now.
    fn next(&self) -> Timestamp {
        let (at, since) = self.began;
        let passed = i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(at.millis().saturating_add(passed)).plus_seconds(LEASE_SECONDS)
    }

    fn moved(&self, to: Timestamp) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    /// Waits for `work`, and renews the lease meanwhile.
    pub(super) async fn keep_while<T>(&self, work: impl Future<Output = T>) -> T {
        let renewing = async {
            let mut tick = tokio::time::interval(Duration::from_secs(RENEW_SECONDS));
            tick.tick().await;
            loop {
                tick.tick().await;
                let (export, from, to) = (self.export.clone(), self.until(), self.next());
                match write(&self.store, move |tx| service::renew(tx, &export, from, to)).await {
                    Ok(true) => self.moved(to),
                    Ok(false) => break,
                    Err(fault) => {
                        warn!(kind = fault.kind(), reason = %fault, "the lease of an export is not renewed");
                    }
                }
            }
            // Another server has the lease now. This one's work is refused when it is stored.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            done = work => done,
            () = renewing => std::future::pending().await,
        }
    }

    /// Ends the lease at once, so that another server can build the export.
    pub(super) async fn give_back(&self) -> Result<(), Fault> {
        let (export, from, to) = (self.export.clone(), self.until(), self.began.0);
        write(&self.store, move |tx| service::renew(tx, &export, from, to)).await.map(|_| ())
    }

    /// Stores the content in the database. False if the lease was lost.
    async fn upload(&self, mut file: File) -> Result<bool, Fault> {
        for number in 0_i64.. {
            let (rest, piece) = blocking(move || {
                let mut piece = Vec::new();
                let read = (&mut file).take(PIECE_BYTES).read_to_end(&mut piece);
                read.map(|_| (file, piece)).map_err(|e| Fault::new(format!("exports: cannot be read: {e}")))
            })
            .await?;
            file = rest;
            if piece.is_empty() {
                break;
            }
            let (export, from, to) = (self.export.clone(), self.until(), self.next());
            let put =
                move |tx: &mut Tx<'_>| service::put_piece(tx, &export, (from, to), number, piece.clone());
            if !write(&self.store, put).await? {
                return Ok(false);
            }
            self.moved(to);
        }
        Ok(true)
    }
}

/// Stores the content in the database, and whether the export is ready or failed.
pub(super) async fn end(exports: &Exports, lease: Lease, built: Result<Written, Fault>) -> Result<(), Fault> {
    let id = lease.export.id;
    let uploaded = match built {
        Ok(written) => {
            let path = exports.unfinished(id);
            let file = blocking(move || File::open(&path).map_err(|e| unusable(&path, &e))).await?;
            if !lease.upload(file).await? {
                return lost(exports, id).await;
            }
            Ok(written)
        }
        Err(fault) => {
            error!(export = %id, kind = fault.kind(), reason = %fault, "an export could not be built");
            Err(fault)
        }
    };
    let (export, until) = (lease.export.clone(), lease.until());
    let content = uploaded.as_ref().ok().copied();
    if !write(&lease.store, move |tx| service::end_leased(tx, &export, until, content)).await? {
        return lost(exports, id).await;
    }
    if let Ok(written) = finish(exports, &lease.export, uploaded).await {
        info!(export = %id, rows = written.rows, "an export is ready");
    }
    Ok(())
}

async fn lost(exports: &Exports, id: ExportId) -> Result<(), Fault> {
    warn!(export = %id, "an export took longer than its lease: another server builds it");
    let path = exports.unfinished(id);
    blocking(move || remove(&path)).await
}

/// Makes sure that the content of a ready export is in its file here.
///
/// # Errors
/// The content cannot be read, or does not match the record.
pub(super) async fn fetch(
    store: &Store,
    exports: &Exports,
    environment: i64,
    id: ExportId,
    sha256: [u8; 32],
) -> Result<(), Fault> {
    let finished = exports.file(id);
    if !store.is_shared() || finished.exists() {
        return Ok(());
    }
    let _alone = exports.fetching.lock().await;
    if finished.exists() {
        return Ok(());
    }
    let unfinished = exports.unfinished(id);
    let path = unfinished.clone();
    let mut file = blocking(move || create(&path)).await?;
    let mut hash = Sha256::new();
    for number in 0_i64.. {
        let piece = store.read(move |tx| service::piece(tx, environment, id, number)).await??;
        let Some(piece) = piece else { break };
        hash.update(&piece);
        let path = unfinished.clone();
        file =
            blocking(move || file.write_all(&piece).map(|()| file).map_err(|e| unusable(&path, &e))).await?;
    }
    let whole = <[u8; 32]>::from(hash.finalize()) == sha256;
    blocking(move || {
        if !whole {
            remove(&unfinished)?;
            return Err(Fault::new(format!("exports: the pieces of {id} are not what its record says")));
        }
        file.sync_all().map_err(|e| unusable(&unfinished, &e))?;
        fs::rename(&unfinished, &finished).map_err(|e| unusable(&finished, &e))?;
        sync_directory(&finished)
    })
    .await
}

async fn write<T: Send + 'static>(
    store: &Store,
    script: impl Fn(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let written = store.write(move |tx| script(tx).map_err(ScriptError::Fault)).await?;
    written.map_err(|refusal| Fault::new(refusal.message))
}
