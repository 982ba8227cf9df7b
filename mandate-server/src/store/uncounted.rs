//! The decisions that no agent's rows count yet, in memory: see `sql::uncounted`.
//!
//! The writer adds a decision before it commits, and removes it after a commit that has written the agent's rows. A reader
//! has a snapshot of the database, which may be older than this. It leaves out decisions that its snapshot does not have.
//! Nothing that its snapshot needs is removed before it ends.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque, vec_deque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mandate_core::DecisionId;

use crate::model::records::AgentKey;

/// How many decisions an agent's rows may lack.
pub const MAX_UNCOUNTED: usize = 16;
/// How many decisions the log may have after the oldest uncounted one before that is counted. After a crash so many rows
/// are read to find the uncounted ones again.
const MAX_SPAN: u64 = 1 << 19;
/// How many agents may have uncounted decisions before the oldest are counted. An agent takes about 450 bytes, most
/// of them room for its decisions.
const MAX_AGENTS: usize = 3 << 14;
/// Of so many decisions that are read of the end of the log, one is noted. By these it is known how many are before another.
const NOTED: u64 = 64;
/// For how many agents one transaction removes what is counted, so that none takes long after a long read.
const MAX_DROPPED: usize = 1024;

/// The decisions that are not counted yet, by agent.
#[derive(Debug)]
pub struct Uncounted {
    /// How many decisions the log may have after the oldest of these before that is counted.
    max_span: u64,
    /// How many agents there may be before the oldest are counted.
    agents: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    agents: HashMap<AgentKey, OfAgent>,
    /// Each agent with uncounted decisions, by the oldest of them.
    oldest: BTreeSet<(DecisionId, AgentKey)>,
    /// How many decisions were written.
    written: u64,
    /// What the open transaction has added.
    open: Vec<(AgentKey, DecisionId)>,
    /// One of each [`NOTED`] decisions that were read of the end of the log, until all of it was.
    read: Vec<DecisionId>,
    /// What transactions have counted, each with its number: removed when no reader has an older snapshot.
    counted: VecDeque<(u64, AgentKey, DecisionId)>,
    /// Where they begin, as the database says: now, and once the open transaction is committed.
    since: Option<DecisionId>,
    next_since: Option<DecisionId>,
    /// The newest decision that was ever written.
    newest: Option<DecisionId>,
    /// How many transactions have counted something.
    transactions: u64,
    /// How many read, by the number of transactions when they began.
    readers: BTreeMap<u64, usize>,
}

/// An agent's decisions.
#[derive(Debug)]
struct OfAgent {
    /// Oldest first. Those up to `counted` are kept for readers of older snapshots.
    ids: VecDeque<DecisionId>,
    counted: Option<DecisionId>,
    /// How many decisions were written before the oldest of these.
    written_before: u64,
}

/// A reader. It begins before its snapshot does, and ends after it.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    uncounted: &'a Uncounted,
    began: u64,
}

impl Default for Uncounted {
    fn default() -> Self {
        Self::bounded(MAX_SPAN, MAX_AGENTS)
    }
}

impl Uncounted {
    /// Without decisions, and with these bounds: for the decisions after the oldest one, and for the agents.
    #[must_use]
    pub fn bounded(max_span: u64, agents: usize) -> Self {
        // No commit is to wait while the table of so many agents is made again.
        let inner = Inner { agents: HashMap::with_capacity(agents), ..Inner::default() };
        Self { max_span, agents, inner: Mutex::new(inner) }
    }

    /// These decisions, oldest first for each agent.
    #[must_use]
    pub fn of(decisions: Vec<(AgentKey, DecisionId)>) -> Self {
        let uncounted = Self::default();
        for (agent, id) in decisions {
            uncounted.read(Some(&agent), id);
        }
        uncounted.is_read(None);
        uncounted
    }

    /// Takes over a decision that was read of the end of the log, in its order for each agent: with its agent, if that
    /// lacks it.
    pub(super) fn read(&self, agent: Option<&AgentKey>, id: DecisionId) {
        let mut inner = self.inner();
        if let Some(agent) = agent {
            inner.add(agent.clone(), id);
        }
        inner.newest = inner.newest.max(Some(id));
        if inner.written.is_multiple_of(NOTED) {
            inner.read.push(id);
        }
        inner.written += 1;
    }

    /// All of the end of the log was read, from `since` on: from now on all of it is here. Environments were read one after the
    /// other: how many decisions are before each is known only now, within [`NOTED`] for each environment.
    pub(super) fn is_read(&self, since: Option<DecisionId>) {
        let mut inner = self.inner();
        inner.since = since;
        let mut read = std::mem::take(&mut inner.read);
        // Few pieces, each in order.
        read.sort();
        for of_agent in inner.agents.values_mut() {
            let noted = of_agent.first().map_or(read.len(), |first| read.partition_point(|id| *id < first));
            of_agent.written_before = u64::try_from(noted.saturating_sub(1)).unwrap_or(u64::MAX) * NOTED;
        }
    }

    /// After how many decisions the database is updated with where these begin: few beside `max_span`.
    pub(super) fn mark_every(&self) -> usize {
        usize::try_from(self.max_span / 32).unwrap_or(usize::MAX)
    }

    /// Takes over what was read of a database that another program has changed.
    pub(super) fn replace(&self, other: Self) {
        let (mut inner, read) =
            (self.inner(), other.inner.into_inner().unwrap_or_else(PoisonError::into_inner));
        *inner =
            Inner { readers: std::mem::take(&mut inner.readers), transactions: inner.transactions, ..read };
    }

    /// Whether agents' rows lack the same decisions in this one and in `other`, and the same one is the newest.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let (here, there) = (self.inner(), other.inner());
        let is_same = |(agent, left): (&AgentKey, &OfAgent)| {
            there.agents.get(agent).is_some_and(|there| left.left().eq(there.left()))
        };
        here.newest == there.newest
            && here.oldest.len() == there.oldest.len()
            && here.agents.iter().filter(|(_, left)| left.first().is_some()).all(is_same)
    }

    /// Adds a decision of the open transaction.
    pub(super) fn add(&self, agent: &AgentKey, id: DecisionId) {
        let mut inner = self.inner();
        inner.add(agent.clone(), id);
        inner.open.push((agent.clone(), id));
    }

    /// The open transaction is committed: how many decisions it has written, the newest of them, and up to which decisions
    /// it has counted agents.
    pub(super) fn commit(
        &self,
        (written, newest): (usize, Option<DecisionId>),
        counted: Vec<(AgentKey, DecisionId)>,
    ) {
        let mut inner = self.inner();
        inner.open.clear();
        inner.newest = inner.newest.max(newest);
        inner.written += u64::try_from(written).unwrap_or(u64::MAX);
        inner.since = inner.next_since.take().or(inner.since);
        if !counted.is_empty() {
            inner.transactions += 1;
            let number = inner.transactions;
            for (agent, up_to) in counted {
                inner.count(&agent, up_to);
                inner.counted.push_back((number, agent, up_to));
            }
        }
        inner.drop_counted();
    }

    /// How many decisions the open transaction has added.
    pub(super) fn added(&self) -> usize {
        self.inner().open.len()
    }

    /// Takes back what the open transaction has added after its first `kept` decisions.
    pub(super) fn take_back(&self, kept: usize) {
        let mut inner = self.inner();
        while inner.open.len() > kept
            && let Some((agent, id)) = inner.open.pop()
        {
            inner.take_back(&agent, id);
        }
    }

    /// The open transaction was rolled back.
    pub(super) fn abort(&self) {
        self.inner().next_since = None;
        self.take_back(0);
    }

    /// A reader. What is counted from now on is kept until it ends.
    pub(super) fn reader(&self) -> Reader<'_> {
        let mut inner = self.inner();
        let began = inner.transactions;
        *inner.readers.entry(began).or_default() += 1;
        Reader { uncounted: self, began }
    }

    /// An agent's decisions after `counted`, oldest first. All of them if that is absent.
    pub(super) fn after(&self, agent: &AgentKey, counted: Option<DecisionId>) -> Vec<DecisionId> {
        let inner = self.inner();
        let Some(OfAgent { ids, .. }) = inner.agents.get(agent) else { return Vec::new() };
        let first = counted.map_or(0, |counted| ids.partition_point(|id| *id <= counted));
        ids.range(first..).copied().collect()
    }

    /// The newest decision of an agent.
    pub(super) fn last(&self, agent: &AgentKey) -> Option<DecisionId> {
        self.inner().agents.get(agent).and_then(|agent| agent.ids.back().copied())
    }

    /// Whether there is any decision of an agent.
    pub(super) fn has(&self, agent: &AgentKey) -> bool {
        self.inner().agents.contains_key(agent)
    }

    /// At most `limit` agents with decisions here, after an environment and an agent, in this order.
    pub(super) fn agents(&self, after: (i64, &str), limit: usize) -> Vec<AgentKey> {
        let inner = self.inner();
        let is_after = |key: &&AgentKey| (key.environment, key.agent.as_str()) > after;
        let mut agents: Vec<_> = inner.agents.keys().filter(is_after).cloned().collect();
        agents.sort();
        agents.truncate(limit);
        agents
    }

    /// At most `limit` decisions that follow `after` and up to `last`, in the order of environments, agents and decisions.
    pub(super) fn between(
        &self,
        after: (i64, &str, &[u8]),
        last: Option<(i64, &str, &[u8])>,
        limit: usize,
    ) -> Vec<(AgentKey, Vec<DecisionId>)> {
        let inner = self.inner();
        let name = |key: &AgentKey| (key.environment, key.agent.as_str().to_owned());
        let mut agents: Vec<_> = inner
            .agents
            .iter()
            .filter(|(key, _)| {
                let (environment, agent) = (key.environment, key.agent.as_str());
                (environment, agent) >= (after.0, after.1)
                    && last.is_none_or(|last| (environment, agent) <= (last.0, last.1))
            })
            .collect();
        agents.sort_by_key(|(key, _)| name(key));
        let (mut found, mut count) = (Vec::new(), 0);
        for (key, of_agent) in agents {
            let place = |id: &DecisionId| (key.environment, key.agent.as_str(), id.to_bytes());
            let is_between = |id: &&DecisionId| {
                let (environment, agent, id) = place(id);
                let place = (environment, agent, &id[..]);
                place > after && last.is_none_or(|last| place <= last)
            };
            let ids: Vec<_> = of_agent.ids.iter().filter(is_between).take(limit - count).copied().collect();
            count += ids.len();
            found.push((key.clone(), ids));
            if count == limit {
                break;
            }
        }
        found
    }

    /// At most `limit` agents whose rows are to be written, because too much is uncounted, or for too long.
    pub(super) fn overdue(&self, limit: usize) -> Vec<AgentKey> {
        let inner = self.inner();
        let many = inner.oldest.len().saturating_sub(self.agents);
        let is_too_old = |agent: &AgentKey| {
            inner.agents.get(agent).is_some_and(|agent| inner.written - agent.written_before > self.max_span)
        };
        let oldest = inner.oldest.iter().map(|(_, agent)| agent).enumerate();
        let overdue = oldest.take_while(|(number, agent)| *number < many || is_too_old(agent));
        overdue.map(|(_, agent)| agent).take(limit).cloned().collect()
    }

    /// Where the uncounted decisions begin, as the database says in the open transaction.
    pub(super) fn since(&self) -> Option<DecisionId> {
        let inner = self.inner();
        inner.next_since.or(inner.since)
    }

    /// The open transaction has written where the uncounted decisions begin.
    pub(super) fn begin_at(&self, id: DecisionId) {
        self.inner().next_since = Some(id);
    }

    /// Where they begin: at the oldest one or, if there is none, at the newest decision of the log.
    pub(super) fn beginning(&self) -> Option<DecisionId> {
        let inner = self.inner();
        inner.oldest.first().map(|(id, _)| *id).or(inner.newest)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for OfAgent {
    fn default() -> Self {
        // It has room for as many as an agent's rows may lack, and so does not grow.
        Self { ids: VecDeque::with_capacity(MAX_UNCOUNTED), counted: None, written_before: 0 }
    }
}

impl OfAgent {
    /// The decisions that are not counted, oldest first.
    fn left(&self) -> vec_deque::Iter<'_, DecisionId> {
        let counted = self.counted.map_or(0, |counted| self.ids.partition_point(|id| *id <= counted));
        self.ids.range(counted..)
    }

    /// The oldest of them.
    fn first(&self) -> Option<DecisionId> {
        self.left().next().copied()
    }
}

impl Inner {
    fn add(&mut self, agent: AgentKey, id: DecisionId) {
        let of_agent = self.agents.entry(agent.clone()).or_default();
        of_agent.ids.push_back(id);
        if of_agent.first() == Some(id) {
            of_agent.written_before = self.written;
            self.oldest.insert((id, agent));
        }
    }

    /// An agent lacks nothing up to a decision. It stays for those who read.
    fn count(&mut self, agent: &AgentKey, up_to: DecisionId) {
        let Some(of_agent) = self.agents.get_mut(agent) else { return };
        let before = of_agent.first();
        of_agent.counted = of_agent.counted.max(Some(up_to));
        of_agent.written_before = self.written;
        let after = of_agent.first();
        self.now_first(agent, before, after);
    }

    /// A decision was never written.
    fn take_back(&mut self, agent: &AgentKey, id: DecisionId) {
        let Some(of_agent) = self.agents.get_mut(agent) else { return };
        let before = of_agent.first();
        if of_agent.ids.pop_back_if(|newest| *newest == id).is_none() {
            of_agent.ids.retain(|other| *other != id);
        }
        let (after, is_empty) = (of_agent.first(), of_agent.ids.is_empty());
        if is_empty {
            self.agents.remove(agent);
        }
        self.now_first(agent, before, after);
    }

    fn now_first(&mut self, agent: &AgentKey, before: Option<DecisionId>, after: Option<DecisionId>) {
        if before != after {
            before.map(|id| self.oldest.remove(&(id, agent.clone())));
            self.oldest.extend(after.map(|id| (id, agent.clone())));
        }
    }

    /// Removes what is counted and what no reader needs.
    fn drop_counted(&mut self) {
        let reading = self.readers.keys().next().copied().unwrap_or(u64::MAX);
        for _ in 0..MAX_DROPPED {
            let Some((_, agent, up_to)) = self.counted.pop_front_if(|(number, ..)| *number <= reading) else {
                return;
            };
            let Some(of_agent) = self.agents.get_mut(&agent) else { continue };
            let counted = of_agent.ids.partition_point(|id| *id <= up_to);
            of_agent.ids.drain(..counted);
            if of_agent.ids.is_empty() {
                self.agents.remove(&agent);
            }
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut inner = self.uncounted.inner();
        if let Some(count) = inner.readers.get_mut(&self.began) {
            *count -= 1;
            if *count == 0 {
                inner.readers.remove(&self.began);
            }
        }
    }
}

#[cfg(test)]
mod tests;
