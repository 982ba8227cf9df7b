//! Each signing key has an entry in a log of its kind, or one that waits: who holds a token needs it for evidence.

use std::collections::BTreeSet;

use mandate_core::EnvironmentKind;
use mandate_core::log::{KeyChange, KeyEvent};

use super::{Finding, Listener};
use crate::error::Fault;
use crate::store::sql::check as rows;
use crate::store::tx::Tx;

/// The keys that entries of a kind of log say were published.
#[derive(Default)]
pub(super) struct PublishedKeys(BTreeSet<String>);

impl PublishedKeys {
    pub(super) fn take(&mut self, event: &KeyEvent) {
        if event.change == KeyChange::Published {
            self.0.insert(event.kid.to_string());
        }
    }

    /// Compares each signing key of a kind with its entry.
    pub(super) fn compare(
        &self,
        tx: &mut Tx<'_>,
        kind: EnvironmentKind,
        listener: &mut dyn Listener,
    ) -> Result<(), Fault> {
        let keys = rows::signing_keys(tx)?.into_iter().filter(|key| key.kind == kind.as_str());
        for key in keys.filter(|key| !self.0.contains(&key.kid)) {
            let finding = Finding::whole(
                "signing_keys",
                "no entry in the public log",
                "the entry that says it was published",
            );
            listener.finding(Finding { id: Some(key.kid), ..finding });
        }
        Ok(())
    }
}
