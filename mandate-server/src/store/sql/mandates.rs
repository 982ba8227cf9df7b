//! Mandates.

use mandate_core::json::Object;
use mandate_core::{AgentId, Mandate, MandateId, Terms, Timestamp};

use super::checksums::MANDATES;
use crate::error::Fault;
use crate::model::records::{Direction, Slice};
use crate::store::tx::{Row, Tx, Value};

const INSERT: &str = "/* mandates.insert */
    INSERT INTO mandates (environment, mandate, agent, terms, created_at, governs_from, expiring_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";
const REPLACE: &str = "/* mandates.replace */ UPDATE mandates SET replaced_by = $1, expiring_at = NULL
    WHERE environment = $2 AND mandate = $3";
const END: &str = "/* mandates.end */ UPDATE mandates SET governed_until = $1
    WHERE environment = $2 AND mandate = $3 AND governed_until IS NULL";
const REVOKE: &str = "/* mandates.revoke */ UPDATE mandates
    SET revoked_at = $1, revoked_after = $2, expiring_at = NULL
    WHERE environment = $3 AND mandate = $4 AND revoked_at IS NULL";
const ANNOUNCED: &str = "/* mandates.announced */ UPDATE mandates SET expiring_at = NULL
    WHERE environment = $1 AND mandate = $2 AND expiring_at IS NOT NULL";
const NEXT_EXPIRING: &str = "/* mandates.next_expiring */ SELECT expiring_at FROM mandates
    WHERE expiring_at IS NOT NULL ORDER BY expiring_at LIMIT 1";
const EXPIRING: &str = "/* mandates.expiring */ SELECT environment, mandate FROM mandates
    WHERE expiring_at <= $1 ORDER BY expiring_at LIMIT $2";
const EXPIRING_BESIDE_OTHERS: &str = "/* mandates.expiring_beside_others */ SELECT environment, mandate
    FROM mandates WHERE expiring_at <= $1
    ORDER BY expiring_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED";
const NEWEST: &str = "/* mandates.newest */
    SELECT mandate FROM mandates WHERE environment = $1 ORDER BY mandate DESC LIMIT 1";
const FIND: &str = "/* mandates.find */
    SELECT mandate, agent, terms, created_at, revoked_at, replaced_by, governs_from, revoked_after, governed_until FROM mandates
    WHERE environment = $1 AND mandate = $2";

const OLDER: &str = "/* mandates.older */
    SELECT mandate, agent, terms, created_at, revoked_at, replaced_by, governs_from, revoked_after, governed_until
    FROM mandates WHERE environment = $1 AND mandate < $2
    ORDER BY mandate DESC LIMIT $3";
pub(super) const NEWER: &str = "/* mandates.newer */
    SELECT mandate, agent, terms, created_at, revoked_at, replaced_by, governs_from, revoked_after, governed_until
    FROM mandates WHERE environment = $1 AND mandate > $2
    ORDER BY mandate ASC LIMIT $3";
const OLDER_OF_AGENT: &str = "/* mandates.older_of_agent */
    SELECT mandate, agent, terms, created_at, revoked_at, replaced_by, governs_from, revoked_after, governed_until
    FROM mandates WHERE environment = $1 AND agent = $2 AND mandate < $3
    ORDER BY mandate DESC LIMIT $4";
const NEWER_OF_AGENT: &str = "/* mandates.newer_of_agent */
    SELECT mandate, agent, terms, created_at, revoked_at, replaced_by, governs_from, revoked_after, governed_until
    FROM mandates WHERE environment = $1 AND agent = $2 AND mandate > $3
    ORDER BY mandate ASC LIMIT $4";

/// Writes a mandate. From `expiring_at` on it is to be announced that it is about to expire.
pub fn insert(
    tx: &mut Tx<'_>,
    environment: i64,
    mandate: &Mandate,
    expiring_at: Option<Timestamp>,
) -> Result<(), Fault> {
    let terms = serde_json::to_string(&mandate.terms).map_err(|e| Fault::new(e.to_string()))?;
    tx.execute_one(
        INSERT,
        &[
            environment.into(),
            mandate.id.to_bytes().into(),
            mandate.terms.agent.as_str().into(),
            terms.into(),
            mandate.created_at.millis().into(),
            sequence(mandate.governs_from),
            expiring_at.map(Timestamp::millis).into(),
        ],
    )?;
    MANDATES.seal(tx, &key(environment, mandate.id))
}

/// Notes that `by` replaces `replaced`.
pub fn replace(tx: &mut Tx<'_>, environment: i64, replaced: MandateId, by: MandateId) -> Result<(), Fault> {
    let key = key(environment, replaced);
    let [environment, replaced] = key.clone();
    MANDATES.change(tx, &key, REPLACE, &[by.to_bytes().into(), environment, replaced])
}

/// Notes the last sequence that a mandate governed. Another mandate governs its agent from now on.
pub fn end(tx: &mut Tx<'_>, environment: i64, mandate: MandateId, last: i64) -> Result<(), Fault> {
    let key = key(environment, mandate);
    let [environment, mandate] = key.clone();
    MANDATES.change(tx, &key, END, &[last.into(), environment, mandate])
}

/// Notes that the mandate is revoked, after the sequence `after`.
pub fn revoke(
    tx: &mut Tx<'_>,
    environment: i64,
    mandate: MandateId,
    at: Timestamp,
    after: i64,
) -> Result<(), Fault> {
    let key = key(environment, mandate);
    let [environment, mandate] = key.clone();
    MANDATES.change(tx, &key, REVOKE, &[at.millis().into(), after.into(), environment, mandate])
}

/// One mandate.
pub fn find(tx: &mut Tx<'_>, environment: i64, mandate: MandateId) -> Result<Option<Mandate>, Fault> {
    match tx.row(FIND, &[environment.into(), mandate.to_bytes().into()])? {
        Some(mut row) => read_joined(&mut row),
        None => Ok(None),
    }
}

/// One mandate that a decision names, to be decided on.
///
/// # Errors
/// It is not there, or its checksum does not hold.
pub fn find_sound(tx: &mut Tx<'_>, environment: i64, mandate: MandateId) -> Result<Mandate, Fault> {
    let key = key(environment, mandate);
    MANDATES.verify(tx, &key)?;
    find(tx, environment, mandate)?.ok_or_else(|| MANDATES.damaged(&key, "it is not there"))
}

/// A slice of the mandates of an environment, or of one agent.
pub fn page(
    tx: &mut Tx<'_>,
    environment: i64,
    agent: Option<&AgentId>,
    slice: &Slice,
) -> Result<Vec<Mandate>, Fault> {
    let (all, of_agent) = match slice.direction {
        Direction::Older => (OLDER, OLDER_OF_AGENT),
        Direction::Newer => (NEWER, NEWER_OF_AGENT),
    };
    let (from, limit) = (slice.from.into(), slice.limit.into());
    let rows = match agent {
        None => tx.query(all, &[environment.into(), from, limit])?,
        Some(agent) => tx.query(of_agent, &[environment.into(), agent.as_str().into(), from, limit])?,
    };
    rows.into_iter().filter_map(|mut row| read_joined(&mut row).transpose()).collect()
}

/// Marks that the coming end of a mandate is announced. False if it was marked before, or if the mandate was
/// revoked.
pub fn mark_announced(tx: &mut Tx<'_>, environment: i64, mandate: MandateId) -> Result<bool, Fault> {
    Ok(tx.execute(ANNOUNCED, &[environment.into(), mandate.to_bytes().into()])? == 1)
}

/// The newest mandate of an environment.
pub fn newest(tx: &mut Tx<'_>, environment: i64) -> Result<Option<[u8; 16]>, Fault> {
    tx.row(NEWEST, &[environment.into()])?.map(|mut row| row.bytes()).transpose()
}

/// When the next mandate is about to expire.
pub fn next_expiring(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    tx.row(NEXT_EXPIRING, &[])?.map(|mut row| row.integer().map(Timestamp::from_millis)).transpose()
}

/// At most `limit` mandates whose coming end is to be announced by `now`, each with its environment. They are locked
/// until the transaction ends. Mandates that another transaction has locked are left out.
pub fn expiring(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<Vec<(i64, MandateId)>, Fault> {
    let sql = tx.either(EXPIRING, EXPIRING_BESIDE_OTHERS);
    let rows = tx.query(sql, &[now.millis().into(), limit.into()])?.into_iter();
    rows.map(|mut row| Ok((row.integer()?, MandateId::from_bytes(row.bytes()?)))).collect()
}

/// Reads a mandate's nine columns, which an outer join may have left empty.
pub fn read_joined(row: &mut Row) -> Result<Option<Mandate>, Fault> {
    let Some(id) = row.maybe_bytes()? else { return Ok(None) };
    let agent = row.text()?;
    let terms = Terms::read(Object::parse(row.text()?.as_bytes())?)?;
    if terms.agent.as_str() != agent {
        return Err(Fault::corrupt("database: a mandate's terms name another agent than its row"));
    }
    Ok(Some(Mandate {
        id: MandateId::from_bytes(id),
        terms,
        created_at: Timestamp::from_millis(row.integer()?),
        revoked_at: row.maybe_integer()?.map(Timestamp::from_millis),
        replaced_by: row.maybe_bytes()?.map(MandateId::from_bytes),
        governs_from: read_sequence(row)?.ok_or_else(|| Fault::corrupt("database: governs_from"))?,
        revoked_after: read_sequence(row)?,
        governed_until: read_sequence(row)?,
    }))
}

fn key(environment: i64, mandate: MandateId) -> [Value; 2] {
    [environment.into(), mandate.to_bytes().into()]
}

/// A sequence as it is stored.
fn sequence(sequence: u64) -> Value {
    i64::try_from(sequence).unwrap_or(i64::MAX).into()
}

fn read_sequence(row: &mut Row) -> Result<Option<u64>, Fault> {
    let stored = row.maybe_integer()?.map(u64::try_from).transpose();
    stored.map_err(|_| Fault::corrupt("database: a sequence below 0"))
}
