//! What the threads share: authorizations that wait for an answer, and what happens after a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mandate_core::AgentId;
use tokio::sync::{Notify, oneshot};

use super::super::Authorization;
use super::super::tx::Tally;
use crate::error::Fault;
use crate::metrics::Metrics;
use crate::model::call::Answer;

/// How many jobs of a kind may be queued. Beyond that, senders wait.
pub(super) const MAX_WAITING: usize = 4096;

/// An authorization and the channel for its answer.
pub(super) struct PendingAuthorization {
    pub(super) authorization: Authorization,
    pub(super) at: Instant,
    pub(super) waiter: oneshot::Sender<Result<Answer, Fault>>,
}

/// What a batch worker does.
#[expect(clippy::large_enum_variant, reason = "nearly all of it are decisions")]
pub(super) enum Work {
    /// It decides.
    Decide(PendingAuthorization),
    /// It shows that it can commit, and then says so.
    Prove(oneshot::Sender<()>),
}

/// The environment and the agent of a request.
pub(super) type Owner = (i64, Option<AgentId>);

impl PendingAuthorization {
    /// The agent whose requests are decided in their order.
    pub(super) fn owner(&self) -> Owner {
        let caller = &self.authorization.call.caller;
        (caller.environment.id, caller.agent.clone())
    }
}

/// What happens after a commit.
#[derive(Clone)]
pub(super) struct After {
    metrics: Metrics,
    /// Wakes the delivery worker.
    wake: Arc<Notify>,
    /// How many batch workers have a batch under way.
    at_work: Arc<AtomicUsize>,
}

/// A batch in progress. It ends when this is dropped.
pub(super) struct BatchInProgress<'a>(&'a AtomicUsize);

impl Drop for BatchInProgress<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl After {
    pub(super) fn new(metrics: Metrics, wake: Arc<Notify>) -> Self {
        Self { metrics, wake, at_work: Arc::default() }
    }

    /// Shows other batch workers that a batch is in progress.
    pub(super) fn at_work(&self) -> BatchInProgress<'_> {
        self.at_work.fetch_add(1, Ordering::Relaxed);
        BatchInProgress(&self.at_work)
    }

    /// Whether a batch is in progress.
    pub(super) fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) > 0
    }

    /// Counts what a transaction has committed, and wakes the delivery worker if there is something to deliver.
    pub(super) fn record(&self, count: usize, committing: Duration, tally: &Tally) {
        self.metrics.committed(count, committing);
        for (verdict, mode) in &tally.decided {
            self.metrics.decided(*verdict, *mode);
        }
        if tally.announced {
            self.wake.notify_one();
        }
    }

    /// Counts authorizations that are set aside because another transaction holds a lock.
    pub(super) fn held(&self, count: usize) {
        self.metrics.held(count);
    }

    /// Records how long an authorization took from request to answer.
    pub(super) fn authorized(&self, after: Duration) {
        self.metrics.authorized(after);
    }
}

/// The error of a job for which there is no room.
pub(super) fn full() -> Fault {
    Fault::Full("database: too many requests wait for a lock; this one was not done".to_owned())
}

/// The error of a job that came too late to be started or committed.
pub(super) fn overdue() -> Fault {
    Fault::Overdue(
        "database: the work waited 20 seconds for a thread or for a lock, and was not done".to_owned(),
    )
}
