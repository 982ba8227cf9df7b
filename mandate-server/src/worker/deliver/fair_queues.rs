//! Who may have how many attempts under way: receivers that are slow, dead or flooded hold up no other.
//!
//! A webhook that this server has leased is a queue. What is free is shared out among the queues that want more, those with
//! the fewest under way first, within what one webhook, one host and one environment may have. Some of each is kept for
//! queues that have nothing under way. A queue begins narrow, grows with the answers that come, and shrinks to one attempt at
//! a time when none has come in time: so what hangs holds little. No queue is kept for long: after its turn a webhook goes to
//! the end of the due queue, and so it does when one of its attempts has hung.

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

/// How many attempts are under way at a time.
const ALL: Places = Places { most: 512, kept: 64 };
/// How many of them to webhooks of one environment.
const OF_ENVIRONMENT: Places = Places { most: 128, kept: 16 };
/// How many of them to one host, whosever webhooks are there.
const OF_HOST: Places = Places { most: 64, kept: 16 };
/// How many of them to one webhook that answers in no time.
const MAX_WIDTH: usize = 32;
/// How many to one that takes its time.
const SLOW_WIDTH: usize = 8;
/// How many to one of which nothing is known.
const FIRST_WIDTH: usize = 2;
/// What takes longer is slow.
const PROMPT: Duration = Duration::from_secs(2);
/// Of how many webhooks it is remembered how they have answered. One takes about 100 bytes.
const MAX_PACES: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();
/// How many webhooks are leased at a time.
const MAX_QUEUES: usize = 1024;
/// How many deliveries all stocks hold together. One takes about 1 KiB.
const MAX_STOCKED: usize = 512;
/// How many times as many as may be under way a queue has in stock.
const STOCKED: usize = 2;
/// How old a stock may be. What a webhook was to get when it is deleted is begun no later than so long after.
const STOCK_LASTS: Duration = Duration::from_millis(100);
/// How long attempts to a webhook are begun before others have their turn, in seconds. Its lease holds well beyond the
/// end of the last.
const TURN_SECONDS: i64 = 30;

/// The environment and the webhook.
pub(super) type Key = (i64, WebhookId);

/// How many attempts there may be, and how many of these are kept for queues that have none.
struct Places {
    most: usize,
    kept: usize,
}

impl Places {
    /// How many more there may be of one queue, where so many are taken.
    fn left(&self, taken: usize, is_first: bool) -> usize {
        let open = (self.most - self.kept).saturating_sub(taken);
        if is_first && taken < self.most { open.max(1) } else { open }
    }
}

/// How an attempt ended, as far as others are concerned who wait for its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// With an answer, whatever it says, after so long.
    Answered(Duration),
    /// With none, although it was waited for.
    Hung,
    /// It was not made, since the name could not be looked up beside others. That says nothing of the receiver.
    Crowded,
    /// In no time: no program listened there, or it was not made at all.
    AtOnce,
}

impl Ending {
    /// That of an attempt which has taken so long.
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

/// How many attempts a webhook may have under way, by how those before have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    width: usize,
    /// The newest one hung, or waited beside lookups that hang: nothing is kept for it.
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
    /// Those that have ended, until it is written down what became of them: due as well, as far as the database knows.
    ended: BTreeSet<EventId>,
    /// What is due beyond these, and when it was read.
    stock: VecDeque<DueRecord>,
    read_at: Instant,
    /// Nothing more was due when it was last looked.
    drained: bool,
    /// Of the attempts that have ended since it was leased the newest has hung: its turn is over.
    hung: bool,
}

/// The queues of one server.
#[derive(Debug)]
pub(super) struct FairQueues {
    queues: BTreeMap<Key, Queue>,
    /// Of webhooks that have queues, and had some before.
    paces: LruCache<Key, Pace>,
}

impl Default for FairQueues {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), paces: LruCache::sparse(MAX_PACES) }
    }
}

/// What of a queue is to be read.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) lease: Arc<LeaseRecord>,
    /// How many that it does not have.
    pub(super) more: usize,
    /// What it has under way, or has ended and not written down.
    pub(super) in_hand: BTreeSet<EventId>,
}

impl Queue {
    fn new(lease: LeaseRecord, under_way: BTreeSet<EventId>, ended: BTreeSet<EventId>) -> Self {
        let url = Url::parse(&lease.url).ok();
        let host = url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        let (lease, stock, read_at) = (Arc::new(lease), VecDeque::new(), Instant::now());
        Self { lease, host, under_way, ended, stock, read_at, drained: false, hung: false }
    }

    /// How much may be due to it that it has not read: it is unknown.
    fn unread(&self) -> usize {
        if self.drained { 0 } else { usize::MAX }
    }

    /// Throws away what was read too long ago; it is to be read again.
    fn freshen(&mut self) {
        if !self.stock.is_empty() && self.read_at.elapsed() >= STOCK_LASTS {
            self.stock.clear();
            self.drained = false;
        }
    }

    fn turn_is_over(&self, now: Timestamp) -> bool {
        self.hung || now >= self.lease.until.plus_seconds(TURN_SECONDS - LEASE_SECONDS)
    }
}

impl FairQueues {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// For how many more webhooks there is room.
    pub(super) fn room(&self) -> usize {
        MAX_QUEUES.saturating_sub(self.queues.len())
    }

    /// Takes webhooks in hand. What is under way to one that was in hand already, under a lease that the clock has
    /// overthrown, stays under way.
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

    /// An attempt has ended. What became of it is not written down yet.
    pub(super) fn end(&mut self, key: Key, event: EventId) {
        if let Some(queue) = self.queues.get_mut(&key)
            && queue.under_way.remove(&event)
        {
            queue.ended.insert(event);
        }
    }

    /// It is written down what became of an attempt.
    pub(super) fn written(&mut self, key: Key, event: EventId) {
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.ended.remove(&event);
        }
    }

    /// Takes in what was read of a queue from `began` on, in place of its stock. It is drained where that is less than
    /// was asked for.
    pub(super) fn stock(&mut self, wanted: &Wanted, due: Vec<DueRecord>, began: Instant) {
        let key = (wanted.lease.environment, wanted.lease.webhook);
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.drained = due.len() < wanted.more + wanted.in_hand.len();
            queue.stock = due.into_iter().filter(|due| !wanted.in_hand.contains(&due.event.id)).collect();
            queue.read_at = began;
        }
    }

    /// Begins as many attempts as there is room for, out of the stocks.
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

    /// Notes how an attempt has ended.
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

    /// More may be due, in any of them.
    pub(super) fn look_again(&mut self) {
        self.queues.values_mut().for_each(|queue| queue.drained = false);
    }

    /// The leases of queues that have nothing under way, and nothing to begin.
    pub(super) fn over(&self, now: Timestamp) -> Vec<LeaseRecord> {
        let empty = |queue: &Queue| queue.drained && queue.stock.is_empty();
        let over = |queue: &&Queue| queue.under_way.is_empty() && (empty(queue) || queue.turn_is_over(now));
        self.queues.values().filter(over).map(|queue| (*queue.lease).clone()).collect()
    }

    /// All leases.
    pub(super) fn leases(&self) -> Vec<LeaseRecord> {
        self.queues.values().map(|queue| (*queue.lease).clone()).collect()
    }

    /// What is to be read: of each queue as much as there is room for, and a stock beyond that.
    pub(super) fn wanted(&mut self, now: Timestamp) -> Vec<Wanted> {
        self.queues.values_mut().for_each(Queue::freshen);
        let places: HashMap<_, _> = self.shares(now, Queue::unread).into_iter().collect();
        let lacks = |queue: &Queue| queue.unread() > 0 && !queue.turn_is_over(now);
        // What is not read now stays in stock.
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

    /// How what is free is shared out among the queues that have something to begin, as `has` tells how much.
    fn shares(&self, now: Timestamp, has: impl Fn(&Queue) -> usize) -> Vec<(Key, usize)> {
        let (mut hosts, mut environments) = (HashMap::new(), HashMap::new());
        let mut taken = 0;
        for queue in self.queues.values() {
            let count = queue.under_way.len();
            *hosts.entry(queue.host.as_str()).or_insert(0) += count;
            *environments.entry(queue.lease.environment).or_insert(0) += count;
            taken += count;
        }
        let wants = |(_, queue): &(&Key, &Queue)| has(queue) > 0 && !queue.turn_is_over(now);
        let mut queues: Vec<_> = self.queues.iter().filter(wants).collect();
        queues.sort_by_key(|(_, queue)| queue.under_way.len());
        let mut waiting = queues.len();
        let mut shares = Vec::with_capacity(waiting);
        for (key, queue) in queues {
            let pace = self.pace(*key);
            let is_first = queue.under_way.is_empty() && !pace.hangs;
            let of_host = hosts.entry(queue.host.as_str()).or_insert(0);
            let of_environment = environments.entry(queue.lease.environment).or_insert(0);
            let more = ALL
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
