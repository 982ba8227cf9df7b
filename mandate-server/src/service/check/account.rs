//! What is known of one agent's decisions so far: their chain, and the metering that they make. It begins with what closed
//! months have left.

use std::collections::{BTreeSet, VecDeque};

use mandate_core::{Currency, Month};

use super::chain::Chain;
use crate::error::Fault;
use crate::model::records::{AgentKey, DecisionRecord, UsageKey};
use crate::store::sql::openings::{self, Balances, Opening};
use crate::store::tx::Tx;

/// How many openings are held in memory at a time.
const PAGE: i64 = 1_024;

/// The decisions of one agent so far.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Its decisions in their order.
    pub(super) chain: Chain,
    /// The metering that they make.
    pub(super) months: Balances,
    /// The newest sequence that the opening counts.
    counted: i64,
    /// Which metering has grown since the opening.
    grown: BTreeSet<(Month, Currency)>,
}

impl Account {
    /// Begins after the decisions that an opening counts.
    pub(super) fn open(tx: &mut Tx<'_>, opening: Opening) -> Result<Self, Fault> {
        let months = openings::balances(tx, &opening.agent)?;
        let spent = months.iter().map(|(key, usage)| (key.clone(), usage.spent)).collect();
        let counted = opening.sequence;
        Ok(Self { chain: Chain::after(opening, spent), months, counted, grown: BTreeSet::new() })
    }

    /// Checks and counts the next decision. One that the opening counts has stayed for its review or escrow.
    pub(super) fn take(&mut self, decision: &DecisionRecord) -> Vec<(String, String)> {
        if decision.sequence <= self.counted {
            return Vec::new();
        }
        let wrong = self.chain.take(decision);
        let key = (decision.decided_at.month(), decision.request.currency.clone());
        let usage = self.months.entry(key.clone()).or_default();
        usage.requests += i64::from(decision.supersedes.is_none());
        usage.count(decision.verdict, &decision.request);
        self.grown.insert(key);
        wrong
    }

    /// Writes it as the agent's opening, if it has grown.
    pub(super) fn keep(&self, tx: &mut Tx<'_>, agent: &AgentKey) -> Result<(), Fault> {
        let Some(opening) = self.chain.opening(agent).filter(|_| !self.grown.is_empty()) else {
            return Ok(());
        };
        openings::keep(tx, &opening)?;
        for (month, currency) in &self.grown {
            let key = UsageKey { agent: agent.clone(), month: *month, currency: currency.clone() };
            if let Some(balance) = self.months.get(&(*month, currency.clone())) {
                openings::keep_balance(tx, &key, balance)?;
            }
        }
        Ok(())
    }
}

/// All openings, in the order of their agents, a page at a time.
#[derive(Debug, Default)]
pub(super) struct Openings {
    page: VecDeque<Opening>,
    last: Option<AgentKey>,
    has_ended: bool,
}

impl Openings {
    /// The next one, if its agent is no later than `up_to`.
    pub(super) fn next(
        &mut self,
        tx: &mut Tx<'_>,
        up_to: Option<(i64, &str)>,
    ) -> Result<Option<Opening>, Fault> {
        if self.page.is_empty() && !self.has_ended {
            let after = self.last.as_ref().map_or((i64::MIN, ""), place);
            let page = openings::page(tx, after, PAGE)?;
            self.has_ended = page.is_empty();
            self.last = page.last().map(|opening| opening.agent.clone());
            self.page = page.into();
        }
        let next = self.page.front().map(|opening| place(&opening.agent));
        let is_due = next.is_some_and(|next| up_to.is_none_or(|up_to| next <= up_to));
        Ok(if is_due { self.page.pop_front() } else { None })
    }
}

fn place(agent: &AgentKey) -> (i64, &str) {
    (agent.environment, agent.agent.as_str())
}
