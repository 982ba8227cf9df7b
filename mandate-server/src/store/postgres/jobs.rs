//! What the threads share: authorizations that wait for an answer, and what follows a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::super::Authorization;
use super::super::answers::{Waiter, WayBack};
use super::super::tx::Tally;
use crate::error::Fault;
use crate::metrics::Metrics;

/// How many jobs of a kind may wait; more wait at the door.
pub(super) const MAX_WAITING: usize = 4096;

/// An authorization, and who waits for its answer.
pub(super) struct Asked {
    pub(super) authorization: Authorization,
    pub(super) at: Instant,
    pub(super) waiter: Waiter,
}

/// What follows a commit.
#[derive(Clone)]
pub(super) struct After {
    metrics: Metrics,
    /// Wakes the delivery worker.
    wake: Arc<Notify>,
    /// How many batch workers have a batch under way.
    at_work: Arc<AtomicUsize>,
    /// To those who wait for an answer.
    pub(super) way_back: WayBack,
}

/// A batch that is under way, until this is dropped.
pub(super) struct AtWork<'a>(&'a AtomicUsize);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl After {
    pub(super) fn new(metrics: Metrics, wake: Arc<Notify>) -> Self {
        Self { metrics, wake, at_work: Arc::default(), way_back: WayBack::here() }
    }

    /// Tells other batch workers that a batch is under way.
    pub(super) fn at_work(&self) -> AtWork<'_> {
        self.at_work.fetch_add(1, Ordering::Relaxed);
        AtWork(&self.at_work)
    }

    /// Whether a batch worker has a batch under way.
    pub(super) fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) > 0
    }

    pub(super) fn tell(&self, count: usize, committing: Duration, tally: &Tally) {
        self.metrics.committed(count, committing);
        for (verdict, mode) in &tally.decided {
            self.metrics.decided(*verdict, *mode);
        }
        if tally.announced {
            self.wake.notify_one();
        }
    }

    /// An authorization has been answered so long after it was asked.
    pub(super) fn authorized(&self, after: Duration) {
        self.metrics.authorized(after);
    }
}

/// Why a job is not begun, or not committed, whose time is over.
pub(super) fn overdue() -> Fault {
    Fault::new("database: its turn has not come in time")
}
