//! Webhooks and their subscriptions. Those of notices are found by `notices` alone.

use mandate_core::{EventKind, Timestamp, WebhookId};

use crate::error::Fault;
use crate::model::records::{Direction, Slice, WebhookRecord};
use crate::store::tx::{Row, Tx};

const INSERT: &str = "/* webhooks.insert */
    INSERT INTO webhooks (environment, webhook, url, created_at) VALUES ($1, $2, $3, $4)";
const SUBSCRIBE: &str = "/* webhooks.subscribe */
    INSERT INTO subscriptions (environment, type, webhook) VALUES ($1, $2, $3)";
const HOLD: &str = "/* webhooks.hold */
    SELECT 1 FROM webhooks WHERE environment = $1 AND webhook = $2 FOR NO KEY UPDATE";
const COUNT: &str = "/* webhooks.count */ SELECT count(*) FROM webhooks w WHERE environment = $1
    AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.environment = w.environment AND n.webhook = w.webhook)";
const URL: &str = "/* webhooks.url */ SELECT url FROM webhooks WHERE environment = $1 AND webhook = $2";
const TYPES: &str = "/* webhooks.types */
    SELECT type FROM subscriptions WHERE environment = $1 AND webhook = $2";
const UNSUBSCRIBE: &str = "/* webhooks.unsubscribe */
    DELETE FROM subscriptions WHERE environment = $1 AND webhook = $2";
const DELETE: &str = "/* webhooks.delete */ DELETE FROM webhooks WHERE environment = $1 AND webhook = $2";

const FIND: &str = "/* webhooks.find */ SELECT webhook, url, created_at FROM webhooks w
    WHERE environment = $1 AND webhook = $2 AND NOT EXISTS
    (SELECT 1 FROM notices n WHERE n.environment = w.environment AND n.webhook = w.webhook)";
const OLDER: &str = "/* webhooks.older */ SELECT webhook, url, created_at FROM webhooks w
    WHERE environment = $1 AND webhook < $2 AND NOT EXISTS
    (SELECT 1 FROM notices n WHERE n.environment = w.environment AND n.webhook = w.webhook) ORDER BY webhook DESC LIMIT $3";
const NEWER: &str = "/* webhooks.newer */ SELECT webhook, url, created_at FROM webhooks w
    WHERE environment = $1 AND webhook > $2 AND NOT EXISTS
    (SELECT 1 FROM notices n WHERE n.environment = w.environment AND n.webhook = w.webhook) ORDER BY webhook ASC LIMIT $3";

/// The URL of a webhook, one of notices too.
pub fn url(tx: &mut Tx<'_>, environment: i64, webhook: WebhookId) -> Result<String, Fault> {
    tx.one_row(URL, &[environment.into(), webhook.to_bytes().into()])?.text()
}

/// Writes a webhook.
pub fn insert(tx: &mut Tx<'_>, environment: i64, webhook: &WebhookRecord) -> Result<(), Fault> {
    let id = webhook.id.to_bytes();
    let url = webhook.url.as_str().into();
    tx.execute_one(INSERT, &[environment.into(), id.into(), url, webhook.created_at.millis().into()])?;
    for kind in &webhook.events {
        tx.execute_one(SUBSCRIBE, &[environment.into(), kind.as_str().into(), id.into()])?;
    }
    Ok(())
}

/// How many webhooks an environment has.
pub fn count(tx: &mut Tx<'_>, environment: i64) -> Result<i64, Fault> {
    tx.one_row(COUNT, &[environment.into()])?.integer()
}

/// One webhook.
pub fn find(tx: &mut Tx<'_>, environment: i64, webhook: WebhookId) -> Result<Option<WebhookRecord>, Fault> {
    let row = tx.row(FIND, &[environment.into(), webhook.to_bytes().into()])?;
    row.map(|row| read(tx, environment, row)).transpose()
}

/// One webhook, locked until the transaction ends.
pub fn lock(tx: &mut Tx<'_>, environment: i64, webhook: WebhookId) -> Result<Option<WebhookRecord>, Fault> {
    hold(tx, environment, webhook)?;
    find(tx, environment, webhook)
}

/// Locks a webhook and its place in the due queue until the transaction ends.
pub fn hold(tx: &mut Tx<'_>, environment: i64, webhook: WebhookId) -> Result<(), Fault> {
    tx.hold(HOLD, &[environment.into(), webhook.to_bytes().into()])
}

/// A slice of the webhooks of an environment.
pub fn page(tx: &mut Tx<'_>, environment: i64, slice: &Slice) -> Result<Vec<WebhookRecord>, Fault> {
    let sql = match slice.direction {
        Direction::Older => OLDER,
        Direction::Newer => NEWER,
    };
    let rows = tx.query(sql, &[environment.into(), slice.from.into(), slice.limit.into()])?;
    rows.into_iter().map(|row| read(tx, environment, row)).collect()
}

/// Deletes a webhook and its subscriptions.
pub fn delete(tx: &mut Tx<'_>, environment: i64, webhook: WebhookId) -> Result<(), Fault> {
    tx.execute(UNSUBSCRIBE, &[environment.into(), webhook.to_bytes().into()])?;
    tx.execute_one(DELETE, &[environment.into(), webhook.to_bytes().into()])
}

/// There are few webhooks with few types each, so one query for each will do.
fn read(tx: &mut Tx<'_>, environment: i64, mut row: Row) -> Result<WebhookRecord, Fault> {
    let id = WebhookId::from_bytes(row.bytes()?);
    let types = tx.query(TYPES, &[environment.into(), id.to_bytes().into()])?;
    Ok(WebhookRecord {
        id,
        url: row.text()?,
        events: types
            .into_iter()
            .map(|mut row| Ok(EventKind::parse(&row.text()?)?))
            .collect::<Result<_, Fault>>()?,
        created_at: Timestamp::from_millis(row.integer()?),
    })
}
