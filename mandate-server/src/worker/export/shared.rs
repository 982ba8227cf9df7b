//! Exports where several servers share a database: one server builds each, and any of them serves it.
//!
//! The builder holds a lease, which others take over when it has ended. The database keeps the content in
//! pieces. The files here are those that this server has built or was asked for.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mandate_core::{ExportId, Timestamp};
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::{Content, Exports, blocking, sync_directory, unusable};
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
pub(super) enum LeaseOutcome {
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
pub(super) async fn take(store: &Store, export: &Export, now: Timestamp) -> Result<LeaseOutcome, Fault> {
    let Some(keeper) = store.leases() else { return Ok(LeaseOutcome::Alone) };
    let until = now.plus_seconds(LEASE_SECONDS);
    let leased = export.clone();
    if !keeper.write(move |tx| service::lease(tx, &leased, now, until)).await? {
        return Ok(LeaseOutcome::ByAnother);
    }
    let (store, export) = (store.clone(), export.clone());
    let lease = Lease { store, export, began: (now, Instant::now()), until: Mutex::new(until) };
    Ok(LeaseOutcome::Leased(Box::new(lease)))
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
    async fn keep_while<T>(&self, work: impl Future<Output = T>) -> T {
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

    async fn give_back(&self) -> Result<(), Fault> {
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

/// Waits for `work`, and renews the lease meanwhile, if there is one.
pub(super) async fn keep_while<T>(lease: Option<&Lease>, work: impl Future<Output = T>) -> T {
    match lease {
        Some(lease) => lease.keep_while(work).await,
        None => work.await,
    }
}

/// Ends the lease at once, if there is one, so that another server can build the export.
pub(super) async fn give_back(lease: Option<&Lease>) -> Result<(), Fault> {
    match lease {
        Some(lease) => lease.give_back().await,
        None => Ok(()),
    }
}

/// Stores the content in the database, and whether the export is ready or failed. Nothing if another server has the lease
/// by then.
pub(super) async fn end(
    exports: &Exports,
    lease: Lease,
    built: Option<Content>,
) -> Result<Option<Written>, Fault> {
    let id = lease.export.id;
    if let Some(content) = &built {
        let path = content.file.path().to_owned();
        let file = blocking(move || File::open(&path).map_err(|e| unusable(&path, &e))).await?;
        if !lease.upload(file).await? {
            return lost(id);
        }
    }
    let (export, until) = (lease.export.clone(), lease.until());
    let written = built.as_ref().map(|content| content.written);
    if !write(&lease.store, move |tx| service::end_leased(tx, &export, until, written)).await? {
        return lost(id);
    }
    match built {
        Some(content) => content.finish(exports, id).await.map(Some),
        None => Ok(None),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it ends an export like the others")]
fn lost(id: ExportId) -> Result<Option<Written>, Fault> {
    warn!(export = %id, "an export took longer than its lease: another server builds it");
    Ok(None)
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
    // Where one server works on the database, the file is where that has built it.
    let Some(leases) = store.leases().filter(|_| !finished.exists()) else { return Ok(()) };
    let _alone = exports.fetching.lock().await;
    if finished.exists() {
        return Ok(());
    }
    let mut file = exports.unfinished(id)?;
    let mut hash = Sha256::new();
    for number in 0_i64.. {
        let piece = leases.store().read(move |tx| service::piece(tx, environment, id, number)).await??;
        let Some(piece) = piece else { break };
        hash.update(&piece);
        file = blocking(move || match file.write_all(&piece) {
            Ok(()) => Ok(file),
            Err(e) => Err(unusable(file.path(), &e)),
        })
        .await?;
    }
    if <[u8; 32]>::from(hash.finalize()) != sha256 {
        return Err(Fault::corrupt(format!("exports: the pieces of {id} are not what its record says")));
    }
    blocking(move || {
        file.as_file().sync_all().map_err(|e| unusable(file.path(), &e))?;
        file.persist(&finished).map_err(|e| unusable(&finished, &e.error))?;
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
