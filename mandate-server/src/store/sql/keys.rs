//! API keys, by their hash.

use mandate_core::{AgentId, EnvironmentKind, PolicyVersion, Timestamp};

use super::checksums::API_KEYS;
use crate::error::Fault;
use crate::store::tx::{Backend, Row, Tx};

const INSERT: &str = "/* keys.insert */
    INSERT INTO api_keys (hash, environment, agent, rate, created_at, expires_at, name)
    VALUES ($1, $2, $3, $4, $5, $6, $7)";
/// Whether it is in force is read from the row, once that is known to be sound. A key whose environment is not there is a
/// fault, not an unknown key.
const FIND: &str = "/* keys.find */
    SELECT k.hash, k.environment, k.agent, k.rate, k.expires_at, k.revoked_at, k.api_key, 0::bigint, e.kind, e.policy_version
    FROM api_keys k LEFT JOIN environments e ON e.environment = k.environment
    WHERE k.hash = $1";
const FIND_GUARDED: &str = "/* keys.find_guarded */
    SELECT k.hash, k.environment, k.agent, k.rate, k.expires_at, k.revoked_at, k.api_key, k.checksum, e.kind, e.policy_version
    FROM api_keys k LEFT JOIN environments e ON e.environment = k.environment
    WHERE k.hash = $1";
const UPDATE: &str = "/* keys.update */
    UPDATE api_keys SET rate = $1, expires_at = $2, revoked_at = $3 WHERE api_key = $4";
const REVISION: &str = "/* keys.revision */ SELECT revision FROM revisions WHERE name = 'api_keys'";
const HOLD: &str = "/* keys.hold */ SELECT 1 FROM revisions WHERE name = 'api_keys' FOR NO KEY UPDATE";
const BUMP: &str = "/* keys.bump */ UPDATE revisions SET revision = revision + 1 WHERE name = 'api_keys'";

const ALL: &str = "/* keys.all */
    SELECT k.api_key, k.hash, o.name, k.environment, e.kind, k.agent, k.name, k.rate, k.created_at,
        k.expires_at, k.revoked_at
    FROM api_keys k LEFT JOIN environments e ON e.environment = k.environment
    LEFT JOIN organizations o ON o.organization = e.organization
    ORDER BY k.api_key";
/// By no index, since a damaged one can hide a key.
const OF_ENVIRONMENT: &str = "/* keys.of_environment */
    SELECT k.api_key, k.hash, o.name, k.environment, e.kind, k.agent, k.name, k.rate, k.created_at,
        k.expires_at, k.revoked_at
    FROM api_keys k LEFT JOIN environments e ON e.environment = k.environment
    LEFT JOIN organizations o ON o.organization = e.organization WHERE +k.environment = $1
    ORDER BY k.api_key";
const NAMED: &str = "/* keys.named */ SELECT hash, name FROM api_keys WHERE api_key = $1";
const BY_HASH: &str = "/* keys.by_hash */
    SELECT k.api_key, k.hash, o.name, k.environment, e.kind, k.agent, k.name, k.rate, k.created_at,
        k.expires_at, k.revoked_at
    FROM api_keys k LEFT JOIN environments e ON e.environment = k.environment
    LEFT JOIN organizations o ON o.organization = e.organization
    WHERE k.hash BETWEEN $1 AND $2 ORDER BY k.api_key";

/// An API key that is in force.
#[derive(Debug)]
pub struct ApiKeyRecord {
    /// Its number.
    pub id: i64,
    /// The number of the environment that it opens.
    pub environment: i64,
    /// The agent that it belongs to.
    pub agent: Option<AgentId>,
    /// Requests in any 60 seconds.
    pub rate: u32,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// The kind of the environment.
    pub kind: EnvironmentKind,
    /// The environment's policy version.
    pub policy_version: PolicyVersion,
}

/// An API key to be written.
#[derive(Debug)]
pub struct NewKey<'a> {
    /// SHA-256 of the key.
    pub hash: [u8; 32],
    /// The number of the environment that it opens.
    pub environment: i64,
    /// The agent that it belongs to.
    pub agent: Option<&'a AgentId>,
    /// What the operator calls it.
    pub name: Option<&'a str>,
    /// Requests in any 60 seconds.
    pub rate: u32,
    /// When it was created.
    pub at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// An API key as the operator sees it, in force or not.
#[derive(Debug, Clone)]
pub struct IssuedKey {
    /// Its number.
    pub id: i64,
    /// SHA-256 of the key.
    pub hash: [u8; 32],
    /// The name of the organization.
    pub organization: String,
    /// The number of the environment that it opens.
    pub environment: i64,
    /// The kind of the environment.
    pub kind: EnvironmentKind,
    /// The agent that it belongs to.
    pub agent: Option<AgentId>,
    /// What the operator calls it.
    pub name: Option<String>,
    /// Requests in any 60 seconds.
    pub rate: u32,
    /// When it was issued.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// Writes an API key, of an agent or of the organization, without a name or an end.
pub fn insert(
    tx: &mut Tx<'_>,
    hash: [u8; 32],
    environment: i64,
    agent: Option<&AgentId>,
    rate: u32,
    at: Timestamp,
) -> Result<(), Fault> {
    issue(tx, &NewKey { hash, environment, agent, name: None, rate, at, expires_at: None })
}

/// Writes an API key. No server has to be notified: none caches that a key is absent.
pub fn issue(tx: &mut Tx<'_>, key: &NewKey<'_>) -> Result<(), Fault> {
    let row = [
        key.hash.into(),
        key.environment.into(),
        key.agent.map(AgentId::as_str).into(),
        i64::from(key.rate).into(),
        key.at.millis().into(),
        key.expires_at.map(Timestamp::millis).into(),
        key.name.into(),
    ];
    tx.execute_one(INSERT, &row)?;
    API_KEYS.seal(tx, &[key.hash.into()])
}

/// Locks all API keys against changes until the transaction ends. A change of a key reads the key under this lock.
pub fn hold(tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.hold(HOLD, &[])
}

/// Changes a key's rate and its end, which are all that can change. Notifies the servers.
pub fn update(tx: &mut Tx<'_>, key: &IssuedKey) -> Result<(), Fault> {
    let row = [
        i64::from(key.rate).into(),
        key.expires_at.map(Timestamp::millis).into(),
        key.revoked_at.map(Timestamp::millis).into(),
        key.id.into(),
    ];
    API_KEYS.change(tx, &[key.hash.into()], UPDATE, &row)?;
    tx.execute_one(BUMP, &[])
}

/// The key with that hash, if it is in force.
///
/// # Errors
/// Its checksum does not hold, where it has one.
pub fn find(tx: &mut Tx<'_>, hash: [u8; 32], now: Timestamp) -> Result<Option<ApiKeyRecord>, Fault> {
    let Some(mut row) = tx.row(tx.either(FIND_GUARDED, FIND), &[hash.into()])? else { return Ok(None) };
    if tx.backend() == Backend::Sqlite {
        API_KEYS.must_hold(&[], &row)?;
    }
    row.skip(1);
    let environment = row.integer()?;
    let agent = row.maybe_text()?.map(|agent| AgentId::parse(&agent)).transpose()?;
    let rate = rate(row.integer()?)?;
    let expires_at = row.maybe_integer()?.map(Timestamp::from_millis);
    let is_revoked = row.maybe_integer()?.is_some();
    if is_revoked || expires_at.is_some_and(|end| end <= now) {
        return Ok(None);
    }
    let id = row.integer()?;
    row.skip(1);
    let (kind, policy_version) = (kind(&row.text()?)?, PolicyVersion::parse(&row.text()?)?);
    Ok(Some(ApiKeyRecord { id, environment, agent, rate, expires_at, kind, policy_version }))
}

/// All keys, in force or not, oldest first.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<IssuedKey>, Fault> {
    tx.query(ALL, &[])?.into_iter().map(read).collect()
}

/// The keys of an environment, in force or not, oldest first. Reads all keys: for operators only.
///
/// # Errors
/// The checksum of one does not hold: it might be another owner's.
pub fn of_environment(tx: &mut Tx<'_>, environment: i64) -> Result<Vec<IssuedKey>, Fault> {
    let rows = tx.query(OF_ENVIRONMENT, &[environment.into()])?;
    let keys = rows.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    for key in &keys {
        API_KEYS.verify(tx, &[key.hash.into()])?;
    }
    Ok(keys)
}

/// The keys with a hash between `first` and `last`, both included.
pub fn with_hash(tx: &mut Tx<'_>, first: [u8; 32], last: [u8; 32]) -> Result<Vec<IssuedKey>, Fault> {
    tx.query(BY_HASH, &[first.into(), last.into()])?.into_iter().map(read).collect()
}

/// The hash of the key with this number, and the operator's name for it.
pub fn named(tx: &mut Tx<'_>, key: i64) -> Result<([u8; 32], Option<String>), Fault> {
    let row = tx.row(NAMED, &[key.into()])?;
    let mut row = row.ok_or_else(|| Fault::corrupt("database: a caller's key is not there"))?;
    Ok((row.bytes()?, row.maybe_text()?))
}

/// A number that grows whenever a key is revoked or given another rate.
pub fn revision(tx: &mut Tx<'_>) -> Result<i64, Fault> {
    let row = tx.row(REVISION, &[])?;
    row.ok_or_else(|| Fault::corrupt("database: revisions has no row for api_keys"))?.integer()
}

fn read(mut row: Row) -> Result<IssuedKey, Fault> {
    Ok(IssuedKey {
        id: row.integer()?,
        hash: row.bytes()?,
        organization: row.text()?,
        environment: row.integer()?,
        kind: kind(&row.text()?)?,
        agent: row.maybe_text()?.map(|agent| AgentId::parse(&agent)).transpose()?,
        name: row.maybe_text()?,
        rate: rate(row.integer()?)?,
        created_at: Timestamp::from_millis(row.integer()?),
        expires_at: row.maybe_integer()?.map(Timestamp::from_millis),
        revoked_at: row.maybe_integer()?.map(Timestamp::from_millis),
    })
}

fn rate(value: i64) -> Result<u32, Fault> {
    u32::try_from(value).map_err(|_| Fault::corrupt("database: api_keys.rate"))
}

/// Reads the kind of an environment.
pub(super) fn kind(text: &str) -> Result<EnvironmentKind, Fault> {
    EnvironmentKind::parse(text).ok_or_else(|| Fault::corrupt("database: an unknown kind of environment"))
}
