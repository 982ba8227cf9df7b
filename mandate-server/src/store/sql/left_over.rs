//! Finds pending deliveries without a webhook in the due queue, and corrects them in pieces.
//!
//! A webhook is deleted at once, with any number of pending deliveries. From then on they count as ended: each
//! reader of a delivery looks whether its webhook exists. Their rows are ended afterwards. A webhook that exists
//! and is missing from the due queue, although it has a pending delivery, is put back into the queue.

use crate::error::Fault;
use crate::store::tx::{Backend, Row, Tx, Value};

/// The first such webhook, on PostgreSQL. By the index it goes from each webhook with a pending delivery to the next.
const FIRST: &str = "/* left_over.first */ SELECT v.environment, v.webhook, v.due_at FROM (
        WITH RECURSIVE waiting AS (
            (SELECT environment, webhook, due_at FROM deliveries WHERE state = 'pending'
            ORDER BY environment, webhook, due_at LIMIT 1)
            UNION ALL
            SELECT n.environment, n.webhook, n.due_at FROM waiting v CROSS JOIN LATERAL
                (SELECT d.environment, d.webhook, d.due_at FROM deliveries d
                WHERE d.state = 'pending' AND (d.environment, d.webhook) > (v.environment, v.webhook)
                ORDER BY d.environment, d.webhook, d.due_at LIMIT 1) n)
        SELECT environment, webhook, due_at FROM waiting) v
    LEFT JOIN webhooks w ON w.environment = v.environment AND w.webhook = v.webhook
    WHERE w.due_at IS NULL LIMIT 1";
/// One such step on SQLite, with the webhook's place in the due queue.
const NEXT: &str = "/* left_over.next */ SELECT d.environment, d.webhook, d.due_at,
        (SELECT w.due_at FROM webhooks w WHERE w.environment = d.environment AND w.webhook = d.webhook)
    FROM deliveries d WHERE d.state = 'pending' AND (d.environment, d.webhook) > ($1, $2)
    ORDER BY d.environment, d.webhook, d.due_at LIMIT 1";
const QUEUE: &str = "/* left_over.queue */
    UPDATE webhooks SET due_at = (SELECT min(d.due_at) FROM deliveries d
        WHERE d.environment = $1 AND d.webhook = $2 AND d.state = 'pending')
    WHERE environment = $1 AND webhook = $2 AND due_at IS NULL";
const END: &str = "/* left_over.end */ UPDATE deliveries SET state = 'ended'
    WHERE environment = $1 AND webhook = $2 AND event IN (SELECT event
    FROM deliveries
    WHERE environment = $1 AND webhook = $2 AND state = 'pending' AND due_at >= $3
    AND NOT EXISTS (SELECT 1 FROM webhooks w
    WHERE w.environment = $1 AND w.webhook = $2) ORDER BY due_at LIMIT $4)
    RETURNING due_at";
/// Skips rows that another server has locked. The next look finds them.
const END_BESIDE_OTHERS: &str = "/* left_over.end_beside_others */ UPDATE deliveries SET state = 'ended'
    WHERE environment = $1 AND webhook = $2 AND event = ANY (ARRAY(SELECT event
    FROM deliveries
    WHERE environment = $1 AND webhook = $2 AND state = 'pending' AND due_at >= $3
    AND NOT EXISTS (SELECT 1 FROM webhooks w
    WHERE w.environment = $1 AND w.webhook = $2)
    ORDER BY due_at LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED)) RETURNING due_at";

/// Pending deliveries without a webhook in the due queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOver {
    /// The number of their environment.
    pub environment: i64,
    /// The id of their webhook.
    pub webhook: [u8; 16],
    /// When the first of them is due, in milliseconds.
    pub due_at: i64,
}

impl LeftOver {
    fn read(row: &mut Row) -> Result<Self, Fault> {
        Ok(Self { environment: row.integer()?, webhook: row.bytes()?, due_at: row.integer()? })
    }

    fn key(&self) -> [Value; 2] {
        [self.environment.into(), self.webhook.into()]
    }
}

/// The first left-over deliveries, in the order of environments and webhooks. Reads one row for each webhook with a
/// pending delivery.
pub fn first(tx: &mut Tx<'_>) -> Result<Option<LeftOver>, Fault> {
    if tx.backend() == Backend::Postgres {
        return tx.row(FIRST, &[])?.map(|mut row| LeftOver::read(&mut row)).transpose();
    }
    let mut after: [Value; 2] = [i64::MIN.into(), [0; 16].into()];
    while let Some(mut row) = tx.row(NEXT, &after)? {
        let found = LeftOver::read(&mut row)?;
        if row.maybe_integer()?.is_none() {
            return Ok(Some(found));
        }
        after = found.key();
    }
    Ok(None)
}

/// Puts their webhook back into the due queue, if it exists and is missing there. Returns whether it did. The
/// caller has locked the webhook.
pub fn queue(tx: &mut Tx<'_>, left: &LeftOver) -> Result<bool, Fault> {
    let queued = tx.execute(QUEUE, &left.key())? > 0;
    if queued {
        tx.announce();
    }
    Ok(queued)
}

/// If their webhook is gone, ends at most `limit` of them, in the order in which they are due. Returns those that
/// may be left, or none if these were the last.
pub fn end(tx: &mut Tx<'_>, left: &LeftOver, limit: i64) -> Result<Option<LeftOver>, Fault> {
    let parameters = [left.key().as_slice(), &[left.due_at.into(), limit.into()]].concat();
    let rows = tx.query(tx.either(END, END_BESIDE_OTHERS), &parameters)?;
    let more = i64::try_from(rows.len()).is_ok_and(|ended| ended == limit);
    let times = rows.into_iter().map(|mut row| row.integer()).collect::<Result<Vec<_>, _>>()?;
    let last = times.into_iter().max().filter(|_| more);
    Ok(last.map(|due_at| LeftOver { due_at, ..*left }))
}
