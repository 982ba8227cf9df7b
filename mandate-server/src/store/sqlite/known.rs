//! What decides on the requests of the agents that asked lately, in memory: as the newest drafts leave it.
//!
//! Each agent is marked with the batch that used it last. Until that batch has been committed the database knows less than
//! what stands here, so that the agent is not dropped to make room.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use lru::LruCache;
use mandate_core::{Currency, DecisionId, Month, Timestamp};

use super::super::decider::count;
use super::super::sql::owed::{Counted, MAX_OWED};
use super::super::tx::Tx;
use super::super::{Standing, sql};
use super::changes::News;
use crate::error::Fault;
use crate::model::records::{AgentKey, AgentState, DecisionRecord, Mode, UsageKey, UsageRecord};

/// Agents that are known at a time. One takes about a kilobyte, most of it its mandate.
const MAX_AGENTS: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
/// Months and currencies that are known of one agent.
const MAX_USAGE: usize = 8;

/// What is known.
pub(super) struct Known {
    /// The mark of the clock.
    mark: Option<Timestamp>,
    modes: BTreeMap<i64, Mode>,
    agents: LruCache<AgentKey, Agent>,
}

struct Agent {
    state: AgentState,
    /// With what is owed: `stored` is what the rows say.
    usage: Vec<(Month, Currency, UsageRecord)>,
    /// Decisions that are not in its rows.
    owed: Vec<DecisionId>,
    /// The newest batch that decided on it.
    batch: u64,
}

impl Known {
    pub(super) fn new() -> Self {
        Self { mark: None, modes: BTreeMap::new(), agents: LruCache::sparse(MAX_AGENTS) }
    }

    /// What a request that is metered under `key` is decided on; reads what is not known through `tx`. Nothing when there is
    /// no room for it, as everything is in use by batches behind `committed`; or no such agent.
    pub(super) fn find(
        &mut self,
        key: &UsageKey,
        committed: u64,
        tx: &mut Tx<'_>,
    ) -> Result<Option<Standing<'_>>, Fault> {
        let environment = key.agent.environment;
        let mode = match self.modes.get(&environment) {
            Some(mode) => *mode,
            None => *self.modes.entry(environment).or_insert(sql::environments::mode(tx, environment)?.0),
        };
        if !self.agents.contains(&key.agent) {
            if self.agents.len() == self.agents.cap().get() && !self.make_room(committed) {
                return Ok(None);
            }
            let Some(state) = sql::agents::lock(tx, &key.agent)? else { return Ok(None) };
            self.agents.put(key.agent.clone(), Agent::read(state, &key.agent, tx)?);
        }
        let Some(agent) = self.agents.get_mut(&key.agent) else { return Ok(None) };
        let Some(place) = agent.place(key, committed, tx)? else { return Ok(None) };
        let Agent { state, usage, .. } = agent;
        Ok(usage.get(place).map(|(.., usage)| Standing { mode, state, usage }))
    }

    /// The high-water mark of the instants by which decisions were made.
    pub(super) fn mark(&mut self, tx: &mut Tx<'_>) -> Result<Timestamp, Fault> {
        match self.mark {
            Some(mark) => Ok(mark),
            None => Ok(*self.mark.insert(sql::clock::mark(tx)?)),
        }
    }

    /// Takes over what was decided at `now` on one request that is metered under `key`, in the batch of that number. Gives the
    /// agent's rows when they are to be written with the decision: now and then where that is `put_off`, and else always.
    pub(super) fn keep(
        &mut self,
        key: &UsageKey,
        decision: &DecisionRecord,
        now: Timestamp,
        batch: u64,
        put_off: bool,
    ) -> Result<Option<Counted>, Fault> {
        let lost = || Fault::new("what was decided on is not known any more");
        let agent = self.agents.peek_mut(&key.agent).ok_or_else(lost)?;
        let place = agent.find(key).ok_or_else(lost)?;
        let Agent { state, usage, .. } = agent;
        let (.., usage) = usage.get_mut(place).ok_or_else(lost)?;
        count(decision, now, state, usage);
        self.mark = self.mark.map(|mark| sql::clock::raised(mark, now).unwrap_or(mark));
        let is_stored = usage.stored.is_some();
        agent.batch = batch;
        agent.owed.push(decision.id);
        let waits = put_off && is_stored && agent.owed.len() < MAX_OWED;
        Ok(if waits { None } else { agent.count(&key.agent) })
    }

    /// An agent's rows, to be written in the batch of that number whatever they lack; nothing when they lack nothing, or the
    /// agent is not known.
    pub(super) fn count(&mut self, key: &AgentKey, batch: u64) -> Option<Counted> {
        let agent = self.agents.peek_mut(key).filter(|agent| !agent.owed.is_empty())?;
        agent.batch = batch;
        agent.count(key)
    }

    /// The agents whose rows lack something.
    pub(super) fn owing(&self) -> Vec<AgentKey> {
        let owing = self.agents.iter().filter(|(_, agent)| !agent.owed.is_empty());
        owing.map(|(key, _)| key.clone()).collect()
    }

    /// Whether an agent is known.
    pub(super) fn has(&self, key: &AgentKey) -> bool {
        self.agents.contains(key)
    }

    /// Whether an agent is known, and all its rows are written or on their way.
    pub(super) fn has_counted(&self, key: &AgentKey) -> bool {
        self.agents.peek(key).is_some_and(|agent| agent.owed.is_empty())
    }

    /// Forgets what does not hold any more. True when batches behind `committed` were decided on it: the database is not to
    /// be asked before they have ended.
    pub(super) fn forget(&mut self, news: &News, committed: u64) -> bool {
        if news.everything {
            self.mark = None;
            self.modes.clear();
            let used = self.agents.iter().any(|(_, agent)| agent.batch > committed);
            self.agents.clear();
            return used;
        }
        for environment in &news.environments {
            self.modes.remove(environment);
        }
        let mut used = false;
        for key in &news.agents {
            used |= self.agents.pop(key).is_some_and(|agent| agent.batch > committed);
        }
        used
    }

    /// Drops the agent that was not asked for for longest, if the database knows all of it.
    fn make_room(&mut self, committed: u64) -> bool {
        let settled = self.agents.peek_lru().is_some_and(|(_, agent)| agent.batch <= committed);
        settled && self.agents.pop_lru().is_some()
    }
}

impl Agent {
    /// What the database says of an agent.
    fn read(state: AgentState, key: &AgentKey, tx: &mut Tx<'_>) -> Result<Self, Fault> {
        let mut agent = Self { state, usage: Vec::new(), owed: Vec::new(), batch: 0 };
        // Rows that lack something are known, so that they are all written together.
        for owed in sql::owed::find(tx, key)? {
            let usage = UsageKey { agent: key.clone(), month: owed.at.month(), currency: owed.currency };
            if agent.find(&usage).is_none() {
                let found = sql::usage::find(tx, &usage)?;
                agent.usage.push((usage.month, usage.currency, found));
            }
            agent.owed.push(owed.id);
        }
        Ok(agent)
    }

    /// Its rows, as they are to be written now: those that lack something.
    fn count(&mut self, key: &AgentKey) -> Option<Counted> {
        let decisions = std::mem::take(&mut self.owed);
        let (up_to, sequence) = (self.state.last?, self.state.sequence);
        let mut usage = Vec::new();
        for (month, currency, record) in &mut self.usage {
            let after = Some((record.spent, record.requests));
            if record.stored != after {
                let key = UsageKey { agent: key.clone(), month: *month, currency: currency.clone() };
                usage.push((key, record.clone()));
                record.stored = after;
            }
        }
        Some(Counted {
            agent: key.clone(),
            up_to,
            sequence,
            recent: self.state.recent.clone(),
            usage,
            decisions,
        })
    }

    /// Where the metering under `key` stands.
    fn find(&self, key: &UsageKey) -> Option<usize> {
        self.usage.iter().position(|(month, currency, _)| *month == key.month && *currency == key.currency)
    }

    /// Where the metering under `key` stands, read when it is not known; nothing when there is no room for it.
    fn place(&mut self, key: &UsageKey, committed: u64, tx: &mut Tx<'_>) -> Result<Option<usize>, Fault> {
        if self.find(key).is_none() {
            if self.usage.len() == MAX_USAGE {
                if self.batch > committed || !self.owed.is_empty() {
                    return Ok(None);
                }
                self.usage.clear();
            }
            let found = sql::usage::find(tx, key)?;
            self.usage.push((key.month, key.currency.clone(), found));
        }
        Ok(self.find(key))
    }
}
