//! Which connections come first while the database refuses more than it has granted: by a limit of its own, of the role, or
//! of the database.
//!
//! Every thread of a server has a rank. One that is refused a connection asks those behind it for theirs, and an idle thread
//! behind it closes its own. A thread whose work others can do takes no work while it cannot have a connection.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::warn;

use super::address::Address;
use crate::error::{Fault, Repeated};

/// After a refusal, how long no thread without a rank of its own tries to connect.
const CROWDED: Duration = Duration::from_secs(3);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Batches of authorizations.
    Decide,
    /// Agents whose rows are held.
    Wait,
    /// Scripts that read.
    Read,
    /// Scripts that read and take long.
    ReadLong,
    /// Scripts that write.
    Write,
    /// Scripts whose locks are held.
    Patient,
}

/// Who comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Those that decide.
    Decide,
    /// The first of those that read.
    Read,
    /// The first of those that write.
    Write,
    /// The first of those that read what takes long.
    ReadLong,
    /// The one whose scripts wait for locks.
    Patient,
    /// One that others stand in for.
    Surplus,
}

/// A thread's place among all connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) rank: Rank,
}

/// What a thread without a connection, for which others stand in, does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Surplus {
    /// It takes work, and connects for it.
    Works,
    /// It asks again a moment later.
    Waits,
    /// It tries to connect.
    Tries,
}

/// The connections of one server, and what the database has refused.
#[derive(Debug)]
pub(super) struct Room {
    /// The rank that was last refused a connection.
    asked: watch::Sender<Rank>,
    /// When the database last refused a connection, or a surplus thread last tried. None if it never refused one.
    refused: Mutex<Option<Instant>>,
    is_closed: AtomicBool,
    open: [AtomicUsize; Kind::ALL.len()],
    repeated: Repeated,
}

/// An open connection, counted by its kind until this is dropped.
pub(super) struct Open {
    address: Arc<Address>,
    kind: Kind,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.address.room.count(self.kind).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Open {
    /// Counts a connection.
    pub(super) fn new(address: &Arc<Address>, kind: Kind) -> Self {
        address.room.count(kind).fetch_add(1, Ordering::Relaxed);
        Self { address: Arc::clone(address), kind }
    }
}

impl Kind {
    pub(super) const ALL: [Self; 6] =
        [Self::Decide, Self::Wait, Self::Read, Self::ReadLong, Self::Write, Self::Patient];

    /// Its name in metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Decide => "decide",
            Self::Wait => "wait",
            Self::Read => "read",
            Self::ReadLong => "read_long",
            Self::Write => "write",
            Self::Patient => "write_held",
        }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self {
            asked: watch::Sender::new(Rank::Surplus),
            refused: Mutex::default(),
            is_closed: AtomicBool::default(),
            open: Default::default(),
            repeated: Repeated::default(),
        }
    }
}

impl Room {
    /// Learns which ranks ask for connections from now on.
    pub(super) fn follow(&self) -> watch::Receiver<Rank> {
        self.asked.subscribe()
    }

    /// Notes that the database has refused a connection to a thread of `rank`, and asks those behind it for theirs.
    pub(super) fn refused(&self, rank: Rank, why: &Fault) {
        *self.last() = Some(Instant::now());
        // Behind the last rank there is none.
        if rank < Rank::Surplus {
            self.asked.send_replace(rank);
        }
        if let Some(others) = self.repeated.due(why.kind()) {
            warn!(kind = why.kind(), reason = %why, others, "the database refuses connections");
        }
    }

    /// What a surplus thread without a connection does.
    pub(super) fn surplus(&self) -> Surplus {
        if self.is_closed.load(Ordering::Relaxed) {
            return Surplus::Works;
        }
        let mut last = self.last();
        match &mut *last {
            None => Surplus::Works,
            Some(at) if at.elapsed() < CROWDED => Surplus::Waits,
            Some(at) => {
                // One tries at a time.
                *at = Instant::now();
                Surplus::Tries
            }
        }
    }

    /// Lets all threads end.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// How many connections of each kind are open.
    pub(super) fn open(&self) -> Vec<(&'static str, usize)> {
        Kind::ALL.map(|kind| (kind.as_str(), self.count(kind).load(Ordering::Relaxed))).to_vec()
    }

    fn count(&self, kind: Kind) -> &AtomicUsize {
        let [decide, wait, read, read_long, write, patient] = &self.open;
        match kind {
            Kind::Decide => decide,
            Kind::Wait => wait,
            Kind::Read => read,
            Kind::ReadLong => read_long,
            Kind::Write => write,
            Kind::Patient => patient,
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns when a thread of `rank` is to close its connection.
pub(super) async fn asked_for(asked: &mut watch::Receiver<Rank>, rank: Rank) {
    loop {
        if asked.changed().await.is_err() {
            return std::future::pending().await;
        }
        if *asked.borrow_and_update() < rank {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_refusal_one_surplus_thread_tries_at_a_time() {
        let room = Room::default();
        assert_eq!(room.surplus(), Surplus::Works, "nothing was refused");
        room.refused(Rank::Decide, &Fault::Unavailable("too many".to_owned()));
        assert_eq!(room.surplus(), Surplus::Waits);
        *room.last() = Instant::now().checked_sub(CROWDED);
        assert_eq!([room.surplus(), room.surplus()], [Surplus::Tries, Surplus::Waits]);
        room.close();
        assert_eq!(room.surplus(), Surplus::Works, "at the end nothing waits");
    }

    #[tokio::test]
    async fn those_behind_give_way_and_no_others() {
        let room = Room::default();
        let mut followers = [Rank::Decide, Rank::Read, Rank::Surplus].map(|rank| (room.follow(), rank));
        room.refused(Rank::Read, &Fault::Unavailable("too many".to_owned()));
        let mut gave_way = Vec::new();
        for (asked, rank) in &mut followers {
            let soon = tokio::time::timeout(Duration::from_millis(10), asked_for(asked, *rank)).await;
            gave_way.push(soon.is_ok());
        }
        assert_eq!(gave_way, [false, false, true]);
    }
}
