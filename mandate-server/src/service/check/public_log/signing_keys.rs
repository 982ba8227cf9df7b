//! Each signing key is what the entries about it in the logs of its kind say, those that wait included: who holds a token needs
//! them for evidence.

use std::collections::BTreeMap;

use mandate_core::log::{KeyChange, KeyEvent};
use mandate_core::{EnvironmentKind, Timestamp};

use super::{Finding, Listener};
use crate::error::Fault;
use crate::service::signing::rotation::OUTGOING_SECONDS;
use crate::store::sql::check as rows;
use crate::store::tx::Tx;

/// What the entries of a kind of log say of keys, by their names.
#[derive(Default)]
pub(super) struct LoggedKeys(BTreeMap<String, Logged>);

/// What the entries about one key say.
struct Logged {
    created: Timestamp,
    retired: Option<Timestamp>,
    revoked: Option<Timestamp>,
}

impl LoggedKeys {
    /// Takes the next entry about a key.
    pub(super) fn take(&mut self, event: &KeyEvent) {
        let new = Logged { created: event.at, retired: None, revoked: None };
        let of = self.0.entry(event.kid.to_string());
        match event.change {
            KeyChange::Published => {
                let key = of.or_insert(new);
                // A log that continues another repeats when the key was made. A later instant takes its end back.
                if event.at != key.created {
                    key.retired = None;
                }
            }
            KeyChange::Retired => {
                of.and_modify(|key| key.retired = Some(event.at));
            }
            KeyChange::Revoked => {
                of.and_modify(|key| key.revoked = Some(event.at));
            }
        }
    }

    /// Compares each signing key of a kind with its entries.
    pub(super) fn compare(
        &self,
        tx: &mut Tx<'_>,
        kind: EnvironmentKind,
        listener: &mut dyn Listener,
    ) -> Result<(), Fault> {
        for key in rows::signing_keys(tx)?.into_iter().filter(|key| key.kind == kind.as_str()) {
            let mut wrong = |found: String, expected: String| {
                let finding = Finding::whole("signing_keys", found, expected);
                listener.finding(Finding { id: Some(key.kid.clone()), ..finding });
            };
            let Some(logged) = self.0.get(&key.kid) else {
                wrong(
                    "no entry in the public log".to_owned(),
                    "the entry that says it was published".to_owned(),
                );
                continue;
            };
            let unpublished = logged.retired.map(|at| at.plus_seconds(OUTGOING_SECONDS));
            for (what, stored, logged) in [
                ("published from", Some(key.created_at), Some(logged.created)),
                ("retired at", key.sign_until, logged.retired),
                ("published until", key.publish_until, unpublished),
                ("revoked at", key.revoked_at, logged.revoked),
            ] {
                if stored != logged.map(Timestamp::millis) {
                    wrong(told(what, stored.map(Timestamp::from_millis)), told(what, logged));
                }
            }
        }
        Ok(())
    }
}

fn told(what: &str, at: Option<Timestamp>) -> String {
    at.map_or_else(|| format!("not {what} any instant"), |at| format!("{what} {at}"))
}
