//! One batch worker: batches of authorizations, decided together; and those of agents that another transaction holds, set
//! aside until they are let go or their time is over, so that no request waits for the agents of others.

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
use crate::error::Fault;
use crate::model::call::Answer;
use crate::traces;

/// How many authorizations one transaction may hold.
const MAX_BATCH: usize = 128;
/// So many need no more company.
const ENOUGH: usize = 32;
/// How often, and how long each time, it lets requests gather while other batch workers are at work. A transaction costs
/// as much as ten decisions, and others use the processors meanwhile.
const GATHERINGS: usize = 3;
const GATHERING: Duration = Duration::from_micros(100);
/// How long one that was set aside waits for its agent, each time that it is tried.
const BRIEFLY: &str = "SET LOCAL lock_timeout = '50ms'";
/// For how long agents that are held are tried, one after the other, before requests for other agents have their turn.
const TRYING: Duration = Duration::from_millis(200);
/// How long it is waited for others, before those that were set aside are tried again.
const REST: Duration = Duration::from_millis(50);

/// What a batch worker has to go by.
struct BatchWorker<'a> {
    decider: &'a dyn Decider,
    after: &'a After,
    /// How long a request may wait before it is decided.
    max_wait: Duration,
    known: RefCell<hot::Known>,
    /// What waits for an agent that another transaction holds, in the order in which it was asked.
    aside: Vec<Asked>,
}

/// Decides on what comes, until no request can come any more; `count` tells how many are set aside.
pub(super) fn serve(
    mut worker: ConnectionWorker,
    (decider, after, max_wait, count): (&dyn Decider, &After, Duration, &AtomicUsize),
    mut waiting: mpsc::Receiver<Asked>,
) {
    let mut batch_worker =
        BatchWorker { decider, after, max_wait, known: RefCell::default(), aside: Vec::new() };
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
        // A panic beside the decisions themselves drops the waiters' channels, and the batch worker goes on.
        if catch_unwind(AssertUnwindSafe(|| batch_worker.take(&mut worker, came))).is_err() {
            worker.leave();
        }
        count.store(batch_worker.aside.len(), Ordering::Relaxed);
    }
}

/// Waits a moment for more to ask, unless there are enough, or no other worker is at work.
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

    /// Whether something of the same agent was set aside: what is asked later comes later.
    fn waits(&self, asked: &Asked) -> bool {
        self.aside.iter().any(|other| agent(other) == agent(asked))
    }

    /// Decides on all of a batch together; if that ends in a fault, on each alone, so that one harms no other.
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
        tracing::error!(kind = fault.kind(), reason = %fault, "a batch could not be decided together");
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

    /// Decides on one, or sets it aside where its agent is held.
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

    /// Tries the first of each agent that was held, and what waits behind it where that one is free again.
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
        // What was not tried now is tried first the next time.
        let held = std::mem::take(&mut self.aside);
        later.into_iter().chain(held).for_each(|asked| self.put_aside(asked));
        let mut freed = freed.into_iter().peekable();
        while freed.peek().is_some() {
            self.decide(worker, freed.by_ref().take(MAX_BATCH).collect());
        }
    }

    /// What may still be begun; the others are told.
    fn in_time(&self, mut asked: Vec<Asked>) -> Vec<Asked> {
        for Asked { waiter, .. } in asked.extract_if(.., |asked| asked.at.elapsed() >= self.max_wait) {
            let _ = waiter.send(Err(overdue()));
        }
        asked
    }

    /// One transaction; after `until` nothing is begun or committed.
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
            // Where no webhook has subscribed to the event, there is nothing to deliver.
            tally.announced &= worker.count != Some(0);
            self.after.record(batch.len(), worker.committing(), &tally);
            answers
        })
    }
}

/// Whose request it is, by which requests wait for each other.
fn agent(asked: &Asked) -> (i64, Option<mandate_core::AgentId>) {
    let caller = &asked.authorization.call.caller;
    (caller.environment.id, caller.agent.clone())
}

fn unanswered() -> Result<Answer, Fault> {
    Err(Fault::new("a batch of one was decided without an answer"))
}
