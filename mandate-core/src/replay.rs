//! Replay: a verdict may be settled once, and its nonce shows whether it was used before.
//!
//! A counterparty keeps the nonces that it has accepted, by issuer, until the tokens that carry them have
//! expired for every verifier. They are kept in a [`NonceStore`]. [`MemoryNonces`] serves one process.
//! Several processes need a store that they share, such as a table with a unique key.
//!
//! ```
//! use mandate_core::Timestamp;
//! use mandate_core::replay::{Claimed, MemoryNonces, NonceStore};
//! let nonces = MemoryNonces::new();
//! let now = Timestamp::from_seconds(1000);
//! let until = now.plus_seconds(330);
//! assert_eq!(nonces.claim("https://verdicts.example", "n_1", until, now)?, Claimed::Fresh);
//! assert_eq!(nonces.claim("https://verdicts.example", "n_1", until, now)?, Claimed::Replayed);
//! # Ok::<(), mandate_core::replay::NoncesFull>(())
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::time::Timestamp;

/// How many nonces a [`MemoryNonces`] keeps by default: about 150 MB, enough for 3,000 a second over 330
/// seconds.
pub const DEFAULT_MAX_NONCES: usize = 1_000_000;

/// Whether a nonce was seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a replayed nonce must not be settled"]
pub enum Claimed {
    /// It was not, and is now claimed by the caller.
    Fresh,
    /// It was: the token is a replay.
    Replayed,
}

/// Stores nonces by issuer.
///
/// A store of your own, over a table with a unique key:
///
/// ```
/// use mandate_core::{Timestamp, replay::{Claimed, NonceStore}};
/// # use std::{collections::BTreeSet, convert::Infallible, sync::Mutex};
/// # struct Table(Mutex<BTreeSet<[String; 2]>>);
/// # impl Table {
/// #     fn insert(&self, issuer: &str, nonce: &str, _until: Timestamp) -> Result<bool, Infallible> {
/// #         Ok(self.0.lock().unwrap().insert([issuer.to_owned(), nonce.to_owned()]))
/// #     }
/// # }
/// impl NonceStore for Table {
///     type Error = Infallible; // In production: the database's.
///     fn claim(&self, issuer: &str, nonce: &str, until: Timestamp, _: Timestamp) -> Result<Claimed, Infallible> {
///         Ok(if self.insert(issuer, nonce, until)? { Claimed::Fresh } else { Claimed::Replayed })
///     }
/// }
/// # let (table, at) = (Table(Mutex::default()), Timestamp::from_seconds(0));
/// # assert_eq!(table.claim("https://verdicts.example", "n_1", at, at)?, Claimed::Fresh);
/// # assert_eq!(table.claim("https://verdicts.example", "n_1", at, at)?, Claimed::Replayed);
/// # Ok::<(), Infallible>(())
/// ```
pub trait NonceStore {
    /// Why the store could not answer.
    type Error: std::error::Error;

    /// Claims the nonce of an issuer, if it was not claimed before. Of any number of concurrent callers,
    /// exactly one receives [`Claimed::Fresh`].
    ///
    /// The entry must be kept through the whole of `until`, and may be deleted when `now` is later. `until`
    /// already includes every leeway: see
    /// [`VerifiedVerdict::claim_nonce`](crate::verify::VerifiedVerdict::claim_nonce).
    ///
    /// # Errors
    /// The store cannot answer. The caller must not settle.
    /// The store cannot answer, and the caller must not settle.
    fn claim(
        &self,
        issuer: &str,
        nonce: &str,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Claimed, Self::Error>;
}

/// A [`NonceStore`] in memory, for one process. Its content is lost when the process ends: a token that was
/// accepted shortly before a restart can be accepted once more after it.
///
/// ```
/// use mandate_core::{Timestamp, replay::{Claimed, MemoryNonces, NonceStore}};
/// let (nonces, now) = (MemoryNonces::new(), Timestamp::from_seconds(1000));
/// assert_eq!(nonces.claim("https://verdicts.example", "n_1", now.plus_seconds(330), now)?, Claimed::Fresh);
/// assert_eq!(nonces.len(), 1);
/// # Ok::<(), mandate_core::replay::NoncesFull>(())
/// ```
pub struct MemoryNonces {
    kept: Mutex<Kept>,
    most: usize,
}

/// A [`MemoryNonces`] is full of nonces that must still be kept. Nothing is accepted until some expire.
///
/// ```
/// use mandate_core::{Timestamp, replay::{MemoryNonces, NonceStore, NoncesFull}};
/// let at = Timestamp::from_seconds(1000);
/// let claimed = MemoryNonces::with_limit(0).claim("https://verdicts.example", "n_1", at, at);
/// assert_eq!(claimed, Err(NoncesFull { most: 0 }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the nonce store is full: it keeps at most {most}, and none of them has expired")]
pub struct NoncesFull {
    /// How many it can keep.
    pub most: usize,
}

/// Issuer and nonce.
type Name = Arc<(Box<str>, Box<str>)>;

#[derive(Default)]
struct Kept {
    names: HashSet<Name>,
    /// The same names, with the one that expires first on top.
    by_time: BinaryHeap<Reverse<(Timestamp, Name)>>,
}

impl MemoryNonces {
    /// An empty store that keeps up to [`DEFAULT_MAX_NONCES`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_MAX_NONCES)
    }

    /// An empty store that keeps up to `most` nonces.
    ///
    /// ```
    /// use mandate_core::{Timestamp, replay::{Claimed, MemoryNonces, NonceStore}};
    /// let (nonces, now) = (MemoryNonces::with_limit(1), Timestamp::from_seconds(1000));
    /// let claim = |nonce, now: Timestamp| nonces.claim("https://a.example", nonce, now.plus_seconds(330), now);
    /// assert_eq!(claim("n_1", now)?, Claimed::Fresh);
    /// assert!(claim("n_2", now).is_err(), "full");
    /// assert_eq!(claim("n_2", now.plus_seconds(331))?, Claimed::Fresh);
    /// # Ok::<(), mandate_core::replay::NoncesFull>(())
    /// ```
    #[must_use]
    pub fn with_limit(most: usize) -> Self {
        Self { kept: Mutex::default(), most }
    }

    /// How many nonces are kept. Expired ones count until the next claim.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).names.len()
    }

    /// Whether no nonce is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for MemoryNonces {
    fn default() -> Self {
        Self::new()
    }
}

impl NonceStore for MemoryNonces {
    type Error = NoncesFull;

    fn claim(
        &self,
        issuer: &str,
        nonce: &str,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Claimed, NoncesFull> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.forget(now);
        let name: Name = Arc::new((issuer.into(), nonce.into()));
        if kept.names.contains(&name) {
            return Ok(Claimed::Replayed);
        }
        if kept.names.len() >= self.most {
            return Err(NoncesFull { most: self.most });
        }
        kept.by_time.push(Reverse((until, Arc::clone(&name))));
        kept.names.insert(name);
        Ok(Claimed::Fresh)
    }
}

impl Kept {
    fn forget(&mut self, now: Timestamp) {
        while self.by_time.peek().is_some_and(|Reverse((until, _))| *until < now) {
            if let Some(Reverse((_, name))) = self.by_time.pop() {
                self.names.remove(&name);
            }
        }
    }
}

impl fmt::Debug for MemoryNonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNonces").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn one_nonce_of_one_issuer_is_fresh_once() {
        let nonces = MemoryNonces::new();
        for (issuer, nonce, claimed) in [
            ("a", "1", Claimed::Fresh),
            ("a", "1", Claimed::Replayed),
            ("b", "1", Claimed::Fresh),
            ("a", "2", Claimed::Fresh),
            ("a2", "", Claimed::Fresh),
            ("b", "1", Claimed::Replayed),
        ] {
            assert_eq!(nonces.claim(issuer, nonce, at(10), at(0)), Ok(claimed), "{issuer} {nonce}");
        }
    }

    #[test]
    fn is_remembered_through_the_last_instant_and_then_forgotten() {
        let nonces = MemoryNonces::new();
        let claim = |nonce, until, now| nonces.claim("a", nonce, at(until), at(now)).unwrap();
        assert_eq!(claim("long", 100, 0), Claimed::Fresh);
        assert_eq!(claim("short", 10, 0), Claimed::Fresh);
        assert_eq!(claim("short", 10, 10), Claimed::Replayed);
        assert_eq!(claim("short", 10, 11), Claimed::Fresh);
        assert_eq!(claim("long", 100, 100), Claimed::Replayed);
        assert_eq!(claim("third", 200, 101), Claimed::Fresh);
        assert_eq!(nonces.len(), 1);
    }

    #[test]
    fn a_full_store_refuses_until_something_expires() {
        let nonces = MemoryNonces::with_limit(2);
        let claim = |nonce, now| nonces.claim("a", nonce, at(10), at(now));
        assert_eq!(claim("1", 0), Ok(Claimed::Fresh));
        assert_eq!(claim("2", 0), Ok(Claimed::Fresh));
        assert_eq!(claim("3", 0), Err(NoncesFull { most: 2 }));
        assert_eq!(claim("1", 0), Ok(Claimed::Replayed));
        assert_eq!(claim("3", 11), Ok(Claimed::Fresh));
    }

    #[test]
    fn of_many_threads_one_wins() {
        let nonces = MemoryNonces::new();
        let fresh: usize = std::thread::scope(|scope| {
            let claims: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        let claims = (0..100).map(|n| nonces.claim("a", &n.to_string(), at(10), at(0)));
                        claims.filter(|c| *c == Ok(Claimed::Fresh)).count()
                    })
                })
                .collect();
            claims.into_iter().map(|c| c.join().unwrap()).sum()
        });
        assert_eq!(fresh, 100);
    }
}
