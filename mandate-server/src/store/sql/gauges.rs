//! Counts over all tenants, for metrics. Each uses an index and stops at a limit.

use mandate_core::{EnvironmentKind, Timestamp};

use crate::error::Fault;
use crate::store::tx::{Row, Tx};

/// It begins with the webhooks in the due queue, since pending deliveries without a webhook have ended.
const DELIVERIES: &str = "/* gauges.deliveries */
    SELECT COUNT(*) FROM (SELECT 1 FROM webhooks w CROSS JOIN deliveries d
    WHERE w.due_at IS NOT NULL AND d.environment = w.environment AND d.webhook = w.webhook AND d.state = 'pending'
    LIMIT $1) AS counted";
/// The same for PostgreSQL, where CROSS JOIN alone does not fix this order.
const DELIVERIES_IN_ORDER: &str = "/* gauges.deliveries_in_order */
    SELECT COUNT(*) FROM (SELECT 1 FROM webhooks w CROSS JOIN LATERAL
        (SELECT 1 FROM deliveries d
        WHERE d.environment = w.environment AND d.webhook = w.webhook AND d.state = 'pending' OFFSET 0) d
    WHERE w.due_at IS NOT NULL LIMIT $1) AS counted";
const DELIVERY_DUE: &str = "/* gauges.delivery_due */ SELECT MIN((SELECT d.due_at FROM deliveries d
        WHERE d.environment = w.environment AND d.webhook = w.webhook AND d.state = 'pending'
        ORDER BY d.due_at LIMIT 1))
    FROM (SELECT environment, webhook FROM webhooks WHERE due_at IS NOT NULL ORDER BY due_at LIMIT $1) w";
const REVIEWS: &str = "/* gauges.reviews */ SELECT COUNT(*) FROM
    (SELECT 1 FROM reviews WHERE status = 'pending' AND expires_at > $1 LIMIT $2) AS counted";
const EXPORTS: &str = "/* gauges.exports */
    SELECT COUNT(*) FROM (SELECT 1 FROM exports WHERE status = 'pending' LIMIT $1) AS counted";
const SIGNING_KEYS: &str = "/* gauges.signing_keys */
    SELECT kind, MAX(created_at) FROM signing_keys WHERE revoked_at IS NULL GROUP BY kind ORDER BY kind";

const LOGS: &str = "/* gauges.logs */
    SELECT l.kind, CASE WHEN l.stopped IS NULL THEN 0 ELSE 1 END FROM logs l
    WHERE l.log = (SELECT MAX(o.log) FROM logs o WHERE o.kind = l.kind)";

/// Deliveries that have not ended, counted up to `most`.
pub fn deliveries_pending(tx: &mut Tx<'_>, most: i64) -> Result<i64, Fault> {
    count(tx.row(tx.either(DELIVERIES, DELIVERIES_IN_ORDER), &[most.into()])?)
}

/// When the first delivery to the first `most` webhooks in the due queue is due.
pub fn delivery_due_at(tx: &mut Tx<'_>, most: i64) -> Result<Option<Timestamp>, Fault> {
    let due = tx.row(DELIVERY_DUE, &[most.into()])?.map(|mut row| row.maybe_integer()).transpose()?;
    Ok(due.flatten().map(Timestamp::from_millis))
}

/// Reviews that wait for a person at `now`, counted up to `most`.
pub fn reviews_pending(tx: &mut Tx<'_>, now: Timestamp, most: i64) -> Result<i64, Fault> {
    count(tx.row(REVIEWS, &[now.millis().into(), most.into()])?)
}

/// Exports that are to be built, counted up to `most`.
pub fn exports_pending(tx: &mut Tx<'_>, most: i64) -> Result<i64, Fault> {
    count(tx.row(EXPORTS, &[most.into()])?)
}

/// When the newest signing key of each kind was made.
pub fn signing_keys(tx: &mut Tx<'_>) -> Result<Vec<(EnvironmentKind, Timestamp)>, Fault> {
    let rows = tx.query(SIGNING_KEYS, &[])?.into_iter();
    rows.map(|mut row| {
        let kind = super::keys::kind(&row.text()?)?;
        Ok((kind, Timestamp::from_millis(row.integer()?)))
    })
    .collect()
}

/// Whether the newest public log of each kind is stopped.
pub fn logs_stopped(tx: &mut Tx<'_>) -> Result<Vec<(EnvironmentKind, bool)>, Fault> {
    let rows = tx.query(LOGS, &[])?.into_iter();
    rows.map(|mut row| Ok((super::keys::kind(&row.text()?)?, row.integer()? == 1))).collect()
}

fn count(row: Option<Row>) -> Result<i64, Fault> {
    row.map_or(Ok(0), |mut row| row.integer())
}
