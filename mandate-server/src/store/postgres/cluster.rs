//! What the database shows of its standbys and its partitions, for the metrics.

use mandate_core::Timestamp;

use super::super::tx::Tx;
use crate::error::Fault;
use crate::model::gauges::Cluster;

/// A role without `pg_monitor` sees that there are receivers, and no more.
const RECEIVERS: &str =
    "/* postgres_cluster.receivers */ SELECT count(*), max(CASE WHEN pg_is_in_recovery() THEN NULL
        ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) END)::bigint
    FROM pg_stat_replication";
/// The last month for which both tables have a partition, by its name.
const PARTITIONS: &str = "/* postgres_cluster.partitions */ SELECT min(last) FROM
    (SELECT max(substring(c.relname::text FROM '_([0-9]{4}_[0-9]{2})$')) AS last
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN ('decisions'::regclass, 'events'::regclass) GROUP BY i.inhparent) AS of_each";

/// Reads it.
pub(super) fn read(tx: &mut Tx<'_>) -> Result<Cluster, Fault> {
    let none = || Fault::new("database: a count without a row");
    let mut row = tx.row(RECEIVERS, &[])?.ok_or_else(none)?;
    let (receivers, lag_bytes) = (row.integer()?, row.maybe_integer()?);
    let month = tx.row(PARTITIONS, &[])?.ok_or_else(none)?.maybe_text()?;
    let first = |month: String| Timestamp::parse(&format!("{}-01T00:00:00Z", month.replace('_', "-")));
    Ok(Cluster { receivers, lag_bytes, partitions_to: month.map(first).transpose()? })
}
