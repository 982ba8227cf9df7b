//! Exports where several servers share a database: the lease on an export, and its content in pieces that each
//! server can read.
//!
//! One server at a time builds an export, under a lease. Only its holder knows when the lease ends, and each of its
//! writes names that time. So a write succeeds only while the lease is its own.

use mandate_core::{ExportId, Timestamp};

use super::exports::{Export, ExportStatus};
use crate::error::Fault;
use crate::store::tx::{Tx, Value};

const LEASE: &str = "/* export_pieces.lease */
    UPDATE exports SET leased_until = $1 WHERE environment = $2 AND export = $3
    AND status = 'pending' AND (leased_until IS NULL OR leased_until <= $4 OR leased_until > $4 + 120000)";
const RENEW: &str = "/* export_pieces.renew */
    UPDATE exports SET leased_until = $1 WHERE environment = $2 AND export = $3
    AND status = 'pending' AND leased_until = $4";
const PUT: &str = "/* export_pieces.put */
    INSERT INTO export_pieces (environment, export, number, content) VALUES ($1, $2, $3, $4)";
const CLEAR: &str = "/* export_pieces.clear */
    DELETE FROM export_pieces WHERE environment = $1 AND export = $2";
const END: &str = "/* export_pieces.end */
    UPDATE exports SET status = $1, rows = $2, sha256 = $3, leased_until = NULL,
        incomplete_since = (SELECT CASE WHEN c.mark < exports.until THEN c.mark END FROM clock c)
    WHERE environment = $4 AND export = $5 AND status = 'pending' AND leased_until = $6";
const PIECE: &str = "/* export_pieces.piece */
    SELECT content FROM export_pieces WHERE environment = $1 AND export = $2 AND number = $3";

/// Leases an export at `now` to the server that will build it. False if another server has leased it, or if it is not
/// pending any more.
pub fn lease(tx: &mut Tx<'_>, export: &Export, now: Timestamp, until: Timestamp) -> Result<bool, Fault> {
    let row =
        [until.millis().into(), export.environment.into(), export.id.to_bytes().into(), now.millis().into()];
    Ok(tx.execute(LEASE, &row)? == 1)
}

/// Moves the end of a lease from `from` to `to`. False if another server has the lease by now.
pub fn renew(tx: &mut Tx<'_>, export: &Export, from: Timestamp, to: Timestamp) -> Result<bool, Fault> {
    let row =
        [to.millis().into(), export.environment.into(), export.id.to_bytes().into(), from.millis().into()];
    Ok(tx.execute(RENEW, &row)? == 1)
}

/// Writes a piece of an export's content. The first piece deletes those of another server.
pub fn put(tx: &mut Tx<'_>, export: &Export, number: i64, content: Vec<u8>) -> Result<(), Fault> {
    let (environment, id): (Value, Value) = (export.environment.into(), export.id.to_bytes().into());
    if number == 0 {
        tx.execute(CLEAR, &[environment.clone(), id.clone()])?;
    }
    tx.execute_one(PUT, &[environment, id, number.into(), content.into()])
}

/// Writes how building a leased export has ended. False if another server has the lease by now.
pub fn end(
    tx: &mut Tx<'_>,
    export: &Export,
    leased_until: Timestamp,
    content: Option<(i64, [u8; 32])>,
) -> Result<bool, Fault> {
    let status = if content.is_some() { ExportStatus::Ready } else { ExportStatus::Failed };
    let row = [
        status.as_str().into(),
        content.map(|(rows, _)| rows).into(),
        content.map(|(_, sha256)| sha256).into(),
        export.environment.into(),
        export.id.to_bytes().into(),
        leased_until.millis().into(),
    ];
    Ok(tx.execute(END, &row)? == 1)
}

/// A piece of an export's content. None after the last.
pub fn piece(
    tx: &mut Tx<'_>,
    environment: i64,
    export: ExportId,
    number: i64,
) -> Result<Option<Vec<u8>>, Fault> {
    let row = tx.row(PIECE, &[environment.into(), export.to_bytes().into(), number.into()])?;
    row.map(|mut row| row.blob()).transpose()
}
