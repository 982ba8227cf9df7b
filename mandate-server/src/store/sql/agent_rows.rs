//! What decides of an agent's row, where it is written with every few decisions: on SQLite.

use std::cmp::Ordering;

use mandate_core::{DecisionId, MandateId, Month, RecentRequests};

use super::checksums::AGENTS;
use crate::error::Fault;
use crate::model::records::AgentKey;
use crate::store::tx::{Row, Tx, Value};

const FIND: &str = "/* agent_rows.find */
    SELECT governing, recent, sequence, last_decision, newest_month, newest_rows, checksum
    FROM agents WHERE environment = $1 AND agent = $2";
const WRITE: &str = "/* agent_rows.write */
    UPDATE agents SET checksum = $1, governing = $2, recent = $3, sequence = $4, last_decision = $5,
        newest_month = $6, newest_rows = $7
    WHERE environment = $8 AND agent = $9";

/// What decides of an agent's row.
#[derive(Debug)]
pub(super) struct AgentRow {
    /// The mandate that governs.
    pub(super) governing: Option<MandateId>,
    /// The newest requests.
    pub(super) recent: RecentRequests,
    /// The number of the newest decision that is in the agent's rows.
    pub(super) sequence: i64,
    /// That decision.
    pub(super) last: Option<DecisionId>,
    /// The newest month that the agent is metered in.
    newest_month: Option<Month>,
    /// How many rows of metering that month has.
    newest_rows: i64,
}

impl AgentRow {
    /// Reads six columns, and passes over the checksum.
    pub(super) fn read(row: &mut Row) -> Result<Self, Fault> {
        let governing = row.maybe_bytes()?.map(MandateId::from_bytes);
        let recent = RecentRequests::from_bytes(&row.blob()?)?;
        let sequence = row.integer()?;
        let last = row.blob()?.try_into().ok().map(DecisionId::from_bytes);
        let month = row.text()?;
        let newest_month = if month.is_empty() { None } else { Some(Month::parse(&month)?) };
        let newest_rows = row.integer()?;
        row.skip(1);
        Ok(Self { governing, recent, sequence, last, newest_month, newest_rows })
    }

    /// Notes that the agent is metered in one row more.
    pub(super) fn add_usage(&mut self, month: Month) {
        match self.newest_month.cmp(&Some(month)) {
            Ordering::Less => (self.newest_month, self.newest_rows) = (Some(month), 1),
            Ordering::Equal => self.newest_rows += 1,
            Ordering::Greater => {}
        }
    }

    /// How many rows of metering a month has; unknown of one before the newest.
    #[must_use]
    pub(super) fn usage_rows(&self, month: Month) -> Option<i64> {
        match self.newest_month.cmp(&Some(month)) {
            Ordering::Less => Some(0),
            Ordering::Equal => Some(self.newest_rows),
            Ordering::Greater => None,
        }
    }
}

/// The key of an agent's row, as its checksum begins.
pub(super) fn key(agent: &AgentKey) -> [Value; 2] {
    [agent.environment.into(), agent.agent.as_str().into()]
}

/// An agent's row. Its checksum must hold, where this transaction verifies.
pub(super) fn find(tx: &mut Tx<'_>, agent: &AgentKey) -> Result<Option<AgentRow>, Fault> {
    let key = key(agent);
    let Some(mut row) = tx.row(FIND, &key)? else { return Ok(None) };
    if tx.verifies() {
        AGENTS.must_hold(&key, &row)?;
    }
    AgentRow::read(&mut row).map(Some)
}

/// Writes an agent's row.
pub(super) fn write(tx: &mut Tx<'_>, agent: &AgentKey, row: &AgentRow) -> Result<(), Fault> {
    let values: [Value; 6] = [
        row.governing.map(MandateId::to_bytes).into(),
        row.recent.to_bytes().into(),
        row.sequence.into(),
        row.last.map_or_else(Vec::new, |id| id.to_bytes().to_vec()).into(),
        row.newest_month.map_or_else(String::new, |month| month.to_string()).into(),
        row.newest_rows.into(),
    ];
    let key = key(agent);
    let mut parameters = vec![AGENTS.checksum(key.iter().chain(&values))];
    parameters.extend(values);
    parameters.extend(key);
    tx.execute_one(WRITE, &parameters)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_the_newest_month_are_counted() {
        let month = |text| Month::parse(text).unwrap();
        let mut row = AgentRow {
            governing: None,
            recent: RecentRequests::default(),
            sequence: 0,
            last: None,
            newest_month: None,
            newest_rows: 0,
        };
        assert_eq!(row.usage_rows(month("2026-06")), Some(0));
        for added in ["2026-06", "2026-06", "2026-05"] {
            row.add_usage(month(added));
        }
        let counted = |row: &AgentRow| ["2026-05", "2026-06", "2026-07"].map(|m| row.usage_rows(month(m)));
        assert_eq!(counted(&row), [None, Some(2), Some(0)]);
        row.add_usage(month("2026-07"));
        assert_eq!(counted(&row), [None, None, Some(1)]);
    }
}
