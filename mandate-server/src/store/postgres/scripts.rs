//! The threads that run scripts which write. A script that meets a lock held by another transaction moves to
//! a thread of its own kind, which tries such scripts one after another until their time is over. So no other script
//! waits for that lock.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::mpsc::{Receiver, Sender};

use super::connection_worker::ConnectionWorker;
use super::jobs::MAX_WAITING;

/// How long one attempt of a script waits for a lock.
pub(super) const BRIEFLY: &str = "SET LOCAL lock_timeout = '500ms'";

/// A script that writes. It is tried until it has an answer.
pub(super) type Script = Box<dyn FnMut(&mut ConnectionWorker) -> ScriptOutcome + Send>;

/// The outcome of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptOutcome {
    /// The caller has its answer.
    Answered,
    /// Another transaction holds a lock, and there is time left.
    Locked,
}

/// Runs scripts until no request can come any more. Scripts whose lock is held go to `patient`.
pub(super) fn serve(
    mut worker: ConnectionWorker,
    waiting: &AsyncMutex<Receiver<Script>>,
    patient: &Sender<Script>,
) {
    // One thread waits for the next job, the others for the lock on the queue.
    while let Some(mut script) = worker.next(async || waiting.lock().await.recv().await) {
        if attempt(&mut worker, &mut script) == ScriptOutcome::Answered {
            continue;
        }
        if let Err(full) = patient.try_send(script) {
            let mut script = full.into_inner();
            while attempt(&mut worker, &mut script) == ScriptOutcome::Locked {}
        }
    }
}

/// Tries the scripts that wait for locks one after another, until none is left and no request can come any more.
/// `count` is their number.
pub(super) fn serve_patiently(
    mut worker: ConnectionWorker,
    mut waiting: Receiver<Script>,
    count: &AtomicUsize,
) {
    let mut aside: VecDeque<Script> = VecDeque::new();
    loop {
        if aside.is_empty() {
            let Some(script) = worker.next(async || waiting.recv().await) else { return };
            aside.push_back(script);
        }
        while aside.len() < MAX_WAITING
            && let Ok(script) = waiting.try_recv()
        {
            aside.push_back(script);
        }
        count.store(aside.len(), Ordering::Relaxed);
        let Some(mut script) = aside.pop_front() else { continue };
        if attempt(&mut worker, &mut script) == ScriptOutcome::Locked {
            aside.push_back(script);
        }
        count.store(aside.len(), Ordering::Relaxed);
    }
}

/// A panic drops the caller's channel. The thread goes on.
fn attempt(worker: &mut ConnectionWorker, script: &mut Script) -> ScriptOutcome {
    catch_unwind(AssertUnwindSafe(|| script(worker))).unwrap_or_else(|_| {
        worker.leave();
        ScriptOutcome::Answered
    })
}
