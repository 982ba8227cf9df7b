//! What decides on the requests of the agents that asked lately, in memory: as the newest drafts leave it.
//!
//! Each agent is marked with the batch that used it last. Until that batch has been committed the database knows less than
//! what stands here, so that the agent is not dropped to make room.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use lru::LruCache;
use mandate_core::{Currency, Month};

use super::super::records::{AgentKey, AgentState, Mode, UsageKey, UsageRecord};
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
    usage: Vec<(Month, Currency, UsageRecord)>,
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
            self.agents.put(key.agent.clone(), Agent { state, usage: Vec::new(), batch: 0 });
        }
        let Some(agent) = self.agents.get_mut(&key.agent) else { return Ok(false) };
        let Some(usage) = agent.usage(key, committed, tx)? else { return Ok(false) };
        loaded.usage.insert(key.clone(), usage.clone());
        loaded.modes.insert(environment, mode);
        loaded.agents.insert(key.agent.clone(), agent.state.clone());
        Ok(true)
    }

    /// Takes over what the batch of that number has changed.
    pub(super) fn keep(&mut self, loaded: &Loaded, batch: u64) {
        for key in &loaded.made.agents {
            if let (Some(agent), Some(state)) = (self.agents.get_mut(key), loaded.agents.get(key)) {
                agent.state.clone_from(state);
                agent.batch = batch;
            }
        }
        for key in &loaded.made.usage {
            let (Some(agent), Some(after)) = (self.agents.get_mut(&key.agent), loaded.usage.get(key)) else {
                continue;
            };
            if let Some(usage) = agent.find(key) {
                // So it will stand in the database once the draft is written.
                *usage = UsageRecord { stored: Some((after.spent, after.requests)), ..after.clone() };
            }
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
        let dropped = news.agents.iter().filter_map(|key| self.agents.pop(key));
        dropped.fold(false, |used, agent| used || agent.batch > committed)
    }

    /// Drops the agent that was not asked for for longest, if the database knows all of it.
    fn make_room(&mut self, committed: u64) -> bool {
        let settled = self.agents.peek_lru().is_some_and(|(_, agent)| agent.batch <= committed);
        settled && self.agents.pop_lru().is_some()
    }
}

impl Agent {
    fn find(&mut self, key: &UsageKey) -> Option<&mut UsageRecord> {
        let usage = self.usage.iter_mut();
        usage.into_iter().find(|(m, c, _)| *m == key.month && *c == key.currency).map(|(.., usage)| usage)
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
                if self.batch > committed {
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
