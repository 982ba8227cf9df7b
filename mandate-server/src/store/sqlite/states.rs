//! The state of the agents that asked lately, in memory: what the writer decides on.
//!
//! Only the writer uses it. It is what the open transaction leaves behind, so that it is dropped as a whole when that
//! transaction is not committed, and for each agent that a script has changed.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use lru::LruCache;
use mandate_core::{Currency, Month, Timestamp};

use super::super::decider::count;
use super::super::sql::uncounted::{Counted, UncountedDecision, is_due};
use super::super::tx::{Touched, Tx};
use super::super::{AgentContext, sql};
use crate::error::Fault;
use crate::model::records::{AgentKey, AgentState, DecisionRecord, Mode, UsageKey, UsageRecord};

/// Agents in memory at a time, more than one batch can have. One takes about a kilobyte, most of it its mandate.
const MAX_AGENTS: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
/// Months and currencies of one agent that are in memory.
const MAX_USAGE: usize = 8;

/// What decides on requests.
pub(super) struct States {
    /// The high-water mark of the instants by which decisions were made.
    mark: Option<Timestamp>,
    modes: BTreeMap<i64, Mode>,
    agents: LruCache<AgentKey, Agent>,
}

struct Agent {
    state: AgentState,
    usage: Vec<Metering>,
    /// How many decisions are not in its rows.
    uncounted: usize,
}

/// The metering of a month and currency, with the decisions that are not in the agent's rows.
struct Metering {
    month: Month,
    currency: Currency,
    /// Its `stored` is what the rows say.
    record: UsageRecord,
    /// Whether it counts a decision that is not in the rows.
    is_ahead: bool,
}

impl States {
    pub(super) fn new() -> Self {
        Self { mark: None, modes: BTreeMap::new(), agents: LruCache::sparse(MAX_AGENTS) }
    }

    /// Whether the agent's metering is in so many months and currencies that it has to be written, and forgotten, first.
    pub(super) fn is_full(&self, key: &UsageKey) -> bool {
        let agent = self.agents.peek(&key.agent);
        agent.is_some_and(|agent| agent.usage.len() >= MAX_USAGE && agent.find(key).is_none())
    }

    /// What a request that is metered under `key` is decided on, none if there is no such agent. Reads through `tx` what
    /// is not in memory.
    pub(super) fn find(
        &mut self,
        key: &UsageKey,
        tx: &mut Tx<'_>,
    ) -> Result<Option<AgentContext<'_>>, Fault> {
        let environment = key.agent.environment;
        let mode = match self.modes.get(&environment) {
            Some(mode) => *mode,
            None => *self.modes.entry(environment).or_insert(sql::environments::mode(tx, environment)?.0),
        };
        if !self.agents.contains(&key.agent) {
            let Some((state, uncounted)) = sql::agents::read_with_uncounted(tx, &key.agent)? else {
                return Ok(None);
            };
            let agent = Agent::read(state, &uncounted, &key.agent, tx)?;
            self.agents.put(key.agent.clone(), agent);
        }
        let Some(agent) = self.agents.get_mut(&key.agent) else { return Ok(None) };
        let place = match agent.find(key) {
            Some(place) => place,
            None => agent.read_usage(key, tx)?,
        };
        let Agent { state, usage, .. } = agent;
        Ok(usage.get(place).map(|metering| AgentContext { mode, state, usage: &metering.record }))
    }

    /// The high-water mark of the instants by which decisions were made.
    pub(super) fn mark(&mut self, tx: &mut Tx<'_>) -> Result<Timestamp, Fault> {
        match self.mark {
            Some(mark) => Ok(mark),
            None => Ok(*self.mark.insert(sql::clock::mark(tx)?)),
        }
    }

    /// Notes the mark that a decision has left.
    pub(super) fn set_mark(&mut self, mark: Timestamp) {
        self.mark = Some(mark);
    }

    /// Counts a decision that is metered under `key`. Gives the agent's rows if they are to be written with it: see
    /// [`is_due`].
    pub(super) fn count(
        &mut self,
        key: &UsageKey,
        decision: &DecisionRecord,
    ) -> Result<Option<Counted>, Fault> {
        let lost = || Fault::new("the state that was decided on is not in memory any more");
        let agent = self.agents.peek_mut(&key.agent).ok_or_else(lost)?;
        let place = agent.find(key).ok_or_else(lost)?;
        let Agent { state, usage, uncounted } = agent;
        let metering = usage.get_mut(place).ok_or_else(lost)?;
        count(decision, decision.decided_at, state, &mut metering.record);
        metering.is_ahead = true;
        *uncounted += 1;
        let is_due = is_due(&metering.record, *uncounted);
        Ok(if is_due { agent.rows(&key.agent) } else { None })
    }

    /// How many decisions an agent's rows lack, if the agent is in memory.
    pub(super) fn uncounted(&self, key: &AgentKey) -> Option<usize> {
        self.agents.peek(key).map(|agent| agent.uncounted)
    }

    /// An agent's rows, to be written now, if the agent is in memory.
    pub(super) fn rows(&mut self, key: &AgentKey) -> Option<Counted> {
        self.agents.peek_mut(key)?.rows(key)
    }

    /// Forgets one agent.
    pub(super) fn forget_agent(&mut self, key: &AgentKey) {
        self.agents.pop(key);
    }

    /// Forgets what a script may have changed.
    pub(super) fn forget(&mut self, touched: &Touched) {
        // A script that decides, or closes the period of an export, raises the mark.
        self.mark = None;
        for environment in &touched.environments {
            self.modes.remove(environment);
        }
        for key in &touched.agents {
            self.agents.pop(key);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.mark = None;
        self.modes.clear();
        self.agents.clear();
    }
}

impl Agent {
    /// What the database says of an agent.
    fn read(
        state: AgentState,
        uncounted: &[UncountedDecision],
        key: &AgentKey,
        tx: &mut Tx<'_>,
    ) -> Result<Self, Fault> {
        let mut agent = Self { state, usage: Vec::new(), uncounted: uncounted.len() };
        // The metering that lacks something is in memory, so that it is all written together.
        for one in uncounted {
            let usage =
                UsageKey { agent: key.clone(), month: one.at.month(), currency: one.currency.clone() };
            if agent.find(&usage).is_none() {
                let record = sql::usage::with(tx, &usage, uncounted)?;
                let UsageKey { month, currency, .. } = usage;
                agent.usage.push(Metering { month, currency, record, is_ahead: true });
            }
        }
        Ok(agent)
    }

    /// Its rows, as they are to be written now: those that lack something.
    fn rows(&mut self, key: &AgentKey) -> Option<Counted> {
        self.uncounted = 0;
        let (up_to, sequence) = (self.state.last?, self.state.sequence);
        let mut usage = Vec::new();
        for Metering { month, currency, record, is_ahead } in &mut self.usage {
            if std::mem::take(is_ahead) {
                let key = UsageKey { agent: key.clone(), month: *month, currency: currency.clone() };
                usage.push((key, record.clone()));
                record.stored = Some((record.spent, record.requests));
            }
        }
        Some(Counted { agent: key.clone(), up_to, sequence, recent: self.state.recent.clone(), usage })
    }

    /// Where the metering under `key` is.
    fn find(&self, key: &UsageKey) -> Option<usize> {
        let is_meant = |one: &Metering| one.month == key.month && one.currency == key.currency;
        self.usage.iter().position(is_meant)
    }

    /// Reads the metering under `key`, and says where it is.
    fn read_usage(&mut self, key: &UsageKey, tx: &mut Tx<'_>) -> Result<usize, Fault> {
        let record = sql::usage::find(tx, key)?;
        self.usage.push(Metering {
            month: key.month,
            currency: key.currency.clone(),
            record,
            is_ahead: false,
        });
        Ok(self.usage.len() - 1)
    }
}
