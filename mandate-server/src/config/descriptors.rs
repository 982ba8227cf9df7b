//! How many files the process may have open, and how many connections that leaves for each listener.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// What is kept for all but the connections of clients, if there are twice as many.
const KEPT: u64 = 1024;
/// How many connections the API or the public listener holds at most. Others wait in the operating system's queue.
const MAX_CONNECTIONS: u64 = 16_384;
/// How many the ops listener holds at most, of those kept.
const MAX_OPS_CONNECTIONS: u64 = 64;
/// How many connections the console holds at most. A page that waits for news has one.
const MAX_CONSOLE_CONNECTIONS: u64 = 1024;
/// How many attempts to deliver may be under way, of those kept. An attempt has a connection, or looks a name up.
const MAX_DELIVERIES: u64 = 384;
/// How many connections to receivers may be idle between two attempts, of those kept.
const MAX_IDLE: u64 = 128;
/// How many downloads may be under way, of those kept. A download has a file open besides its connection.
const MAX_DOWNLOADS: u64 = 64;
/// What counts as no limit at all.
const UNLIMITED: u64 = 1 << 20;

/// The open files of this process, and what is derived from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// How many files and connections may be open.
    pub open_files: u64,
    /// How many of them are kept from the connections of clients: for those below, and for the store, exports that are
    /// built, and lookups of names that outlast their attempts.
    pub kept: u64,
    /// How many connections the API's listener holds at a time.
    pub api: usize,
    /// How many connections the public listener holds at a time.
    pub public: usize,
    /// How many connections the ops listener holds at a time.
    pub ops: usize,
    /// How many connections the console holds at a time.
    pub console: usize,
    /// How many attempts to deliver an event are made at a time.
    pub deliveries: usize,
    /// How many connections are kept between attempts to deliver.
    pub idle: usize,
    /// How many downloads are under way at a time.
    pub downloads: usize,
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
            kept,
            api: at_most(left - left / 4, MAX_CONNECTIONS),
            public: at_most(left / 4 - left / 16, MAX_CONNECTIONS),
            ops: at_most(kept / 16, MAX_OPS_CONNECTIONS),
            console: at_most(left / 16, MAX_CONSOLE_CONNECTIONS),
            deliveries: at_most(kept * 3 / 8, MAX_DELIVERIES),
            idle: at_most(kept / 8, MAX_IDLE),
            downloads: at_most(kept / 16, MAX_DOWNLOADS),
        }
    }

    /// What is derived, by name.
    pub(super) fn derived(self) -> [(&'static str, u64); 8] {
        let number = |connections: usize| u64::try_from(connections).unwrap_or(u64::MAX);
        [
            ("kept_files", self.kept),
            ("api_connections", number(self.api)),
            ("public_connections", number(self.public)),
            ("ops_connections", number(self.ops)),
            ("console_connections", number(self.console)),
            ("deliveries", number(self.deliveries)),
            ("idle_deliveries", number(self.idle)),
            ("downloads", number(self.downloads)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a store, its files, exports that are built and the listeners have open, with some to spare.
    const STORE: usize = 46;
    /// Lookups that outlast their attempts.
    const LOOKUPS: usize = 128;
    /// Instructions to the settlement provider that are under way, and connections kept between them.
    const SETTLEMENT: usize = 8 + 8;
    /// The same, of the collector of traces.
    const TRACES: usize = 1 + 1;
    const REST: usize = STORE + LOOKUPS + SETTLEMENT + TRACES;

    #[test]
    fn no_number_of_connections_takes_what_is_kept() {
        for open_files in [0, 1, 64, 256, 1024, 4096, 20_000, 1 << 20] {
            let derived = Descriptors::of(Some(open_files));
            let open_files = usize::try_from(open_files).unwrap();
            let kept = usize::try_from(derived.kept).unwrap();
            assert!(
                derived.api + derived.public + derived.console <= (open_files - kept).max(3),
                "{derived:?}"
            );
            let given = derived.ops + derived.deliveries + derived.idle + derived.downloads;
            assert!(given <= (kept - kept * 3 / 8).max(4), "{derived:?}");
            assert!(open_files < 1024 || given + REST <= kept, "{derived:?}");
        }
        let plenty = Descriptors::of(None);
        assert_eq!((plenty.api, plenty.public, plenty.console, plenty.kept), (16_384, 16_384, 1024, 1024));
        assert_eq!((plenty.ops, plenty.deliveries, plenty.idle, plenty.downloads), (64, 384, 128, 64));
        let default = Descriptors::of(Some(1024));
        assert_eq!((default.api, default.public, default.console, default.kept), (384, 96, 32, 512));
        assert_eq!((default.ops, default.deliveries, default.idle, default.downloads), (32, 192, 64, 32));
    }
}
