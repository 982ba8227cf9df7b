//! How a thread gets its connection, keeps it while it waits for work, and gives it up.

use std::time::{Duration, Instant};

use tracing::warn;

use super::super::breaker::NextStep;
use super::super::connection::Connection;
use super::super::database_error::Recovery;
use super::super::purpose::Purpose;
use super::super::room::{Kind, Open, Rank, Surplus, asked_for};
use super::super::session::PostgresSession;
use super::ConnectionWorker;
use crate::error::Fault;

/// How long a thread waits for another's attempt to connect, each time that it looks.
const WAIT: Duration = Duration::from_millis(10);
/// How long work waits for a connection that the database refuses. After that it fails at once.
const REFUSED: Duration = Duration::from_secs(5);
/// The pause before the next attempt: while work waits, and once it fails at once.
const REFUSED_PAUSE: Duration = Duration::from_millis(128);
const REFUSED_REST: Duration = Duration::from_millis(500);

/// Connections that the database has refused, one after another.
pub(super) struct Refusal {
    since: Instant,
    last: Instant,
    why: Fault,
}

impl ConnectionWorker {
    /// Waits for `what` while the connection stays alive.
    pub(in super::super) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// The next work. Until it comes, the connection stays alive, or is closed if a thread of a higher rank needs one.
    pub(in super::super) fn next<T>(&mut self, mut work: impl AsyncFnMut() -> Option<T>) -> Option<T> {
        let rank = self.rank();
        loop {
            self.find_place();
            let Self { runtime, asked, .. } = self;
            let came = runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = asked_for(asked, rank) => None,
                    came = work() => Some(came),
                }
            });
            match came {
                Some(came) => return came,
                None => self.connection = None,
            }
        }
    }

    fn rank(&self) -> Rank {
        self.place.map_or(Rank::Decide, |place| place.rank)
    }

    /// Waits for a connection, if the database has refused some and others stand in for this thread.
    fn find_place(&mut self) {
        while self.rank() == Rank::Surplus && self.connection.is_none() && !self.address.breaker.is_open() {
            match self.address.room.surplus() {
                Surplus::Works => return,
                Surplus::Waits => self.runtime.block_on(async { tokio::time::sleep(REFUSED_PAUSE).await }),
                Surplus::Tries => {
                    if let Ok(connection) = self.runtime.block_on(Connection::open(&self.address)) {
                        self.opened(connection);
                    }
                }
            }
        }
    }

    fn opened(&mut self, mut connection: Connection) {
        if !connection.durable {
            warn!("the database runs with fsync off: what it acknowledges is lost when its machine fails");
        }
        connection.open = self.place.map(|place| Open::new(&self.address, place.kind));
        self.random ^= u64::from_be_bytes(*connection.draw().last_chunk().unwrap_or(&[0; 8]));
        // What was asked before was asked of others.
        self.asked.mark_unchanged();
        (self.connection, self.used, self.refusal) = (Some(connection), Instant::now(), None);
    }

    /// Notes a refused connection, and waits for another to be closed. Fails if that has taken too long, and at once where
    /// others do the same work.
    fn refused(&mut self, why: Fault) -> Result<(), Fault> {
        self.address.room.refused(self.rank(), &why);
        let last = Instant::now();
        let since = self.refusal.as_ref().map_or(last, |refusal| refusal.since);
        self.refusal = Some(Refusal { since, last, why: why.clone() });
        if since.elapsed() >= REFUSED || self.place.is_some_and(|place| place.kind == Kind::Wait) {
            return Err(why);
        }
        self.runtime.block_on(async { tokio::time::sleep(REFUSED_PAUSE).await });
        Ok(())
    }

    /// Drops the connection, whatever its state.
    pub(in super::super) fn leave(&mut self) {
        self.connection = None;
    }

    /// Whether the database could not be reached, or has refused this thread a connection for too long.
    pub(in super::super) fn is_away(&self) -> bool {
        self.address.breaker.is_open() || self.refusal.as_ref().is_some_and(|r| r.since.elapsed() >= REFUSED)
    }

    /// Whether the database has refused this thread the connection that it needs.
    pub(in super::super) fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// Connects if there is no connection.
    pub(in super::super) fn connect(&mut self) -> Result<(), Fault> {
        if self
            .connection
            .as_ref()
            .is_some_and(|connection| connection.is_closed() || connection.is_doubtful())
        {
            self.connection = None;
        }
        let outdated = self.connection.as_mut().filter(|connection| connection.is_outdated());
        let looked = outdated
            .map(|connection| PostgresSession::new(&self.runtime, connection, Purpose::Read).look_at_clock());
        if looked.is_some_and(|looked| looked.is_err()) {
            self.connection = None;
        }
        if let Some(Refusal { since, last, why }) = &self.refusal
            && since.elapsed() >= REFUSED
            && last.elapsed() < REFUSED_REST
            && self.connection.is_none()
        {
            return Err(why.clone());
        }
        while self.connection.is_none() {
            let attempt = match self.address.breaker.next_step() {
                NextStep::Try(attempt) => attempt,
                NextStep::Refused(fault) => return Err(fault),
                NextStep::Wait => {
                    // A timer must be made within its runtime.
                    self.runtime.block_on(async { tokio::time::sleep(WAIT).await });
                    continue;
                }
            };
            match self.runtime.block_on(Connection::open(&self.address)) {
                Ok(connection) => {
                    attempt.succeeded();
                    self.opened(connection);
                }
                Err(error) if error.is_refused => {
                    // The database is there.
                    attempt.succeeded();
                    self.refused(error.fault)?;
                }
                Err(error) => {
                    if attempt.failed(&error.fault) || error.recovery == Recovery::None {
                        return Err(error.fault);
                    }
                }
            }
        }
        Ok(())
    }
}
