//! Agents and what decides on their requests.

use std::sync::Arc;

use mandate_core::{AgentId, DecisionId, MandateId, RecentRequests, Timestamp};

use super::agent_rows::AgentRow;
use super::checksums::{AGENTS, MANDATES};
use super::uncounted::UncountedDecision;
use super::{agent_rows, mandates, metered, uncounted};
use crate::error::Fault;
use crate::model::records::{AgentKey, AgentState, Direction, Position, Slice};
use crate::store::tx::{Row, Tx, Value};

const INSERT: &str = "/* agents.insert */
    INSERT INTO agents (environment, agent, position, created_at, governing, recent)
    VALUES ($1, $2, $3, $4, NULL, $5) ON CONFLICT DO NOTHING";
const HOLD: &str = "/* agents.hold */
    SELECT 1 FROM agents WHERE environment = $1 AND agent = $2 FOR NO KEY UPDATE";
const STATE: &str = "/* agents.state */
    SELECT '', a.governing, a.recent, a.sequence, a.last_decision, a.newest_month, a.newest_rows, a.checksum, m.mandate,
        m.agent, m.terms, m.created_at, m.revoked_at, m.replaced_by, m.governs_from, m.revoked_after, m.governed_until,
        m.checksum
    FROM agents a
    LEFT JOIN mandates m ON m.environment = a.environment AND m.mandate = a.governing
    WHERE a.environment = $1 AND a.agent = $2";
const STATE_WITH_METERING: &str = "/* agents.state_with_metering */
    SELECT a.metered, a.governing, a.recent, a.sequence, a.last_decision, '', 0::bigint, 0::bigint, m.mandate,
        m.agent, m.terms, m.created_at, m.revoked_at, m.replaced_by, m.governs_from, m.revoked_after, m.governed_until,
        0::bigint
    FROM agents a
    LEFT JOIN mandates m ON m.environment = a.environment AND m.mandate = a.governing
    WHERE a.environment = $1 AND a.agent = $2";
const LAST: &str = "/* agents.last */
    SELECT sequence, last_decision FROM agents WHERE environment = $1 AND agent = $2";
const GOVERN: &str = "/* agents.govern */
    UPDATE agents SET governing = $1 WHERE environment = $2 AND agent = $3";
const FIND: &str = "/* agents.find */
    SELECT agent, position, created_at, governing FROM agents WHERE environment = $1 AND agent = $2";
const OLDER: &str = "/* agents.older */ SELECT agent, position, created_at, governing FROM agents
    WHERE environment = $1 AND position < $2 ORDER BY position DESC LIMIT $3";
pub(super) const NEWER: &str = "/* agents.newer */ SELECT agent, position, created_at, governing FROM agents
    WHERE environment = $1 AND position > $2 ORDER BY position ASC LIMIT $3";

/// An agent as it is listed.
#[derive(Debug)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// Its place in the order of creation.
    pub position: Position,
    /// When it was registered.
    pub created_at: Timestamp,
    /// The mandate that governs it, whatever its status.
    pub governing: Option<MandateId>,
}

/// Registers an agent. False when the name is taken.
pub fn insert(tx: &mut Tx<'_>, environment: i64, agent: &Agent) -> Result<bool, Fault> {
    let recent = RecentRequests::default().to_bytes();
    let row: [Value; 5] = [
        environment.into(),
        agent.id.as_str().into(),
        agent.position.into(),
        agent.created_at.millis().into(),
        recent.into(),
    ];
    let is_new = tx.execute(INSERT, &row)? == 1;
    if is_new {
        AGENTS.seal(tx, &row[..2])?;
    }
    Ok(is_new)
}

/// Locks an agent, to decide on its requests or to change what decides, and reads that.
pub fn lock(tx: &mut Tx<'_>, key: &AgentKey) -> Result<Option<AgentState>, Fault> {
    tx.touch(key);
    tx.hold(HOLD, &[key.environment.into(), key.agent.as_str().into()])?;
    read_state(tx, key)
}

/// Reads what decides on an agent's requests. The caller has locked the agent.
pub fn read_state(tx: &mut Tx<'_>, key: &AgentKey) -> Result<Option<AgentState>, Fault> {
    Ok(read_with_uncounted(tx, key)?.map(|(state, _)| state))
}

/// As [`read_state`], with the decisions that the agent's rows lack.
///
/// # Errors
/// The mandate that governs is not there, or a checksum does not hold.
pub(in crate::store) fn read_with_uncounted(
    tx: &mut Tx<'_>,
    key: &AgentKey,
) -> Result<Option<(AgentState, Vec<UncountedDecision>)>, Fault> {
    let parameters = agent_rows::key(key);
    let Some(mut row) = tx.row(tx.either(STATE, STATE_WITH_METERING), &parameters)? else { return Ok(None) };
    let metered = row.text()?;
    if tx.verifies() {
        AGENTS.must_hold(&parameters, &row)?;
    }
    let AgentRow { governing, recent, sequence, last, .. } = AgentRow::read(&mut row)?;
    let [environment, _] = parameters;
    if tx.verifies() && governing.is_some() {
        MANDATES.must_hold(std::slice::from_ref(&environment), &row)?;
    }
    let mandate = mandates::read_joined(&mut row)?.map(Arc::new);
    if let Some(governing) = governing.filter(|_| mandate.is_none()) {
        let place = [environment, governing.to_bytes().into()];
        return Err(MANDATES.damaged(&place, "it governs its agent, and is not there"));
    }
    metered::put_back(tx, key, &metered)?;
    let mut state = AgentState { mandate, recent, sequence, last };
    let uncounted = uncounted::find(tx, key)?;
    uncounted::add_recent(&mut state.recent, &uncounted);
    if let Some(newest) = uncounted.last() {
        (state.sequence, state.last) = (newest.sequence, Some(newest.id));
    }
    Ok(Some((state, uncounted)))
}

/// Reads the number and the id of an agent's newest decision.
pub(in crate::store) fn read_last(row: &mut Row) -> Result<(i64, Option<DecisionId>), Fault> {
    Ok((row.integer()?, row.blob()?.try_into().ok().map(DecisionId::from_bytes)))
}

/// The number and the id of an agent's newest decision.
pub fn last(tx: &mut Tx<'_>, key: &AgentKey) -> Result<Option<(i64, Option<DecisionId>)>, Fault> {
    let Some(mut row) = tx.row(LAST, &[key.environment.into(), key.agent.as_str().into()])? else {
        return Ok(None);
    };
    let stored = read_last(&mut row)?;
    let uncounted = uncounted::find(tx, key)?;
    Ok(Some(uncounted.last().map_or(stored, |newest| (newest.sequence, Some(newest.id)))))
}

/// Makes `mandate` the one that governs the agent.
pub fn govern(tx: &mut Tx<'_>, key: &AgentKey, mandate: MandateId) -> Result<(), Fault> {
    tx.touch(key);
    let place = agent_rows::key(key);
    let [environment, agent] = place.clone();
    AGENTS.change(tx, &place, GOVERN, &[mandate.to_bytes().into(), environment, agent])
}

/// One agent.
pub fn find(tx: &mut Tx<'_>, environment: i64, agent: &AgentId) -> Result<Option<Agent>, Fault> {
    tx.row(FIND, &[environment.into(), agent.as_str().into()])?.map(read).transpose()
}

/// A slice of the agents of an environment.
pub fn page(tx: &mut Tx<'_>, environment: i64, slice: &Slice) -> Result<Vec<Agent>, Fault> {
    let sql = match slice.direction {
        Direction::Older => OLDER,
        Direction::Newer => NEWER,
    };
    let rows = tx.query(sql, &[environment.into(), slice.from.into(), slice.limit.into()])?;
    rows.into_iter().map(read).collect()
}

pub(super) fn read(mut row: Row) -> Result<Agent, Fault> {
    Ok(Agent {
        id: AgentId::parse(&row.text()?)?,
        position: row.bytes()?,
        created_at: Timestamp::from_millis(row.integer()?),
        governing: row.maybe_bytes()?.map(MandateId::from_bytes),
    })
}
