//! Deliveries of events to webhooks, their attempts, and the due queue of webhooks.
//!
//! `webhooks.due_at` is the place of a webhook in that queue. It is never later than the webhook's first pending
//! delivery: each statement that makes a delivery due sees to that. A server leases a webhook from the queue, and
//! puts it back when it has delivered.
//!
//! A pending delivery whose webhook is gone has ended, even if its row does not show it yet (`left_over`).

use mandate_core::{EnvironmentKind, EventId, EventKind, Timestamp, WebhookId};
use serde_json::value::RawValue;

use super::keys::kind;
use super::notices;
use crate::error::Fault;
use crate::model::records::{
    AttemptRecord, DeliveryRecord, DeliveryState, DueRecord, EventRecord, LeaseRecord, TriedRecord,
};
use crate::store::tx::{Backend, Row, Tx, Value};

const HOLD_ANYWHERE: &str = "/* deliveries.hold_anywhere */
    SELECT 1 FROM webhooks WHERE webhook = $1 FOR NO KEY UPDATE";
const FAN_OUT: &str = "/* deliveries.fan_out */
    INSERT INTO deliveries (environment, event, webhook, state, due_at, attempts)
    SELECT environment, $1, webhook, 'pending', $2, 0 FROM subscriptions WHERE environment = $3 AND type = $4";
/// The same where other transactions write at the same time. It locks the subscribed webhooks, puts them into the
/// due queue, and makes deliveries to no other. Their place in the queue is read when they are locked. The rest of
/// the statement sees the state at its begin.
const FAN_OUT_BESIDE_OTHERS: &str = "/* deliveries.fan_out_beside_others */
    WITH held AS MATERIALIZED (SELECT environment, webhook, due_at FROM webhooks
        WHERE environment = $3 AND webhook IN (SELECT webhook FROM subscriptions WHERE environment = $3 AND type = $4)
        ORDER BY webhook FOR NO KEY UPDATE),
    queued AS (UPDATE webhooks w SET due_at = $2 FROM held h
        WHERE w.environment = h.environment AND w.webhook = h.webhook AND (h.due_at IS NULL OR h.due_at > $2))
    INSERT INTO deliveries (environment, event, webhook, state, due_at, attempts)
    SELECT environment, $1, webhook, 'pending', $2, 0 FROM held";
const INSERT: &str = "/* deliveries.insert */
    INSERT INTO deliveries (environment, event, webhook, state, due_at, attempts)
    VALUES ($1, $2, $3, 'pending', $4, 0)";
const QUEUE_SUBSCRIBED: &str = "/* deliveries.queue_subscribed */ UPDATE webhooks SET due_at = $1
    WHERE environment = $2 AND webhook IN (SELECT webhook FROM subscriptions WHERE environment = $2 AND type = $3)
    AND (due_at IS NULL OR due_at > $1)";
const QUEUE: &str = "/* deliveries.queue */ UPDATE webhooks SET due_at = $1
    WHERE environment = $2 AND webhook = $3 AND (due_at IS NULL OR due_at > $1)";
const OF_EVENT: &str = "/* deliveries.of_event */ SELECT d.webhook,
        CASE WHEN d.state = 'pending' AND w.webhook IS NULL THEN 'ended' ELSE d.state END, d.due_at
    FROM deliveries d LEFT JOIN webhooks w ON w.environment = d.environment AND w.webhook = d.webhook
    WHERE d.environment = $1 AND d.event = $2
    AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.environment = d.environment AND n.webhook = d.webhook)
    ORDER BY d.webhook";
const COUNT: &str = "/* deliveries.count */
    SELECT state, count(*) FROM deliveries WHERE environment = $1 AND webhook = $2 GROUP BY state";
const ATTEMPTS: &str = "/* deliveries.attempts */ SELECT at, status, error FROM attempts
    WHERE environment = $1 AND event = $2 AND webhook = $3 ORDER BY attempt";

const BRING_FORWARD: &str = "/* deliveries.bring_forward */
    UPDATE webhooks SET due_at = $1 WHERE due_at > $2";
const FARTHEST: &str = "/* deliveries.farthest */
    SELECT due_at FROM webhooks WHERE due_at > $1 ORDER BY due_at DESC LIMIT 1";
const NEXT: &str = "/* deliveries.next */ SELECT due_at FROM webhooks
    WHERE due_at IS NOT NULL AND (leased_until IS NULL OR leased_until <= $1 OR leased_until > $2)
    ORDER BY due_at LIMIT 1";
const LEASE: &str = "/* deliveries.lease */ UPDATE webhooks SET leased_until = $1
    WHERE (environment, webhook) IN (SELECT environment, webhook FROM webhooks
    WHERE due_at <= $2 AND (leased_until IS NULL OR leased_until <= $2 OR leased_until > $3)
    ORDER BY due_at LIMIT $4) AND (leased_until IS NULL OR leased_until <= $2 OR leased_until > $3)
    RETURNING environment, webhook, url, (SELECT kind FROM environments
    WHERE environments.environment = webhooks.environment)";
const LEASE_BESIDE_OTHERS: &str = "/* deliveries.lease_beside_others */
    UPDATE webhooks SET leased_until = $1
    WHERE (environment, webhook) IN (SELECT environment, webhook FROM webhooks
    WHERE due_at <= $2 AND (leased_until IS NULL OR leased_until <= $2 OR leased_until > $3)
    ORDER BY due_at LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED) AND (leased_until IS NULL OR leased_until <= $2 OR
        leased_until > $3)
    RETURNING environment, webhook, url, (SELECT kind FROM environments
    WHERE environments.environment = webhooks.environment)";
const RELEASE: &str = "/* deliveries.release */ UPDATE webhooks SET leased_until = NULL, due_at =
        (SELECT CASE WHEN min(d.due_at) < $1 THEN $1 ELSE min(d.due_at) END FROM deliveries d
        WHERE d.environment = $2 AND d.webhook = $3 AND d.state = 'pending')
    WHERE environment = $2 AND webhook = $3 AND leased_until = $4";

const RELEASE_ALL: &str = "/* deliveries.release_all */
    UPDATE webhooks SET leased_until = NULL WHERE leased_until IS NOT NULL";

const DUE: &str = "/* deliveries.due */
    SELECT e.event, e.type, e.created_at, e.data, d.attempts, d.retried_at
    FROM deliveries d
    JOIN events e ON e.environment = d.environment AND e.event = d.event
    WHERE d.environment = $1 AND d.webhook = $2 AND d.state = 'pending'
    AND EXISTS (SELECT 1 FROM webhooks w
    WHERE w.environment = $1 AND w.webhook = $2) AND d.due_at <= $3
    ORDER BY d.due_at LIMIT $4";
const PUT_OFF: &str = "/* deliveries.put_off */
    SELECT e.event, e.type, e.created_at, e.data, d.attempts, d.retried_at
    FROM deliveries d
    JOIN events e ON e.environment = d.environment AND e.event = d.event
    WHERE d.environment = $1 AND d.webhook = $2 AND d.state = 'pending'
    AND EXISTS (SELECT 1 FROM webhooks w
    WHERE w.environment = $1 AND w.webhook = $2) AND d.due_at > $3
    ORDER BY d.due_at LIMIT $4";
const ATTEMPT: &str = "/* deliveries.attempt */
    INSERT INTO attempts (environment, event, webhook, attempt, at, status, error)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";
const COUNT_ATTEMPT: &str = "/* deliveries.count_attempt */ UPDATE deliveries SET attempts = attempts + 1,
        state = CASE WHEN state <> 'pending' THEN state
            WHEN EXISTS (SELECT 1 FROM webhooks w
                WHERE w.environment = deliveries.environment AND w.webhook = deliveries.webhook) THEN $1
            ELSE 'ended' END,
        due_at = CASE state WHEN 'pending' THEN $2 ELSE due_at END,
        retried_at = CASE state WHEN 'pending' THEN coalesce($3, retried_at) ELSE retried_at END
    WHERE environment = $4 AND event = $5 AND webhook = $6 RETURNING attempts";
const MOVE_ON: &str = "/* deliveries.move_on */
    UPDATE deliveries SET state = $1, due_at = $2, retried_at = coalesce($3, retried_at)
    WHERE environment = $4 AND event = $5 AND webhook = $6 AND state = 'pending'
    AND EXISTS (SELECT 1 FROM webhooks w
        WHERE w.environment = deliveries.environment AND w.webhook = deliveries.webhook)";
const FIND: &str = "/* deliveries.find */ SELECT d.environment, o.name, e.kind, d.state
    FROM webhooks w JOIN deliveries d ON d.environment = w.environment AND d.webhook = w.webhook
    JOIN environments e ON e.environment = w.environment
    JOIN organizations o ON o.organization = e.organization
    WHERE w.webhook = $1 AND d.event = $2";
const RETRY: &str = "/* deliveries.retry */
    UPDATE deliveries SET state = 'pending', due_at = $1, retried_at = $1
    WHERE environment = $2 AND event = $3 AND webhook = $4 AND state = 'failed'";

/// Makes a delivery of an event, due at once, to each webhook that subscribes to its type.
pub fn fan_out(tx: &mut Tx<'_>, event: &EventRecord) -> Result<(), Fault> {
    let (id, at, kind) = (event.id.to_bytes(), event.at.millis(), event.kind.as_str());
    let parameters = [id.into(), at.into(), event.environment.into(), kind.into()];
    let made = tx.execute(tx.either(FAN_OUT, FAN_OUT_BESIDE_OTHERS), &parameters)?;
    if made > 0 {
        if tx.backend() == Backend::Sqlite {
            tx.execute(QUEUE_SUBSCRIBED, &[at.into(), event.environment.into(), kind.into()])?;
        }
        tx.announce();
    }
    Ok(())
}

/// Makes a delivery of an event, due at once, to one webhook.
pub fn insert(tx: &mut Tx<'_>, event: &EventRecord, webhook: WebhookId) -> Result<(), Fault> {
    let (id, at) = (event.id.to_bytes(), event.at.millis());
    tx.execute_one(INSERT, &[event.environment.into(), id.into(), webhook.to_bytes().into(), at.into()])?;
    queue(tx, event.environment, webhook, event.at)
}

/// Puts a webhook into the due queue, no later than `at`.
fn queue(tx: &mut Tx<'_>, environment: i64, webhook: WebhookId, at: Timestamp) -> Result<(), Fault> {
    tx.execute(QUEUE, &[at.millis().into(), environment.into(), webhook.to_bytes().into()])?;
    tx.announce();
    Ok(())
}

/// The deliveries of an event with their attempts, in the order of their webhooks' creation. A pending one whose
/// webhook is gone is shown as ended.
pub fn of_event(tx: &mut Tx<'_>, environment: i64, event: EventId) -> Result<Vec<DeliveryRecord>, Fault> {
    let rows = tx.query(OF_EVENT, &[environment.into(), event.to_bytes().into()])?;
    rows.into_iter().map(|row| read(tx, environment, event, row)).collect()
}

/// How many deliveries to a webhook are in each state. Reads all of the environment's deliveries: for operators only.
pub fn count(
    tx: &mut Tx<'_>,
    environment: i64,
    webhook: WebhookId,
) -> Result<Vec<(DeliveryState, i64)>, Fault> {
    let rows = tx.query(COUNT, &[environment.into(), webhook.to_bytes().into()])?.into_iter();
    rows.map(|mut row| Ok((DeliveryState::parse(&row.text()?)?, row.integer()?))).collect()
}

/// An event has at most as many deliveries as there are webhooks, so one query for each will do.
fn read(tx: &mut Tx<'_>, environment: i64, event: EventId, mut row: Row) -> Result<DeliveryRecord, Fault> {
    let webhook = WebhookId::from_bytes(row.bytes()?);
    let key = [environment.into(), event.to_bytes().into(), webhook.to_bytes().into()];
    Ok(DeliveryRecord {
        webhook,
        state: DeliveryState::parse(&row.text()?)?,
        due_at: Timestamp::from_millis(row.integer()?),
        attempts: tx.query(ATTEMPTS, &key)?.into_iter().map(read_attempt).collect::<Result<_, _>>()?,
    })
}

fn read_attempt(mut row: Row) -> Result<AttemptRecord, Fault> {
    Ok(AttemptRecord {
        at: Timestamp::from_millis(row.integer()?),
        status: row.maybe_integer()?,
        error: row.maybe_text()?,
    })
}

/// Moves webhooks with a due time after `latest` to the front of the due queue.
pub fn bring_forward(tx: &mut Tx<'_>, now: Timestamp, latest: Timestamp) -> Result<(), Fault> {
    tx.execute(BRING_FORWARD, &[now.millis().into(), latest.millis().into()])?;
    Ok(())
}

/// Whether a webhook in the due queue has a due time after `latest`.
pub fn is_any_after(tx: &mut Tx<'_>, latest: Timestamp) -> Result<bool, Fault> {
    Ok(tx.row(FARTHEST, &[latest.millis().into()])?.is_some())
}

/// When the first webhook that no server has leased is due. A lease that ends after `latest` does not count.
pub fn next(tx: &mut Tx<'_>, now: Timestamp, latest: Timestamp) -> Result<Option<Timestamp>, Fault> {
    let row = tx.row(NEXT, &[now.millis().into(), latest.millis().into()])?;
    row.map(|mut row| row.integer().map(Timestamp::from_millis)).transpose()
}

/// Leases due webhooks, those first that have waited longest. A lease that ends after `latest` does not count.
pub fn lease(
    tx: &mut Tx<'_>,
    now: Timestamp,
    until: Timestamp,
    latest: Timestamp,
    limit: i64,
) -> Result<Vec<LeaseRecord>, Fault> {
    let times = [until, now, latest].map(|at| at.millis().into());
    let sql = tx.either(LEASE, LEASE_BESIDE_OTHERS);
    let rows = tx.query(sql, &[times.as_slice(), &[limit.into()]].concat())?;
    let mut leases = Vec::with_capacity(rows.len());
    for mut row in rows {
        let (environment, webhook) = (row.integer()?, WebhookId::from_bytes(row.bytes()?));
        let (url, kind) = (row.text()?, kind(&row.text()?)?);
        let notice = notices::find(tx, environment)?.filter(|notice| notice.webhook == webhook);
        leases.push(LeaseRecord { environment, kind, webhook, url, notice, until });
    }
    Ok(leases)
}

/// Ends a lease, unless another server has leased the webhook since. A webhook that is due again goes to the end of
/// the due queue.
pub fn release(tx: &mut Tx<'_>, lease: &LeaseRecord, now: Timestamp) -> Result<(), Fault> {
    let (environment, webhook) = (lease.environment, lease.webhook.to_bytes());
    let until = lease.until.millis();
    tx.execute(RELEASE, &[now.millis().into(), environment.into(), webhook.into(), until.into()])?;
    Ok(())
}

/// Takes back all leases: those of a server that has died, where no other can hold one.
pub fn release_all(tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.execute(RELEASE_ALL, &[])?;
    Ok(())
}

/// The deliveries to a webhook that are due by `now`, or only after `latest`, each with its event. Those that have
/// waited longest come first.
pub fn due(
    tx: &mut Tx<'_>,
    lease: &LeaseRecord,
    now: Timestamp,
    latest: Timestamp,
    limit: i64,
) -> Result<Vec<DueRecord>, Fault> {
    let environment = lease.environment;
    let of = |at: Timestamp| -> [Value; 4] {
        let webhook = lease.webhook.to_bytes();
        [environment.into(), webhook.into(), at.millis().into(), limit.into()]
    };
    let mut rows = tx.query(DUE, &of(now))?;
    rows.extend(tx.query(PUT_OFF, &of(latest))?);
    let rows = rows.into_iter().take(usize::try_from(limit).unwrap_or_default());
    rows.map(|row| read_due(environment, row)).collect()
}

fn read_due(environment: i64, mut row: Row) -> Result<DueRecord, Fault> {
    let event = EventRecord {
        environment,
        id: EventId::from_bytes(row.bytes()?),
        kind: EventKind::parse(&row.text()?)?,
        at: Timestamp::from_millis(row.integer()?),
        data: RawValue::from_string(row.text()?)
            .map_err(|e| Fault::corrupt(format!("database: an event's data is not JSON: {e}")))?,
    };
    let attempts = row.integer()?;
    let since = row.maybe_integer()?.map_or(event.at, Timestamp::from_millis);
    Ok(DueRecord { event, attempts, since })
}

/// Writes an attempt, and the state of the delivery after it. A delivery that has ended meanwhile, because its
/// webhook is gone, stays ended. A deleted one stays deleted.
pub fn keep(tx: &mut Tx<'_>, tried: &TriedRecord) -> Result<(), Fault> {
    let (state, due_at) = (tried.state.as_str(), tried.due_at.millis());
    let begins_anew = tried.begins_anew.map(Timestamp::millis);
    let key = [tried.environment.into(), tried.event.to_bytes().into(), tried.webhook.to_bytes().into()];
    let row = [&[state.into(), due_at.into(), begins_anew.into()], key.as_slice()].concat();
    let Some(AttemptRecord { at, status, error }) = &tried.attempt else {
        tx.execute(MOVE_ON, &row)?;
        return Ok(());
    };
    if let Some(mut counted) = tx.row(COUNT_ATTEMPT, &row)? {
        let number = counted.integer()?.into();
        let row = [number, at.millis().into(), (*status).into(), error.as_deref().into()];
        tx.execute(ATTEMPT, &[key.as_slice(), &row].concat())?;
    }
    Ok(())
}

/// A delivery of any tenant, as the operator sees it.
#[derive(Debug)]
pub struct FoundDelivery {
    /// The number of its environment.
    pub environment: i64,
    /// The name of its organization.
    pub organization: String,
    /// The kind of its environment.
    pub kind: EnvironmentKind,
    /// Its state.
    pub state: DeliveryState,
}

/// The delivery of an event to a webhook that exists.
pub fn find(tx: &mut Tx<'_>, event: EventId, webhook: WebhookId) -> Result<Option<FoundDelivery>, Fault> {
    tx.hold(HOLD_ANYWHERE, &[webhook.to_bytes().into()])?;
    let row = tx.row(FIND, &[webhook.to_bytes().into(), event.to_bytes().into()])?;
    let read = |mut row: Row| {
        Ok(FoundDelivery {
            environment: row.integer()?,
            organization: row.text()?,
            kind: kind(&row.text()?)?,
            state: DeliveryState::parse(&row.text()?)?,
        })
    };
    row.map(read).transpose()
}

/// Makes a failed delivery pending again.
pub fn retry(
    tx: &mut Tx<'_>,
    environment: i64,
    event: EventId,
    webhook: WebhookId,
    at: Timestamp,
) -> Result<(), Fault> {
    let (id, to) = (event.to_bytes(), webhook.to_bytes());
    tx.execute_one(RETRY, &[at.millis().into(), environment.into(), id.into(), to.into()])?;
    queue(tx, environment, webhook, at)
}
