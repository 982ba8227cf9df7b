//! Signing keys, sealed, and the issuers that they sign for.

use mandate_core::{EnvironmentKind, Timestamp};

use super::keys::kind;
use crate::error::Fault;
use crate::store::tx::{Row, Tx};

const INSERT: &str = "/* signing_keys.insert */
    INSERT INTO signing_keys (kind, kid, public_key, sealed, created_at, sign_from, sign_until,
        publish_until, revoked_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const ALL: &str = "/* signing_keys.all */
    SELECT signing_key, kind, kid, public_key, sealed, created_at, sign_from, sign_until, publish_until,
        revoked_at
    FROM signing_keys ORDER BY signing_key";
const UPDATE: &str = "/* signing_keys.update */
    UPDATE signing_keys SET sealed = $1, sign_from = $2, sign_until = $3, publish_until = $4,
        revoked_at = $5
    WHERE signing_key = $6";
const REVISION: &str = "/* signing_keys.revision */
    SELECT revision FROM revisions WHERE name = 'signing_keys'";
const HOLD: &str = "/* signing_keys.hold */
    SELECT 1 FROM revisions WHERE name = 'signing_keys' FOR NO KEY UPDATE";
const BUMP: &str = "/* signing_keys.bump */
    UPDATE revisions SET revision = revision + 1 WHERE name = 'signing_keys'";
const INSERT_ISSUER: &str = "/* signing_keys.insert_issuer */
    INSERT INTO issuers (url) VALUES ($1) ON CONFLICT DO NOTHING";
const ISSUERS: &str = "/* signing_keys.issuers */ SELECT url FROM issuers ORDER BY issuer";
const FIND_ISSUER: &str = "/* signing_keys.find_issuer */ SELECT issuer FROM issuers WHERE url = $1";

/// A signing key.
#[derive(Debug, Clone)]
pub struct SigningKeyRecord {
    /// Its number; 0 before it is written.
    pub id: i64,
    /// Which environments it signs for.
    pub kind: EnvironmentKind,
    /// Its published name.
    pub kid: String,
    /// x and y, 32 bytes each.
    pub public_key: [u8; 64],
    /// The private part, encrypted.
    pub sealed: Vec<u8>,
    /// When it was made. From then on it is published.
    pub created_at: Timestamp,
    /// From when on it signs.
    pub sign_from: Timestamp,
    /// Until when it signs, exclusive. None while it has no successor.
    pub sign_until: Option<Timestamp>,
    /// Until when it is published, exclusive.
    pub publish_until: Option<Timestamp>,
    /// When it was revoked. From then on it neither signs nor is published.
    pub revoked_at: Option<Timestamp>,
}

/// Writes a signing key, and notifies the servers.
pub fn insert(tx: &mut Tx<'_>, key: &SigningKeyRecord) -> Result<(), Fault> {
    let row = [
        key.kind.as_str().into(),
        key.kid.as_str().into(),
        key.public_key.into(),
        key.sealed.clone().into(),
        key.created_at.millis().into(),
        key.sign_from.millis().into(),
        key.sign_until.map(Timestamp::millis).into(),
        key.publish_until.map(Timestamp::millis).into(),
        key.revoked_at.map(Timestamp::millis).into(),
    ];
    tx.execute_one(INSERT, &row)?;
    tx.execute_one(BUMP, &[])
}

/// Changes a signing key's seal and its windows, which are all that can change. Notifies the servers.
pub fn update(tx: &mut Tx<'_>, key: &SigningKeyRecord) -> Result<(), Fault> {
    let row = [
        key.sealed.clone().into(),
        key.sign_from.millis().into(),
        key.sign_until.map(Timestamp::millis).into(),
        key.publish_until.map(Timestamp::millis).into(),
        key.revoked_at.map(Timestamp::millis).into(),
        key.id.into(),
    ];
    tx.execute_one(UPDATE, &row)?;
    tx.execute_one(BUMP, &[])
}

/// The issuers that tokens have named, in the order in which they were first named.
pub fn issuers(tx: &mut Tx<'_>) -> Result<Vec<String>, Fault> {
    tx.query(ISSUERS, &[])?.into_iter().map(|mut row| row.text()).collect()
}

/// All signing keys, retired ones too, oldest first.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<SigningKeyRecord>, Fault> {
    tx.query(ALL, &[])?.into_iter().map(read).collect()
}

/// A number that grows whenever a signing key is made or changed. A transaction that writes locks it, so that
/// rotations run one after another.
pub fn revision(tx: &mut Tx<'_>) -> Result<i64, Fault> {
    tx.hold(HOLD, &[])?;
    let row = tx.row(REVISION, &[])?;
    row.ok_or_else(|| Fault::corrupt("database: revisions has no row for signing_keys"))?.integer()
}

/// The number of an issuer, which is written if it is new.
pub fn issuer(tx: &mut Tx<'_>, url: &str) -> Result<i64, Fault> {
    tx.execute(INSERT_ISSUER, &[url.into()])?;
    let row = tx.row(FIND_ISSUER, &[url.into()])?;
    row.ok_or_else(|| Fault::corrupt("database: an issuer just written is not there"))?.integer()
}

fn read(mut row: Row) -> Result<SigningKeyRecord, Fault> {
    Ok(SigningKeyRecord {
        id: row.integer()?,
        kind: kind(&row.text()?)?,
        kid: row.text()?,
        public_key: row.bytes()?,
        sealed: row.blob()?,
        created_at: Timestamp::from_millis(row.integer()?),
        sign_from: Timestamp::from_millis(row.integer()?),
        sign_until: row.maybe_integer()?.map(Timestamp::from_millis),
        publish_until: row.maybe_integer()?.map(Timestamp::from_millis),
        revoked_at: row.maybe_integer()?.map(Timestamp::from_millis),
    })
}
