//! The metering, and the month's spending.

use std::collections::BTreeSet;

use mandate_core::{AgentId, Currency, Mandate, Month, Total};

use super::checksums::USAGE;
use super::metered::Metered as Newest;
use super::uncounted::{self, UncountedDecision};
use super::{agent_rows, mandates};
use crate::error::Fault;
use crate::model::records::{AgentKey, UsageKey, UsageRecord};
use crate::store::tx::{Row, Tx, Value};

const FIND: &str = "/* usage.find */
    SELECT u.spent, u.requests, u.allow, u.review, u.deny_no_mandate, u.deny_revoked, u.deny_expired,
        u.deny_limit, u.deny_category, u.deny_velocity, u.checksum, ''
    FROM usage u
    WHERE u.environment = $1 AND u.month = $2 AND u.agent = $3 AND u.currency = $4";
const FIND_WITH_NEWEST: &str = "/* usage.find_with_newest */
    SELECT u.spent, u.requests, u.allow, u.review, u.deny_no_mandate, u.deny_revoked, u.deny_expired,
        u.deny_limit, u.deny_category, u.deny_velocity, 0::bigint, coalesce(a.metered, '')
    FROM usage u
    LEFT JOIN agents a ON a.environment = u.environment AND a.agent = u.agent
    WHERE u.environment = $1 AND u.month = $2 AND u.agent = $3 AND u.currency = $4";

const OF_MONTH: &str = "/* usage.of_month */
    SELECT currency, spent, requests, allow, review, deny_no_mandate, deny_revoked, deny_expired, deny_limit,
        deny_category, deny_velocity, checksum
    FROM usage WHERE environment = $1 AND month = $2 AND agent = $3";
/// Whether a decision that is in an agent's rows is of this month and currency.
const COUNTED: &str = "/* usage.counted */
    SELECT 1 FROM agent_decisions o
    CROSS JOIN decisions d ON d.environment = o.environment AND d.decision = o.decision
    WHERE o.environment = $1 AND o.agent = $2 AND d.currency = $3
        AND strftime('%Y-%m', d.decided_at / 1000, 'unixepoch') = $4 LIMIT 1";

/// What stood in an agent's row is newer, whatever is there.
const PUT_BACK: &str = "/* usage.put_back */
    INSERT INTO usage (environment, month, agent, currency, spent, requests, allow, review, deny_no_mandate,
        deny_revoked, deny_expired, deny_limit, deny_category, deny_velocity)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
    ON CONFLICT (environment, month, agent, currency) DO UPDATE
    SET spent = excluded.spent, requests = excluded.requests, allow = excluded.allow, review = excluded.review,
        deny_no_mandate = excluded.deny_no_mandate, deny_revoked = excluded.deny_revoked, deny_expired =
        excluded.deny_expired, deny_limit = excluded.deny_limit, deny_category = excluded.deny_category,
        deny_velocity = excluded.deny_velocity";
const KEEP: &str = "/* usage.keep */
    INSERT INTO usage (environment, month, agent, currency, spent, requests, allow, review, deny_no_mandate,
        deny_revoked, deny_expired, deny_limit, deny_category, deny_velocity, checksum)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
    ON CONFLICT (environment, month, agent, currency) DO UPDATE
    SET spent = excluded.spent, requests = excluded.requests, allow = excluded.allow, review = excluded.review,
        deny_no_mandate = excluded.deny_no_mandate, deny_revoked = excluded.deny_revoked, deny_expired =
        excluded.deny_expired, deny_limit = excluded.deny_limit, deny_category = excluded.deny_category,
        deny_velocity = excluded.deny_velocity, checksum = excluded.checksum
    WHERE usage.spent = $16 AND usage.requests = $17";

const PAGE: &str = "/* usage.page */
    SELECT '', u.agent, u.currency, u.spent, u.requests, u.allow, u.review, u.deny_no_mandate, u.deny_revoked,
        u.deny_expired, u.deny_limit, u.deny_category, u.deny_velocity, m.mandate, m.agent, m.terms, m.created_at,
        m.revoked_at, m.replaced_by, m.governs_from,
        m.revoked_after, m.governed_until
    FROM usage u
    JOIN agents a ON a.environment = u.environment AND a.agent = u.agent
    LEFT JOIN mandates m ON m.environment = a.environment AND m.mandate = a.governing
    WHERE u.environment = $1 AND u.month = $2 AND (u.agent, u.currency) > ($3, $4)
    ORDER BY u.agent, u.currency LIMIT $5";
const PAGE_OF_AGENT: &str = "/* usage.page_of_agent */
    SELECT '', u.agent, u.currency, u.spent, u.requests, u.allow, u.review, u.deny_no_mandate, u.deny_revoked,
        u.deny_expired, u.deny_limit, u.deny_category, u.deny_velocity, m.mandate, m.agent, m.terms, m.created_at,
        m.revoked_at, m.replaced_by, m.governs_from,
        m.revoked_after, m.governed_until
    FROM usage u
    JOIN agents a ON a.environment = u.environment AND a.agent = u.agent
    LEFT JOIN mandates m ON m.environment = a.environment AND m.mandate = a.governing
    WHERE u.environment = $1 AND u.month = $2 AND u.agent = $3 AND u.currency > $4
    ORDER BY u.agent, u.currency LIMIT $5";
const PAGE_WITH_NEWEST: &str = "/* usage.page_with_newest */
    SELECT a.metered, u.agent, u.currency, u.spent, u.requests, u.allow, u.review, u.deny_no_mandate,
        u.deny_revoked, u.deny_expired, u.deny_limit, u.deny_category, u.deny_velocity, m.mandate, m.agent, m.terms,
        m.created_at, m.revoked_at, m.replaced_by, m.governs_from,
        m.revoked_after, m.governed_until
    FROM usage u
    JOIN agents a ON a.environment = u.environment AND a.agent = u.agent
    LEFT JOIN mandates m ON m.environment = a.environment AND m.mandate = a.governing
    WHERE u.environment = $1 AND u.month = $2 AND (u.agent, u.currency) > ($3, $4)
    ORDER BY u.agent, u.currency LIMIT $5";
const PAGE_OF_AGENT_WITH_NEWEST: &str = "/* usage.page_of_agent_with_newest */
    SELECT a.metered, u.agent, u.currency, u.spent, u.requests, u.allow, u.review, u.deny_no_mandate,
        u.deny_revoked, u.deny_expired, u.deny_limit, u.deny_category, u.deny_velocity, m.mandate, m.agent, m.terms,
        m.created_at, m.revoked_at, m.replaced_by, m.governs_from,
        m.revoked_after, m.governed_until
    FROM usage u
    JOIN agents a ON a.environment = u.environment AND a.agent = u.agent
    LEFT JOIN mandates m ON m.environment = a.environment AND m.mandate = a.governing
    WHERE u.environment = $1 AND u.month = $2 AND u.agent = $3 AND u.currency > $4
    ORDER BY u.agent, u.currency LIMIT $5";

/// The metering of one agent in one currency, and the mandate that governs the agent now.
#[derive(Debug)]
pub struct Metered {
    /// The agent.
    pub agent: AgentId,
    /// The currency.
    pub currency: Currency,
    /// The counters.
    pub usage: UsageRecord,
    /// The newest mandate.
    pub mandate: Option<Mandate>,
}

/// The metering of one agent, month and currency. The agent must be locked. Without a row, everything that is in the agent's
/// rows is 0.
pub fn find(tx: &mut Tx<'_>, key: &UsageKey) -> Result<UsageRecord, Fault> {
    let uncounted = uncounted::find(tx, &key.agent)?;
    with(tx, key, &uncounted)
}

/// As [`find`], what the agent's rows lack being known.
pub(in crate::store) fn with(
    tx: &mut Tx<'_>,
    key: &UsageKey,
    uncounted: &[UncountedDecision],
) -> Result<UsageRecord, Fault> {
    let place: [Value; 4] = [
        key.agent.environment.into(),
        key.month.to_string().into(),
        key.agent.agent.as_str().into(),
        key.currency.as_str().into(),
    ];
    let mut usage = UsageRecord::default();
    if let Some(mut row) = tx.row(tx.either(FIND, FIND_WITH_NEWEST), &place)? {
        if tx.verifies() {
            USAGE.must_hold(&place, &row)?;
        }
        usage = read(&mut row)?;
        row.skip(1);
        take_newest(&mut usage, &row.text()?, key.month, &key.currency)?;
    } else if tx.verifies() {
        must_be_absent(tx, key, &place)?;
    }
    for uncounted in uncounted {
        uncounted.add_to(&mut usage, key.month, &key.currency);
    }
    Ok(usage)
}

/// Refuses to take a row of metering for absent that is only not found: the agent's row says how many its newest month
/// has. Of a month before, which decides only after the clock was set back, the log knows.
fn must_be_absent(tx: &mut Tx<'_>, key: &UsageKey, place: &[Value; 4]) -> Result<(), Fault> {
    let [environment, month, agent, currency] = place.clone();
    let lost = || USAGE.damaged(place, "it is not found, and its agent's row says that it is there");
    let row = agent_rows::find(tx, &key.agent)?.ok_or_else(lost)?;
    let Some(expected) = row.usage_rows(key.month) else {
        let counted = tx.row(COUNTED, &[environment, agent, currency, month])?;
        return if counted.is_none() { Ok(()) } else { Err(lost()) };
    };
    let of_month = [environment, month, agent];
    let mut currencies = BTreeSet::new();
    for mut row in tx.query(OF_MONTH, &of_month)? {
        USAGE.must_hold(&of_month, &row)?;
        currencies.insert(row.text()?);
    }
    let found = i64::try_from(currencies.len()).unwrap_or(i64::MAX);
    if found == expected && !currencies.contains(key.currency.as_str()) { Ok(()) } else { Err(lost()) }
}

/// At most `limit` rows of a month after an agent and a currency, in the order of agents and currencies;
/// of one agent, or of all.
pub fn page(
    tx: &mut Tx<'_>,
    environment: i64,
    month: Month,
    agent: Option<&AgentId>,
    after: (&str, &str),
    limit: i64,
) -> Result<Vec<Metered>, Fault> {
    let (sql, from) = match agent {
        None => (tx.either(PAGE, PAGE_WITH_NEWEST), after.0),
        Some(agent) => (tx.either(PAGE_OF_AGENT, PAGE_OF_AGENT_WITH_NEWEST), agent.as_str()),
    };
    let parameters =
        [environment.into(), month.to_string().into(), from.into(), after.1.into(), limit.into()];
    let rows = tx.query(sql, &parameters)?.into_iter();
    let rows = rows.map(|mut row| {
        let newest = row.text()?;
        let (agent, currency) = (AgentId::parse(&row.text()?)?, Currency::parse(&row.text()?)?);
        let mut usage = read(&mut row)?;
        take_newest(&mut usage, &newest, month, &currency)?;
        Ok(Metered { agent, currency, usage, mandate: mandates::read_joined(&mut row)? })
    });
    let mut page = rows.collect::<Result<Vec<_>, Fault>>()?;
    for Metered { agent, currency, usage, .. } in &mut page {
        for uncounted in uncounted::find(tx, &AgentKey { environment, agent: agent.clone() })? {
            uncounted.add_to(usage, month, currency);
        }
    }
    Ok(page)
}

/// Reads the ten counters.
pub(in crate::store) fn read(row: &mut Row) -> Result<UsageRecord, Fault> {
    let spent = Total::parse(&row.text()?)?;
    let requests = row.integer()?;
    let mut verdicts = [0; 8];
    for count in &mut verdicts {
        *count = row.integer()?;
    }
    Ok(UsageRecord { spent, requests, verdicts, stored: Some((spent, requests)) })
}

/// Takes the counters of the agent's row, where they are those of this month and currency: see `sql::metered`.
fn take_newest(
    usage: &mut UsageRecord,
    newest: &str,
    month: Month,
    currency: &Currency,
) -> Result<(), Fault> {
    if let Some(newest) = Newest::read(newest)?.filter(|newest| newest.is_of(month, currency)) {
        *usage = UsageRecord { stored: usage.stored, ..newest.usage };
    }
    Ok(())
}

/// Writes the metering that stood in the agent's row.
pub(in crate::store) fn put_back(tx: &mut Tx<'_>, key: &UsageKey, usage: &UsageRecord) -> Result<(), Fault> {
    tx.execute_one(PUT_BACK, &values(key, usage))
}

/// Writes the metering, where its rows have a checksum: on SQLite. PostgreSQL has `postgres::keep`.
///
/// # Errors
/// The row is not the one that was read: a decision for this agent was made without the lock.
pub(super) fn keep(tx: &mut Tx<'_>, key: &UsageKey, usage: &UsageRecord) -> Result<(), Fault> {
    let mut parameters = values(key, usage);
    parameters.push(USAGE.checksum(&parameters));
    // A row that was not there must still not be there: no stored row has a negative count.
    let (spent, requests) = usage.stored.unwrap_or((Total::ZERO, -1));
    parameters.push(spent.to_string().into());
    parameters.push(requests.into());
    tx.execute_one(KEEP, &parameters)
}

/// The 14 columns of a row of metering.
pub(in crate::store) fn values(key: &UsageKey, usage: &UsageRecord) -> Vec<Value> {
    let mut values: Vec<Value> = vec![
        key.agent.environment.into(),
        key.month.to_string().into(),
        key.agent.agent.as_str().into(),
        key.currency.as_str().into(),
        usage.spent.to_string().into(),
        usage.requests.into(),
    ];
    values.extend(usage.verdicts.map(Value::from));
    values
}
