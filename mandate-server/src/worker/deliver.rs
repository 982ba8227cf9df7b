//! Delivers events to webhooks: at least once, many at a time, and shared with the other servers on the
//! database.
//!
//! One task does it all, in rounds. One transaction stores the results of attempts, gives back finished
//! webhooks and leases those that are due. Then one query for each leased webhook reads its due deliveries,
//! and attempts begin. A few more are read than may run at once, so that the next attempt begins when one
//! ends, and many results are stored in one round. If the server dies, a running delivery is still pending:
//! when the lease has ended, another server makes it again; on SQLite the next start ends the lease.

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

use self::attempt::{AttemptContext, Ended};
use self::fair_queues::FairQueues;
use super::dial::Dialer;
use crate::clock::{Clock, Entropy};
use crate::error::Fault;
use crate::metrics::Metrics;
use crate::model::records::TriedRecord;
use crate::service::deliveries::{self, LEASE_SKEW_SECONDS, Round};
use crate::service::signing::Keyring;
use crate::store::Store;
use crate::traces::Traces;

/// How often deliveries that another process made due are looked for, and the pause after a fault. What this
/// server made due is taken up at once.
const LOOK: Duration = Duration::from_secs(5);
/// How long a round may be put off while attempts run: each round costs a commit and some queries.
const GATHERING: Duration = Duration::from_millis(20);
/// How long running attempts may continue when the server stops. Attempts that are cut off are made again at
/// the next start.
const STOP: Duration = Duration::from_secs(5);

/// The delivery worker.
pub struct Deliverer {
    store: Store,
    context: AttemptContext,
    queues: FairQueues,
    under_way: JoinSet<Ended>,
    /// Results of attempts that are not stored yet.
    tried: Vec<TriedRecord>,
    /// When webhooks that no server has leased are due, as far as is known.
    next: Option<Timestamp>,
    /// The latest time that the clock has shown since it was last set back.
    latest: Timestamp,
}

impl fmt::Debug for Deliverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliverer").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl Deliverer {
    /// A worker that posts with `dialer` and signs with `keyring`.
    #[must_use]
    pub fn new(
        store: Store,
        keyring: Keyring,
        dialer: Arc<Dialer>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        metrics: Metrics,
    ) -> Self {
        let context = AttemptContext {
            keyring,
            dialer,
            clock,
            entropy,
            metrics,
            traces: Traces::default(),
            console: None,
        };
        let (queues, under_way, latest) = (FairQueues::default(), JoinSet::new(), context.clock.now());
        Self { store, context, queues, under_way, tried: Vec::new(), next: None, latest }
    }

    /// The same, which reports its attempts to `traces`.
    #[must_use]
    pub(crate) fn traced(mut self, traces: Traces) -> Self {
        self.context.traces = traces;
        self
    }

    /// The same, with no more attempts at a time.
    #[must_use]
    pub(crate) fn at_most(mut self, attempts: usize) -> Self {
        self.queues = FairQueues::of(attempts);
        self
    }

    /// The same, whose notices link to the console of this origin.
    #[must_use]
    pub(crate) fn linking_to(mut self, console: Option<&str>) -> Self {
        self.context.console = console.map(Arc::from);
        self
    }

    /// Delivers until `stop` changes. Then ends running attempts within a time limit.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let began = Instant::now();
            let wait_until = self.round().await.unwrap_or_else(|fault| {
                error!(kind = fault.kind(), reason = %fault, "deliveries cannot be read or written down");
                None
            });
            let Self { store, context, under_way, .. } = &mut self;
            tokio::select! {
                _ = stop.changed() => break,
                Some(ended) = under_way.join_next() => {
                    self.ended(ended);
                }
                () = store.announced() => self.look_again(),
                () = until(&*context.clock, wait_until) => {}
                _ = look.tick() => self.queues.look_again(),
            }
            self.gather(began + GATHERING).await;
        }
        self.stop().await;
    }

    /// Goes on with what was read, until the given time or until no attempt is running.
    async fn gather(&mut self, until: Instant) {
        loop {
            self.begin(self.context.clock.now());
            if Instant::now() >= until {
                return;
            }
            match timeout_at(until, self.under_way.join_next()).await {
                Ok(Some(ended)) => _ = self.ended(ended),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Delivers until nothing is due any more. Returns how many deliveries were tried or given up because
    /// their time was over.
    ///
    /// # Errors
    /// The database fails.
    pub async fn deliver_due(&mut self) -> Result<usize, Fault> {
        let mut count = 0;
        self.look_again();
        loop {
            self.round().await?;
            if !self.under_way.is_empty() {
                count += match self.under_way.join_next().await {
                    Some(ended) => self.ended(ended),
                    None => 0,
                };
            } else if self.queues.is_empty() && !self.is_due(self.context.clock.now()) {
                return Ok(count);
            }
        }
    }

    /// Notes that deliveries may be due, to leased webhooks and to others.
    fn look_again(&mut self) {
        self.queues.look_again();
        self.next = Some(self.context.clock.now());
    }

    /// Collects the result of an attempt and of all others that have ended. Returns how many.
    fn ended(&mut self, first: Result<Ended, JoinError>) -> usize {
        let before = self.tried.len();
        let mut next = Some(first);
        while let Some(ended) = next {
            // An attempt catches its own panics, and none is aborted here.
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

    /// Runs one round. Returns when the next is due, as far as is known, unless an attempt must end first.
    async fn round(&mut self) -> Result<Option<Timestamp>, Fault> {
        let now = self.context.clock.now();
        self.write(now).await?;
        self.read(now).await?;
        // By the clock as it is now: the database may have been slow, and leases end.
        self.begin(self.context.clock.now());
        if !self.queues.over(now).is_empty() {
            return Ok(Some(now));
        }
        Ok(self.next.filter(|_| self.queues.room() > 0))
    }

    /// Stores the results and leases the webhooks that are due.
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
        let round = Arc::new(Round { tried, released, room, set_back });
        let taken = {
            let round = Arc::clone(&round);
            self.store.write(move |tx| Ok(deliveries::run_round(tx, &round, now)?)).await
        };
        match taken {
            Ok(Ok(taken)) => {
                self.latest = if set_back { now } else { self.latest.max(now) };
                for done in &round.tried {
                    self.queues.written((done.environment, done.webhook), done.event);
                }
                self.queues.close(&round.released);
                self.queues.open(taken);
                Ok(())
            }
            failed => {
                // A result that is not stored stays pending: the queues hold on to it and do not begin it
                // again.
                self.tried.clone_from(&round.tried);
                failed.and_then(|refused| refused.map_err(|e| Fault::new(e.message))).map(|_| ())
            }
        }
    }

    /// Reads the due deliveries for the queues, and notes when more will be due.
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

    /// Begins as many attempts as there is room for.
    fn begin(&mut self, now: Timestamp) {
        for (lease, due) in self.queues.begin(now) {
            self.under_way.spawn(self.context.clone().attempt(lease, due));
        }
    }

    /// Ends running attempts, stores their results, and gives back all webhooks.
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
        let round = Round { tried: self.tried, released: self.queues.leases(), ..Round::default() };
        let now = self.context.clock.now();
        let written = self.store.write(move |tx| Ok(deliveries::run_round(tx, &round, now)?)).await;
        if let Err(fault) = written {
            error!(kind = fault.kind(), reason = %fault, "the outcomes of the last attempts were not recorded; the attempts are made again");
        }
    }
}

async fn until(clock: &dyn Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
