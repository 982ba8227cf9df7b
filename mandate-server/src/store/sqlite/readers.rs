//! A few threads that read, each with a connection and a snapshot a script.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::super::tx::Tx;
use super::super::uncounted::Uncounted;
use super::{SqliteSession, connect};
use crate::error::Fault;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// The reading threads and the way to them.
pub(super) struct Readers {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    uncounted: Arc<Uncounted>,
}

impl Readers {
    /// Starts so many threads of this name.
    pub(super) fn start(
        path: &str,
        uncounted: &Arc<Uncounted>,
        (name, count): (&str, usize),
    ) -> Result<Self, Fault> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let waiting = Arc::new(Mutex::new(waiting));
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            let connection = connect(path)?;
            connection.pragma_update(None, "query_only", "ON")?;
            let waiting = Arc::clone(&waiting);
            let thread = std::thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || serve(&connection, &waiting))
                .map_err(|e| Fault::new(format!("cannot start a reader thread: {e}")))?;
            threads.push(thread);
        }
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            threads: Mutex::new(threads),
            uncounted: Arc::clone(uncounted),
        })
    }

    pub(super) async fn run<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: FnOnce(&mut Tx<'_>) -> T + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let uncounted = Arc::clone(&self.uncounted);
        let job: Job = Box::new(move |connection| {
            let _ = answer.send(in_snapshot(connection, &uncounted, script));
        });
        {
            let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        }
        answered.await.map_err(|_| gone())?
    }

    /// Lets the threads end what waits, and joins them.
    pub(super) fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
    }
}

fn gone() -> Fault {
    Fault::new("the readers have ended, or a script panicked; see the line before this one")
}

fn serve(connection: &Connection, waiting: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        // The lock is held while waiting: one thread waits for the next job, the others wait for the lock.
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // A panic drops the waiter's channel, and the thread goes on.
        let _ = catch_unwind(AssertUnwindSafe(|| job(connection)));
        if !connection.is_autocommit() {
            let _ = connection.execute_batch("ROLLBACK");
        }
    }
}

fn in_snapshot<T>(
    connection: &Connection,
    uncounted: &Arc<Uncounted>,
    script: impl FnOnce(&mut Tx<'_>) -> T,
) -> Result<T, Fault> {
    let _reader = uncounted.reader();
    let mut session = SqliteSession::reading(connection, Some(Arc::clone(uncounted)));
    connection.execute_batch("BEGIN")?;
    let result = script(&mut Tx::new(&mut session));
    connection.execute_batch("COMMIT")?;
    Ok(result)
}
