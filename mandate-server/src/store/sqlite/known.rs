//! What decides on the requests of the agents that asked lately, in memory: as the newest drafts leave it.
//!
//! Each agent is marked with the batch that used it last. Until that batch has been committed the database knows less than
//! what stands here, so that the agent is not dropped to make room.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use lru::LruCache;
use mandate_core::{Currency, DecisionId, Month, Timestamp};

use super::super::records::{AgentKey, AgentState, Mode, UsageKey, UsageRecord};
use super::super::sql::owed::{Counted, MAX_OWED};
use super::super::tx::Tx;
use super::super::{Loaded, sql};
use super::changes::News;
use crate::error::Fault;

/// Agents that are known at a time. One takes about a kilobyte, most of it its mandate.
const MAX_AGENTS: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
/// Months and currencies that are known of one agent.
const MAX_USAGE: usize = 8;

/// What is known.
pub(super) struct Known {
    modes: BTreeMap<i64, Mode>,
    agents: LruCache<AgentKey, Agent>,
}

struct Agent {
    state: AgentState,
    /// With what is owed: `stored` is what the rows say.
    usage: Vec<(Month, Currency, UsageRecord)>,
    /// Decisions that are not in its rows.
    owed: u32,
    /// Its newest decision.
    newest: Option<[u8; 16]>,
    /// The newest batch that decided on it.
    batch: u64,
}

impl Known {
    pub(super) fn new() -> Self {
        Self { modes: BTreeMap::new(), agents: LruCache::sparse(MAX_AGENTS) }
    }

    /// Puts into `loaded` what a request that is metered under `key` is decided on; reads what is not known through `tx`.
    /// False when there is no room for it, as everything is in use by batches behind `committed`; or no such agent.
    pub(super) fn load(
        &mut self,
        key: &UsageKey,
        loaded: &mut Loaded,
        committed: u64,
        tx: &mut Tx<'_>,
    ) -> Result<bool, Fault> {
        let environment = key.agent.environment;
        let mode = match self.modes.get(&environment) {
            Some(mode) => *mode,
            None => *self.modes.entry(environment).or_insert(sql::environments::mode(tx, environment)?.0),
        };
        if !self.agents.contains(&key.agent) {
            if self.agents.len() == self.agents.cap().get() && !self.make_room(committed) {
                return Ok(false);
            }
            let Some(state) = sql::agents::lock(tx, &key.agent)? else { return Ok(false) };
            self.agents.put(key.agent.clone(), Agent::read(state, &key.agent, tx)?);
        }
        let Some(agent) = self.agents.get_mut(&key.agent) else { return Ok(false) };
        let Some(usage) = agent.usage(key, committed, tx)? else { return Ok(false) };
        loaded.usage.insert(key.clone(), usage.clone());
        loaded.modes.insert(environment, mode);
        loaded.agents.insert(key.agent.clone(), agent.state.clone());
        Ok(true)
    }

    /// Takes over what was decided at `now` on one request, in the batch of that number. Gives the agent's rows when they are to
    /// be written with the decision.
    pub(super) fn keep(
        &mut self,
        loaded: &Loaded,
        decision: DecisionId,
        now: Timestamp,
        batch: u64,
    ) -> Option<Counted> {
        let (key, after) = loaded.usage.first_key_value()?;
        let state = loaded.agents.get(&key.agent)?;
        let agent = self.agents.get_mut(&key.agent)?;
        agent.state.clone_from(state);
        agent.batch = batch;
        agent.owed += 1;
        let id = Some(decision.to_bytes());
        let in_order = decision.created_at() == now && id > agent.newest;
        agent.newest = agent.newest.max(id);
        let usage = agent.find(key)?;
        usage.clone_from(after);
        if usage.stored.is_some() && in_order && agent.owed < MAX_OWED {
            None
        } else {
            agent.count(&key.agent)
        }
    }

    /// Forgets what does not hold any more. True when batches behind `committed` were decided on it: the database is not to
    /// be asked before they have ended.
    pub(super) fn forget(&mut self, news: &News, committed: u64) -> bool {
        if news.everything {
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
        let newest = sql::owed::counted_up_to(tx, key)?;
        let mut agent = Self { state, usage: Vec::new(), owed: 0, newest, batch: 0 };
        // Rows that lack something are known, so that they are all written together.
        for owed in sql::owed::find(tx, key)? {
            let usage = UsageKey { agent: key.clone(), month: owed.at.month(), currency: owed.currency };
            if agent.find(&usage).is_none() {
                let found = sql::usage::find(tx, &usage)?;
                agent.usage.push((usage.month, usage.currency, found));
            }
            agent.owed += 1;
            agent.newest = Some(owed.id.to_bytes());
        }
        Ok(agent)
    }

    /// Its rows, as they are to be written now: those that lack something.
    fn count(&mut self, key: &AgentKey) -> Option<Counted> {
        self.owed = 0;
        let up_to = DecisionId::from_bytes(self.newest?);
        let mut usage = Vec::new();
        for (month, currency, record) in &mut self.usage {
            let after = Some((record.spent, record.requests));
            if record.stored != after {
                let key = UsageKey { agent: key.clone(), month: *month, currency: currency.clone() };
                usage.push((key, record.clone()));
                record.stored = after;
            }
        }
        Some(Counted { agent: key.clone(), up_to, recent: self.state.recent.clone(), usage })
    }

    fn find(&mut self, key: &UsageKey) -> Option<&mut UsageRecord> {
        let mut usage = self.usage.iter_mut();
        usage.find(|(m, c, _)| *m == key.month && *c == key.currency).map(|(.., usage)| usage)
    }

    /// The metering under `key`; nothing when there is no room for it.
    fn usage(
        &mut self,
        key: &UsageKey,
        committed: u64,
        tx: &mut Tx<'_>,
    ) -> Result<Option<&mut UsageRecord>, Fault> {
        if self.find(key).is_none() {
            if self.usage.len() == MAX_USAGE {
                if self.batch > committed || self.owed > 0 {
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
