//! Requests of agents whose rows other transactions hold, until they have their turn.
//!
//! A turn belongs to one thread at a time. A thread that waits takes one agent's, and queues for its row in the database.
//! While all of those wait for other agents, a batch worker takes the turns that are left from time to time, without waiting
//! for a row. What comes for an agent meanwhile is put behind its requests that are here, so that they keep their order.
//!
//! Where events of an environment have met a held lock, all its agents wait for the same one. So one thread at most takes the
//! turns of all of them together.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::jobs::{MAX_WAITING, Owner, PendingAuthorization, full, overdue};

/// For how long batches write no event of an environment after one has met a held lock with it, such as that on a webhook's row:
/// until one is written and nothing of the environment is here, and at most so long after the last that met it. A thread that
/// waits for one waits for 3 seconds.
const MET: Duration = Duration::from_secs(4);
/// How many requests of an environment are set aside at most: a quarter of what a server has in progress, so that others have room.
const MAX_OF_ONE: usize = MAX_WAITING / 4;

/// Requests that were set aside.
#[derive(Default)]
pub(super) struct Aside {
    queues: Mutex<Queues>,
    /// Notifies the threads that wait for a turn.
    came: Notify,
}

#[derive(Default)]
struct Queues {
    /// The requests of each agent that is here, in the order in which they came, but for those whose turn it is.
    requests: BTreeMap<Owner, VecDeque<PendingAuthorization>>,
    /// The agents whose turn it is not, the next one first.
    turns: VecDeque<Owner>,
    /// When an event of these environments has last met a held lock.
    met: BTreeMap<i64, Instant>,
    /// Those of them for which a thread waits.
    awaited: BTreeSet<i64>,
    /// How many requests are here, with those whose turn it is.
    count: usize,
    is_closed: bool,
}

/// The turn of some agents. It ends with [`Aside::back`].
pub(super) struct Turn {
    owners: Vec<Owner>,
    /// How many requests were taken with it.
    taken: usize,
    /// It is of agents of this environment, whose events have met a held lock.
    met: Option<i64>,
}

impl Turn {
    /// Whether events of its agents have met a held lock.
    pub(super) fn has_met(&self) -> bool {
        self.met.is_some()
    }
}

impl Aside {
    /// How many requests are here.
    pub(super) fn count(&self) -> usize {
        self.queues().count
    }

    /// Puts requests behind others of their agents that are here. Returns those of agents that are not.
    pub(super) fn join(&self, came: Vec<PendingAuthorization>) -> Vec<PendingAuthorization> {
        let mut queues = self.queues();
        if queues.requests.is_empty() {
            return came;
        }
        let (here, others): (Vec<_>, Vec<_>) =
            came.into_iter().partition(|asked| queues.requests.contains_key(&asked.owner()));
        let is_any = !here.is_empty();
        for asked in here {
            queues.add(asked);
        }
        drop(queues);
        if is_any {
            self.came.notify_waiters();
        }
        others
    }

    /// Notes that events of environments have met a held lock.
    pub(super) fn note_met(&self, environments: &BTreeSet<i64>) {
        let now = Instant::now();
        self.queues().met.extend(environments.iter().map(|environment| (*environment, now)));
    }

    /// Notes that events of environments were written.
    pub(super) fn note_written(&self, environments: &BTreeSet<i64>) {
        let mut queues = self.queues();
        for environment in environments {
            if queues.waiting_of(*environment) == 0 {
                queues.met.remove(environment);
            }
        }
    }

    /// The environments whose events have met a held lock just now.
    pub(super) fn met(&self) -> BTreeSet<i64> {
        let queues = self.queues();
        queues.met.keys().copied().filter(|environment| queues.has_met(*environment)).collect()
    }

    /// Sets requests aside whose agents' rows are held.
    pub(super) fn put(&self, held: Vec<PendingAuthorization>) {
        let mut queues = self.queues();
        for asked in held {
            queues.add(asked);
        }
        drop(queues);
        self.came.notify_waiters();
    }

    /// Waits for the turn of an agent, or of all agents of an environment whose events have met a held lock, with its `most`
    /// oldest requests. None once no turn can come any more.
    pub(super) async fn next(&self, most: usize) -> Option<(Turn, Vec<PendingAuthorization>)> {
        loop {
            // What comes from here on is not missed.
            let came = self.came.notified();
            {
                let mut queues = self.queues();
                if let Some(turn) = queues.next(most) {
                    return Some(turn);
                }
                if queues.is_closed {
                    return None;
                }
            }
            came.await;
        }
    }

    /// The turn of as many agents as wait for one, with `most` requests together. None if no agent waits.
    pub(super) fn take(&self, most: usize) -> Option<(Turn, Vec<PendingAuthorization>)> {
        let mut queues = self.queues();
        let (mut owners, mut taken) = (Vec::new(), Vec::new());
        while taken.len() < most
            && let Some(owner) = queues.turns.pop_front()
        {
            let room = most - taken.len();
            taken.append(&mut queues.oldest(&owner, room));
            owners.push(owner);
        }
        if owners.is_empty() { None } else { Some((Turn { owners, taken: taken.len(), met: None }, taken)) }
    }

    /// Ends a turn. Of its requests, `held` were not answered.
    pub(super) fn back(&self, turn: Turn, held: Vec<PendingAuthorization>) {
        let mut queues = self.queues();
        if let Some(environment) = turn.met {
            queues.awaited.remove(&environment);
        }
        queues.count = queues.count.saturating_sub(turn.taken.saturating_sub(held.len()));
        for asked in held.into_iter().rev() {
            queues.requests.entry(asked.owner()).or_default().push_front(asked);
        }
        for owner in turn.owners {
            if queues.requests.get(&owner).is_none_or(VecDeque::is_empty) {
                queues.requests.remove(&owner);
            } else {
                queues.turns.push_back(owner);
            }
        }
        drop(queues);
        self.came.notify_waiters();
    }

    /// Answers the requests whose time is over with an error.
    pub(super) fn expire(&self, max_wait: Duration) {
        let mut queues = self.queues();
        let mut expired = 0;
        for queue in queues.requests.values_mut() {
            while let Some(asked) = queue.pop_front_if(|asked| asked.at.elapsed() >= max_wait) {
                let _ = asked.waiter.send(Err(overdue()));
                expired += 1;
            }
        }
        queues.count = queues.count.saturating_sub(expired);
    }

    /// Ends the threads that wait for a turn, once there is none left.
    pub(super) fn close(&self) {
        self.queues().is_closed = true;
        self.came.notify_waiters();
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    fn add(&mut self, asked: PendingAuthorization) {
        if self.count >= MAX_WAITING || self.waiting_of(asked.owner().0) >= MAX_OF_ONE {
            let _ = asked.waiter.send(Err(full()));
            return;
        }
        self.count += 1;
        match self.requests.entry(asked.owner()) {
            Entry::Occupied(mut queue) => queue.get_mut().push_back(asked),
            Entry::Vacant(place) => {
                self.turns.push_back(place.key().clone());
                place.insert(VecDeque::from([asked]));
            }
        }
    }

    /// How many requests of an environment are here, without those whose turn it is.
    fn waiting_of(&self, environment: i64) -> usize {
        let of_one = self.requests.range((environment, None)..(environment.saturating_add(1), None));
        of_one.map(|(_, queue)| queue.len()).sum()
    }

    fn has_met(&self, environment: i64) -> bool {
        self.met.get(&environment).is_some_and(|at| at.elapsed() < MET)
    }

    /// The next turn that a thread may wait with.
    fn next(&mut self, most: usize) -> Option<(Turn, Vec<PendingAuthorization>)> {
        let place = self.turns.iter().position(|(environment, _)| !self.awaited.contains(environment))?;
        let first = self.turns.remove(place)?;
        let environment = first.0;
        let mut asked = self.oldest(&first, most);
        let mut owners = vec![first];
        let met = Some(environment).filter(|environment| self.has_met(*environment));
        if met.is_some() {
            self.awaited.insert(environment);
            for owner in std::mem::take(&mut self.turns) {
                if owner.0 == environment && asked.len() < most {
                    asked.append(&mut self.oldest(&owner, most - asked.len()));
                    owners.push(owner);
                } else {
                    self.turns.push_back(owner);
                }
            }
        }
        Some((Turn { owners, taken: asked.len(), met }, asked))
    }

    /// Takes the oldest requests of an agent. Its queue stays, so that others join it.
    fn oldest(&mut self, owner: &Owner, most: usize) -> Vec<PendingAuthorization> {
        let Some(queue) = self.requests.get_mut(owner) else { return Vec::new() };
        let most = most.min(queue.len());
        queue.drain(..most).collect()
    }
}
