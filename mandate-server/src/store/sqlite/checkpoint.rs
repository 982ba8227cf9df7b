//! Folds the log into the database file beside the writer, so that no COMMIT waits for all of it.
//!
//! A thread with a connection of its own copies what is in the log while the writer goes on. It never catches up with a
//! writer that does not pause, and the log begins anew only when nothing in it is left to copy. So the writer copies the
//! rest, once that is little; and all of it when the thread is far behind.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode, ffi};

use super::commit::stop;
use crate::error::Fault;

/// Pages that the log may have before it is folded in.
pub(super) const CHECKPOINT_PAGES: c_int = 1000;
/// Pages that the writer folds in by itself, when no more are left: it takes about as long as a COMMIT.
const REST_PAGES: c_int = 256;
/// Pages at which the writer waits for no one.
pub(super) const MOST_PAGES: c_int = 4 * CHECKPOINT_PAGES;

/// Copies what is in the log, up to what a reader still needs; says how many of its pages are copied.
pub(in crate::store) type Checkpoint = Box<dyn FnMut(&Connection) -> rusqlite::Result<c_int> + Send>;

/// As SQLite does it, without waiting.
pub(in crate::store) fn checkpoint() -> Checkpoint {
    Box::new(|connection| {
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get("checkpointed"))
    })
}

thread_local! {
    /// Why the log could not be folded in. SQLite reports of a COMMIT only that what follows it has failed.
    static UNFOLDED: Cell<Option<ffi::Error>> = const { Cell::new(None) };
}

/// Why the log could not be folded in behind a COMMIT on this thread, if a disk has failed at that. It is told once.
pub(super) fn failed() -> Option<ffi::Error> {
    UNFOLDED.take()
}

/// The thread that folds, and the way to it.
pub(super) struct Checkpointer {
    way: Way,
    thread: JoinHandle<()>,
}

/// How the writer's connection finds the thread.
#[derive(Clone)]
struct Way {
    wake: SyncSender<()>,
    log: Arc<Log>,
}

/// What is known of the log. When it begins anew beside the thread, `folded` may say too much for a while: by it nothing
/// is left out, it only says who folds.
#[derive(Default)]
struct Log {
    /// Its pages, after the newest COMMIT.
    pages: AtomicI32,
    /// How many of them are copied, from its beginning on.
    folded: AtomicI32,
}

impl Log {
    /// Pages that are not copied yet.
    fn left(&self) -> c_int {
        self.pages.load(Ordering::Relaxed).saturating_sub(self.folded.load(Ordering::Relaxed))
    }
}

impl Checkpointer {
    /// Starts the thread: it folds whenever the log of `writer` has grown long. A failing disk sets `stopped`.
    pub(super) fn start(
        connection: Connection,
        checkpoint: Checkpoint,
        stopped: Arc<AtomicBool>,
        writer: &mut Connection,
    ) -> Result<Self, Fault> {
        let (wake, woken) = sync_channel(1);
        let way = Way { wake, log: Arc::default() };
        let (committed, log) = (way.clone(), Arc::clone(&way.log));
        writer.wal_hook(Some(move |wal: &mut Wal, pages| committed.committed(wal, pages)))?;
        let thread = Thread { connection, checkpoint, stopped, log };
        let spawned =
            std::thread::Builder::new().name("checkpoint".to_owned()).spawn(move || thread.serve(&woken));
        let thread = spawned.map_err(|e| Fault::new(format!("cannot start the thread `checkpoint`: {e}")))?;
        Ok(Self { way, thread })
    }

    /// Ends the thread after what it has begun. From here on `writer` folds by itself.
    pub(super) fn end(self, writer: &mut Connection) -> Result<(), Fault> {
        writer.wal_hook(Some(alone))?;
        drop(self.way);
        // A panic has logged itself.
        let _ = self.thread.join();
        Ok(())
    }
}

impl Way {
    /// The writer has committed, and the log has so many pages.
    fn committed(&self, wal: &mut Wal, pages: c_int) -> rusqlite::Result<()> {
        self.log.pages.store(pages, Ordering::Relaxed);
        if pages < CHECKPOINT_PAGES {
            self.log.folded.store(0, Ordering::Relaxed);
            return Ok(());
        }
        if self.log.left() > REST_PAGES && pages < MOST_PAGES {
            // When it is at work, it looks how many are left once it is done.
            let _ = self.wake.try_send(());
            return Ok(());
        }
        if let Some(copied) = passive(wal)? {
            self.log.folded.store(copied, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// For a connection without a thread: folds the log in once it is long, as SQLite does by itself; but SQLite passes over a
/// failing disk then. Here the COMMIT that it follows, on the same thread, is told to have failed.
pub(super) fn alone(wal: &mut Wal, pages: c_int) -> rusqlite::Result<()> {
    if pages >= CHECKPOINT_PAGES {
        passive(wal)?;
    }
    Ok(())
}

/// Folds in what can be; says how many pages are copied, unless another thread is at it. Whatever is in the way but a failing
/// disk, the next COMMIT tries again.
fn passive(wal: &mut Wal) -> rusqlite::Result<Option<c_int>> {
    match wal.checkpoint_v2(CheckpointMode::PASSIVE) {
        Ok((_, copied)) => Ok(Some(copied)),
        Err(e) if e.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
            UNFOLDED.set(e.sqlite_error().copied());
            Err(e)
        }
        Err(_) => Ok(None),
    }
}

struct Thread {
    connection: Connection,
    checkpoint: Checkpoint,
    stopped: Arc<AtomicBool>,
    log: Arc<Log>,
}

impl Thread {
    fn serve(mut self, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            if self.log.left() <= REST_PAGES {
                // The rest is the writer's.
                continue;
            }
            match (self.checkpoint)(&self.connection) {
                Ok(pages) => self.log.folded.store(pages, Ordering::Relaxed),
                Err(e) if e.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
                    stop(&self.stopped, "the log was folded in", &e);
                    return;
                }
                Err(e) => tracing::debug!(error = %e, "the log could not be folded in"),
            }
        }
    }
}
