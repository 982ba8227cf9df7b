//! What closed months have left of each agent: where its decisions go on, and the metering that those before make.

use std::collections::BTreeMap;

use mandate_core::{AgentId, Currency, DecisionId, Month, RecentRequests};

use super::usage;
use crate::error::Fault;
use crate::model::records::{AgentKey, UsageKey, UsageRecord};
use crate::store::tx::{Row, Tx};

const FIND: &str = "/* openings.find */
    SELECT environment, agent, sequence, decision, recent FROM openings WHERE environment = $1 AND agent = $2";
const PAGE: &str = "/* openings.page */
    SELECT environment, agent, sequence, decision, recent FROM openings
    WHERE (environment, agent) > ($1, $2) ORDER BY environment, agent LIMIT $3";
const KEEP: &str = "/* openings.keep */
    INSERT INTO openings (environment, agent, sequence, decision, recent) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (environment, agent) DO UPDATE
    SET sequence = excluded.sequence, decision = excluded.decision, recent = excluded.recent";
const BALANCES: &str = "/* openings.balances */
    SELECT month, currency, spent, requests, allow, review, deny_no_mandate, deny_revoked, deny_expired, deny_limit,
        deny_category, deny_velocity
    FROM balances WHERE environment = $1 AND agent = $2 ORDER BY month, currency";
const HAS_BALANCE: &str = "/* openings.has_balance */
    SELECT requests FROM balances WHERE environment = $1 AND month = $2 AND agent = $3 AND currency = $4";
const KEEP_BALANCE: &str = "/* openings.keep_balance */
    INSERT INTO balances (environment, month, agent, currency, spent, requests, allow, review, deny_no_mandate,
        deny_revoked, deny_expired, deny_limit, deny_category, deny_velocity)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    ON CONFLICT (environment, agent, month, currency) DO UPDATE
    SET spent = excluded.spent, requests = excluded.requests, allow = excluded.allow, review = excluded.review,
        deny_no_mandate = excluded.deny_no_mandate, deny_revoked = excluded.deny_revoked, deny_expired =
        excluded.deny_expired, deny_limit = excluded.deny_limit, deny_category = excluded.deny_category,
        deny_velocity = excluded.deny_velocity";

/// Where an agent's decisions go on after those of closed months.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Whose.
    pub agent: AgentKey,
    /// How many decisions are counted in its balances.
    pub sequence: i64,
    /// The newest of them.
    pub decision: DecisionId,
    /// The newest requests then.
    pub recent: RecentRequests,
}

/// The metering of an agent's decisions, by month and currency.
pub type Balances = BTreeMap<(Month, Currency), UsageRecord>;

/// An agent's opening. None if it has no decision in a closed month.
pub fn find(tx: &mut Tx<'_>, agent: &AgentKey) -> Result<Option<Opening>, Fault> {
    tx.row(FIND, &[agent.environment.into(), agent.agent.as_str().into()])?.map(read).transpose()
}

/// At most `limit` openings after an environment and an agent, in this order.
pub fn page(tx: &mut Tx<'_>, after: (i64, &str), limit: i64) -> Result<Vec<Opening>, Fault> {
    tx.query(PAGE, &[after.0.into(), after.1.into(), limit.into()])?.into_iter().map(read).collect()
}

/// Writes an opening.
pub fn keep(tx: &mut Tx<'_>, opening: &Opening) -> Result<(), Fault> {
    let Opening { agent, sequence, decision, recent } = opening;
    let row = [
        agent.environment.into(),
        agent.agent.as_str().into(),
        (*sequence).into(),
        decision.to_bytes().into(),
        recent.to_bytes().into(),
    ];
    tx.execute_one(KEEP, &row)
}

/// An agent's balances.
pub fn balances(tx: &mut Tx<'_>, agent: &AgentKey) -> Result<Balances, Fault> {
    let rows = tx.query(BALANCES, &[agent.environment.into(), agent.agent.as_str().into()])?.into_iter();
    rows.map(|mut row| {
        let key = (Month::parse(&row.text()?)?, Currency::parse(&row.text()?)?);
        Ok((key, UsageRecord { stored: None, ..usage::read(&mut row)? }))
    })
    .collect()
}

/// Whether a row of metering has a balance.
pub fn has_balance(tx: &mut Tx<'_>, key: &UsageKey) -> Result<bool, Fault> {
    let parameters = [
        key.agent.environment.into(),
        key.month.to_string().into(),
        key.agent.agent.as_str().into(),
        key.currency.as_str().into(),
    ];
    Ok(tx.row(HAS_BALANCE, &parameters)?.is_some())
}

/// Writes a balance.
pub fn keep_balance(tx: &mut Tx<'_>, key: &UsageKey, balance: &UsageRecord) -> Result<(), Fault> {
    tx.execute_one(KEEP_BALANCE, &usage::values(key, balance))
}

fn read(mut row: Row) -> Result<Opening, Fault> {
    Ok(Opening {
        agent: AgentKey { environment: row.integer()?, agent: AgentId::parse(&row.text()?)? },
        sequence: row.integer()?,
        decision: DecisionId::from_bytes(row.bytes()?),
        recent: RecentRequests::from_bytes(&row.blob()?)?,
    })
}
