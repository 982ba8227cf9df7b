//! Copies the write-ahead log into the database file in a thread beside the writer, so that no COMMIT waits
//! for all of it.
//!
//! The thread has its own connection. It never catches up with a writer that does not pause, and SQLite
//! starts the log anew only when all of it is copied. So the writer copies the last few pages, and all of
//! them when the thread is far behind.

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

/// How many pages the log may have before a checkpoint begins.
pub(super) const CHECKPOINT_PAGES: c_int = 1000;
/// At most so many remaining pages are copied by the writer: that takes about as long as a COMMIT.
const REST_PAGES: c_int = 256;
/// From so many pages on, the writer copies them itself.
pub(super) const MOST_PAGES: c_int = 4 * CHECKPOINT_PAGES;

/// Runs a checkpoint up to what readers still need. Returns how many pages of the log are copied.
pub(in crate::store) type Checkpoint = Box<dyn FnMut(&Connection) -> rusqlite::Result<c_int> + Send>;

/// SQLite's passive checkpoint, which waits for no other connection.
pub(in crate::store) fn checkpoint() -> Checkpoint {
    Box::new(|connection| {
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get("checkpointed"))
    })
}

thread_local! {
    /// Why the checkpoint failed. SQLite reports only that the work after the COMMIT has failed.
    static FAILED: Cell<Option<ffi::Error>> = const { Cell::new(None) };
}

/// Why the checkpoint after a COMMIT on this thread failed, if a disk error was the reason. Returned once.
pub(super) fn failed() -> Option<ffi::Error> {
    FAILED.take()
}

/// The checkpoint thread and how to wake it.
pub(super) struct Checkpointer {
    hook: CommitHook,
    thread: JoinHandle<()>,
}

/// How a COMMIT of the writer wakes the thread.
#[derive(Clone)]
struct CommitHook {
    wake: SyncSender<()>,
    log: Arc<Log>,
}

/// What is known of the log. If the log starts again beside the thread, `copied` may be too high for a while.
/// It only decides which thread copies, so no page is missed.
#[derive(Default)]
struct Log {
    /// The pages of the log after the newest COMMIT.
    pages: AtomicI32,
    /// How many of them are copied, counted from the start of the log.
    copied: AtomicI32,
}

impl Log {
    /// Pages that are not copied yet.
    fn left(&self) -> c_int {
        self.pages.load(Ordering::Relaxed).saturating_sub(self.copied.load(Ordering::Relaxed))
    }
}

impl Checkpointer {
    /// Starts the thread. It runs a checkpoint whenever the log of `writer` is long. A disk error sets
    /// `stopped`.
    pub(super) fn start(
        connection: Connection,
        checkpoint: Checkpoint,
        stopped: Arc<AtomicBool>,
        writer: &mut Connection,
    ) -> Result<Self, Fault> {
        let (wake, woken) = sync_channel(1);
        let hook = CommitHook { wake, log: Arc::default() };
        let (committed, log) = (hook.clone(), Arc::clone(&hook.log));
        writer.wal_hook(Some(move |wal: &mut Wal, pages| committed.committed(wal, pages)))?;
        let thread = Thread { connection, checkpoint, stopped, log };
        let spawned =
            std::thread::Builder::new().name("checkpoint".to_owned()).spawn(move || thread.serve(&woken));
        let thread = spawned.map_err(|e| Fault::new(format!("cannot start the thread `checkpoint`: {e}")))?;
        Ok(Self { hook, thread })
    }

    /// Ends the thread after its current checkpoint. From then on `writer` runs its own.
    pub(super) fn end(self, writer: &mut Connection) -> Result<(), Fault> {
        writer.wal_hook(Some(alone))?;
        drop(self.hook);
        // A panic has logged itself.
        let _ = self.thread.join();
        Ok(())
    }
}

impl CommitHook {
    /// The writer has committed, and the log has this many pages.
    fn committed(&self, wal: &mut Wal, pages: c_int) -> rusqlite::Result<()> {
        self.log.pages.store(pages, Ordering::Relaxed);
        if pages < CHECKPOINT_PAGES {
            self.log.copied.store(0, Ordering::Relaxed);
            return Ok(());
        }
        if self.log.left() > REST_PAGES && pages < MOST_PAGES {
            // If the thread is busy, it checks how many pages are left when it is done.
            let _ = self.wake.try_send(());
            return Ok(());
        }
        if let Some(copied) = passive(wal)? {
            self.log.copied.store(copied, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// For a connection without a thread: runs a checkpoint once the log is long, as SQLite would. But SQLite
/// ignores disk errors then; here the COMMIT before it fails.
pub(super) fn alone(wal: &mut Wal, pages: c_int) -> rusqlite::Result<()> {
    if pages >= CHECKPOINT_PAGES {
        passive(wal)?;
    }
    Ok(())
}

/// Runs a passive checkpoint. Returns how many pages are copied, or none if another thread is at it. Any
/// obstacle but a disk error is left to the next COMMIT.
fn passive(wal: &mut Wal) -> rusqlite::Result<Option<c_int>> {
    match wal.checkpoint_v2(CheckpointMode::PASSIVE) {
        Ok((_, copied)) => Ok(Some(copied)),
        Err(e) if e.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
            FAILED.set(e.sqlite_error().copied());
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
                // The writer copies the rest.
                continue;
            }
            match (self.checkpoint)(&self.connection) {
                Ok(pages) => self.log.copied.store(pages, Ordering::Relaxed),
                Err(e) if e.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
                    stop(&self.stopped, "the log was checkpointed", &e);
                    return;
                }
                Err(e) => tracing::debug!(error = %e, "the log could not be checkpointed"),
            }
        }
    }
}
