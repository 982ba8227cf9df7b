//! What an agent's counters and newest requests lack: the decisions behind the one up to which they are counted.
//!
//! On SQLite each page that is written costs, and an agent's rows lie anywhere. So they are written with every few decisions
//! only, all of them together, and `agents.counted` says up to which decision. What they lack is at most [`MAX_OWED`] rows of the
//! log: whoever reads adds them up; whoever locks an agent to write settles them first. Where decisions are counted at once,
//! nothing here asks the database for anything.

use std::collections::BTreeMap;

use mandate_core::{AgentId, Amount, Currency, DecisionId, Month, RecentRequests, Timestamp, Verdict};

use super::usage;
use crate::error::Fault;
use crate::store::records::{AgentKey, UsageKey, UsageRecord};
use crate::store::tx::{Owing, Tx};

/// How many decisions an agent's rows may lack.
pub const MAX_OWED: u32 = 16;

/// Without the hint it walks the log, which has the order that is asked for.
const OWED: &str = "SELECT d.decision, d.iat, d.verdict, d.amount, d.currency, d.supersedes
    FROM agents a CROSS JOIN decisions d INDEXED BY decisions_by_agent
    WHERE a.environment = $1 AND a.agent = $2
        AND d.environment = a.environment AND d.agent = a.agent AND d.decision > a.counted
    ORDER BY d.decision";
const OWING: &str = "SELECT a.environment, a.agent FROM agents a
    WHERE (a.environment, a.agent) > ($1, $2) AND EXISTS (SELECT 1 FROM decisions d INDEXED BY decisions_by_agent
        WHERE d.environment = a.environment AND d.agent = a.agent AND d.decision > a.counted)
    ORDER BY a.environment, a.agent LIMIT $3";
const UP_TO: &str = "SELECT counted FROM agents WHERE environment = $1 AND agent = $2";
const RECENT: &str = "SELECT recent FROM agents WHERE environment = $1 AND agent = $2";
const COUNT: &str = "UPDATE agents SET recent = $1, counted = $2 WHERE environment = $3 AND agent = $4";
const COUNT_AT_ONCE: &str =
    "UPDATE agents SET counted = $1 WHERE environment = $2 AND agent = $3 AND counted < $1";

/// A decision that is not counted yet.
#[derive(Debug, Clone)]
pub struct Owed {
    /// Its id.
    pub id: DecisionId,
    /// When it was made.
    pub at: Timestamp,
    /// Its verdict.
    pub verdict: Verdict,
    /// What was asked for.
    pub amount: Amount,
    /// In which currency.
    pub currency: Currency,
    /// Whether it was a request, and not the approval of one.
    pub is_request: bool,
}

/// An agent's rows as they are to be written, all together.
#[derive(Debug)]
pub struct Counted {
    /// Whose.
    pub agent: AgentKey,
    /// The newest decision that is in them.
    pub up_to: DecisionId,
    /// The newest requests.
    pub recent: RecentRequests,
    /// The metering, where it lacks something.
    pub usage: Vec<(UsageKey, UsageRecord)>,
}

impl Owed {
    /// Adds it to the metering, if it belongs there.
    pub fn add_to(&self, usage: &mut UsageRecord, month: Month, currency: &Currency) {
        if self.at.month() == month && self.currency == *currency {
            usage.requests += i64::from(self.is_request);
            usage.add(self.verdict, self.amount);
        }
    }
}

/// What an agent's rows lack, oldest first.
pub fn find(tx: &mut Tx<'_>, key: &AgentKey) -> Result<Vec<Owed>, Fault> {
    if tx.owing() == Owing::Never {
        return Ok(Vec::new());
    }
    let rows = tx.query(OWED, &[key.environment.into(), key.agent.as_str().into()])?.into_iter();
    rows.map(|mut row| {
        let id = DecisionId::from_bytes(row.bytes()?);
        let iat = Timestamp::from_seconds(row.integer()?);
        // An id holds the millisecond, unless the clock was set back: then nothing is owed. See `Counted`.
        let at = if id.created_at().seconds() == iat.seconds() { id.created_at() } else { iat };
        Ok(Owed {
            id,
            at,
            verdict: Verdict::parse(&row.text()?)?,
            amount: Amount::parse(&row.text()?)?,
            currency: Currency::parse(&row.text()?)?,
            is_request: row.maybe_bytes::<16>()?.is_none(),
        })
    })
    .collect()
}

/// The id of the newest decision that is counted.
pub fn counted_up_to(tx: &mut Tx<'_>, key: &AgentKey) -> Result<Option<[u8; 16]>, Fault> {
    let row = tx.row(UP_TO, &[key.environment.into(), key.agent.as_str().into()])?;
    let id = row.ok_or_else(|| Fault::new("database: an agent key's agent is not there"))?.blob()?;
    // Nothing is counted of a new agent.
    Ok(id.try_into().ok())
}

/// Adds what is owed to an agent's newest requests.
pub fn add_recent(recent: &mut RecentRequests, owed: &[Owed]) {
    owed.iter().filter(|owed| owed.is_request).for_each(|owed| recent.record(owed.at));
}

/// Writes what an agent's rows lack, so that they are all that there is.
pub fn settle(tx: &mut Tx<'_>, key: &AgentKey) -> Result<(), Fault> {
    if tx.owing() != Owing::Writing {
        return Ok(());
    }
    let owed = find(tx, key)?;
    let Some(last) = owed.last() else { return Ok(()) };
    let row = tx.row(RECENT, &[key.environment.into(), key.agent.as_str().into()])?;
    let mut row = row.ok_or_else(|| Fault::new("database: decisions of an agent that is not there"))?;
    let mut recent = RecentRequests::from_bytes(&row.blob()?)?;
    add_recent(&mut recent, &owed);
    let mut months = BTreeMap::new();
    for one in &owed {
        let usage = UsageKey { agent: key.clone(), month: one.at.month(), currency: one.currency.clone() };
        if !months.contains_key(&usage) {
            months.insert(usage.clone(), usage::find(tx, &usage)?);
        }
    }
    let counted = Counted { agent: key.clone(), up_to: last.id, recent, usage: months.into_iter().collect() };
    write(tx, &counted)
}

/// At most `limit` agents behind an environment and an agent, in this order, whose rows lack something.
pub fn owing(tx: &mut Tx<'_>, after: (i64, &str), limit: i64) -> Result<Vec<AgentKey>, Fault> {
    if tx.owing() == Owing::Never {
        return Ok(Vec::new());
    }
    let rows = tx.query(OWING, &[after.0.into(), after.1.into(), limit.into()])?.into_iter();
    rows.map(|mut row| Ok(AgentKey { environment: row.integer()?, agent: AgentId::parse(&row.text()?)? }))
        .collect()
}

/// Writes an agent's rows.
pub fn write(tx: &mut Tx<'_>, counted: &Counted) -> Result<(), Fault> {
    for (key, usage) in &counted.usage {
        usage::keep(tx, key, usage)?;
    }
    let Counted { agent, up_to, recent, .. } = counted;
    let row = [
        recent.to_bytes().into(),
        up_to.to_bytes().into(),
        agent.environment.into(),
        agent.agent.as_str().into(),
    ];
    tx.execute_one(COUNT, &row)
}

/// Notes that a decision is counted as it is written: its agent is settled, and whoever writes it writes the counters too.
pub fn counted_at_once(tx: &mut Tx<'_>, agent: &AgentKey, decision: DecisionId) -> Result<(), Fault> {
    if tx.owing() == Owing::Writing {
        // One that is older than what was counted before was decided by a slower clock.
        let row = [decision.to_bytes().into(), agent.environment.into(), agent.agent.as_str().into()];
        tx.execute(COUNT_AT_ONCE, &row)?;
    }
    Ok(())
}
