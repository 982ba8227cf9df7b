//! The last signed checkpoints that this server has seen: a database below it may fall back to an older copy of itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mandate_core::EnvironmentKind;
use mandate_core::log::SignedCheckpoint;

use super::{keys, publish};
use crate::error::Fault;
use crate::store::sql::public_log::PublicLog;
use crate::store::tx::Tx;

/// Of each kind the greatest checkpoint of the newest log. All copies share what is seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen(Arc<Mutex<HashMap<EnvironmentKind, Last>>>);

#[derive(Debug)]
struct Last {
    signed: SignedCheckpoint,
    /// What was seen before it.
    before: Option<SignedCheckpoint>,
}

impl Seen {
    /// Takes note of a checkpoint, unless it is older than the one that was seen.
    pub(super) fn see(&self, kind: EnvironmentKind, signed: &SignedCheckpoint) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.get(&kind).map(|last| last.signed.clone());
        if before.as_ref().is_none_or(|before| order(before) < order(signed)) {
            seen.insert(kind, Last { signed: signed.clone(), before });
        }
    }

    /// Forgets a checkpoint that was taken back.
    pub(super) fn forget(&self, kind: EnvironmentKind, refused: &SignedCheckpoint) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = seen.get_mut(&kind).filter(|last| last.signed.checkpoint() == refused.checkpoint())
        else {
            return;
        };
        match last.before.take() {
            Some(before) => last.signed = before,
            None => drop(seen.remove(&kind)),
        }
    }

    /// Why the newest log in a database must not grow: it does not have what was seen, or is not the newest that was.
    pub(super) fn contradicts(&self, tx: &mut Tx<'_>, log: &PublicLog) -> Result<Option<String>, Fault> {
        let Some(last) = self.last(log.kind) else { return Ok(None) };
        let origin = last.checkpoint().origin();
        if keys::number(origin) > keys::number(&log.origin) {
            return Ok(Some(format!("{origin} was published in place of this log: it was restored")));
        }
        publish::behind(tx, log, &last)
    }

    fn last(&self, kind: EnvironmentKind) -> Option<SignedCheckpoint> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&kind).map(|last| last.signed.clone())
    }
}

/// A later log has a greater number, and of one log the greater checkpoint is the later one.
fn order(signed: &SignedCheckpoint) -> (u64, u64) {
    (keys::number(signed.checkpoint().origin()), signed.checkpoint().size())
}
