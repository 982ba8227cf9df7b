//! How many attempts each receiver may have at a time, so that slow, dead or flooded ones delay no other.
//!
//! Each webhook that this server has leased is a queue. Free places go to the queues with the fewest running
//! attempts first, within the limits of a webhook, a host and an environment. Some places of each limit are
//! reserved for queues without a running attempt. A queue begins with few places, gets more with each answer,
//! and falls to one after a timeout, so that a receiver that hangs occupies little. After its time slice, or when
//! an attempt hangs, a webhook goes to the end of the due queue.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use mandate_core::{EventId, Timestamp, WebhookId};
use url::Url;

use super::super::dial::NoAnswer;
use crate::model::records::{DueRecord, LeaseRecord};
use crate::service::deliveries::LEASE_SECONDS;

/// All attempts at a time, unless there are fewer.
const ALL: Places = Places { most: 384, kept: 48 };
/// Attempts at a time to the webhooks of one environment.
const OF_ENVIRONMENT: Places = Places { most: 128, kept: 16 };
/// Attempts at a time to one host, whichever environments its webhooks belong to.
const OF_HOST: Places = Places { most: 64, kept: 16 };
/// Attempts at a time to one webhook that answers promptly.
const MAX_WIDTH: usize = 32;
/// Attempts at a time to one that answers slowly.
const SLOW_WIDTH: usize = 8;
/// Attempts at a time to one that has not answered yet.
const FIRST_WIDTH: usize = 2;
/// Answers that take longer are slow.
const PROMPT: Duration = Duration::from_secs(2);
/// For how many webhooks the pace is remembered. One takes about 100 bytes.
const MAX_PACES: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();
/// How many webhooks are leased at a time.
const MAX_QUEUES: usize = 1024;
/// How many deliveries all stocks hold together. One takes about 1 KiB.
const MAX_STOCKED: usize = 512;
/// A queue's stock, as a multiple of the attempts that it may run.
const STOCKED: usize = 2;
/// How old a stock may be. So an attempt begins at most this long after its webhook was deleted.
const STOCK_LASTS: Duration = Duration::from_millis(100);
/// How long a webhook's time slice lasts, in seconds. Its lease outlasts the last attempt by far.
const SLICE_SECONDS: i64 = 30;

/// The environment and the webhook.
pub(super) type Key = (i64, WebhookId);

/// How many attempts may run, and how many of these places are reserved for queues without one.
#[derive(Debug, Clone, Copy)]
struct Places {
    most: usize,
    kept: usize,
}

impl Places {
    /// These, or so many, of which as large a part is reserved.
    fn at_most(self, most: usize) -> Self {
        if most >= self.most { self } else { Self { most, kept: most * self.kept / self.most } }
    }

    /// How many more attempts a queue may begin when `taken` places are in use.
    fn left(&self, taken: usize, is_first: bool) -> usize {
        let open = (self.most - self.kept).saturating_sub(taken);
        if is_first && taken < self.most { open.max(1) } else { open }
    }
}

/// How an attempt ended, as far as it matters to others that wait for its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// With an answer of any status, after this time.
    Answered(Duration),
    /// Without an answer, after waiting for one.
    Hung,
    /// It was not made: there was no place to look its name up. That says nothing about the receiver.
    Crowded,
    /// At once: no program listened there, or it was not made at all.
    AtOnce,
}

impl Ending {
    /// The ending of an attempt that took `after`.
    pub(super) fn of(answer: &Result<u16, NoAnswer>, after: Duration) -> Self {
        match answer {
            Ok(_) => Self::Answered(after),
            Err(NoAnswer::Late) => Self::Hung,
            Err(NoAnswer::Crowded) => Self::Crowded,
            Err(_) if after >= PROMPT => Self::Hung,
            Err(_) => Self::AtOnce,
        }
    }
}

/// How many attempts a webhook may run, given how its last ones ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    width: usize,
    /// The newest attempt hung, or waited behind lookups that hang: no place is reserved for it.
    hangs: bool,
}

impl Pace {
    const FIRST: Self = Self { width: FIRST_WIDTH, hangs: false };

    fn after(self, ending: Ending) -> Self {
        match ending {
            Ending::Answered(after) => {
                let most = if after < PROMPT { MAX_WIDTH } else { SLOW_WIDTH };
                Self { width: self.width.saturating_mul(2).min(most), hangs: false }
            }
            Ending::Hung => Self { width: 1, hangs: true },
            Ending::Crowded => Self { hangs: true, ..self },
            Ending::AtOnce => self,
        }
    }
}

#[derive(Debug)]
struct Queue {
    lease: Arc<LeaseRecord>,
    host: String,
    under_way: BTreeSet<EventId>,
    /// Attempts that have ended but are not stored yet. The database still has them as due.
    ended: BTreeSet<EventId>,
    /// Deliveries that are due beyond these, and when they were read.
    stock: VecDeque<DueRecord>,
    read_at: Instant,
    /// Nothing more was due at the last look.
    drained: bool,
    /// The newest attempt since the lease began has hung: the time slice is over.
    hung: bool,
}

/// The queues of one server.
#[derive(Debug)]
pub(super) struct FairQueues {
    all: Places,
    queues: BTreeMap<Key, Queue>,
    /// The paces of webhooks that have, or had, a queue.
    paces: LruCache<Key, Pace>,
}

impl Default for FairQueues {
    fn default() -> Self {
        Self { all: ALL, queues: BTreeMap::new(), paces: LruCache::sparse(MAX_PACES) }
    }
}

/// What to read for a queue.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) lease: Arc<LeaseRecord>,
    /// How many deliveries to read.
    pub(super) more: usize,
    /// Deliveries to leave out: they are running, or have ended and are not stored.
    pub(super) in_hand: BTreeSet<EventId>,
}

impl Queue {
    fn new(lease: LeaseRecord, under_way: BTreeSet<EventId>, ended: BTreeSet<EventId>) -> Self {
        let url = Url::parse(&lease.url).ok();
        let host = url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        let (lease, stock, read_at) = (Arc::new(lease), VecDeque::new(), Instant::now());
        Self { lease, host, under_way, ended, stock, read_at, drained: false, hung: false }
    }

    /// How many unread deliveries may be due to it: unknown, unless it is drained.
    fn unread(&self) -> usize {
        if self.drained { 0 } else { usize::MAX }
    }

    /// Discards a stock that is too old. It is read again.
    fn freshen(&mut self) {
        if !self.stock.is_empty() && self.read_at.elapsed() >= STOCK_LASTS {
            self.stock.clear();
            self.drained = false;
        }
    }

    fn slice_is_over(&self, now: Timestamp) -> bool {
        self.hung || now >= self.lease.until.plus_seconds(SLICE_SECONDS - LEASE_SECONDS)
    }
}

impl FairQueues {
    /// Queues that run at most so many attempts.
    pub(super) fn of(attempts: usize) -> Self {
        Self { all: ALL.at_most(attempts), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// How many more webhooks may be leased.
    pub(super) fn room(&self) -> usize {
        MAX_QUEUES.saturating_sub(self.queues.len())
    }

    /// Adds leased webhooks. Attempts to a webhook that was leased already, before the clock was set back,
    /// stay counted.
    pub(super) fn open(&mut self, leases: Vec<LeaseRecord>) {
        for lease in leases {
            let key = (lease.environment, lease.webhook);
            let before = self.queues.remove(&key);
            let (under_way, ended) = before.map(|queue| (queue.under_way, queue.ended)).unwrap_or_default();
            self.queues.insert(key, Queue::new(lease, under_way, ended));
        }
    }

    pub(super) fn close(&mut self, leases: &[LeaseRecord]) {
        for lease in leases {
            self.queues.remove(&(lease.environment, lease.webhook));
        }
    }

    /// Notes that an attempt has ended. Its result is not stored yet.
    pub(super) fn end(&mut self, key: Key, event: EventId) {
        if let Some(queue) = self.queues.get_mut(&key)
            && queue.under_way.remove(&event)
        {
            queue.ended.insert(event);
        }
    }

    /// Notes that the result of an attempt is stored.
    pub(super) fn written(&mut self, key: Key, event: EventId) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.ended.remove(&event);
        }
    }

    /// Replaces a queue's stock by what was read from `began` on. If that is less than was wanted, the queue
    /// is drained.
    pub(super) fn stock(&mut self, wanted: &Wanted, due: Vec<DueRecord>, began: Instant) {
        let key = (wanted.lease.environment, wanted.lease.webhook);
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.drained = due.len() < wanted.more + wanted.in_hand.len();
            queue.stock = due.into_iter().filter(|due| !wanted.in_hand.contains(&due.event.id)).collect();
            queue.read_at = began;
        }
    }

    /// Takes as many deliveries from the stocks as there is room for, and begins them.
    pub(super) fn begin(&mut self, now: Timestamp) -> Vec<(Arc<LeaseRecord>, DueRecord)> {
        self.queues.values_mut().for_each(Queue::freshen);
        let mut begun = Vec::new();
        for (key, more) in self.shares(now, |queue| queue.stock.len()) {
            let Some(queue) = self.queues.get_mut(&key) else { continue };
            for due in queue.stock.drain(..more) {
                queue.under_way.insert(due.event.id);
                begun.push((Arc::clone(&queue.lease), due));
            }
        }
        begun
    }

    /// Notes how an attempt ended, for the webhook's pace.
    pub(super) fn note(&mut self, key: Key, ending: Ending) {
        let pace = self.pace(key).after(ending);
        self.paces.put(key, pace);
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.hung = pace.hangs;
        }
    }

    fn pace(&self, key: Key) -> Pace {
        self.paces.peek(&key).copied().unwrap_or(Pace::FIRST)
    }

    /// Notes that more may be due to any queue.
    pub(super) fn look_again(&mut self) {
        self.queues.values_mut().for_each(|queue| queue.drained = false);
    }

    /// The leases of queues that have nothing running and nothing to begin.
    pub(super) fn over(&self, now: Timestamp) -> Vec<LeaseRecord> {
        let empty = |queue: &Queue| queue.drained && queue.stock.is_empty();
        let over = |queue: &&Queue| queue.under_way.is_empty() && (empty(queue) || queue.slice_is_over(now));
        self.queues.values().filter(over).map(|queue| (*queue.lease).clone()).collect()
    }

    /// All leases.
    pub(super) fn leases(&self) -> Vec<LeaseRecord> {
        self.queues.values().map(|queue| (*queue.lease).clone()).collect()
    }

    /// What to read: for each queue as much as there is room for, and a stock beyond that.
    pub(super) fn wanted(&mut self, now: Timestamp) -> Vec<Wanted> {
        self.queues.values_mut().for_each(Queue::freshen);
        let places: HashMap<_, _> = self.shares(now, Queue::unread).into_iter().collect();
        let lacks = |queue: &Queue| queue.unread() > 0 && !queue.slice_is_over(now);
        // A stock that is not read again is kept.
        let kept: usize =
            self.queues.values().filter(|queue| !lacks(queue)).map(|queue| queue.stock.len()).sum();
        let mut left = MAX_STOCKED.saturating_sub(kept);
        let mut waiting = self.queues.values().filter(|queue| lacks(queue)).count();
        let mut wanted = Vec::with_capacity(waiting);
        for (key, queue) in self.queues.iter().filter(|(_, queue)| lacks(queue)) {
            let pace = self.pace(*key);
            let most = if pace.hangs { 0 } else { pace.width * STOCKED };
            let stock = left.div_ceil(waiting).min(most);
            waiting -= 1;
            left -= stock;
            let more = places.get(key).unwrap_or(&0) + stock;
            if more > 0 {
                let in_hand = queue.under_way.union(&queue.ended).copied().collect();
                wanted.push(Wanted { lease: Arc::clone(&queue.lease), more, in_hand });
            }
        }
        wanted
    }

    /// Shares the free places out among the queues that have something to begin. `has` says how much.
    fn shares(&self, now: Timestamp, has: impl Fn(&Queue) -> usize) -> Vec<(Key, usize)> {
        let (mut hosts, mut environments) = (HashMap::new(), HashMap::new());
        let mut taken = 0;
        for queue in self.queues.values() {
            let count = queue.under_way.len();
            *hosts.entry(queue.host.as_str()).or_insert(0) += count;
            *environments.entry(queue.lease.environment).or_insert(0) += count;
            taken += count;
        }
        let wants = |(_, queue): &(&Key, &Queue)| has(queue) > 0 && !queue.slice_is_over(now);
        let mut queues: Vec<_> = self.queues.iter().filter(wants).collect();
        queues.sort_by_key(|(_, queue)| queue.under_way.len());
        let mut waiting = queues.len();
        let mut shares = Vec::with_capacity(waiting);
        for (key, queue) in queues {
            let pace = self.pace(*key);
            let is_first = queue.under_way.is_empty() && !pace.hangs;
            let of_host = hosts.entry(queue.host.as_str()).or_insert(0);
            let of_environment = environments.entry(queue.lease.environment).or_insert(0);
            let more = self
                .all
                .left(taken, is_first)
                .div_ceil(waiting)
                .min(has(queue))
                .min(pace.width.saturating_sub(queue.under_way.len()))
                .min(OF_HOST.left(*of_host, is_first))
                .min(OF_ENVIRONMENT.left(*of_environment, is_first));
            waiting -= 1;
            taken += more;
            *of_host += more;
            *of_environment += more;
            if more > 0 {
                shares.push((*key, more));
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests;
