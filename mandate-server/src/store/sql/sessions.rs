//! How people come in: enrolment links, challenges, and sessions.

use mandate_core::people::CredentialId;
use mandate_core::{PersonId, Timestamp};

use crate::error::Fault;
use crate::model::people::{EnrolmentRecord, SessionRecord};
use crate::store::tx::{Row, Tx};

const INSERT_ENROLMENT: &str = "/* sessions.insert_enrolment */
    INSERT INTO enrolments (environment, hash, person, expires_at, used_at) VALUES ($1, $2, $3, $4, $5)";
const FIND_ENROLMENT: &str = "/* sessions.find_enrolment */
    SELECT environment, hash, person, expires_at, used_at FROM enrolments WHERE environment = $1 AND hash = $2";
const USE_ENROLMENT: &str = "/* sessions.use_enrolment */
    UPDATE enrolments SET used_at = $1 WHERE environment = $2 AND hash = $3 AND used_at IS NULL";
const END_ENROLMENTS: &str = "/* sessions.end_enrolments */
    UPDATE enrolments SET expires_at = $1
    WHERE environment = $2 AND person = $3 AND used_at IS NULL AND expires_at > $1";

const USE_CHALLENGE: &str = "/* sessions.use_challenge */
    INSERT INTO challenges (environment, challenge, expires_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

const INSERT: &str = "/* sessions.insert */
    INSERT INTO sessions (environment, hash, person, credential, created_at, seen_at) VALUES ($1, $2, $3, $4, $5, $6)";
const BY_HASH: &str = "/* sessions.by_hash */
    SELECT session, environment, person, credential, created_at, seen_at FROM sessions
    WHERE environment = $1 AND hash = $2";
const FIND: &str = "/* sessions.find */
    SELECT session, environment, person, credential, created_at, seen_at FROM sessions
    WHERE environment = $1 AND session = $2";
const OF_ENVIRONMENT: &str = "/* sessions.of_environment */
    SELECT session, environment, person, credential, created_at, seen_at FROM sessions
    WHERE environment = $1 ORDER BY session";
const TOUCH: &str = "/* sessions.touch */
    UPDATE sessions SET seen_at = $1 WHERE session = $2 AND seen_at < $1";
const END: &str = "/* sessions.end */ DELETE FROM sessions WHERE environment = $1 AND session = $2";
const END_OLDER: &str = "/* sessions.end_older */
    DELETE FROM sessions WHERE environment = $1 AND person = $2 AND session NOT IN
        (SELECT session FROM sessions WHERE environment = $1 AND person = $2 ORDER BY session DESC LIMIT $3)";
const END_OF_PERSON: &str = "/* sessions.end_of_person */
    DELETE FROM sessions WHERE environment = $1 AND person = $2";
const END_OF_KEY: &str = "/* sessions.end_of_key */
    DELETE FROM sessions WHERE environment = $1 AND person = $2 AND credential = $3";

const NEXT_END: &str = "/* sessions.next_end */
    SELECT MIN(n.at) FROM (SELECT MIN(expires_at) + $1 AS at FROM enrolments
        UNION ALL SELECT MIN(expires_at) FROM challenges
        UNION ALL SELECT MIN(expires_at) + $2 FROM statements
        UNION ALL SELECT MIN(created_at) + $2 FROM sessions
        UNION ALL SELECT 0 WHERE EXISTS (SELECT 1 FROM sessions WHERE created_at > $3 OR seen_at > $3)) n";
const FORGET_AHEAD: &str = "/* sessions.forget_ahead */ DELETE FROM sessions WHERE session IN
    (SELECT session FROM sessions WHERE created_at > $1 OR seen_at > $1 LIMIT $2)";
const FORGET: [&str; 4] = [
    "/* sessions.forget_enrolments */ DELETE FROM enrolments WHERE (environment, hash) IN
        (SELECT environment, hash FROM enrolments WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
    "/* sessions.forget_challenges */ DELETE FROM challenges WHERE (environment, challenge) IN
        (SELECT environment, challenge FROM challenges WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
    "/* sessions.forget_statements */ DELETE FROM statements WHERE (environment, challenge) IN
        (SELECT environment, challenge FROM statements WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
    "/* sessions.forget_sessions */ DELETE FROM sessions WHERE session IN
        (SELECT session FROM sessions WHERE created_at <= $1 ORDER BY created_at LIMIT $2)",
];

/// Writes an enrolment link.
pub fn insert_enrolment(tx: &mut Tx<'_>, record: &EnrolmentRecord) -> Result<(), Fault> {
    let row = [
        record.environment.into(),
        record.hash.into(),
        record.person.to_bytes().into(),
        record.expires_at.millis().into(),
        record.used_at.map(Timestamp::millis).into(),
    ];
    tx.execute_one(INSERT_ENROLMENT, &row)
}

/// The enrolment link whose secret has this hash.
pub fn find_enrolment(
    tx: &mut Tx<'_>,
    environment: i64,
    hash: [u8; 32],
) -> Result<Option<EnrolmentRecord>, Fault> {
    let row = tx.row(FIND_ENROLMENT, &[environment.into(), hash.into()])?;
    row.map(|mut row| {
        Ok(EnrolmentRecord {
            environment: row.integer()?,
            hash: row.bytes()?,
            person: PersonId::from_bytes(row.bytes()?),
            expires_at: Timestamp::from_millis(row.integer()?),
            used_at: row.maybe_integer()?.map(Timestamp::from_millis),
        })
    })
    .transpose()
}

/// Uses up an enrolment link. False if it is used already.
pub fn use_enrolment(
    tx: &mut Tx<'_>,
    environment: i64,
    hash: [u8; 32],
    at: Timestamp,
) -> Result<bool, Fault> {
    Ok(tx.execute(USE_ENROLMENT, &[at.millis().into(), environment.into(), hash.into()])? == 1)
}

/// Ends the links of a person that were not used, at this instant.
pub fn end_enrolments(
    tx: &mut Tx<'_>,
    environment: i64,
    person: PersonId,
    at: Timestamp,
) -> Result<usize, Fault> {
    tx.execute(END_ENROLMENTS, &[at.millis().into(), environment.into(), person.to_bytes().into()])
}

/// Uses up a challenge, which is good until `end`. False if it was used before.
pub fn use_challenge(
    tx: &mut Tx<'_>,
    environment: i64,
    challenge: [u8; 32],
    end: Timestamp,
) -> Result<bool, Fault> {
    Ok(tx.execute(USE_CHALLENGE, &[environment.into(), challenge.into(), end.millis().into()])? == 1)
}

/// Begins a session. Gives its number.
pub fn insert(
    tx: &mut Tx<'_>,
    environment: i64,
    hash: [u8; 32],
    (person, credential): (PersonId, &CredentialId),
    at: Timestamp,
) -> Result<i64, Fault> {
    let row = [
        environment.into(),
        hash.into(),
        person.to_bytes().into(),
        credential.as_bytes().to_vec().into(),
        at.millis().into(),
        at.millis().into(),
    ];
    tx.execute_one(INSERT, &row)?;
    let begun = by_hash(tx, environment, hash)?;
    Ok(begun.ok_or_else(|| Fault::new("database: a session just written is not there"))?.session)
}

/// The session whose secret has this hash, over or not.
pub fn by_hash(tx: &mut Tx<'_>, environment: i64, hash: [u8; 32]) -> Result<Option<SessionRecord>, Fault> {
    tx.row(BY_HASH, &[environment.into(), hash.into()])?.map(read).transpose()
}

/// A session, over or not.
pub fn find(tx: &mut Tx<'_>, environment: i64, session: i64) -> Result<Option<SessionRecord>, Fault> {
    tx.row(FIND, &[environment.into(), session.into()])?.map(read).transpose()
}

/// The sessions of an environment, over or not, oldest first.
pub fn of_environment(tx: &mut Tx<'_>, environment: i64) -> Result<Vec<SessionRecord>, Fault> {
    tx.query(OF_ENVIRONMENT, &[environment.into()])?.into_iter().map(read).collect()
}

/// Writes that a session was used.
pub fn touch(tx: &mut Tx<'_>, session: i64, at: Timestamp) -> Result<(), Fault> {
    tx.execute(TOUCH, &[at.millis().into(), session.into()]).map(drop)
}

/// Ends a session. False if it has ended.
pub fn end(tx: &mut Tx<'_>, environment: i64, session: i64) -> Result<bool, Fault> {
    Ok(tx.execute(END, &[environment.into(), session.into()])? == 1)
}

/// Ends the sessions of a person but for the newest. Gives how many.
pub fn end_older(tx: &mut Tx<'_>, environment: i64, person: PersonId, newest: i64) -> Result<usize, Fault> {
    tx.execute(END_OLDER, &[environment.into(), person.to_bytes().into(), newest.into()])
}

/// Ends the sessions of a person: all, or those that a passkey has opened. Gives how many.
pub fn end_of(
    tx: &mut Tx<'_>,
    environment: i64,
    person: PersonId,
    credential: Option<&CredentialId>,
) -> Result<usize, Fault> {
    let person = person.to_bytes().into();
    match credential {
        None => tx.execute(END_OF_PERSON, &[environment.into(), person]),
        Some(key) => tx.execute(END_OF_KEY, &[environment.into(), person, key.as_bytes().to_vec().into()]),
    }
}

/// How long what people come in by is kept, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// A link, after its end.
    pub link: i64,
    /// A session from its beginning, and a statement after its end.
    pub session: i64,
}

/// When the first link, challenge, statement or session is not kept any more: at once where a session is dated later than `ahead`.
pub fn next_end(tx: &mut Tx<'_>, kept: Kept, ahead: Timestamp) -> Result<Option<Timestamp>, Fault> {
    let row = [kept.link.into(), kept.session.into(), ahead.millis().into()];
    let end = tx.one_row(NEXT_END, &row)?.maybe_integer()?;
    Ok(end.map(Timestamp::from_millis))
}

/// Deletes sessions that are dated later than `ahead`, at most `limit`. Gives how many.
pub fn forget_ahead(tx: &mut Tx<'_>, ahead: Timestamp, limit: i64) -> Result<usize, Fault> {
    tx.execute(FORGET_AHEAD, &[ahead.millis().into(), limit.into()])
}

/// Deletes links, challenges, statements and sessions that are not kept at `now`, at most `limit` of each. Gives how many.
pub fn forget(tx: &mut Tx<'_>, now: Timestamp, kept: Kept, limit: i64) -> Result<usize, Fault> {
    let [enrolments, challenges, statements, sessions] = FORGET;
    let mut rows = 0;
    for (sql, kept) in
        [(enrolments, kept.link), (challenges, 0), (statements, kept.session), (sessions, kept.session)]
    {
        rows += tx.execute(sql, &[now.millis().saturating_sub(kept).into(), limit.into()])?;
    }
    Ok(rows)
}

fn read(mut row: Row) -> Result<SessionRecord, Fault> {
    Ok(SessionRecord {
        session: row.integer()?,
        environment: row.integer()?,
        person: PersonId::from_bytes(row.bytes()?),
        credential: CredentialId::from_bytes(&row.blob()?)?,
        created_at: Timestamp::from_millis(row.integer()?),
        seen_at: Timestamp::from_millis(row.integer()?),
    })
}
