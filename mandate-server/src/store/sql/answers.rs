//! Statements that people are given to sign, and their answers.

use mandate_core::{MandateId, PersonId, ReviewId, Timestamp};

use super::checksums::ANSWERS;
use crate::error::Fault;
use crate::model::people::{AnswerRecord, Answered, StatementRecord};
use crate::store::tx::Tx;

const INSERT_STATEMENT: &str = "/* answers.insert_statement */
    INSERT INTO statements (environment, challenge, session, statement, expires_at, used_at)
    VALUES ($1, $2, $3, $4, $5, $6)";
const OPEN_STATEMENTS: &str = "/* answers.open_statements */
    SELECT COUNT(*) FROM statements WHERE environment = $1 AND session = $2 AND expires_at > $3";
const FIND_STATEMENT: &str = "/* answers.find_statement */
    SELECT environment, challenge, session, statement, expires_at, used_at
    FROM statements WHERE environment = $1 AND challenge = $2";
const USE_STATEMENT: &str = "/* answers.use_statement */
    UPDATE statements SET used_at = $1 WHERE environment = $2 AND challenge = $3 AND used_at IS NULL";
const INSERT: &str = "/* answers.insert */
    INSERT INTO answers (environment, answer, person, review, mandate, at, content, checksum)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const OF_REVIEW: &str = "/* answers.of_review */
    SELECT content FROM answers WHERE environment = $1 AND review = $2";
const ONWARD: &str = "/* answers.onward */
    SELECT environment, answer, person, review, mandate, at, content FROM answers
    WHERE (environment, answer) > ($1, $2) ORDER BY environment, answer LIMIT $3";
const FIND: &str = "/* answers.find */ SELECT content FROM answers WHERE environment = $1 AND answer = $2";

/// Writes a statement.
pub fn insert_statement(tx: &mut Tx<'_>, record: &StatementRecord) -> Result<(), Fault> {
    let row = [
        record.environment.into(),
        record.challenge.into(),
        record.session.into(),
        record.statement.clone().into(),
        record.expires_at.millis().into(),
        record.used_at.map(Timestamp::millis).into(),
    ];
    tx.execute_one(INSERT_STATEMENT, &row)
}

/// How many statements of a session are good at `now`, used or not.
pub fn open_statements(
    tx: &mut Tx<'_>,
    environment: i64,
    session: i64,
    now: Timestamp,
) -> Result<i64, Fault> {
    tx.one_row(OPEN_STATEMENTS, &[environment.into(), session.into(), now.millis().into()])?.integer()
}

/// The statement with this SHA-256, used, over or neither.
pub fn find_statement(
    tx: &mut Tx<'_>,
    environment: i64,
    challenge: [u8; 32],
) -> Result<Option<StatementRecord>, Fault> {
    let row = tx.row(FIND_STATEMENT, &[environment.into(), challenge.into()])?;
    row.map(|mut row| {
        Ok(StatementRecord {
            environment: row.integer()?,
            challenge: row.bytes()?,
            session: row.integer()?,
            statement: row.text()?,
            expires_at: Timestamp::from_millis(row.integer()?),
            used_at: row.maybe_integer()?.map(Timestamp::from_millis),
        })
    })
    .transpose()
}

/// Uses up a statement. False if it is used already.
pub fn use_statement(
    tx: &mut Tx<'_>,
    environment: i64,
    challenge: [u8; 32],
    at: Timestamp,
) -> Result<bool, Fault> {
    Ok(tx.execute(USE_STATEMENT, &[at.millis().into(), environment.into(), challenge.into()])? == 1)
}

/// Writes an answer.
pub fn insert(tx: &mut Tx<'_>, record: &AnswerRecord) -> Result<(), Fault> {
    let (review, mandate) = match record.to {
        Answered::Review(review) => (Some(review.to_bytes()), None),
        Answered::Mandate(mandate) => (None, Some(mandate.to_bytes())),
    };
    let mut row = vec![
        record.environment.into(),
        record.hash.into(),
        record.person.to_bytes().into(),
        review.into(),
        mandate.into(),
        record.at.millis().into(),
        record.content.clone().into(),
    ];
    row.push(ANSWERS.checksum(&row));
    tx.execute_one(INSERT, &row)
}

/// The content of a person's answer to a review.
pub fn of_review(tx: &mut Tx<'_>, environment: i64, review: ReviewId) -> Result<Option<String>, Fault> {
    tx.row(OF_REVIEW, &[environment.into(), review.to_bytes().into()])?.map(|mut row| row.text()).transpose()
}

/// The content of the answer with this SHA-256.
pub fn find(tx: &mut Tx<'_>, environment: i64, hash: [u8; 32]) -> Result<Option<String>, Fault> {
    tx.row(FIND, &[environment.into(), hash.into()])?.map(|mut row| row.text()).transpose()
}

/// At most `limit` answers after a place, in the order of environments and hashes. Their checksums are not compared.
pub fn onward(tx: &mut Tx<'_>, after: (i64, &[u8]), limit: i64) -> Result<Vec<AnswerRecord>, Fault> {
    let rows = tx.query(ONWARD, &[after.0.into(), after.1.to_vec().into(), limit.into()])?.into_iter();
    rows.map(|mut row| {
        let (environment, hash, person) = (row.integer()?, row.bytes()?, PersonId::from_bytes(row.bytes()?));
        let to = match (row.maybe_bytes()?, row.maybe_bytes()?) {
            (Some(review), None) => Answered::Review(ReviewId::from_bytes(review)),
            (None, Some(mandate)) => Answered::Mandate(MandateId::from_bytes(mandate)),
            _ => {
                return Err(Fault::corrupt("database: an answer to none, or to both a review and a mandate"));
            }
        };
        let (at, content) = (Timestamp::from_millis(row.integer()?), row.text()?);
        Ok(AnswerRecord { environment, hash, person, to, at, content })
    })
    .collect()
}
