//! How much each of many holds at a time, so that none can take it all.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Who holds how much. Who holds nothing is forgotten.
#[derive(Debug)]
pub(super) struct Counts<K>(Mutex<HashMap<K, usize>>);

/// One that counts for its holder until it is dropped.
#[derive(Debug)]
pub(super) struct Held<K: Eq + Hash> {
    counts: Arc<Counts<K>>,
    holder: K,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> Counts<K> {
    /// Counts one more of `holder`, unless it has `most` of them.
    pub(super) fn hold(self: &Arc<Self>, holder: K, most: usize) -> Option<Held<K>> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(holder.clone()).or_insert(0);
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Held { counts: Arc::clone(self), holder })
    }

    /// Whether nobody holds anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

impl<K: Eq + Hash> Drop for Held<K> {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.holder);
            }
        }
    }
}
