//! Downloads of exports. Each has a file open besides its connection.

use std::sync::Arc;

use super::concurrency::{ConcurrencyLimits, Permit};

/// One environment may have this part of the places, as a divisor: peers that read slowly leave some to others.
const PART_OF_ENVIRONMENT: usize = 4;

/// The downloads under way, of all and of each environment.
#[derive(Debug)]
pub(crate) struct Downloads {
    most: usize,
    all: Arc<ConcurrencyLimits<()>>,
    environments: Arc<ConcurrencyLimits<i64>>,
}

/// Counts one download until it is dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "both permits end when it is dropped")]
pub(in crate::http) struct Download(Permit<()>, Permit<i64>);

impl Downloads {
    /// At most so many at a time.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, all: Arc::default(), environments: Arc::default() }
    }

    /// Counts one more download for an environment, unless there are too many.
    pub(in crate::http) fn acquire(&self, environment: i64) -> Option<Download> {
        let of_environment =
            self.environments.acquire(environment, self.most.div_ceil(PART_OF_ENVIRONMENT))?;
        Some(Download(self.all.acquire((), self.most)?, of_environment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_are_bounded_and_no_environment_has_all() {
        let downloads = Downloads::new(8);
        let mut held: Vec<_> = (0..2).map(|_| downloads.acquire(1).unwrap()).collect();
        assert!(downloads.acquire(1).is_none(), "a quarter");
        held.extend(
            (2..=4).flat_map(|other| [downloads.acquire(other).unwrap(), downloads.acquire(other).unwrap()]),
        );
        assert!(downloads.acquire(5).is_none(), "there are eight");
        held.remove(0);
        assert!(downloads.acquire(5).is_some());
        drop(held);
        assert!(downloads.acquire(1).is_some() && Downloads::new(1).acquire(1).is_some());
    }
}
