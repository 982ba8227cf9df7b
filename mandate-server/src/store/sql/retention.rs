//! Closed months: their files, how far the closing of one has come, and the rows that it deletes.
//!
//! Rows are deleted in pieces of consecutive ids of an environment. What is open, or named by what stays, stays too.

mod sizes;

use mandate_core::{DecisionId, EnvironmentKind, Month, Timestamp};

use super::keys::kind;
use crate::error::Fault;
use crate::store::tx::{Backend, Row, Tx, Value};

pub use sizes::sizes;

const HOLD: &str = "/* retention.hold */ SELECT 1 FROM closings WHERE month = $1 FOR UPDATE";
const BEGIN: &str = "/* retention.begin */
    INSERT INTO closings (month, directory, step, behind, began_at) VALUES ($1, $2, 'writing', $3, $4)
    ON CONFLICT (month) DO NOTHING";
const MOVE: &str = "/* retention.move */ UPDATE closings SET directory = $1 WHERE month = $2";
const FIND: &str = "/* retention.find */
    SELECT month, directory, step, behind, began_at FROM closings WHERE month = $1";
const UNFINISHED: &str = "/* retention.unfinished */
    SELECT month, directory, step, behind, began_at FROM closings WHERE step <> 'closed' ORDER BY month LIMIT 1";
const ADVANCE: &str =
    "/* retention.advance */ UPDATE closings SET step = $1, closed_at = $2 WHERE month = $3";
const BEHIND: &str = "/* retention.behind */
    SELECT behind FROM closings WHERE step <> 'writing' ORDER BY month DESC LIMIT 1";
const NEWEST: &str = "/* retention.newest */
    SELECT n.decision FROM (
        SELECT (SELECT d.decision FROM decisions d WHERE d.environment = e.environment ORDER BY d.decision DESC LIMIT 1)
            AS decision
        FROM environments e) n
    WHERE n.decision IS NOT NULL ORDER BY n.decision DESC LIMIT 1";
/// The oldest decision before an id that no opening counts.
const WITHOUT_OPENING: &str = "/* retention.without_opening */
    SELECT d.decision FROM decisions d
    LEFT JOIN openings p ON p.environment = d.environment AND p.agent = d.agent AND p.sequence >= d.sequence
    WHERE d.environment = $1 AND d.decision < $2 AND p.agent IS NULL ORDER BY d.decision LIMIT 1";

const INSERT_FILE: &str = "/* retention.insert_file */
    INSERT INTO closed_months (environment, month, file, sha256, rows, first_decision, last_decision)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";
const HAS_FILE: &str = "/* retention.has_file */
    SELECT file FROM closed_months WHERE environment = $1 AND month = $2";
const FORGET_FILE: &str = "/* retention.forget_file */
    DELETE FROM closed_months WHERE environment = $1 AND month = $2";
const FILES_OF: &str = "/* retention.files_of */
    SELECT environment, file, sha256, rows, first_decision, last_decision
    FROM closed_months WHERE month = $1 ORDER BY environment";
const FILES: &str = "/* retention.files */
    SELECT o.name, e.kind, m.month, c.directory, m.file, m.sha256, m.rows
    FROM closed_months m JOIN closings c ON c.month = m.month
    JOIN environments e ON e.environment = m.environment
    JOIN organizations o ON o.organization = e.organization
    WHERE m.first_decision <= $1 AND m.last_decision >= $1 ORDER BY m.environment, m.month";

const DECISIONS_BEFORE: &str = "/* retention.decisions_before */
    SELECT COUNT(*) FROM decisions WHERE environment = $1 AND decision < $2";
/// A review that was resolved less than an hour before a closing began stays: what resolved it may have committed only after
/// the file showed it as pending.
const UNDER_WAY_SECONDS: i64 = 60 * 60;
const DECISIONS: &str = "/* retention.decisions */ SELECT decision FROM decisions
    WHERE environment = $1 AND decision > $2 AND decision < $3 ORDER BY decision LIMIT $4";
/// Those to the reviews that are deleted next.
const DELETE_ANSWERS: &str = "/* retention.delete_answers */ DELETE FROM answers
    WHERE environment = $1 AND review IN (SELECT d.review FROM decisions d
            JOIN openings p ON p.environment = d.environment AND p.agent = d.agent AND p.sequence >= d.sequence
            JOIN reviews r ON r.environment = d.environment AND r.review = d.review
            WHERE d.environment = $1 AND d.decision > $2 AND d.decision <= $3 AND r.status <> 'pending'
                AND (r.resolved_at IS NULL OR r.resolved_at < $4) AND (r.fresh IS NULL OR r.fresh < $5))";
const DELETE_REVIEWS: &str = "/* retention.delete_reviews */ DELETE FROM reviews
    WHERE environment = $1 AND review IN (SELECT d.review FROM decisions d
            JOIN openings p ON p.environment = d.environment AND p.agent = d.agent AND p.sequence >= d.sequence
            WHERE d.environment = $1 AND d.decision > $2 AND d.decision <= $3 AND d.review IS NOT NULL)
        AND status <> 'pending' AND (resolved_at IS NULL OR resolved_at < $4) AND (fresh IS NULL OR fresh < $5)";
const DELETE_INDEX: &str = "/* retention.delete_index */ DELETE FROM agent_decisions
    WHERE environment = $1 AND (agent, decision) IN (SELECT d.agent, d.decision FROM decisions d
        JOIN openings p ON p.environment = d.environment AND p.agent = d.agent AND p.sequence >= d.sequence
        WHERE d.environment = $1 AND d.decision > $2 AND d.decision <= $3
            AND NOT EXISTS (SELECT 1 FROM reviews r WHERE r.environment = d.environment AND r.review = d.review)
            AND NOT EXISTS (SELECT 1 FROM escrows x
                WHERE x.environment = d.environment AND x.decision = d.decision))";
const DELETE_DECISIONS: &str = "/* retention.delete_decisions */ DELETE FROM decisions
    WHERE environment = $1 AND decision > $2 AND decision <= $3
        AND sequence <= (SELECT p.sequence FROM openings p
            WHERE p.environment = decisions.environment AND p.agent = decisions.agent)
        AND NOT EXISTS (SELECT 1 FROM reviews r
            WHERE r.environment = decisions.environment AND r.review = decisions.review)
        AND NOT EXISTS (SELECT 1 FROM escrows x
            WHERE x.environment = decisions.environment AND x.decision = decisions.decision)";

const EVENTS: &str = "/* retention.events */ SELECT event FROM events
    WHERE environment = $1 AND event > $2 AND event < $3 ORDER BY event LIMIT $4";
const DELETE_ATTEMPTS: &str = "/* retention.delete_attempts */ DELETE FROM attempts
    WHERE environment = $1 AND event > $2 AND event <= $3
        AND NOT EXISTS (SELECT 1 FROM deliveries p WHERE p.environment = attempts.environment
            AND p.event = attempts.event AND p.state = 'pending')";
/// A delivery that an operator retries meanwhile is pending when its row is locked, and stays.
const DELETE_DELIVERIES: &str = "/* retention.delete_deliveries */ DELETE FROM deliveries
    WHERE environment = $1 AND event > $2 AND event <= $3 AND state <> 'pending'
        AND NOT EXISTS (SELECT 1 FROM deliveries p WHERE p.environment = deliveries.environment
            AND p.event = deliveries.event AND p.state = 'pending')
        AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.environment = deliveries.environment
            AND a.event = deliveries.event AND a.webhook = deliveries.webhook)";
const DELETE_EVENTS: &str = "/* retention.delete_events */ DELETE FROM events
    WHERE environment = $1 AND event > $2 AND event <= $3
        AND NOT EXISTS (SELECT 1 FROM deliveries p
            WHERE p.environment = events.environment AND p.event = events.event)";

/// How far the closing of a month has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosingStep {
    /// Its files are being written. All rows are there.
    Writing,
    /// All files are there, and rows are being deleted.
    Deleting,
    /// It is closed.
    Closed,
}

impl ClosingStep {
    fn as_str(self) -> &'static str {
        match self {
            Self::Writing => "writing",
            Self::Deleting => "deleting",
            Self::Closed => "closed",
        }
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        match text {
            "writing" => Ok(Self::Writing),
            "deleting" => Ok(Self::Deleting),
            "closed" => Ok(Self::Closed),
            _ => Err(Fault::corrupt("database: closings.step is none of writing, deleting and closed")),
        }
    }
}

/// The closing of a month.
#[derive(Debug, Clone)]
pub struct Closing {
    /// The month.
    pub month: Month,
    /// Where its files are, an absolute path.
    pub directory: String,
    /// How far it has come.
    pub step: ClosingStep,
    /// The first id of the next month.
    pub behind: DecisionId,
    /// When it began.
    pub began_at: Timestamp,
}

/// The file of an environment's decisions of a month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonthFile {
    /// The tenant.
    pub environment: i64,
    /// Its name.
    pub file: String,
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// How many decisions are in it.
    pub rows: i64,
    /// The first of them.
    pub first: DecisionId,
    /// The last of them.
    pub last: DecisionId,
}

/// A file that may have a decision.
#[derive(Debug, Clone)]
pub struct FoundFile {
    /// Whose.
    pub organization: String,
    /// The kind of its environment.
    pub kind: EnvironmentKind,
    /// The month.
    pub month: Month,
    /// Where it was written, an absolute path.
    pub directory: String,
    /// Its name.
    pub file: String,
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// How many decisions are in it.
    pub rows: i64,
}

/// Locks the closing of a month until the transaction ends, and reads it.
pub fn hold(tx: &mut Tx<'_>, month: Month) -> Result<Option<Closing>, Fault> {
    tx.hold(HOLD, &[month.to_string().into()])?;
    find(tx, month)
}

/// The closing of a month.
pub fn find(tx: &mut Tx<'_>, month: Month) -> Result<Option<Closing>, Fault> {
    tx.row(FIND, &[month.to_string().into()])?.map(read).transpose()
}

/// The oldest closing that has not ended.
pub fn unfinished(tx: &mut Tx<'_>) -> Result<Option<Closing>, Fault> {
    tx.row(UNFINISHED, &[])?.map(read).transpose()
}

/// Writes that the closing of a month begins. False if another command has begun it meanwhile.
pub fn begin(tx: &mut Tx<'_>, closing: &Closing) -> Result<bool, Fault> {
    let Closing { month, directory, behind, began_at, .. } = closing;
    let row: [Value; 4] = [
        month.to_string().into(),
        directory.as_str().into(),
        behind.to_bytes().into(),
        began_at.millis().into(),
    ];
    Ok(tx.execute(BEGIN, &row)? == 1)
}

/// Writes that the files of a month are in another directory.
pub fn move_to(tx: &mut Tx<'_>, month: Month, directory: &str) -> Result<(), Fault> {
    tx.execute_one(MOVE, &[directory.into(), month.to_string().into()])
}

/// Writes how far the closing of a month has come; when it ended, at the end.
pub fn advance(
    tx: &mut Tx<'_>,
    month: Month,
    step: ClosingStep,
    closed_at: Option<Timestamp>,
) -> Result<(), Fault> {
    let row: [Value; 3] =
        [step.as_str().into(), closed_at.map(Timestamp::millis).into(), month.to_string().into()];
    tx.execute_one(ADVANCE, &row)
}

/// The first id after all months whose rows are deleted, or are being deleted.
pub fn behind(tx: &mut Tx<'_>) -> Result<Option<DecisionId>, Fault> {
    tx.row(BEHIND, &[])?.map(|mut row| row.bytes().map(DecisionId::from_bytes)).transpose()
}

/// The newest decision of all environments.
pub fn newest(tx: &mut Tx<'_>) -> Result<Option<DecisionId>, Fault> {
    tx.row(NEWEST, &[])?.map(|mut row| row.bytes().map(DecisionId::from_bytes)).transpose()
}

/// The oldest decision of an environment before an id that no opening counts.
pub fn without_opening(
    tx: &mut Tx<'_>,
    environment: i64,
    before: DecisionId,
) -> Result<Option<DecisionId>, Fault> {
    let row = tx.row(WITHOUT_OPENING, &[environment.into(), before.to_bytes().into()])?;
    row.map(|mut row| row.bytes().map(DecisionId::from_bytes)).transpose()
}

/// Writes which file an environment's decisions of a month are in.
pub fn insert_file(tx: &mut Tx<'_>, month: Month, file: &MonthFile) -> Result<(), Fault> {
    let MonthFile { environment, file, sha256, rows, first, last } = file;
    let row: [Value; 7] = [
        (*environment).into(),
        month.to_string().into(),
        file.as_str().into(),
        (*sha256).into(),
        (*rows).into(),
        first.to_bytes().into(),
        last.to_bytes().into(),
    ];
    tx.execute_one(INSERT_FILE, &row)
}

/// Whether an environment's file of a month is written.
pub fn has_file(tx: &mut Tx<'_>, environment: i64, month: Month) -> Result<bool, Fault> {
    Ok(tx.row(HAS_FILE, &[environment.into(), month.to_string().into()])?.is_some())
}

/// Forgets an environment's file of a month: it is to be written again.
pub fn forget_file(tx: &mut Tx<'_>, environment: i64, month: Month) -> Result<(), Fault> {
    tx.execute_one(FORGET_FILE, &[environment.into(), month.to_string().into()])
}

/// The files of a month.
pub fn files_of(tx: &mut Tx<'_>, month: Month) -> Result<Vec<MonthFile>, Fault> {
    let rows = tx.query(FILES_OF, &[month.to_string().into()])?.into_iter();
    rows.map(|mut row| {
        Ok(MonthFile {
            environment: row.integer()?,
            file: row.text()?,
            sha256: row.bytes()?,
            rows: row.integer()?,
            first: DecisionId::from_bytes(row.bytes()?),
            last: DecisionId::from_bytes(row.bytes()?),
        })
    })
    .collect()
}

/// The files between whose first and last decision an id lies: one of each environment at most.
pub fn files(tx: &mut Tx<'_>, decision: DecisionId) -> Result<Vec<FoundFile>, Fault> {
    let rows = tx.query(FILES, &[decision.to_bytes().into()])?.into_iter();
    rows.map(|mut row| {
        Ok(FoundFile {
            organization: row.text()?,
            kind: kind(&row.text()?)?,
            month: Month::parse(&row.text()?)?,
            directory: row.text()?,
            file: row.text()?,
            sha256: row.bytes()?,
            rows: row.integer()?,
        })
    })
    .collect()
}

/// How many decisions of an environment there are before an id.
pub fn decisions_before(tx: &mut Tx<'_>, environment: i64, behind: DecisionId) -> Result<i64, Fault> {
    tx.one_row(DECISIONS_BEFORE, &[environment.into(), behind.to_bytes().into()])?.integer()
}

/// The rows of a piece that were deleted, and where the piece ended.
#[derive(Debug, Clone, Copy)]
pub struct DeletedRows {
    /// The last id of the piece, whether it stays or not.
    pub up_to: [u8; 16],
    /// How many rows of all tables were deleted.
    pub rows: usize,
}

/// Deletes decisions with their reviews: of the next `limit` of an environment after a place, those that an opening counts,
/// and that neither a review nor an escrow that stays names. None if there are no more before the month's end.
pub fn delete_decisions(
    tx: &mut Tx<'_>,
    closing: &Closing,
    place: (i64, [u8; 16]),
    limit: i64,
) -> Result<Option<DeletedRows>, Fault> {
    let Some((up_to, piece)) = piece(tx, DECISIONS, closing, place, limit)? else { return Ok(None) };
    let resolved: [Value; 2] = [settled(closing.began_at), closing.behind.to_bytes().into()];
    let parameters = [&piece[..], &resolved[..]].concat();
    let mut rows = 0;
    for sql in [DELETE_ANSWERS, DELETE_REVIEWS] {
        rows += tx.execute(sql, &parameters)?;
    }
    if tx.backend() == Backend::Sqlite {
        tx.execute(DELETE_INDEX, &piece)?;
    }
    rows += tx.execute(DELETE_DECISIONS, &piece)?;
    Ok(Some(DeletedRows { up_to, rows }))
}

/// Deletes events with their deliveries and attempts: of the next `limit` of an environment after a place, those of which
/// no delivery is pending. None if there are no more before the month's end.
pub fn delete_events(
    tx: &mut Tx<'_>,
    closing: &Closing,
    place: (i64, [u8; 16]),
    limit: i64,
) -> Result<Option<DeletedRows>, Fault> {
    let Some((up_to, piece)) = piece(tx, EVENTS, closing, place, limit)? else { return Ok(None) };
    let mut rows = 0;
    for sql in [DELETE_ATTEMPTS, DELETE_DELIVERIES, DELETE_EVENTS] {
        rows += tx.execute(sql, &piece)?;
    }
    Ok(Some(DeletedRows { up_to, rows }))
}

/// A review that was resolved before this is shown as resolved in the file of a closing that began then.
fn settled(began_at: Timestamp) -> Value {
    began_at.plus_seconds(-UNDER_WAY_SECONDS).millis().into()
}

/// The last id of a piece, and the piece as statements take it: its environment, the id before it, and that one.
type Piece = ([u8; 16], [Value; 3]);

/// The next piece, if there is one.
fn piece(
    tx: &mut Tx<'_>,
    sql: &'static str,
    closing: &Closing,
    (environment, after): (i64, [u8; 16]),
    limit: i64,
) -> Result<Option<Piece>, Fault> {
    let parameters = [environment.into(), after.into(), closing.behind.to_bytes().into(), limit.into()];
    let Some(mut row) = tx.query(sql, &parameters)?.into_iter().next_back() else { return Ok(None) };
    let up_to = row.bytes()?;
    Ok(Some((up_to, [environment.into(), after.into(), up_to.into()])))
}

fn read(mut row: Row) -> Result<Closing, Fault> {
    Ok(Closing {
        month: Month::parse(&row.text()?)?,
        directory: row.text()?,
        step: ClosingStep::parse(&row.text()?)?,
        behind: DecisionId::from_bytes(row.bytes()?),
        began_at: Timestamp::from_millis(row.integer()?),
    })
}
