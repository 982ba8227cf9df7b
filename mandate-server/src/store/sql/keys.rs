//! API keys, by their hash, and signing keys, sealed.

use mandate_core::{AgentId, EnvironmentKind, PolicyVersion, Timestamp};

use crate::error::Fault;
use crate::store::tx::Tx;

const INSERT: &str =
    "INSERT INTO api_keys (hash, environment, agent, rate, created_at) VALUES ($1, $2, $3, $4, $5)";
const FIND: &str = "SELECT k.api_key, k.environment, k.agent, k.rate, k.expires_at, e.kind, e.policy_version
    FROM api_keys k JOIN environments e ON e.environment = k.environment
    WHERE k.hash = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)";
const REVISION: &str = "SELECT revision FROM revisions WHERE name = 'api_keys'";
const INSERT_SIGNING: &str = "INSERT INTO signing_keys (kind, kid, public_key, sealed, created_at)
    VALUES ($1, $2, $3, $4, $5)";
const SIGNING: &str = "SELECT signing_key, kind, kid, public_key, sealed FROM signing_keys
    WHERE retired_at IS NULL ORDER BY signing_key";
const INSERT_ISSUER: &str = "INSERT INTO issuers (url) VALUES ($1) ON CONFLICT DO NOTHING";
const FIND_ISSUER: &str = "SELECT issuer FROM issuers WHERE url = $1";

/// An API key that is in force.
#[derive(Debug)]
pub struct ApiKeyRecord {
    /// Its number.
    pub id: i64,
    /// The number of the environment that it opens.
    pub environment: i64,
    /// The agent that it stands for.
    pub agent: Option<AgentId>,
    /// Requests in any 60 seconds.
    pub rate: u32,
    /// When it stops.
    pub expires_at: Option<Timestamp>,
    /// The kind of the environment.
    pub kind: EnvironmentKind,
    /// The environment's policy version.
    pub policy_version: PolicyVersion,
}

/// A signing key that is in use.
#[derive(Debug)]
pub struct SigningKeyRecord {
    /// Its number.
    pub id: i64,
    /// Which environments it signs for.
    pub kind: EnvironmentKind,
    /// Its published name.
    pub kid: String,
    /// x and y, 32 bytes each.
    pub public_key: [u8; 64],
    /// The private part, encrypted.
    pub sealed: Vec<u8>,
}

/// Writes an API key, of an agent or of the organization. No server remembers a key that is not there: none is told.
pub fn insert(
    tx: &mut Tx<'_>,
    hash: [u8; 32],
    environment: i64,
    agent: Option<&AgentId>,
    rate: u32,
    at: Timestamp,
) -> Result<(), Fault> {
    let row = [
        hash.into(),
        environment.into(),
        agent.map(AgentId::as_str).into(),
        i64::from(rate).into(),
        at.millis().into(),
    ];
    tx.execute_one(INSERT, &row)
}

/// The key with that hash, if it is in force.
pub fn find(tx: &mut Tx<'_>, hash: [u8; 32], now: Timestamp) -> Result<Option<ApiKeyRecord>, Fault> {
    let Some(mut row) = tx.row(FIND, &[hash.into(), now.millis().into()])? else { return Ok(None) };
    Ok(Some(ApiKeyRecord {
        id: row.integer()?,
        environment: row.integer()?,
        agent: row.maybe_text()?.map(|agent| AgentId::parse(&agent)).transpose()?,
        rate: u32::try_from(row.integer()?).map_err(|_| Fault::new("database: api_keys.rate"))?,
        expires_at: row.maybe_integer()?.map(Timestamp::from_millis),
        kind: kind(&row.text()?)?,
        policy_version: PolicyVersion::parse(&row.text()?)?,
    }))
}

/// A number that grows whenever a key is revoked or given another rate.
pub fn revision(tx: &mut Tx<'_>) -> Result<i64, Fault> {
    let row = tx.row(REVISION, &[])?;
    row.ok_or_else(|| Fault::new("database: revisions has no row for api_keys"))?.integer()
}

/// Writes a signing key.
pub fn insert_signing(tx: &mut Tx<'_>, key: &SigningKeyRecord, at: Timestamp) -> Result<(), Fault> {
    let row = [
        key.kind.as_str().into(),
        key.kid.as_str().into(),
        key.public_key.into(),
        key.sealed.clone().into(),
        at.millis().into(),
    ];
    tx.execute_one(INSERT_SIGNING, &row)
}

/// The signing keys that are not retired, oldest first.
pub fn signing(tx: &mut Tx<'_>) -> Result<Vec<SigningKeyRecord>, Fault> {
    let rows = tx.query(SIGNING, &[])?.into_iter();
    rows.map(|mut row| {
        Ok(SigningKeyRecord {
            id: row.integer()?,
            kind: kind(&row.text()?)?,
            kid: row.text()?,
            public_key: row.bytes()?,
            sealed: row.blob()?,
        })
    })
    .collect()
}

/// The number of an issuer, written down if it is new.
pub fn issuer(tx: &mut Tx<'_>, url: &str) -> Result<i64, Fault> {
    tx.execute(INSERT_ISSUER, &[url.into()])?;
    let row = tx.row(FIND_ISSUER, &[url.into()])?;
    row.ok_or_else(|| Fault::new("database: an issuer just written is not there"))?.integer()
}

/// Reads the kind of an environment.
pub(super) fn kind(text: &str) -> Result<EnvironmentKind, Fault> {
    EnvironmentKind::parse(text).ok_or_else(|| Fault::new("database: an unknown kind of environment"))
}
