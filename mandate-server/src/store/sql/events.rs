//! The log of events.

use mandate_core::{EventId, EventKind, Timestamp};
use serde_json::value::RawValue;

use super::checksums::EVENTS;
use crate::error::Fault;
use crate::model::records::{Direction, EventRecord, Slice};
use crate::store::tx::{Row, Tx, Value};

const INSERT: &str = "/* events.insert */
    INSERT INTO events (environment, event, type, created_at, data, checksum) VALUES ($1, $2, $3, $4, $5, $6)";

/// The newest event of an environment, and the time by the database's clock.
const NEWEST: &str = "/* events.newest */
    SELECT (SELECT event FROM events WHERE environment = $1 ORDER BY event DESC LIMIT 1),
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// The newest event of each of these environments.
pub(in crate::store) const NEWEST_OF_EACH: &str = "/* events.newest_of_each */
    SELECT (SELECT event FROM events WHERE environment = k.environment ORDER BY event DESC LIMIT 1)
    FROM (SELECT unnest($1::bigint[]) AS environment) AS k";
const FIND: &str = "/* events.find */ SELECT environment, event, type, created_at, data
    FROM events WHERE environment = $1 AND event = $2";
const OLDER: &str = "/* events.older */ SELECT environment, event, type, created_at, data
    FROM events WHERE environment = $1 AND event < $2 ORDER BY event DESC LIMIT $3";
const NEWER: &str = "/* events.newer */ SELECT environment, event, type, created_at, data
    FROM events WHERE environment = $1 AND event > $2 ORDER BY event ASC LIMIT $3";
const OLDER_OF_TYPE: &str = "/* events.older_of_type */ SELECT environment, event, type, created_at, data
    FROM events WHERE environment = $1 AND type = $2 AND event < $3
    ORDER BY event DESC LIMIT $4";
const NEWER_OF_TYPE: &str = "/* events.newer_of_type */ SELECT environment, event, type, created_at, data
    FROM events WHERE environment = $1 AND type = $2 AND event > $3
    ORDER BY event ASC LIMIT $4";

/// Writes an event.
pub fn insert(tx: &mut Tx<'_>, event: &EventRecord) -> Result<(), Fault> {
    tx.execute_one(INSERT, &values(event))
}

/// An event's five columns, and their checksum.
pub(in crate::store) fn values(event: &EventRecord) -> Vec<Value> {
    let mut values = vec![
        event.environment.into(),
        event.id.to_bytes().into(),
        event.kind.as_str().into(),
        event.at.millis().into(),
        event.data.get().into(),
    ];
    values.push(EVENTS.checksum(&values));
    values
}

/// The newest event of an environment, and the time, where several servers share the database.
pub fn newest(tx: &mut Tx<'_>, environment: i64) -> Result<(Option<[u8; 16]>, Timestamp), Fault> {
    let mut row = tx.one_row(NEWEST, &[environment.into()])?;
    Ok((row.maybe_bytes()?, Timestamp::from_millis(row.integer()?)))
}

/// One event.
pub fn find(tx: &mut Tx<'_>, environment: i64, event: EventId) -> Result<Option<EventRecord>, Fault> {
    tx.row(FIND, &[environment.into(), event.to_bytes().into()])?.map(read).transpose()
}

/// A slice of the events of an environment, of one type or of all.
pub fn page(
    tx: &mut Tx<'_>,
    environment: i64,
    kind: Option<EventKind>,
    slice: &Slice,
) -> Result<Vec<EventRecord>, Fault> {
    let (all, of_type) = match slice.direction {
        Direction::Older => (OLDER, OLDER_OF_TYPE),
        Direction::Newer => (NEWER, NEWER_OF_TYPE),
    };
    let (from, limit) = (slice.from.into(), slice.limit.into());
    let rows = match kind {
        None => tx.query(all, &[environment.into(), from, limit])?,
        Some(kind) => tx.query(of_type, &[environment.into(), kind.as_str().into(), from, limit])?,
    };
    rows.into_iter().map(read).collect()
}

fn read(mut row: Row) -> Result<EventRecord, Fault> {
    Ok(EventRecord {
        environment: row.integer()?,
        id: EventId::from_bytes(row.bytes()?),
        kind: EventKind::parse(&row.text()?)?,
        at: Timestamp::from_millis(row.integer()?),
        data: RawValue::from_string(row.text()?)
            .map_err(|e| Fault::corrupt(format!("database: an event's data is not JSON: {e}")))?,
    })
}
