//! How much of something each holder has at a time, so that none can take all of it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// How much each holder has. A holder without anything takes no memory.
#[derive(Debug)]
pub(super) struct ConcurrencyLimits<K>(Mutex<HashMap<K, usize>>);

/// Counts for its holder until it is dropped.
#[derive(Debug)]
pub(in crate::http) struct Permit<K: Eq + Hash> {
    limits: Arc<ConcurrencyLimits<K>>,
    holder: K,
}

impl<K> Default for ConcurrencyLimits<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> ConcurrencyLimits<K> {
    /// Counts one more for `holder`, unless it has `most` of them.
    pub(super) fn acquire(self: &Arc<Self>, holder: K, most: usize) -> Option<Permit<K>> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(holder.clone()).or_insert(0);
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Permit { limits: Arc::clone(self), holder })
    }

    /// Whether no holder has anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

impl<K: Eq + Hash> Drop for Permit<K> {
    fn drop(&mut self) {
        let mut counts = self.limits.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.holder);
            }
        }
    }
}
