//! The webhooks that tell people in a chat that a review waits: at most one an environment.

use mandate_core::WebhookId;

use super::keys::kind;
use crate::error::Fault;
use crate::model::records::{NoticeFormat, NoticeRecord};
use crate::store::tx::{Row, Tx};

const INSERT: &str = "/* notices.insert */
    INSERT INTO notices (environment, webhook, sealed, format, details) VALUES ($1, $2, $3, $4, $5)";
const FIND: &str = "/* notices.find */
    SELECT o.name, e.kind, n.webhook, n.sealed, n.format, n.details FROM notices n
    JOIN environments e ON e.environment = n.environment
    JOIN organizations o ON o.organization = e.organization WHERE n.environment = $1";
const DELETE: &str = "/* notices.delete */ DELETE FROM notices WHERE environment = $1";
const SEAL: &str = "/* notices.seal */ UPDATE notices SET sealed = $1 WHERE environment = $2";

/// Writes the notices of an environment, whose webhook is written.
pub fn insert(tx: &mut Tx<'_>, environment: i64, notice: &NoticeRecord) -> Result<(), Fault> {
    let NoticeRecord { webhook, sealed, format, has_details, .. } = notice;
    let (webhook, sealed) = (webhook.to_bytes().into(), sealed.clone().into());
    let details = i64::from(*has_details).into();
    tx.execute_one(INSERT, &[environment.into(), webhook, sealed, format.as_str().into(), details])
}

/// The notices of an environment.
pub fn find(tx: &mut Tx<'_>, environment: i64) -> Result<Option<NoticeRecord>, Fault> {
    tx.row(FIND, &[environment.into()])?.map(read).transpose()
}

/// Deletes the notices of an environment. Its webhook stays.
pub fn delete(tx: &mut Tx<'_>, environment: i64) -> Result<(), Fault> {
    tx.execute_one(DELETE, &[environment.into()])
}

/// Writes the URL of an environment's notices, encrypted under another master key.
pub fn seal(tx: &mut Tx<'_>, environment: i64, sealed: Vec<u8>) -> Result<(), Fault> {
    tx.execute_one(SEAL, &[sealed.into(), environment.into()])
}

fn read(mut row: Row) -> Result<NoticeRecord, Fault> {
    let (organization, kind) = (row.text()?, kind(&row.text()?)?);
    let (webhook, sealed, format) = (WebhookId::from_bytes(row.bytes()?), row.blob()?, row.text()?);
    Ok(NoticeRecord {
        organization,
        kind,
        webhook,
        sealed,
        format: NoticeFormat::parse(&format)
            .ok_or_else(|| Fault::corrupt(format!("database: notices.format is `{format}`")))?,
        has_details: row.integer()? == 1,
    })
}
