//! How the decisions of one agent are found: by an index of the log, or by the agent's own index and in memory; see
//! `uncounted`.

use super::uncounted;
use crate::error::Fault;
use crate::model::records::{AgentKey, Direction, Position, Slice};
use crate::store::tx::{Counting, Row, Tx};

/// A question about one agent's decisions. All of its texts have the same columns and the same order.
pub(super) struct OfAgent {
    /// Where an index of the log has them.
    pub(super) indexed: &'static str,
    /// Those in the agent's own index.
    pub(super) counted: &'static str,
    /// The uncounted ones, by ids.
    pub(super) uncounted: &'static str,
}

impl OfAgent {
    /// The rows of a slice, up to `to`: which is among them where the walk goes to older ones, and is not to newer ones.
    pub(super) fn rows(
        &self,
        tx: &mut Tx<'_>,
        agent: &AgentKey,
        slice: &Slice,
        to: Position,
    ) -> Result<Vec<Row>, Fault> {
        let query = |tx: &mut Tx<'_>, sql, limit: i64| {
            let name = agent.agent.as_str();
            tx.query(
                sql,
                &[agent.environment.into(), name.into(), slice.from.into(), to.into(), limit.into()],
            )
        };
        if tx.counting() == Counting::AtOnce {
            return query(tx, self.indexed, slice.limit);
        }
        // All that is not written down is newer than all that is.
        let limit = usize::try_from(slice.limit).unwrap_or(usize::MAX);
        let mut ids = uncounted::ids(tx, agent)?;
        ids.retain(|id| {
            let id = id.to_bytes();
            slice.contains(id) && if slice.direction == Direction::Older { id >= to } else { id < to }
        });
        let mut rows = Vec::new();
        if slice.direction == Direction::Newer {
            rows = query(tx, self.counted, slice.limit)?;
        } else {
            ids.reverse();
        }
        if rows.len() < limit {
            rows.extend(uncounted::named(tx, self.uncounted, agent.environment, &ids)?);
            rows.truncate(limit);
        }
        if slice.direction == Direction::Older && rows.len() < limit {
            let rest = i64::try_from(limit - rows.len()).unwrap_or(slice.limit);
            rows.extend(query(tx, self.counted, rest)?);
        }
        Ok(rows)
    }
}
