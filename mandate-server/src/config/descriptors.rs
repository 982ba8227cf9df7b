//! How many files the process may have open, and how many connections that leaves for each listener.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// What is kept for the store, files, deliveries, name servers and the ops listener, if there are twice as many.
const KEPT: u64 = 512;
/// How many connections the API or the public listener holds at most. Others wait in the operating system's queue.
const MAX_CONNECTIONS: u64 = 16_384;
/// How many the ops listener holds at most. They are among those kept, so that no client can take them.
const MAX_OPS_CONNECTIONS: u64 = 64;
/// What counts as no limit at all.
const UNLIMITED: u64 = 1 << 20;

/// The open files of this process, and what is derived from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// How many files and connections may be open.
    pub open_files: u64,
    /// How many connections the API's listener holds at a time.
    pub api: usize,
    /// How many connections the public listener holds at a time.
    pub public: usize,
    /// How many connections the ops listener holds at a time.
    pub ops: usize,
}

impl Descriptors {
    /// What a server would have that is started like this process.
    #[must_use]
    pub fn available() -> Self {
        Self::of(getrlimit(Resource::Nofile).maximum)
    }

    /// Raises the soft limit of this process to its hard limit.
    #[must_use]
    pub fn raise() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            Ok(()) => Self::of(maximum),
            Err(e) => {
                warn!(error = %e, "the limit of open files could not be raised");
                Self::of(current)
            }
        }
    }

    fn of(limit: Option<u64>) -> Self {
        let open_files = limit.unwrap_or(UNLIMITED).min(UNLIMITED);
        let kept = KEPT.min(open_files / 2);
        let left = open_files - kept;
        let at_most = |share: u64, most: u64| usize::try_from(share.min(most)).unwrap_or(usize::MAX).max(1);
        Self {
            open_files,
            api: at_most(left - left / 4, MAX_CONNECTIONS),
            public: at_most(left / 4, MAX_CONNECTIONS),
            ops: at_most(kept / 4, MAX_OPS_CONNECTIONS),
        }
    }

    /// What is derived, by name.
    pub(super) fn derived(self) -> [(&'static str, u64); 3] {
        let number = |connections: usize| u64::try_from(connections).unwrap_or(u64::MAX);
        [
            ("api_connections", number(self.api)),
            ("public_connections", number(self.public)),
            ("ops_connections", number(self.ops)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_connections_takes_what_is_kept() {
        for open_files in [0, 1, 64, 256, 1024, 4096, 20_000, 1 << 20] {
            let derived = Descriptors::of(Some(open_files));
            let connections: u64 = derived.derived()[..2].iter().map(|(_, most)| most).sum();
            let kept = KEPT.min(open_files / 2);
            assert!(connections <= (open_files - kept).max(2), "{derived:?}");
            assert!(derived.ops as u64 <= (kept / 2).max(1), "{derived:?}");
        }
        let plenty = Descriptors::of(None);
        assert_eq!((plenty.api, plenty.public, plenty.ops), (16_384, 16_384, 64));
        let default = Descriptors::of(Some(1024));
        assert_eq!((default.api, default.public, default.ops), (384, 128, 64));
    }
}
