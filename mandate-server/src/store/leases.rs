//! Leases: what one of several servers on a database does for all of them.

use std::fmt;

use super::Store;
use super::tx::Tx;
use crate::error::Fault;
use crate::model::call::ScriptError;

/// Keeps leases in a database that several servers share.
pub struct Leases<'a> {
    store: &'a Store,
}

impl fmt::Debug for Leases<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leases")
    }
}

impl<'a> Leases<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self { store }
    }

    /// The store that several servers share.
    #[must_use]
    pub fn store(&self) -> &'a Store {
        self.store
    }

    /// Runs a script that takes a lease, renews it or gives it back.
    ///
    /// # Errors
    /// The database fails.
    pub async fn write<T, S>(&self, script: S) -> Result<T, Fault>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let written = self.store.write(move |tx| script(tx).map_err(ScriptError::Fault)).await?;
        written.map_err(|refusal| Fault::new(refusal.message))
    }
}
