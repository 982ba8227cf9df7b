//! The rows that are findings by their checksums already.

use std::collections::BTreeSet;

use crate::error::Fault;
use crate::store::sql::checksums;
use crate::store::tx::Tx;

/// Of the tables that are compared with governing records: each row by its table, environment and id. Of an environment itself
/// the id is empty.
pub(super) struct Damaged(BTreeSet<(&'static str, i64, String)>);

impl Damaged {
    /// Reads all of them, of all environments.
    pub(super) fn read(tx: &mut Tx<'_>) -> Result<Self, Fault> {
        let mut damaged = BTreeSet::new();
        for guarded in checksums::deciding(tx).into_iter().chain(checksums::written()) {
            if matches!(guarded.table, "environments" | "mandates" | "agents" | "person_keys") {
                guarded.broken(tx, &mut |row| {
                    damaged.extend(row.environment.map(|environment| (guarded.table, environment, row.id)));
                })?;
            }
        }
        Ok(Self(damaged))
    }

    /// Whether this row is one of them.
    pub(super) fn has(&self, table: &'static str, environment: i64, id: &str) -> bool {
        self.0.contains(&(table, environment, id.to_owned()))
    }
}
