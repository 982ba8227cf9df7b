//! Decides many authorizations in one transaction: on batch workers, and on threads that wait for held rows.
//!
//! A batch leaves out the agents whose rows another transaction holds, and their requests are set aside. Each such agent
//! gets a transaction of its own, which waits in the database's queue for the row. So no request waits for the row of
//! another agent, and an agent that many servers decide for gets its turn.
//!
//! A batch that meets another lock, such as that on a webhook's row, is decided again without what makes events for the
//! environments of its events. For a moment no batch makes any for them. The agents that are left out are set aside as well.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::super::{Authorization, Decider};
use super::aside::Aside;
use super::connection_worker::ConnectionWorker;
use super::deciding::{self, PROVING, Progress};
use super::hot::{self, Take};
use super::jobs::{After, PendingAuthorization, Work, overdue};
use super::purpose::Locks;
use crate::error::{Fault, Repeated};
use crate::model::call::Answer;
use crate::traces;

/// How many authorizations one transaction may hold.
const MAX_BATCH: usize = 128;
/// A batch of this size is begun without waiting for more.
const ENOUGH: usize = 32;
/// How often a batch worker waits for more requests while another is at work, and how long each time. A transaction
/// costs as much as ten decisions, and the other worker uses the processors meanwhile.
const GATHERINGS: usize = 3;
const GATHERING: Duration = Duration::from_micros(100);
/// How often the requests are tried that were set aside and that no thread waits for.
const REST: Duration = Duration::from_millis(50);
/// How long a batch waits for other locks than its agents' rows: so many COMMITs, at least, and at most. Other servers' batches
/// hold a webhook's row one after another, each until its COMMIT is on disk.
const PATIENTLY: (u32, Duration, Duration) = (10, Duration::from_secs(1), Duration::from_secs(3));
/// How long a thread waits for the lock that events of an environment have met. Each transaction then writes many of them.
const MEETING: Duration = Duration::from_secs(3);
/// The same while events have met a lock: most of these are left out.
const LONG_REST: Duration = Duration::from_millis(200);

/// What decides on batches.
pub(super) struct BatchWorker {
    decider: Arc<dyn Decider>,
    after: After,
    /// How long a request may wait before it is decided.
    max_wait: Duration,
    aside: Arc<Aside>,
    /// Whether it decides.
    progress: Arc<Progress>,
    known: RefCell<hot::Known>,
    /// When requests that were set aside were last tried.
    tried: Instant,
    /// Whether a transaction has met a held lock, other than its agents' rows, since this was last looked at.
    met: Cell<bool>,
    /// Batches that failed without a line of log each.
    repeated: Repeated,
}

impl BatchWorker {
    pub(super) fn new(
        decider: Arc<dyn Decider>,
        after: After,
        max_wait: Duration,
        aside: Arc<Aside>,
        progress: Arc<Progress>,
    ) -> Self {
        let (known, tried, met) = (RefCell::default(), Instant::now(), Cell::new(false));
        let repeated = Repeated::default();
        Self { decider, after, max_wait, aside, progress, known, tried, met, repeated }
    }

    /// Decides on requests until their channel is closed and none is set aside.
    pub(super) fn serve(mut self, mut worker: ConnectionWorker, mut waiting: mpsc::Receiver<Work>) {
        self.decider.warm_up();
        let mut came = Vec::with_capacity(MAX_BATCH);
        loop {
            if self.aside.count() == 0 {
                if worker.wait(waiting.recv_many(&mut came, 1)) == 0 {
                    return;
                }
                self.gather(&waiting);
                if !waiting.is_empty() {
                    worker.wait(waiting.recv_many(&mut came, MAX_BATCH - 1));
                }
            } else {
                // A timer belongs to the runtime, and is made within it.
                let coming = async { timeout(REST, waiting.recv_many(&mut came, MAX_BATCH)).await };
                if worker.wait(coming) == Ok(0) {
                    // Nothing comes any more.
                    worker.wait(async { sleep(REST).await });
                }
            }
            let (mut asked, mut proofs) = (Vec::with_capacity(came.len()), Vec::new());
            for work in came.drain(..) {
                match work {
                    Work::Decide(one) => asked.push(one),
                    Work::Prove(proof) => proofs.push(proof),
                }
            }
            let after = self.after.clone();
            let _at_work = after.at_work();
            self.take(&mut worker, asked);
            if !proofs.is_empty() {
                self.prove(&mut worker);
            }
            for proof in proofs {
                let _ = proof.send(());
            }
        }
    }

    /// Decides for agents whose rows were held, one after another, each when the database grants its row.
    pub(super) fn serve_in_turn(mut self, mut worker: ConnectionWorker) {
        let aside = Arc::clone(&self.aside);
        while let Some((turn, asked)) = worker.next(async || aside.next(MAX_BATCH).await) {
            let take = if turn.has_met() { Take::Meet(MEETING) } else { Take::InTurn };
            let held = self.decide(&mut worker, asked, take);
            let is_refused = worker.is_refused();
            aside.back(turn, held);
            if is_refused {
                // A batch worker tries meanwhile.
                worker.wait(async { sleep(REST).await });
            }
        }
    }

    /// Waits a moment for more requests, unless there are enough, or no other worker is at work.
    fn gather(&self, waiting: &mpsc::Receiver<Work>) {
        for _ in 0..GATHERINGS {
            if waiting.len() >= ENOUGH || !self.after.is_at_work() {
                return;
            }
            std::thread::sleep(GATHERING);
        }
    }

    /// Takes the locks of a batch, and commits.
    fn prove(&self, worker: &mut ConnectionWorker) {
        if self.progress.is_recent() {
            return;
        }
        let proved = worker.transact_until(Instant::now() + PROVING, Locks::Leave, &mut |session| {
            deciding::prove(session, &*self.decider)
        });
        match proved {
            Ok(()) => self.progress.proved(),
            Err(fault) => {
                if let Some(others) = self.repeated.due("proof") {
                    tracing::warn!(kind = fault.kind(), reason = %fault, others, "nothing can be decided");
                }
            }
        }
    }

    fn take(&mut self, worker: &mut ConnectionWorker, came: Vec<PendingAuthorization>) {
        if !came.is_empty() {
            self.progress.begin();
        }
        let count = came.len();
        let free = self.aside.join(came);
        let joined = count - free.len();
        let held = self.decide(worker, free, Take::Skip(patience(worker)));
        self.after.held(joined + held.len());
        if !held.is_empty() {
            // The threads that wait come first.
            self.tried = Instant::now();
            self.aside.put(held);
        }
        self.aside.expire(self.max_wait);
        let rest = if self.aside.met().is_empty() { REST } else { LONG_REST };
        if self.tried.elapsed() >= rest
            && let Some((turn, asked)) = self.aside.take(MAX_BATCH)
        {
            let held = self.decide(worker, asked, Take::Skip(patience(worker)));
            self.aside.back(turn, held);
            self.tried = Instant::now();
        }
        if self.met.take() {
            self.doubt(worker);
        }
    }

    /// Whether all batches meet the lock that one has met. That on a row of one organization says nothing about others.
    fn doubt(&self, worker: &mut ConnectionWorker) {
        let proved = worker.transact_until(Instant::now() + PROVING, Locks::Leave, &mut |session| {
            deciding::prove(session, &*self.decider)
        });
        if proved.is_err() && worker.is_held() {
            self.progress.failed();
        }
    }

    /// Decides on a batch in one transaction. Returns the requests of agents whose rows are held.
    fn decide(
        &mut self,
        worker: &mut ConnectionWorker,
        batch: Vec<PendingAuthorization>,
        take: Take,
    ) -> Vec<PendingAuthorization> {
        // A panic outside the decisions drops the waiters' channels, and the thread goes on.
        let decided = catch_unwind(AssertUnwindSafe(|| self.decide_together(worker, batch, take)));
        decided.unwrap_or_else(|_| {
            worker.leave();
            Vec::new()
        })
    }

    /// If the transaction fails, decides on each request alone, so that one fault harms no other request.
    fn decide_together(
        &mut self,
        worker: &mut ConnectionWorker,
        batch: Vec<PendingAuthorization>,
        take: Take,
    ) -> Vec<PendingAuthorization> {
        let mut batch = self.in_time(batch);
        let Some(first) = batch.iter().map(|asked| asked.at).min() else { return Vec::new() };
        let (batch, rest): (Vec<_>, Vec<_>) = batch
            .drain(..)
            .map(|PendingAuthorization { authorization, at, waiter }| (authorization, (at, waiter)))
            .unzip();
        let ended = self.run(worker, &batch, first + self.max_wait, take);
        let asked = batch.into_iter().zip(rest);
        let asked =
            asked.map(|(authorization, (at, waiter))| PendingAuthorization { authorization, at, waiter });
        match ended {
            Ok(answers) => asked.zip(answers).filter_map(|(asked, answer)| answered(asked, answer)).collect(),
            Err(_) if !matches!(take, Take::Skip(_)) && (worker.is_held() || worker.is_refused()) => {
                asked.collect()
            }
            Err(fault) if matches!(take, Take::Skip(_)) && worker.is_held() => {
                self.decide_silent(worker, asked.collect(), (&fault, take))
            }
            Err(fault) => self.decide_apart(worker, asked.collect(), &fault),
        }
    }

    /// Decides on a batch that has met a held lock without what makes events for the same environments. If it has made none, it
    /// would meet the lock again.
    fn decide_silent(
        &mut self,
        worker: &mut ConnectionWorker,
        batch: Vec<PendingAuthorization>,
        (fault, take): (&Fault, Take),
    ) -> Vec<PendingAuthorization> {
        if let Some(others) = self.repeated.due("held") {
            tracing::warn!(kind = fault.kind(), reason = %fault, others, "a batch has met a held lock");
        }
        let is_silent = self.known.borrow().announced.is_empty();
        if is_silent { batch } else { self.decide_together(worker, batch, take) }
    }

    /// Decides on each request of a batch that failed.
    fn decide_apart(
        &mut self,
        worker: &mut ConnectionWorker,
        batch: Vec<PendingAuthorization>,
        fault: &Fault,
    ) -> Vec<PendingAuthorization> {
        if let Some(others) = self.repeated.due(fault.kind()) {
            tracing::error!(kind = fault.kind(), reason = %fault, others, "a batch could not be decided together");
        }
        let hopeless = worker.is_away() || batch.len() == 1;
        let mut held: Vec<PendingAuthorization> = Vec::new();
        for asked in batch {
            if hopeless {
                let _ = asked.waiter.send(Err(fault.clone()));
            } else if held.iter().any(|other| other.owner() == asked.owner()) {
                held.push(asked);
            } else {
                held.extend(self.decide_alone(worker, asked));
            }
        }
        held
    }

    /// Decides on one request. Returns it if its agent's row is held.
    fn decide_alone(
        &self,
        worker: &mut ConnectionWorker,
        asked: PendingAuthorization,
    ) -> Option<PendingAuthorization> {
        let until = asked.at + self.max_wait;
        if Instant::now() >= until {
            return answered(asked, Some(Err(overdue())));
        }
        let one = std::slice::from_ref(&asked.authorization);
        let take = Take::Skip(patience(worker));
        let answer = match self.run(worker, one, until, take) {
            Err(_) if worker.is_held() => None,
            Err(fault) => Some(Err(fault)),
            Ok(mut answers) => answers.pop().flatten(),
        };
        answered(asked, answer)
    }

    /// The requests that may still be begun. The others are answered with an error.
    fn in_time(&self, mut asked: Vec<PendingAuthorization>) -> Vec<PendingAuthorization> {
        for PendingAuthorization { waiter, .. } in
            asked.extract_if(.., |asked| asked.at.elapsed() >= self.max_wait)
        {
            let _ = waiter.send(Err(overdue()));
        }
        asked
    }

    /// Decides on a batch in one transaction. After `until` nothing is begun or committed.
    fn run(
        &self,
        worker: &mut ConnectionWorker,
        batch: &[Authorization],
        until: Instant,
        take: Take,
    ) -> Result<Vec<Option<Result<Answer, Fault>>>, Fault> {
        let mut span = traces::batch(batch.iter().filter_map(|a| a.traced.as_ref()), batch.len());
        let met = if matches!(take, Take::Skip(_)) { self.aside.met() } else { BTreeSet::new() };
        let ended = worker.transact_until(until, Locks::Leave, &mut |session| {
            hot::run(session, &*self.decider, &mut self.known.borrow_mut(), batch, &met, (take, until))
        });
        if let Some(span) = span.as_mut().filter(|_| ended.is_err()) {
            span.fail();
        }
        drop(span);
        let announced = &self.known.borrow().announced;
        if ended.is_ok() && !announced.is_empty() {
            self.aside.note_written(announced);
        } else if worker.is_held() {
            self.aside.note_met(announced);
        }
        if let Err(fault) = &ended
            && matches!(take, Take::Skip(_))
        {
            if worker.is_held() {
                self.met.set(true);
            } else if matches!(fault, Fault::Setup(_) | Fault::DiskFull(_)) {
                self.progress.failed();
            }
        }
        let (answers, mut tally) = ended?;
        let decided = answers.iter().flatten().count();
        if decided > 0 {
            // Without a subscription to its type, an event has no delivery.
            tally.announced &= worker.count != Some(0);
            self.after.record(decided, worker.committing(), &tally);
            self.progress.decided();
        }
        Ok(answers)
    }
}

/// How long to wait for a lock, by how long the last COMMIT took.
fn patience(worker: &ConnectionWorker) -> Duration {
    let (commits, least, most) = PATIENTLY;
    (commits * worker.committing()).clamp(least, most)
}

/// Sends a request its answer. Returns the request if there is none. A caller that has gone away needs none.
fn answered(
    asked: PendingAuthorization,
    answer: Option<Result<Answer, Fault>>,
) -> Option<PendingAuthorization> {
    match answer {
        None => Some(asked),
        Some(answer) => {
            let _ = asked.waiter.send(answer);
            None
        }
    }
}
