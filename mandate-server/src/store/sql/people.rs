//! People and their passkeys.

use mandate_core::people::{CredentialId, PersonKey};
use mandate_core::{PersonId, Principal, Timestamp};

use super::checksums::{PEOPLE, PERSON_KEYS};
use crate::error::Fault;
use crate::model::people::{May, PasskeyRecord, Person, PersonRecord};
use crate::store::tx::{Row, Tx, Value};

const INSERT: &str = "/* people.insert */
    INSERT INTO people (environment, person, name, roles, may, created_at, disabled_at, checksum)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const COUNT: &str = "/* people.count */ SELECT COUNT(*) FROM people WHERE environment = $1";
const HOLD: &str = "/* people.hold */
    SELECT 1 FROM people WHERE environment = $1 AND person = $2 FOR NO KEY UPDATE";
const FIND: &str = "/* people.find */
    SELECT environment, person, name, roles, may, created_at, disabled_at, checksum
    FROM people WHERE environment = $1 AND person = $2";
const OF_ENVIRONMENT: &str = "/* people.of_environment */
    SELECT environment, person, name, roles, may, created_at, disabled_at, checksum
    FROM people WHERE environment = $1 ORDER BY person";
const DISABLE: &str = "/* people.disable */
    UPDATE people SET disabled_at = $1, checksum = $2 WHERE environment = $3 AND person = $4 AND disabled_at IS NULL";
const INSERT_KEY: &str = "/* people.insert_key */
    INSERT INTO person_keys (environment, credential, person, key, label, origin, is_synced, enrolled_at, withdrawn_at, checksum)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const FIND_KEY: &str = "/* people.find_key */
    SELECT environment, credential, person, key, label, origin, is_synced, enrolled_at, withdrawn_at, checksum
    FROM person_keys WHERE environment = $1 AND credential = $2";
const KEYS_OF: &str = "/* people.keys_of */
    SELECT environment, credential, person, key, label, origin, is_synced, enrolled_at, withdrawn_at, checksum
    FROM person_keys WHERE environment = $1 AND person = $2 ORDER BY enrolled_at, credential";
const WITHDRAW: &str = "/* people.withdraw */
    UPDATE person_keys SET withdrawn_at = $1, checksum = $2
    WHERE environment = $3 AND credential = $4 AND withdrawn_at IS NULL";

/// Between two roles of a person.
const BETWEEN: &str = " ";

/// Writes a person.
pub fn insert(tx: &mut Tx<'_>, record: &PersonRecord) -> Result<(), Fault> {
    let mut row = person_values(record).to_vec();
    row.push(PEOPLE.checksum(&row));
    tx.execute_one(INSERT, &row)
}

/// How many people an environment has.
pub fn count(tx: &mut Tx<'_>, environment: i64) -> Result<i64, Fault> {
    tx.one_row(COUNT, &[environment.into()])?.integer()
}

/// Locks a person until the transaction ends: what is changed or answered with their passkeys is in one order.
pub fn hold(tx: &mut Tx<'_>, environment: i64, person: PersonId) -> Result<(), Fault> {
    tx.hold(HOLD, &[environment.into(), person.to_bytes().into()])
}

/// A person, disabled or not.
///
/// # Errors
/// The row's checksum does not hold.
pub fn find(tx: &mut Tx<'_>, environment: i64, person: PersonId) -> Result<Option<PersonRecord>, Fault> {
    tx.row(FIND, &[environment.into(), person.to_bytes().into()])?.map(read).transpose()
}

/// The people of an environment, disabled or not, oldest first.
pub fn of_environment(tx: &mut Tx<'_>, environment: i64) -> Result<Vec<PersonRecord>, Fault> {
    tx.query(OF_ENVIRONMENT, &[environment.into()])?.into_iter().map(read).collect()
}

/// Writes that a person is disabled.
pub fn disable(tx: &mut Tx<'_>, record: &PersonRecord) -> Result<(), Fault> {
    let values = person_values(record);
    let checksum = PEOPLE.checksum(&values);
    let [environment, person, .., disabled_at] = values;
    tx.execute_one(DISABLE, &[disabled_at, checksum, environment, person])
}

/// Writes a passkey.
pub fn insert_key(tx: &mut Tx<'_>, record: &PasskeyRecord) -> Result<(), Fault> {
    let mut row = key_values(record).to_vec();
    row.push(PERSON_KEYS.checksum(&row));
    tx.execute_one(INSERT_KEY, &row)
}

/// A passkey, withdrawn or not.
///
/// # Errors
/// The row's checksum does not hold.
pub fn find_key(
    tx: &mut Tx<'_>,
    environment: i64,
    credential: &CredentialId,
) -> Result<Option<PasskeyRecord>, Fault> {
    let key = [environment.into(), credential.as_bytes().to_vec().into()];
    tx.row(FIND_KEY, &key)?.map(read_key).transpose()
}

/// The passkeys of a person, withdrawn or not, oldest first.
pub fn keys_of(tx: &mut Tx<'_>, environment: i64, person: PersonId) -> Result<Vec<PasskeyRecord>, Fault> {
    let rows = tx.query(KEYS_OF, &[environment.into(), person.to_bytes().into()])?;
    rows.into_iter().map(read_key).collect()
}

/// Writes that a passkey is withdrawn.
pub fn withdraw(tx: &mut Tx<'_>, record: &PasskeyRecord) -> Result<(), Fault> {
    let values = key_values(record);
    let checksum = PERSON_KEYS.checksum(&values);
    let [environment, credential, .., withdrawn_at] = values;
    tx.execute_one(WITHDRAW, &[withdrawn_at, checksum, environment, credential])
}

fn person_values(record: &PersonRecord) -> [Value; 7] {
    let PersonRecord { environment, person, created_at, disabled_at } = record;
    let roles: Vec<_> = person.roles.iter().map(Principal::as_str).collect();
    [
        (*environment).into(),
        person.id.to_bytes().into(),
        person.name.clone().into(),
        roles.join(BETWEEN).into(),
        person.may.as_str().into(),
        created_at.millis().into(),
        disabled_at.map(Timestamp::millis).into(),
    ]
}

fn read(mut row: Row) -> Result<PersonRecord, Fault> {
    PEOPLE.must_hold(&[], &row)?;
    let environment = row.integer()?;
    let (id, name, roles) = (PersonId::from_bytes(row.bytes()?), row.text()?, row.text()?);
    let roles = roles.split(BETWEEN).filter(|role| !role.is_empty()).map(Principal::parse);
    let roles = roles.collect::<Result<_, _>>()?;
    let person = Person { id, name, roles, may: May::parse(&row.text()?)? };
    let created_at = Timestamp::from_millis(row.integer()?);
    let disabled_at = row.maybe_integer()?.map(Timestamp::from_millis);
    Ok(PersonRecord { environment, person, created_at, disabled_at })
}

fn key_values(record: &PasskeyRecord) -> [Value; 9] {
    [
        record.environment.into(),
        record.credential.as_bytes().to_vec().into(),
        record.person.to_bytes().into(),
        record.key.to_sec1().into(),
        record.label.clone().into(),
        record.origin.clone().into(),
        i64::from(record.is_synced).into(),
        record.enrolled_at.millis().into(),
        record.withdrawn_at.map(Timestamp::millis).into(),
    ]
}

pub(super) fn read_key(mut row: Row) -> Result<PasskeyRecord, Fault> {
    PERSON_KEYS.must_hold(&[], &row)?;
    Ok(PasskeyRecord {
        environment: row.integer()?,
        credential: CredentialId::from_bytes(&row.blob()?)?,
        person: PersonId::from_bytes(row.bytes()?),
        key: PersonKey::from_sec1(&row.blob()?)?,
        label: row.text()?,
        origin: row.text()?,
        is_synced: row.integer()? == 1,
        enrolled_at: Timestamp::from_millis(row.integer()?),
        withdrawn_at: row.maybe_integer()?.map(Timestamp::from_millis),
    })
}
