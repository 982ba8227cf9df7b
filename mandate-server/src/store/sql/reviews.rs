//! Reviews.

use mandate_core::{
    AgentId, Amount, Category, Currency, DecisionId, PolicyVersion, Principal, Recipient, ReviewId,
    ReviewStatus, Timestamp,
};
use serde::{Serialize, Serializer};

use super::checksums::REVIEWS;
use crate::error::Fault;
use crate::model::people::Actor;
use crate::model::records::{Mode, ReviewRecord};
use crate::store::tx::{Row, Tx, Value};

/// How far apart the times in the ids of a decision and of its review may be, in seconds.
const SAME_SECONDS: i64 = 5;

const INSERT: &str = "/* reviews.insert */
    INSERT INTO reviews (environment, review, decision, status, waits_for, expires_at, checksum)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";
const FIND: &str = "/* reviews.find */
    SELECT review, decision, status, waits_for, expires_at, resolved_at, resolved_after, fresh, reason,
        resolved_by, checksum
    FROM reviews WHERE environment = $1 AND review = $2";
const HOLD: &str = "/* reviews.hold */
    SELECT 1 FROM reviews WHERE environment = $1 AND review = $2 FOR NO KEY UPDATE";
const FIND_DECISION: &str = "/* reviews.find_decision */
    SELECT decision FROM reviews WHERE environment = $1 AND review = $2";
const NAMED_BY: &str = "/* reviews.named_by */
    SELECT decision FROM decisions
    WHERE environment = $1 AND verdict = 'review' AND decision > $2 AND decision < $3 AND review = $4";
const RESOLVE: &str = "/* reviews.resolve */
    UPDATE reviews SET status = $1, resolved_at = $2, resolved_after = $3, fresh = $4, reason = $5, resolved_by = $6,
        checksum = $7 WHERE environment = $8 AND review = $9 AND status = 'pending'";
const WAITING: &str = "/* reviews.waiting */
    SELECT r.review, r.decision, r.waits_for, r.expires_at, d.agent, d.amount, d.currency, d.recipient, d.category,
        d.decided_at, d.mode
    FROM reviews r JOIN decisions d ON d.environment = r.environment AND d.decision = r.decision
    WHERE r.status = 'pending' AND r.environment = $1 AND r.expires_at > $2
    ORDER BY r.expires_at, r.review LIMIT $3";
const WAITING_BY_ROLE: &str = "/* reviews.waiting_by_role */
    SELECT r.review, r.decision, r.waits_for, r.expires_at, d.agent, d.amount, d.currency, d.recipient, d.category,
        d.decided_at, d.mode, r.total
    FROM (
        SELECT n.review, n.decision, n.waits_for, n.expires_at, COUNT(*) OVER () AS total,
            ROW_NUMBER() OVER (PARTITION BY n.waits_for ORDER BY n.expires_at, n.review) AS place
        FROM (
            SELECT review, decision, waits_for, expires_at FROM reviews
            WHERE status = 'pending' AND environment = $1 AND expires_at > $2
            ORDER BY expires_at, review LIMIT $3
        ) n
    ) r JOIN decisions d ON d.environment = $1 AND d.decision = r.decision
    WHERE r.place <= $4
    ORDER BY r.place, r.expires_at, r.review LIMIT $5";
const NEXT_END: &str = "/* reviews.next_end */
    SELECT expires_at FROM reviews WHERE status = 'pending' ORDER BY expires_at LIMIT 1";
const ENDED: &str = "/* reviews.ended */
    SELECT r.environment, e.policy_version, r.review, r.decision FROM reviews r
    LEFT JOIN environments e ON e.environment = r.environment
    WHERE r.status = 'pending' AND r.expires_at <= $1
    ORDER BY r.expires_at LIMIT $2";
const ENDED_BESIDE_OTHERS: &str = "/* reviews.ended_beside_others */
    SELECT r.environment, e.policy_version, r.review, r.decision FROM reviews r
    LEFT JOIN environments e ON e.environment = r.environment
    WHERE r.status = 'pending' AND r.expires_at <= $1
    ORDER BY r.expires_at LIMIT $2 FOR NO KEY UPDATE OF r SKIP LOCKED";

/// A review that has expired without a resolution.
#[derive(Debug)]
pub struct Ended {
    /// The tenant.
    pub environment: i64,
    /// The environment's policy version.
    pub policy_version: PolicyVersion,
    /// Its id.
    pub review: ReviewId,
    /// The decision that waits for it.
    pub decision: DecisionId,
}

/// A review that waits, with what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The review's id.
    pub review: ReviewId,
    /// The decision that waits for it.
    pub decision: DecisionId,
    /// Whom it waits for.
    pub waits_for: Principal,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The agent that asked.
    pub agent: AgentId,
    /// How much.
    #[serde(serialize_with = "as_text")]
    pub amount: Amount,
    /// In which currency.
    pub currency: Currency,
    /// For whom.
    pub recipient: Recipient,
    /// What for.
    pub category: Category,
    /// When.
    pub asked_at: Timestamp,
    /// The mode in which it was asked.
    pub mode: Mode,
}

/// A reader that is no exact one must not round an amount.
fn as_text<S: Serializer>(amount: &Amount, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(amount)
}

/// At most `limit` reviews of an environment that wait at `now`, the one that expires first at the top.
pub fn waiting(tx: &mut Tx<'_>, environment: i64, now: Timestamp, limit: i64) -> Result<Vec<Waiting>, Fault> {
    let rows = tx.query(WAITING, &[environment.into(), now.millis().into(), limit.into()])?.into_iter();
    rows.map(|mut row| read_waiting(&mut row)).collect()
}

/// How many reviews of an environment [`waiting_by_role`] reads.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// Those that expire first.
    pub looked_at: i64,
    /// Of them, for each role.
    pub of_role: i64,
    /// In all: the first of each role, then the second of each, and so on.
    pub found: i64,
}

/// Reviews of an environment that wait at `now`, of each role those that expire first; and how many were looked at.
pub fn waiting_by_role(
    tx: &mut Tx<'_>,
    environment: i64,
    now: Timestamp,
    reach: Reach,
) -> Result<(Vec<Waiting>, i64), Fault> {
    let Reach { looked_at, of_role, found } = reach;
    let parameters =
        [environment.into(), now.millis().into(), looked_at.into(), of_role.into(), found.into()];
    let (mut waiting, mut total) = (Vec::new(), 0);
    for mut row in tx.query(WAITING_BY_ROLE, &parameters)? {
        waiting.push(read_waiting(&mut row)?);
        total = row.integer()?;
    }
    Ok((waiting, total))
}

fn read_waiting(row: &mut Row) -> Result<Waiting, Fault> {
    Ok(Waiting {
        review: ReviewId::from_bytes(row.bytes()?),
        decision: DecisionId::from_bytes(row.bytes()?),
        waits_for: Principal::parse(&row.text()?)?,
        expires_at: Timestamp::from_millis(row.integer()?),
        agent: AgentId::parse(&row.text()?)?,
        amount: Amount::parse(&row.text()?)?,
        currency: Currency::parse(&row.text()?)?,
        recipient: Recipient::parse(&row.text()?)?,
        category: Category::parse(&row.text()?)?,
        asked_at: Timestamp::from_millis(row.integer()?),
        mode: Mode::parse(&row.text()?)?,
    })
}

/// Writes a review.
pub fn insert(tx: &mut Tx<'_>, environment: i64, review: &ReviewRecord) -> Result<(), Fault> {
    tx.execute_one(INSERT, &values(environment, review))
}

/// The six columns of a new review, and its checksum.
pub(in crate::store) fn values(environment: i64, review: &ReviewRecord) -> [Value; 7] {
    let all = all(environment, review);
    let checksum = REVIEWS.checksum(&all);
    let [environment, review, decision, status, waits_for, expires_at, ..] = all;
    [environment, review, decision, status, waits_for, expires_at, checksum]
}

/// All eleven columns.
fn all(environment: i64, review: &ReviewRecord) -> [Value; 11] {
    [
        environment.into(),
        review.id.to_bytes().into(),
        review.decision.to_bytes().into(),
        review.status.as_str().into(),
        review.waits_for.as_str().into(),
        review.expires_at.millis().into(),
        review.resolved_at.map(Timestamp::millis).into(),
        review.resolved_after.into(),
        review.fresh.map(DecisionId::to_bytes).into(),
        review.reason.clone().into(),
        review.resolved_by.as_ref().map(Actor::to_json).into(),
    ]
}

/// The decision that waits for a review.
pub fn decision(tx: &mut Tx<'_>, environment: i64, review: ReviewId) -> Result<Option<DecisionId>, Fault> {
    let row = tx.row(FIND_DECISION, &[environment.into(), review.to_bytes().into()])?;
    row.map(|mut row| Ok(DecisionId::from_bytes(row.bytes()?))).transpose()
}

/// The decision that waits for a review, by the log alone. It is looked for within a few seconds of the review's id.
pub fn named_by(tx: &mut Tx<'_>, environment: i64, review: ReviewId) -> Result<Option<DecisionId>, Fault> {
    let at = review.created_at();
    let ends =
        [-SAME_SECONDS, SAME_SECONDS].map(|by| DecisionId::new(at.plus_seconds(by), 0).to_bytes().into());
    let [from, to] = ends;
    let row = tx.row(NAMED_BY, &[environment.into(), from, to, review.to_bytes().into()])?;
    row.map(|mut row| Ok(DecisionId::from_bytes(row.bytes()?))).transpose()
}

/// One review, locked until the transaction ends, to be resolved.
///
/// # Errors
/// Its checksum does not hold.
pub fn lock(tx: &mut Tx<'_>, environment: i64, review: ReviewId) -> Result<Option<ReviewRecord>, Fault> {
    let Some(mut row) = lock_row(tx, environment, review)? else { return Ok(None) };
    REVIEWS.must_hold(&[environment.into()], &row)?;
    read_joined(&mut row)
}

fn lock_row(tx: &mut Tx<'_>, environment: i64, review: ReviewId) -> Result<Option<Row>, Fault> {
    let parameters = [environment.into(), review.to_bytes().into()];
    tx.hold(HOLD, &parameters)?;
    tx.row(FIND, &parameters)
}

/// Writes the resolution of a pending review.
///
/// # Errors
/// The review is not pending any more: exactly one resolution wins.
pub fn resolve(tx: &mut Tx<'_>, environment: i64, review: &ReviewRecord) -> Result<(), Fault> {
    let checksum = REVIEWS.checksum(&all(environment, review));
    match write(tx, environment, review, checksum)? {
        1 => Ok(()),
        n => Err(Fault::corrupt(format!("database: {n} reviews instead of one resolved"))),
    }
}

fn write(tx: &mut Tx<'_>, environment: i64, review: &ReviewRecord, checksum: Value) -> Result<usize, Fault> {
    let [environment, id, _, status, _, _, resolved_at, resolved_after, fresh, reason, by] =
        all(environment, review);
    let row = [status, resolved_at, resolved_after, fresh, reason, by, checksum, environment, id];
    tx.execute(RESOLVE, &row)
}

/// Marks a pending review as expired. False if it is not pending any more. A checksum that does not hold stays as it is, so
/// that one damaged review keeps no other from its end, and is still found.
pub fn expire(tx: &mut Tx<'_>, environment: i64, review: ReviewId) -> Result<bool, Fault> {
    let Some(mut row) = lock_row(tx, environment, review)? else { return Ok(false) };
    let holds = REVIEWS.holds(&[environment.into()], &row);
    let Some(mut review) = read_joined(&mut row)? else { return Ok(false) };
    let stored = row.value()?;
    (review.status, review.resolved_at) = (ReviewStatus::Expired, Some(review.expires_at));
    let checksum = if holds { REVIEWS.checksum(&all(environment, &review)) } else { stored };
    Ok(write(tx, environment, &review, checksum)? == 1)
}

/// When the first of the pending reviews expires.
pub fn next_end(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    tx.row(NEXT_END, &[])?.map(|mut row| row.integer().map(Timestamp::from_millis)).transpose()
}

/// At most `limit` pending reviews that have expired by `now`, locked until the transaction ends. Reviews that another
/// transaction has locked are left out.
pub fn ended(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<Vec<Ended>, Fault> {
    let sql = tx.either(ENDED, ENDED_BESIDE_OTHERS);
    let rows = tx.query(sql, &[now.millis().into(), limit.into()])?.into_iter();
    rows.map(|mut row| {
        Ok(Ended {
            environment: row.integer()?,
            policy_version: PolicyVersion::parse(&row.text()?)?,
            review: ReviewId::from_bytes(row.bytes()?),
            decision: DecisionId::from_bytes(row.bytes()?),
        })
    })
    .collect()
}

/// Reads a review's ten columns, which an outer join may have left empty.
pub fn read_joined(row: &mut Row) -> Result<Option<ReviewRecord>, Fault> {
    let Some(id) = row.maybe_bytes()? else { return Ok(None) };
    Ok(Some(ReviewRecord {
        id: ReviewId::from_bytes(id),
        decision: DecisionId::from_bytes(row.bytes()?),
        status: ReviewStatus::parse(&row.text()?)?,
        waits_for: Principal::parse(&row.text()?)?,
        expires_at: Timestamp::from_millis(row.integer()?),
        resolved_at: row.maybe_integer()?.map(Timestamp::from_millis),
        resolved_after: row.maybe_integer()?,
        fresh: row.maybe_bytes()?.map(DecisionId::from_bytes),
        reason: row.maybe_text()?,
        resolved_by: row.maybe_text()?.map(|by| Actor::read(&by)).transpose()?,
    }))
}
