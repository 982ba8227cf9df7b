//! Requests at their times, whatever the answers take.
//!
//! A request that could not be sent at its time, because every connection still waited for an answer, is measured from that
//! time on: a server that stalls is not spared the requests that would have come meanwhile (coordinated omission).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// The times of a run's requests: `rate` a second, evenly.
#[derive(Clone)]
pub(crate) struct Pace {
    start: Instant,
    interval: Duration,
    due: Arc<Semaphore>,
}

impl Pace {
    /// Starts now. A thread of its own wakes those who send: the runtime's timer is as coarse as a millisecond.
    pub(crate) fn start(rate: u32, requests: usize, senders: usize) -> Self {
        let pace = Self {
            start: Instant::now(),
            interval: Duration::from_secs(1) / rate,
            due: Semaphore::new(0).into(),
        };
        let pacer = pace.clone();
        std::thread::spawn(move || {
            let mut released = 0;
            while released < requests {
                let due = requests.min(pacer.due_at(Instant::now()));
                pacer.due.add_permits(due - released);
                released = due;
                std::thread::sleep(pacer.time_of(released).saturating_duration_since(Instant::now()));
            }
            // No connection may wait for a request that will not come.
            pacer.due.add_permits(senders);
        });
        pace
    }

    /// Waits until another request is due.
    pub(crate) async fn wait(&self) {
        if let Ok(permit) = self.due.acquire().await {
            permit.forget();
        }
    }

    /// When the n-th request, counted from 0, is to be sent.
    pub(crate) fn time_of(&self, n: usize) -> Instant {
        let nanoseconds = self.interval.as_nanos().saturating_mul(n as u128);
        self.start + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// How many requests were to be sent until `now`.
    fn due_at(&self, now: Instant) -> usize {
        let intervals = now.duration_since(self.start).as_nanos() / self.interval.as_nanos();
        usize::try_from(intervals).map_or(usize::MAX, |intervals| intervals + 1)
    }
}
