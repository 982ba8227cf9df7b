//! Who answers a review or revokes a mandate over the API.

use super::issuance::KeyId;
use crate::error::Fault;
use crate::model::call::Call;
use crate::model::people::{Actor, ActorKind, By};
use crate::store::sql;
use crate::store::tx::Tx;

/// The organization's key that calls: its id as `key list` shows it, and its label.
///
/// # Errors
/// The database fails.
pub fn of_key(tx: &mut Tx<'_>, call: &Call) -> Result<By, Fault> {
    let (hash, name) = sql::keys::named(tx, call.caller.key)?;
    let actor = Actor { kind: ActorKind::Key, id: KeyId::of(&hash).to_string(), name };
    Ok(By { actor, answer: None, until: None })
}
