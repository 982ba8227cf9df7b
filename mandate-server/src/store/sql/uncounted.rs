//! The decisions that an agent's rows do not count yet: those after `agents.last_decision`.
//!
//! On SQLite each page that is written costs, and an agent's rows lie anywhere: its counters, and its decisions in
//! `agent_decisions`. So they are written with every few decisions only, all of them together, and
//! `agents.last_decision` says up to which decision. After it are at most about [`MAX_UNCOUNTED`] rows of the log for
//! each agent. `Uncounted` has their ids in memory, and readers add them. `uncounted.since` says where in the log they
//! begin, for a process that has not read them yet. Where decisions are counted at once, nothing here queries the
//! database.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use mandate_core::{Amount, Currency, DecisionId, Month, RecentRequests, Timestamp, Verdict};

use super::agent_rows::{self, AgentRow};
use super::checksums::DECISIONS;
use super::usage;
use crate::error::Fault;
use crate::model::records::{AgentKey, UsageKey, UsageRecord};
use crate::store::tx::{Counting, Row, Tx, Value};
use crate::store::uncounted::MAX_UNCOUNTED;

/// Ids that a statement takes at a time, one after the other in one value. Statements list where each begins: 1, 17, 33, …
const AT_ONCE: usize = 32;

const UNCOUNTED: &str = "/* uncounted.find */
    SELECT d.decision, d.sequence, d.decided_at, d.verdict, d.amount, d.currency, d.supersedes
    FROM (VALUES (1), (17), (33), (49), (65), (81), (97), (113), (129), (145), (161), (177), (193), (209),
        (225), (241), (257), (273), (289), (305), (321), (337), (353), (369), (385), (401), (417), (433), (449),
        (465), (481), (497)) id
    CROSS JOIN decisions d
    WHERE d.environment = $1 AND id.column1 < length($2) AND d.decision = substr($2, id.column1, 16)
    ORDER BY d.decision";
const WHOLE: &str = "/* uncounted.whole */
    SELECT d.environment, d.decision, d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount,
        d.currency, d.recipient, d.category, d.mode, d.reason, d.denials, d.spent, d.recent_requests, d.supersedes,
        d.review, d.issuer, d.signing_key, d.signature, d.checksum
    FROM (VALUES (1), (17), (33), (49), (65), (81), (97), (113), (129), (145), (161), (177), (193), (209),
        (225), (241), (257), (273), (289), (305), (321), (337), (353), (369), (385), (401), (417), (433), (449),
        (465), (481), (497)) id
    CROSS JOIN decisions d
    WHERE d.environment = $1 AND id.column1 < length($2) AND d.decision = substr($2, id.column1, 16)
    ORDER BY d.decision";
/// Where the columns of [`UNCOUNTED`] are among those of [`WHOLE`].
const OF_WHOLE: [usize; 7] = [1, 2, 3, 4, 8, 9, 17];
const INDEX: &str = "/* uncounted.index */ INSERT INTO agent_decisions (environment, agent, decision)
    SELECT $1, $2, substr($3, id.column1, 16)
    FROM (VALUES (1), (17), (33), (49), (65), (81), (97), (113), (129), (145), (161), (177), (193), (209),
        (225), (241), (257), (273), (289), (305), (321), (337), (353), (369), (385), (401), (417), (433), (449),
        (465), (481), (497)) id
    WHERE id.column1 < length($3)";
const UP_TO: &str =
    "/* uncounted.up_to */ SELECT last_decision FROM agents WHERE environment = $1 AND agent = $2";

/// A decision that is not counted yet.
#[derive(Debug, Clone)]
pub struct UncountedDecision {
    /// Its id.
    pub id: DecisionId,
    /// Its number among its agent's decisions.
    pub sequence: i64,
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
    /// Its number.
    pub sequence: i64,
    /// The newest requests.
    pub recent: RecentRequests,
    /// The metering, where it lacks something.
    pub usage: Vec<(UsageKey, UsageRecord)>,
}

impl UncountedDecision {
    /// Adds it to the metering, if it belongs there.
    pub fn add_to(&self, usage: &mut UsageRecord, month: Month, currency: &Currency) {
        if self.at.month() == month && self.currency == *currency {
            usage.requests += i64::from(self.is_request);
            usage.add(self.verdict, self.amount);
        }
    }
}

/// The ids of what an agent's rows lack, oldest first. Some may not be in the log: a transaction that writes them has not
/// ended.
pub(in crate::store) fn ids(tx: &mut Tx<'_>, key: &AgentKey) -> Result<Vec<DecisionId>, Fault> {
    if tx.counting() == Counting::AtOnce {
        return Ok(Vec::new());
    }
    let uncounted = tx.uncounted()?;
    if !uncounted.has(key) {
        return Ok(Vec::new());
    }
    // A new agent has no row here; neither has one that is missing, which `check` finds.
    let Some(row) = tx.row(UP_TO, &[key.environment.into(), key.agent.as_str().into()])? else {
        return Ok(Vec::new());
    };
    Ok(uncounted.after(key, id(row)?))
}

/// What an agent's rows lack, oldest first.
///
/// # Errors
/// An uncounted decision is not in the log, or its checksum does not hold: where this transaction verifies.
pub fn find(tx: &mut Tx<'_>, key: &AgentKey) -> Result<Vec<UncountedDecision>, Fault> {
    let ids = ids(tx, key)?;
    if !tx.verifies() {
        return named(tx, UNCOUNTED, key.environment, &ids)?.into_iter().map(read).collect();
    }
    let rows = whole(tx, key.environment, &ids)?.into_iter().map(|row| {
        let columns = row.into_values().into_iter().enumerate().filter(|(place, _)| OF_WHOLE.contains(place));
        read(Row::new(columns.map(|(_, value)| value).collect()))
    });
    rows.collect()
}

/// The whole rows of these decisions. All must be in the log, and their checksums hold.
fn whole(tx: &mut Tx<'_>, environment: i64, ids: &[DecisionId]) -> Result<Vec<Row>, Fault> {
    let rows = named(tx, WHOLE, environment, ids)?;
    rows.iter().try_for_each(|row| DECISIONS.must_hold(&[], row))?;
    if rows.len() == ids.len() {
        return Ok(rows);
    }
    let is_found = |id: &DecisionId| rows.iter().any(|row| row.rest().get(1) == Some(&id.to_bytes().into()));
    let missing = ids.iter().find(|id| !is_found(id)).map(|id| id.to_bytes());
    Err(DECISIONS.damaged(&[environment.into(), missing.into()], "it is wanted, and is not found"))
}

/// The rows that `sql` has of these ids.
pub(super) fn named(
    tx: &mut Tx<'_>,
    sql: &'static str,
    environment: i64,
    ids: &[DecisionId],
) -> Result<Vec<Row>, Fault> {
    let mut rows = Vec::with_capacity(ids.len());
    for ids in ids.chunks(AT_ONCE) {
        rows.extend(tx.query(sql, &[environment.into(), joined(ids)])?);
    }
    Ok(rows)
}

fn joined(ids: &[DecisionId]) -> Value {
    Value::Blob(ids.iter().flat_map(|id| id.to_bytes()).collect())
}

fn read(mut row: Row) -> Result<UncountedDecision, Fault> {
    Ok(UncountedDecision {
        id: DecisionId::from_bytes(row.bytes()?),
        sequence: row.integer()?,
        at: Timestamp::from_millis(row.integer()?),
        verdict: Verdict::parse(&row.text()?)?,
        amount: Amount::parse(&row.text()?)?,
        currency: Currency::parse(&row.text()?)?,
        is_request: row.maybe_bytes::<16>()?.is_none(),
    })
}

/// The newest decision that is counted: none of a new agent, nor of one that is not there.
pub fn counted_up_to(tx: &mut Tx<'_>, key: &AgentKey) -> Result<Option<DecisionId>, Fault> {
    let row = tx.row(UP_TO, &[key.environment.into(), key.agent.as_str().into()])?;
    row.map_or(Ok(None), id)
}

/// An id, or nothing where the column is empty.
fn id(mut row: Row) -> Result<Option<DecisionId>, Fault> {
    Ok(row.blob()?.try_into().ok().map(DecisionId::from_bytes))
}

/// Whether an agent's rows are written with a decision that is metered in `usage`: with the first of a month and currency,
/// and with that which is the last of the `lacking` that they may lack.
#[must_use]
pub fn is_due(usage: &UsageRecord, lacking: usize) -> bool {
    usage.stored.is_none() || lacking >= MAX_UNCOUNTED
}

/// Adds uncounted decisions to an agent's newest requests.
pub fn add_recent(recent: &mut RecentRequests, uncounted: &[UncountedDecision]) {
    uncounted
        .iter()
        .filter(|uncounted| uncounted.is_request)
        .for_each(|uncounted| recent.record(uncounted.at));
}

/// Writes what an agent's rows lack, so that they are all that there is.
pub fn count(tx: &mut Tx<'_>, key: &AgentKey) -> Result<(), Fault> {
    if tx.counting() != Counting::Writing {
        return Ok(());
    }
    let uncounted = find(tx, key)?;
    let Some(last) = uncounted.last() else {
        // Its rows were written earlier in this transaction.
        if let Some(last) = tx.uncounted()?.last(key) {
            tx.counted(key, last);
        }
        return Ok(());
    };
    let AgentRow { mut recent, .. } = row(tx, key)?;
    add_recent(&mut recent, &uncounted);
    let mut months = BTreeMap::new();
    for one in &uncounted {
        let usage = UsageKey { agent: key.clone(), month: one.at.month(), currency: one.currency.clone() };
        if let Entry::Vacant(place) = months.entry(usage) {
            let found = usage::with(tx, place.key(), &uncounted)?;
            place.insert(found);
        }
    }
    let usage = months.into_iter().collect();
    write(tx, &Counted { agent: key.clone(), up_to: last.id, sequence: last.sequence, recent, usage })
}

fn row(tx: &mut Tx<'_>, key: &AgentKey) -> Result<AgentRow, Fault> {
    let row = agent_rows::find(tx, key)?;
    row.ok_or_else(|| Fault::corrupt("database: decisions of an agent that is not there"))
}

/// At most `limit` agents behind an environment and an agent, in this order, whose rows lack something.
pub fn agents(tx: &mut Tx<'_>, after: (i64, &str), limit: usize) -> Result<Vec<AgentKey>, Fault> {
    if tx.counting() == Counting::AtOnce {
        return Ok(Vec::new());
    }
    Ok(tx.uncounted()?.agents(after, limit))
}

/// Writes an agent's rows.
pub fn write(tx: &mut Tx<'_>, counted: &Counted) -> Result<(), Fault> {
    let Counted { agent, up_to, sequence, recent, usage } = counted;
    let mut row = row(tx, agent)?;
    for (key, usage) in usage {
        usage::keep(tx, key, usage)?;
        if usage.stored.is_none() {
            row.add_usage(key.month);
        }
    }
    let mut decisions = tx.uncounted()?.after(agent, row.last);
    decisions.retain(|id| id <= up_to);
    index(tx, agent, &decisions)?;
    (row.recent, row.sequence, row.last) = (recent.clone(), *sequence, Some(*up_to));
    agent_rows::write(tx, agent, &row)?;
    tx.counted(agent, *up_to);
    Ok(())
}

/// Notes that a decision is in the log, and that its agent's rows do not count it yet.
pub fn add(tx: &mut Tx<'_>, agent: &AgentKey, decision: DecisionId) -> Result<(), Fault> {
    tx.uncounted()?.add(agent, decision);
    Ok(())
}

/// Writes which decisions are an agent's.
fn index(tx: &mut Tx<'_>, agent: &AgentKey, decisions: &[DecisionId]) -> Result<(), Fault> {
    for ids in decisions.chunks(AT_ONCE) {
        let written =
            tx.execute(INDEX, &[agent.environment.into(), agent.agent.as_str().into(), joined(ids)])?;
        if written != ids.len() {
            return Err(Fault::corrupt(
                "database: fewer of an agent's decisions were written than were to be",
            ));
        }
    }
    Ok(())
}
