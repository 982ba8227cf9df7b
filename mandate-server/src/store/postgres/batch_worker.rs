//! One batch worker. It decides many authorizations in one transaction.
//!
//! If another transaction holds the lock of an agent, the agent's requests are set aside. They are tried again
//! until the lock is free or their time is over. So no request waits for the lock of another agent.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::tx::Tally;
use super::super::{Authorization, Decider};
use super::connection::Step;
use super::connection_worker::ConnectionWorker;
use super::hot;
use super::jobs::{After, Asked, MAX_WAITING, overdue};
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
/// How long a request that was set aside waits for its agent's lock, each time that it is tried.
const BRIEFLY: &str = "SET LOCAL lock_timeout = '50ms'";
/// For how long locked agents are tried, one after another, before other agents' requests are decided.
const TRYING: Duration = Duration::from_millis(200);
/// How long the worker waits for new requests before it tries those again that were set aside.
const REST: Duration = Duration::from_millis(50);

/// The state of a batch worker.
struct BatchWorker<'a> {
    decider: &'a dyn Decider,
    after: &'a After,
    /// How long a request may wait before it is decided.
    max_wait: Duration,
    known: RefCell<hot::Known>,
    /// Requests of agents that another transaction has locked, in the order in which they came.
    aside: Vec<Asked>,
    /// Batches that failed without a line of log each.
    repeated: Repeated,
}

/// Decides on requests until their channel is closed. Keeps the number of those set aside in `count`.
pub(super) fn serve(
    mut worker: ConnectionWorker,
    (decider, after, max_wait, count): (&dyn Decider, &After, Duration, &AtomicUsize),
    mut waiting: mpsc::Receiver<Asked>,
) {
    let mut batch_worker = BatchWorker {
        decider,
        after,
        max_wait,
        known: RefCell::default(),
        aside: Vec::new(),
        repeated: Repeated::default(),
    };
    let mut asked = Vec::with_capacity(MAX_BATCH);
    loop {
        if batch_worker.aside.is_empty() {
            if worker.wait(waiting.recv_many(&mut asked, 1)) == 0 {
                return;
            }
            gather(after, &waiting);
            if !waiting.is_empty() {
                worker.wait(waiting.recv_many(&mut asked, MAX_BATCH - 1));
            }
        } else {
            // The timer belongs to the runtime, and is made within it.
            let _ = worker.wait(async { timeout(REST, waiting.recv_many(&mut asked, MAX_BATCH)).await });
        }
        let came = std::mem::take(&mut asked);
        let _at_work = after.at_work();
        // A panic outside the decisions drops the waiters' channels, and the batch worker goes on.
        if catch_unwind(AssertUnwindSafe(|| batch_worker.take(&mut worker, came))).is_err() {
            worker.leave();
        }
        count.store(batch_worker.aside.len(), Ordering::Relaxed);
    }
}

/// Waits a moment for more requests, unless there are enough, or no other worker is at work.
fn gather(after: &After, waiting: &mpsc::Receiver<Asked>) {
    for _ in 0..GATHERINGS {
        if waiting.len() >= ENOUGH || !after.is_at_work() {
            return;
        }
        std::thread::sleep(GATHERING);
    }
}

impl BatchWorker<'_> {
    fn take(&mut self, worker: &mut ConnectionWorker, came: Vec<Asked>) {
        let (held, free) = came.into_iter().partition(|asked| self.waits(asked));
        self.decide(worker, free);
        self.look_again(worker, held);
    }

    /// Whether a request of the same agent is set aside: an agent's requests are decided in their order.
    fn waits(&self, asked: &Asked) -> bool {
        self.aside.iter().any(|other| agent(other) == agent(asked))
    }

    /// Decides on a batch in one transaction. If that fails, decides on each request alone, so that one fault harms no
    /// other request.
    fn decide(&mut self, worker: &mut ConnectionWorker, batch: Vec<Asked>) {
        let mut batch = self.in_time(batch);
        let Some(first) = batch.iter().map(|asked| asked.at).min() else { return };
        let (batch, rest): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|Asked { authorization, at, waiter }| (authorization, (at, waiter))).unzip();
        let fault = match self.run(worker, &batch, first + self.max_wait, None) {
            Ok(answers) => {
                for ((_, waiter), answer) in rest.into_iter().zip(answers) {
                    // A caller that has gone away needs no answer.
                    let _ = waiter.send(answer);
                }
                return;
            }
            Err(fault) => fault,
        };
        if let Some(others) = self.repeated.due(fault.kind()) {
            tracing::error!(kind = fault.kind(), reason = %fault, others, "a batch could not be decided together");
        }
        let hopeless = worker.is_away() || (batch.len() == 1 && !worker.is_held());
        let asked = batch.into_iter().zip(rest);
        for asked in asked.map(|(authorization, (at, waiter))| Asked { authorization, at, waiter }) {
            if hopeless {
                let _ = asked.waiter.send(Err(fault.clone()));
            } else {
                self.decide_alone(worker, asked);
            }
        }
    }

    /// Decides on one request, or sets it aside if its agent is locked.
    fn decide_alone(&mut self, worker: &mut ConnectionWorker, asked: Asked) {
        if self.waits(&asked) {
            return self.put_aside(asked);
        }
        let until = asked.at + self.max_wait;
        if Instant::now() >= until {
            let _ = asked.waiter.send(Err(overdue()));
            return;
        }
        let one = std::slice::from_ref(&asked.authorization);
        let answer = match self.run(worker, one, until, Some(BRIEFLY)) {
            Err(_) if worker.is_held() => return self.put_aside(asked),
            Err(fault) => Err(fault),
            Ok(mut answers) => answers.pop().unwrap_or_else(unanswered),
        };
        let _ = asked.waiter.send(answer);
    }

    fn put_aside(&mut self, asked: Asked) {
        if self.aside.len() < MAX_WAITING {
            self.aside.push(asked);
        } else {
            let _ = asked.waiter.send(Err(overdue()));
        }
    }

    /// Tries the first request of each agent that was locked, and the agent's others if that succeeds.
    fn look_again(&mut self, worker: &mut ConnectionWorker, came: Vec<Asked>) {
        let waiting = std::mem::take(&mut self.aside).into_iter().chain(came).collect();
        let waiting = self.in_time(waiting);
        let (mut freed, mut tried, mut later) = (Vec::new(), Vec::new(), Vec::new());
        let began = Instant::now();
        for asked in waiting {
            let agent = agent(&asked);
            if self.waits(&asked) {
                self.put_aside(asked);
            } else if tried.contains(&agent) {
                freed.push(asked);
            } else if began.elapsed() < TRYING {
                tried.push(agent);
                self.decide_alone(worker, asked);
            } else {
                later.push(asked);
            }
        }
        // Requests that were not tried now are tried first the next time.
        let held = std::mem::take(&mut self.aside);
        later.into_iter().chain(held).for_each(|asked| self.put_aside(asked));
        let mut freed = freed.into_iter().peekable();
        while freed.peek().is_some() {
            self.decide(worker, freed.by_ref().take(MAX_BATCH).collect());
        }
    }

    /// The requests that may still be begun. The others are answered with an error.
    fn in_time(&self, mut asked: Vec<Asked>) -> Vec<Asked> {
        for Asked { waiter, .. } in asked.extract_if(.., |asked| asked.at.elapsed() >= self.max_wait) {
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
        bound: Option<&'static str>,
    ) -> Result<Vec<Result<Answer, Fault>>, Fault> {
        let mut span = traces::batch(batch.iter().filter_map(|a| a.traced.as_ref()), batch.len());
        let ended = worker.transact_until(until, Locks::Leave, &mut |session| {
            if let Some(bound) = bound {
                session.later(Step::plain(bound));
            }
            hot::run(session, self.decider, &mut self.known.borrow_mut(), batch)
        });
        if let Some(span) = span.as_mut().filter(|_| ended.is_err()) {
            span.fail();
        }
        drop(span);
        ended.map(|(answers, mut tally): (_, Tally)| {
            // Without a subscription to its type, an event has no delivery.
            tally.announced &= worker.count != Some(0);
            self.after.record(batch.len(), worker.committing(), &tally);
            answers
        })
    }
}

/// The agent whose requests are decided in their order.
fn agent(asked: &Asked) -> (i64, Option<mandate_core::AgentId>) {
    let caller = &asked.authorization.call.caller;
    (caller.environment.id, caller.agent.clone())
}

fn unanswered() -> Result<Answer, Fault> {
    Err(Fault::new("a batch of one was decided without an answer"))
}
