//! What the database shows of its standbys and its partitions, for the metrics.

use mandate_core::Timestamp;

use super::super::tx::Tx;
use super::maintenance;
use crate::error::Fault;
use crate::model::gauges::Cluster;

/// A role without `pg_monitor` sees that there are receivers, and no more.
const RECEIVERS: &str =
    "/* postgres_cluster.receivers */ SELECT count(*), max(CASE WHEN pg_is_in_recovery() THEN NULL
        ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) END)::bigint
    FROM pg_stat_replication";

/// Reads it.
pub(super) fn read(tx: &mut Tx<'_>, now: Timestamp) -> Result<Cluster, Fault> {
    let mut row = tx.one_row(RECEIVERS, &[])?;
    let (receivers, lag_bytes) = (row.integer()?, row.maybe_integer()?);
    Ok(Cluster { receivers, lag_bytes, partitions_end: maintenance::end(tx, now)? })
}
