//! How much a closing would delete.

use mandate_core::{DecisionId, Timestamp};

use super::settled;
use crate::error::Fault;
use crate::store::tx::{Tx, Value};

/// How many rows would be deleted, and about how many bytes they have: what a row has besides its texts is a constant.
const SIZES: &[(&str, &str)] = &[
    (
        "decisions",
        "/* retention.size_of_decisions */
        SELECT COUNT(*), CAST(COALESCE(SUM(360 + length(d.agent) + length(d.recipient) + length(d.category)
            + length(d.denials) + COALESCE(length(d.reason), 0)), 0) AS bigint)
        FROM decisions d WHERE d.environment = $1 AND d.decision < $2
            AND NOT EXISTS (SELECT 1 FROM reviews r WHERE r.environment = d.environment AND r.review = d.review
                AND (r.status = 'pending' OR r.resolved_at >= $3 OR r.fresh >= $2))
            AND NOT EXISTS (SELECT 1 FROM escrows x
                WHERE x.environment = d.environment AND x.decision = d.decision)",
    ),
    (
        "reviews",
        "/* retention.size_of_reviews */
        SELECT COUNT(*), CAST(COALESCE(SUM(120 + length(r.waits_for) + COALESCE(length(r.reason), 0)), 0) AS bigint)
        FROM decisions d JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        WHERE d.environment = $1 AND d.decision < $2 AND r.status <> 'pending'
            AND (r.resolved_at IS NULL OR r.resolved_at < $3) AND (r.fresh IS NULL OR r.fresh < $2)",
    ),
    (
        "answers",
        "/* retention.size_of_answers */
        SELECT COUNT(*), CAST(COALESCE(SUM(150 + length(a.content)), 0) AS bigint)
        FROM decisions d JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        JOIN answers a ON a.environment = r.environment AND a.review = r.review
        WHERE d.environment = $1 AND d.decision < $2 AND r.status <> 'pending'
            AND (r.resolved_at IS NULL OR r.resolved_at < $3) AND (r.fresh IS NULL OR r.fresh < $2)",
    ),
    (
        "events",
        "/* retention.size_of_events */
        SELECT COUNT(*), CAST(COALESCE(SUM(80 + length(e.data)), 0) AS bigint) FROM events e
        WHERE e.environment = $1 AND e.event < $2
            AND NOT EXISTS (SELECT 1 FROM deliveries p
                WHERE p.environment = e.environment AND p.event = e.event AND p.state = 'pending')",
    ),
    (
        "deliveries",
        "/* retention.size_of_deliveries */
        SELECT COUNT(*), CAST(COALESCE(SUM(90), 0) AS bigint) FROM deliveries d
        WHERE d.environment = $1 AND d.event < $2
            AND NOT EXISTS (SELECT 1 FROM deliveries p
                WHERE p.environment = d.environment AND p.event = d.event AND p.state = 'pending')",
    ),
    (
        "attempts",
        "/* retention.size_of_attempts */
        SELECT COUNT(*), CAST(COALESCE(SUM(80 + COALESCE(length(a.error), 0)), 0) AS bigint) FROM attempts a
        WHERE a.environment = $1 AND a.event < $2
            AND NOT EXISTS (SELECT 1 FROM deliveries p
                WHERE p.environment = a.environment AND p.event = a.event AND p.state = 'pending')",
    ),
];
/// Those of them that depend on when a review was resolved.
const BY_RESOLUTION: [&str; 3] = ["decisions", "reviews", "answers"];

/// The rows of an environment that would be deleted if all before `behind` were closed at `now`: of each table how many,
/// and about how many bytes.
pub fn sizes(
    tx: &mut Tx<'_>,
    environment: i64,
    behind: DecisionId,
    now: Timestamp,
) -> Result<Vec<(&'static str, i64, i64)>, Fault> {
    let mut all = Vec::with_capacity(SIZES.len());
    for (table, sql) in SIZES {
        let mut parameters: Vec<Value> = vec![environment.into(), behind.to_bytes().into()];
        if BY_RESOLUTION.contains(table) {
            parameters.push(settled(now));
        }
        let mut row = tx.one_row(sql, &parameters)?;
        all.push((*table, row.integer()?, row.integer()?));
    }
    Ok(all)
}
