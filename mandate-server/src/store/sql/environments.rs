//! Organizations and their environments.

use mandate_core::{EnvironmentKind, PolicyVersion, Timestamp};

use super::checksums::ENVIRONMENTS;
use super::keys::kind;
use crate::error::Fault;
use crate::model::records::Mode;
use crate::store::tx::Tx;

const INSERT_ORGANIZATION: &str = "/* environments.insert_organization */
    INSERT INTO organizations (name, created_at) VALUES ($1, $2)
    ON CONFLICT DO NOTHING";
const FIND_ORGANIZATION: &str = "/* environments.find_organization */
    SELECT organization FROM organizations WHERE name = $1";
const INSERT: &str = "/* environments.insert */
    INSERT INTO environments (organization, kind, policy_version, mode, since)
    VALUES ($1, $2, $3, $4, $5)";
const FIND: &str = "/* environments.find */
    SELECT environment FROM environments WHERE organization = $1 AND kind = $2";
const LIST: &str = "/* environments.list */
    SELECT o.name, o.created_at, e.environment, e.kind, e.mode, e.since, e.policy_version,
        (SELECT count(*) FROM agents a WHERE a.environment = e.environment)
    FROM organizations o LEFT JOIN environments e ON e.organization = o.organization
    ORDER BY o.organization, e.environment";
const NAMED: &str = "/* environments.named */
    SELECT e.environment, e.policy_version FROM organizations o
    JOIN environments e ON e.organization = o.organization WHERE o.name = $1 AND e.kind = $2";
const MODE: &str = "/* environments.mode */
    SELECT organization, kind, policy_version, mode, since, checksum FROM environments WHERE environment = $1";
const MODE_UNGUARDED: &str = "/* environments.mode_unguarded */
    SELECT organization, kind, policy_version, mode, since FROM environments WHERE environment = $1";
const HOLD: &str = "/* environments.hold */
    SELECT 1 FROM environments WHERE environment = $1 FOR NO KEY UPDATE";
const SWITCH: &str = "/* environments.switch */
    UPDATE environments SET mode = $1, since = $2 WHERE environment = $3";

/// An environment and its organization, as the operator sees them.
#[derive(Debug)]
pub struct EnvironmentRecord {
    /// The name of the organization.
    pub organization: String,
    /// When the organization was created.
    pub created_at: Timestamp,
    /// The environment's number.
    pub environment: i64,
    /// Its kind.
    pub kind: EnvironmentKind,
    /// The mode in force.
    pub mode: Mode,
    /// Since when.
    pub since: Timestamp,
    /// The policy version on its decisions.
    pub policy_version: PolicyVersion,
    /// How many agents it has.
    pub agents: i64,
}

/// Writes an organization. Returns its number, or none if the name is taken.
pub fn insert_organization(tx: &mut Tx<'_>, name: &str, at: Timestamp) -> Result<Option<i64>, Fault> {
    if tx.execute(INSERT_ORGANIZATION, &[name.into(), at.millis().into()])? == 0 {
        return Ok(None);
    }
    find_organization(tx, name)
}

/// The number of an organization.
pub fn find_organization(tx: &mut Tx<'_>, name: &str) -> Result<Option<i64>, Fault> {
    tx.row(FIND_ORGANIZATION, &[name.into()])?.map(|mut row| row.integer()).transpose()
}

/// All environments, in the order in which their organizations were created.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<EnvironmentRecord>, Fault> {
    let rows = tx.query(LIST, &[])?.into_iter();
    rows.map(|mut row| {
        Ok(EnvironmentRecord {
            organization: row.text()?,
            created_at: Timestamp::from_millis(row.integer()?),
            environment: row.integer()?,
            kind: kind(&row.text()?)?,
            mode: Mode::parse(&row.text()?)?,
            since: Timestamp::from_millis(row.integer()?),
            policy_version: PolicyVersion::parse(&row.text()?)?,
            agents: row.integer()?,
        })
    })
    .collect()
}

/// Writes an environment. Returns its number.
pub fn insert(
    tx: &mut Tx<'_>,
    organization: i64,
    kind: EnvironmentKind,
    policy_version: &PolicyVersion,
    mode: Mode,
    since: Timestamp,
) -> Result<i64, Fault> {
    let row = [
        organization.into(),
        kind.as_str().into(),
        policy_version.as_str().into(),
        mode.as_str().into(),
        since.millis().into(),
    ];
    tx.execute_one(INSERT, &row)?;
    let environment = find(tx, organization, kind)?;
    ENVIRONMENTS.seal(tx, &[environment.into()])?;
    Ok(environment)
}

/// The number of an organization's environment of that kind. Every organization has both kinds.
pub fn find(tx: &mut Tx<'_>, organization: i64, kind: EnvironmentKind) -> Result<i64, Fault> {
    let row = tx.row(FIND, &[organization.into(), kind.as_str().into()])?;
    row.ok_or_else(|| Fault::corrupt("database: an organization without its environment"))?.integer()
}

/// The number and the policy version of the environment of this kind of an organization of that name.
pub fn named(
    tx: &mut Tx<'_>,
    organization: &str,
    kind: EnvironmentKind,
) -> Result<Option<(i64, PolicyVersion)>, Fault> {
    let row = tx.row(NAMED, &[organization.into(), kind.as_str().into()])?;
    row.map(|mut row| Ok((row.integer()?, PolicyVersion::parse(&row.text()?)?))).transpose()
}

/// The mode in force, and since when.
pub fn mode(tx: &mut Tx<'_>, environment: i64) -> Result<(Mode, Timestamp), Fault> {
    let key = [environment.into()];
    let row = tx.row(tx.either(MODE, MODE_UNGUARDED), &key)?;
    let mut row = row.ok_or_else(|| Fault::corrupt("database: a key's environment is not there"))?;
    if tx.verifies() {
        ENVIRONMENTS.must_hold(&key, &row)?;
    }
    row.skip(3);
    Ok((Mode::parse(&row.text()?)?, Timestamp::from_millis(row.integer()?)))
}

/// Locks an environment until the transaction ends. This guards its mode, and everything that is limited for each
/// environment.
pub fn lock(tx: &mut Tx<'_>, environment: i64) -> Result<(), Fault> {
    tx.hold(HOLD, &[environment.into()])
}

/// Switches the mode.
pub fn switch(tx: &mut Tx<'_>, environment: i64, mode: Mode, since: Timestamp) -> Result<(), Fault> {
    tx.touch_environment(environment);
    let parameters = [mode.as_str().into(), since.millis().into(), environment.into()];
    ENVIRONMENTS.change(tx, &[environment.into()], SWITCH, &parameters)
}
