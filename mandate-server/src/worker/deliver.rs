//! Delivers events to webhooks: at least once, many at a time, and shared with the other servers on the database.
//!
//! One task has it all in hand. It takes turns: what became of attempts is written down, webhooks that are done are given
//! back, and those that are due leased, in one transaction; then what is due to the leased ones is read, in one query
//! each, and attempts are begun. Of each a little more is read than may be under way: where an attempt ends the next
//! begins, and what became of many is written in one turn. A delivery that is under way when the server dies is still
//! pending: when the lease has ended, another server makes it again.

mod attempt;
mod fair_queues;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mandate_core::Timestamp;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tracing::error;

use self::attempt::{Ended, Means};
use self::fair_queues::FairQueues;
use super::dial::Dialer;
use crate::clock::{Clock, Entropy};
use crate::error::Fault;
use crate::metrics::Metrics;
use crate::model::records::TriedRecord;
use crate::service::deliveries::{self, LEASE_SKEW_SECONDS, Turn};
use crate::service::signing::Keyring;
use crate::store::Store;
use crate::traces::Traces;

/// How often it is looked for deliveries that another process has made due, and how long it is waited after a fault. What
/// is due by this server's own doing is taken up at once.
const LOOK: Duration = Duration::from_secs(5);
/// How long a turn is put off at most while attempts go on: each costs a commit and some queries, whatever has ended.
const GATHERING: Duration = Duration::from_millis(20);
/// How long attempts that are under way may go on when the server stops. Those cut off are made again at the next start.
const STOP: Duration = Duration::from_secs(5);

/// Delivers.
pub struct Deliverer {
    store: Store,
    means: Means,
    queues: FairQueues,
    under_way: JoinSet<Ended>,
    /// What became of attempts, and is not written down yet.
    tried: Vec<TriedRecord>,
    /// When webhooks are due that no server has leased, as far as is known.
    next: Option<Timestamp>,
    /// The latest time that the clock has shown, since it was last found to have been set back.
    latest: Timestamp,
}

impl fmt::Debug for Deliverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliverer").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl Deliverer {
    /// One that posts with `dialer` what is signed with `keyring`.
    #[must_use]
    pub fn new(
        store: Store,
        keyring: Keyring,
        dialer: Arc<Dialer>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        metrics: Metrics,
    ) -> Self {
        let means = Means { keyring, dialer, clock, entropy, metrics, traces: Traces::default() };
        let (queues, under_way, latest) = (FairQueues::default(), JoinSet::new(), means.clock.now());
        Self { store, means, queues, under_way, tried: Vec::new(), next: None, latest }
    }

    /// The same; its attempts are told to `traces`.
    #[must_use]
    pub(crate) fn traced(mut self, traces: Traces) -> Self {
        self.means.traces = traces;
        self
    }

    /// Delivers until `stop` changes; then ends what is under way, within a bound of time.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let began = Instant::now();
            let wait_until = self.turn().await.unwrap_or_else(|fault| {
                error!(reason = %fault, "deliveries cannot be read or written down");
                None
            });
            let Self { store, means, under_way, .. } = &mut self;
            tokio::select! {
                _ = stop.changed() => break,
                Some(ended) = under_way.join_next() => {
                    self.ended(ended);
                }
                () = store.announced() => self.look_again(),
                () = until(&*means.clock, wait_until) => {}
                _ = look.tick() => self.queues.look_again(),
            }
            self.gather(began + GATHERING).await;
        }
        self.stop().await;
    }

    /// Goes on with what was read, until that time or until nothing is under way.
    async fn gather(&mut self, until: Instant) {
        loop {
            self.begin(self.means.clock.now());
            if Instant::now() >= until {
                return;
            }
            match timeout_at(until, self.under_way.join_next()).await {
                Ok(Some(ended)) => _ = self.ended(ended),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Delivers until nothing is due any more; says how many deliveries were dealt with, by an attempt or since their
    /// time is over.
    ///
    /// # Errors
    /// The database fails.
    pub async fn deliver_due(&mut self) -> Result<usize, Fault> {
        let mut count = 0;
        self.look_again();
        loop {
            self.turn().await?;
            if !self.under_way.is_empty() {
                count += match self.under_way.join_next().await {
                    Some(ended) => self.ended(ended),
                    None => 0,
                };
            } else if self.queues.is_empty() && !self.is_due(self.means.clock.now()) {
                return Ok(count);
            }
        }
    }

    /// Something may be due, to webhooks that are leased and to others.
    fn look_again(&mut self) {
        self.queues.look_again();
        self.next = Some(self.means.clock.now());
    }

    /// Gathers what became of an attempt, and of all others that have ended. Says how many.
    fn ended(&mut self, first: Result<Ended, JoinError>) -> usize {
        let before = self.tried.len();
        let mut next = Some(first);
        while let Some(ended) = next {
            // An attempt catches its own panics, and none is cut off here.
            if let Ok(Ended { tried, ending }) = ended {
                let key = (tried.environment, tried.webhook);
                self.queues.note(key, ending);
                self.queues.end(key, tried.event);
                self.tried.push(tried);
            }
            next = self.under_way.try_join_next();
        }
        self.tried.len() - before
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Takes a turn. Says when the next is due, as far as is known, unless attempts have to end before.
    async fn turn(&mut self) -> Result<Option<Timestamp>, Fault> {
        let now = self.means.clock.now();
        self.write(now).await?;
        self.read(now).await?;
        // By the clock as it is now: to write and to read may have taken long, and a lease ends.
        self.begin(self.means.clock.now());
        if !self.queues.over(now).is_empty() {
            return Ok(Some(now));
        }
        Ok(self.next.filter(|_| self.queues.room() > 0))
    }

    /// Writes down what was done, and leases what is due.
    async fn write(&mut self, now: Timestamp) -> Result<(), Fault> {
        let set_back = now.plus_seconds(LEASE_SKEW_SECONDS) < self.latest;
        if set_back {
            self.next = Some(now);
        }
        let tried = std::mem::take(&mut self.tried);
        let released = self.queues.over(now);
        let room = if self.is_due(now) { self.queues.room() + released.len() } else { 0 };
        if tried.is_empty() && released.is_empty() && room == 0 && !set_back {
            self.latest = self.latest.max(now);
            return Ok(());
        }
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        let turn = Arc::new(Turn { tried, released, room, set_back });
        let taken = {
            let turn = Arc::clone(&turn);
            self.store.write(move |tx| Ok(deliveries::take_turn(tx, &turn, now)?)).await
        };
        match taken {
            Ok(Ok(taken)) => {
                self.latest = if set_back { now } else { self.latest.max(now) };
                for done in &turn.tried {
                    self.queues.written((done.environment, done.webhook), done.event);
                }
                self.queues.close(&turn.released);
                self.queues.open(taken);
                Ok(())
            }
            failed => {
                // Until it is written down it is not done: the queues have it in hand, and do not begin it again.
                self.tried.clone_from(&turn.tried);
                failed.and_then(|refused| refused.map_err(|e| Fault::new(e.message))).map(|_| ())
            }
        }
    }

    /// Reads what is due to the queues, and notes when more will be.
    async fn read(&mut self, now: Timestamp) -> Result<(), Fault> {
        let (wanted, began) = (Arc::new(self.queues.wanted(now)), std::time::Instant::now());
        let asked = Arc::clone(&wanted);
        let read = self.store.read(move |tx| {
            let found = asked.iter().map(|wanted| {
                let limit = i64::try_from(wanted.more + wanted.in_hand.len()).unwrap_or(i64::MAX);
                deliveries::due(tx, &wanted.lease, now, limit)
            });
            let found = found.collect::<Result<Vec<_>, _>>()?;
            Ok::<_, Fault>((found, deliveries::next_due(tx, now)?))
        });
        let (found, next) = read.await??;
        self.next = next;
        for (wanted, due) in wanted.iter().zip(found) {
            self.queues.stock(wanted, due, began);
        }
        Ok(())
    }

    /// Begins attempts at what was read, as many as there is room for.
    fn begin(&mut self, now: Timestamp) {
        for (lease, due) in self.queues.begin(now) {
            self.under_way.spawn(self.means.clone().attempt(lease, due));
        }
    }

    /// Ends what is under way, writes down what became of it, and gives all webhooks back.
    async fn stop(mut self) {
        let ending = async {
            while let Some(ended) = self.under_way.join_next().await {
                self.ended(ended);
            }
        };
        let _ = timeout(STOP, ending).await;
        self.under_way.abort_all();
        while let Some(ended) = self.under_way.join_next().await {
            self.tried.extend(ended.map(|ended| ended.tried));
        }
        let turn = Turn { tried: self.tried, released: self.queues.leases(), ..Turn::default() };
        let now = self.means.clock.now();
        let written = self.store.write(move |tx| Ok(deliveries::take_turn(tx, &turn, now)?)).await;
        if let Err(fault) = written {
            error!(reason = %fault, "what became of the last attempts was not written down: they are made again");
        }
    }
}

async fn until(clock: &dyn Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
