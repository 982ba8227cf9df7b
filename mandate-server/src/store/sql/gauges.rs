//! Numbers of all tenants together. Each is read by an index and counts to a bound.

use mandate_core::{EnvironmentKind, Timestamp};

use crate::error::Fault;
use crate::store::tx::{Row, Tx};

const DELIVERIES: &str =
    "SELECT COUNT(*) FROM (SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT $1) AS counted";
const DELIVERY_DUE: &str = "SELECT MIN(due_at) FROM deliveries WHERE state = 'pending'";
const REVIEWS: &str = "SELECT COUNT(*) FROM
    (SELECT 1 FROM reviews WHERE status = 'pending' AND expires_at > $1 LIMIT $2) AS counted";
const EXPORTS: &str =
    "SELECT COUNT(*) FROM (SELECT 1 FROM exports WHERE status = 'pending' LIMIT $1) AS counted";
const SIGNING_KEYS: &str =
    "SELECT kind, MAX(created_at) FROM signing_keys WHERE retired_at IS NULL GROUP BY kind ORDER BY kind";

/// Deliveries that have not ended, counted up to `most`.
pub fn deliveries_pending(tx: &mut Tx<'_>, most: i64) -> Result<i64, Fault> {
    count(tx.row(DELIVERIES, &[most.into()])?)
}

/// When the first of them is due.
pub fn delivery_due_at(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    let due = tx.row(DELIVERY_DUE, &[])?.map(|mut row| row.maybe_integer()).transpose()?;
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

fn count(row: Option<Row>) -> Result<i64, Fault> {
    row.map_or(Ok(0), |mut row| row.integer())
}
