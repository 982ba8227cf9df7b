//! The key cache: the callers of recently used keys. It is emptied as soon as any key changes.
//!
//! The store numbers the changes of its keys. This revision is read every [`POLL_MILLIS`]. When it has changed, the
//! whole cache is dropped. When it could not be read for [`TRUST_MILLIS`], the cache is not used. So a key that is
//! revoked stops within a second, whichever process revokes it. A caller is kept only if the revision did not change
//! while the caller was looked up.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use mandate_core::Timestamp;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::warn;

use crate::error::{Fault, Repeated};
use crate::metrics::{Lookup, Metrics};
use crate::model::call::Caller;
use crate::service::keys;
use crate::store::Store;

/// How often the revision is read, in milliseconds.
const POLL_MILLIS: u64 = 250;
/// How long after the revision was read the cache may be used, in milliseconds.
const TRUST_MILLIS: u64 = 1000;
/// The most callers in the cache. One takes about 200 bytes.
const MAX_CALLERS: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// The SHA-256 of a key, by which the store finds it.
pub(super) type KeyHash = [u8; 32];

/// The callers of recently used keys.
pub(crate) struct KeyCache {
    store: Store,
    metrics: Metrics,
    known: Mutex<Known>,
}

impl KeyCache {
    pub(crate) fn new(store: Store, metrics: Metrics) -> Self {
        Self { store, metrics, known: Mutex::new(Known::new()) }
    }

    /// The caller of the key with this hash, if the key is in force at `now`.
    pub(crate) async fn find(&self, hash: KeyHash, now: Timestamp) -> Result<Option<Arc<Caller>>, Fault> {
        if let Some(caller) = self.known().get(&hash, Instant::now()) {
            self.metrics.looked_up(Lookup::Hit);
            // The key may have expired while it was in the cache.
            return Ok(Some(caller).filter(|caller| caller.expires_at.is_none_or(|end| now < end)));
        }
        self.metrics.looked_up(Lookup::Miss);
        let (revision, caller) = self
            .store
            .read(move |tx| Ok::<_, Fault>((keys::revision(tx)?, keys::find(tx, &hash, now)?)))
            .await??;
        let caller = caller.map(Arc::new);
        self.known().remember(hash, caller.as_ref(), revision);
        Ok(caller)
    }

    /// Follows the revision until `stop` changes.
    pub(crate) async fn follow(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let repeated = Repeated::in_background();
        let mut tick = tokio::time::interval(Duration::from_millis(POLL_MILLIS));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = stop.changed() => return,
            }
            let began = Instant::now();
            match self.store.read(keys::revision).await.and_then(|revision| revision) {
                Ok(revision) => self.known().confirm(revision, began),
                Err(fault) => {
                    if let Some(others) = repeated.due(fault.kind()) {
                        warn!(kind = fault.kind(), reason = %fault, others, "the keys' revision cannot be read; every key is looked up");
                    }
                }
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The callers as of one revision.
struct Known {
    revision: i64,
    /// When the store was last confirmed to be at that revision.
    confirmed: Option<Instant>,
    callers: LruCache<KeyHash, Arc<Caller>>,
}

impl Known {
    fn new() -> Self {
        Self { revision: 0, confirmed: None, callers: LruCache::sparse(MAX_CALLERS) }
    }

    /// The caller, if the cache may be used at `now`.
    fn get(&mut self, hash: &KeyHash, now: Instant) -> Option<Arc<Caller>> {
        let age = now.saturating_duration_since(self.confirmed?);
        if age > Duration::from_millis(TRUST_MILLIS) { None } else { self.callers.get(hash).cloned() }
    }

    /// Notes that the store was at `revision` after `at`.
    fn confirm(&mut self, revision: i64, at: Instant) {
        self.move_to(revision);
        if revision == self.revision {
            self.confirmed = Some(at);
        }
    }

    /// Keeps the caller, as the store had it at `revision`. Where it had none, nothing older is used any more: what was refused
    /// once is not accepted again.
    fn remember(&mut self, hash: KeyHash, caller: Option<&Arc<Caller>>, revision: i64) {
        self.move_to(revision);
        if let Some(caller) = caller.filter(|_| revision == self.revision) {
            self.callers.put(hash, Arc::clone(caller));
        }
    }

    fn move_to(&mut self, revision: i64) {
        if revision > self.revision {
            self.revision = revision;
            self.callers.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::call::Environment;
    use mandate_core::{EnvironmentKind, PolicyVersion};

    const HASH: KeyHash = [7; 32];

    fn caller() -> Arc<Caller> {
        let policy_version = PolicyVersion::parse("pol_2026-11-21.1").unwrap();
        let environment = Environment { id: 1, kind: EnvironmentKind::Sandbox, policy_version };
        Arc::new(Caller { key: 1, environment, agent: None, rate: 1, expires_at: None })
    }

    #[test]
    fn nothing_is_trusted_before_the_first_confirmation_or_long_after_the_last() {
        let (mut known, start) = (Known::new(), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        known.remember(HASH, Some(&caller()), 4);
        assert!(known.get(&HASH, start).is_none());
        known.confirm(4, start);
        assert!(known.get(&HASH, after(TRUST_MILLIS)).is_some());
        assert!(known.get(&HASH, after(TRUST_MILLIS + 1)).is_none());
        known.confirm(4, after(900));
        assert!(known.get(&HASH, after(1900)).is_some());
    }

    #[test]
    fn a_change_of_any_key_forgets_everything() {
        let (mut known, start) = (Known::new(), Instant::now());
        known.confirm(4, start);
        known.remember(HASH, Some(&caller()), 4);
        known.confirm(5, start);
        assert!(known.get(&HASH, start).is_none());
    }

    #[test]
    fn what_was_looked_up_before_the_change_is_not_remembered_after_it() {
        let (mut known, start) = (Known::new(), Instant::now());
        known.confirm(5, start);
        known.remember(HASH, Some(&caller()), 4);
        assert!(known.get(&HASH, start).is_none());
    }

    #[test]
    fn a_late_confirmation_of_an_old_revision_confirms_nothing() {
        let (mut known, start) = (Known::new(), Instant::now());
        known.remember(HASH, Some(&caller()), 5);
        known.confirm(4, start);
        assert!(known.get(&HASH, start).is_none());
    }

    #[test]
    fn a_key_that_was_not_found_is_not_taken_from_an_older_revision() {
        let (mut known, start) = (Known::new(), Instant::now());
        known.remember(HASH, Some(&caller()), 4);
        known.confirm(4, start);
        known.remember(HASH, None, 5);
        // Read before the key was revoked, and heard of later.
        known.confirm(4, start);
        assert!(known.get(&HASH, start).is_none());
    }

    #[test]
    fn the_number_of_callers_is_bounded() {
        let (mut known, start, caller) = (Known::new(), Instant::now(), caller());
        known.confirm(1, start);
        for number in 0..=MAX_CALLERS.get() {
            let mut hash = HASH;
            hash[..8].copy_from_slice(&number.to_be_bytes());
            known.remember(hash, Some(&caller), 1);
        }
        assert_eq!(known.callers.len(), MAX_CALLERS.get());
    }
}
