//! Organizations: each has two environments, with a key for each.

use mandate_core::api_key::ApiKey;
use mandate_core::{AgentName, EnvironmentKind, PolicyVersion, Timestamp};

use super::keys::DEFAULT_RATE;
use crate::error::{Code, Refusal};
use crate::model::call::ScriptError;
use crate::model::records::Mode;
use crate::store::sql;
use crate::store::tx::Tx;

pub use crate::store::sql::environments::EnvironmentRecord;

/// The command to create an organization.
#[derive(Debug)]
pub struct Create {
    /// Its name, of the same form as an agent's.
    pub name: AgentName,
    /// The organization key of its sandbox.
    pub sandbox_key: ApiKey,
    /// The organization key of its production environment.
    pub live_key: ApiKey,
    /// When.
    pub at: Timestamp,
}

/// Creates an organization. Its environments begin in their [`initial_mode`].
///
/// # Errors
/// The name is taken.
pub fn create(tx: &mut Tx<'_>, command: &Create) -> Result<(), ScriptError> {
    let name = command.name.as_str();
    let Some(organization) = sql::environments::insert_organization(tx, name, command.at)? else {
        let message = format!("name `{name}` is taken by another organization; choose another");
        return Err(Refusal::new(Code::NameTaken, message).into());
    };
    let policy_version = PolicyVersion::parse(&format!("pol_{}.1", command.at.day()))?;
    for (kind, key) in
        [(EnvironmentKind::Sandbox, &command.sandbox_key), (EnvironmentKind::Production, &command.live_key)]
    {
        let mode = initial_mode(kind);
        let environment =
            sql::environments::insert(tx, organization, kind, &policy_version, mode, command.at)?;
        sql::keys::insert(tx, key.hash(), environment, None, DEFAULT_RATE, command.at)?;
    }
    Ok(())
}

/// The mode in which an environment begins.
#[must_use]
pub fn initial_mode(kind: EnvironmentKind) -> Mode {
    match kind {
        EnvironmentKind::Sandbox => Mode::Enforce,
        EnvironmentKind::Production => Mode::Observe,
    }
}

/// The environments of one organization, or of all, in the order of their creation.
///
/// # Errors
/// There is no organization of that name.
pub fn list(tx: &mut Tx<'_>, name: Option<&AgentName>) -> Result<Vec<EnvironmentRecord>, ScriptError> {
    let mut found = sql::environments::all(tx)?;
    let Some(name) = name else { return Ok(found) };
    found.retain(|record| record.organization == name.as_str());
    if found.is_empty() {
        return Err(unknown(name).into());
    }
    Ok(found)
}

/// The refusal of an unknown name.
pub(super) fn unknown(name: &AgentName) -> Refusal {
    let message = format!("there is no organization `{name}`; `organization list` shows those there are");
    Refusal::new(Code::NotFound, message)
}
