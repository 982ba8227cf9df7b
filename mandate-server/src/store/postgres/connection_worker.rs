//! One thread's connection to the database: reconnects when it is lost, and runs transactions again.
//!
//! A transaction is run again when the database rolled it back, or when the connection was lost before COMMIT was sent.
//! After COMMIT was sent, the outcome is unknown. To learn it, a row with the transaction's number is inserted into
//! `commits`: if that succeeds, the transaction has not committed and never can.

mod connecting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tracing::{debug, info};

use super::super::tx::{Tx, Value};
use super::address::Address;
use super::connection::{Connection, Parameter, Step};
use super::database_error::{DatabaseError, Recovery};
use super::purpose::{End, Locks, Purpose};
use super::room::{Place, Rank};
use super::session::{PostgresSession, Scripted, run};
use crate::error::Fault;
use crate::model::call::ScriptError;
use connecting::Refusal;

/// How many times a transaction is tried.
const ATTEMPTS: u32 = 10;
/// The longest pause before the second attempt. It doubles for each attempt that follows, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(256);
/// After this time a transaction is neither tried again nor committed: its ids carry an old time.
const TRYING: Duration = Duration::from_secs(20);
/// How long it is tried to learn the outcome of a transaction.
const ASKING: Duration = Duration::from_secs(20);
/// How many times a script that reads is run when its connection is lost.
const READINGS: u32 = 3;
/// After this idle time a connection is checked before a script that cannot be repeated relies on it.
const STALE: Duration = Duration::from_millis(500);

pub(super) const LEAVE: &str =
    "/* connection_worker.leave */ INSERT INTO commits (commit, asked) VALUES ($1, 0)";
const ASK: &str = "/* connection_worker.ask */
    INSERT INTO commits (commit, asked) VALUES ($1, 1) ON CONFLICT DO NOTHING";
const CONFIRM: &str = "/* connection_worker.confirm */ UPDATE commits SET asked = 0 WHERE commit = $1";
const ANSWER: &str = "/* connection_worker.answer */ SELECT asked FROM commits WHERE commit = $1";

/// One thread's connection to the database.
pub(super) struct ConnectionWorker {
    runtime: Runtime,
    address: Arc<Address>,
    connection: Option<Connection>,
    /// Its place among all connections. None for an operator's command.
    place: Option<Place>,
    /// The ranks that ask for connections.
    asked: watch::Receiver<Rank>,
    /// Since when the database has refused a connection.
    refusal: Option<Refusal>,
    used: Instant,
    /// How long the last COMMIT took that has succeeded, together with the statements sent with it.
    committing: Duration,
    /// Whether the last transaction ended because another transaction held a lock.
    held: bool,
    /// How many rows the counted statements changed. None if the outcome had to be looked up.
    pub(super) count: Option<usize>,
    /// How long a transaction may be tried.
    pub(super) trying: Duration,
    random: u64,
}

/// The outcome of an attempt.
enum Ended<T> {
    Done(T),
    Again(Fault),
    /// As above, because another transaction holds a lock.
    Locked(Fault),
    Failed(Fault),
    /// The connection was lost during the COMMIT of the transaction with this number.
    Unknown([u8; 16], T),
}

impl ConnectionWorker {
    /// A thread of a server.
    pub(super) fn at(address: Arc<Address>, place: Place) -> Result<Self, Fault> {
        Ok(Self { place: Some(place), ..Self::new(address)? })
    }

    pub(super) fn new(address: Arc<Address>) -> Result<Self, Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|e| Fault::new(format!("cannot start a thread for the database: {e}")))?;
        Ok(Self {
            runtime,
            asked: address.room.follow(),
            address,
            connection: None,
            place: None,
            refusal: None,
            used: Instant::now(),
            committing: Duration::ZERO,
            held: false,
            count: None,
            trying: TRYING,
            random: 0,
        })
    }

    /// Whether the last transaction ended because another transaction held a lock.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// How long the last COMMIT took that has succeeded, together with the statements sent with it.
    pub(super) fn committing(&self) -> Duration {
        self.committing
    }

    /// Runs `script` on one snapshot. If the connection is lost, runs it again on a new connection.
    pub(super) fn read<T>(&mut self, script: &impl Fn(&mut Tx<'_>) -> T) -> Result<T, Fault> {
        let mut number = 1;
        loop {
            self.connect()?;
            let (result, recovery) = self.look_over(Purpose::Read, script)?;
            if recovery == Recovery::None || number == READINGS {
                return Ok(result);
            }
            debug!("a connection was lost while it was read over: it is read again");
            number += 1;
        }
    }

    /// Runs `script` on one snapshot, once only: it may have passed on what it has read.
    pub(super) fn look<T>(&mut self, script: impl FnOnce(&mut Tx<'_>) -> T) -> Result<T, Fault> {
        for _ in 0..ATTEMPTS {
            self.connect()?;
            let Some(connection) = &mut self.connection else { break };
            if self.used.elapsed() < STALE
                || PostgresSession::new(&self.runtime, connection, Purpose::Look).ping().is_ok()
            {
                return self.look_over(Purpose::Look, script).map(|(result, _)| result);
            }
            self.connection = None;
        }
        Err(Fault::Unavailable("database: every new connection was lost before it was used".to_owned()))
    }

    /// Runs `script` on one snapshot. On an error, also returns what to do about it.
    fn look_over<T>(
        &mut self,
        purpose: Purpose,
        script: impl FnOnce(&mut Tx<'_>) -> T,
    ) -> Result<(T, Recovery), Fault> {
        let gone = || Fault::Unavailable("database: there is no connection".to_owned());
        let mut session =
            PostgresSession::new(&self.runtime, self.connection.as_mut().ok_or_else(gone)?, purpose);
        let result = script(&mut Tx::new(&mut session));
        let recovery = session.error.take().map_or(Recovery::None, |error| error.recovery);
        // A read is valid however its transaction ends.
        if recovery == Recovery::Reconnect || (session.began && session.send_plain("COMMIT").is_err()) {
            self.connection = None;
        }
        self.used = Instant::now();
        Ok((result, recovery))
    }

    /// Runs `script` in one transaction, and again where that may help.
    #[cfg(test)]
    pub(super) fn write<T>(
        &mut self,
        script: &impl Fn(&mut Tx<'_>) -> Result<T, ScriptError>,
    ) -> Result<Scripted<T>, Fault> {
        self.transact(&mut |session: &mut PostgresSession<'_>| run(session, script))
    }

    /// Runs `script` in one transaction, again where that may help. `bound` limits waits for locks.
    pub(super) fn write_until<T>(
        &mut self,
        until: Instant,
        bound: &'static str,
        script: &impl Fn(&mut Tx<'_>) -> Result<T, ScriptError>,
    ) -> Result<Scripted<T>, Fault> {
        self.transact_until(until, Locks::Leave, &mut |session: &mut PostgresSession<'_>| {
            session.later(Step::plain(bound));
            run(session, script)
        })
    }

    /// Runs `attempt` in one transaction, which commits on success, and again where that may help.
    pub(super) fn transact<T>(
        &mut self,
        attempt: &mut impl FnMut(&mut PostgresSession<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.transact_until(Instant::now() + self.trying, Locks::Wait, attempt)
    }

    /// The same. After `until` nothing is started or committed.
    pub(super) fn transact_until<T>(
        &mut self,
        until: Instant,
        locks: Locks,
        attempt: &mut impl FnMut(&mut PostgresSession<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let late = || Fault::Overdue("database: a transaction took too long to be committed".to_owned());
        let mut last = late();
        self.held = false;
        for number in 0..ATTEMPTS {
            if number > 0 {
                self.pause(number - 1);
            }
            self.connect()?;
            if Instant::now() >= until {
                break;
            }
            let mut in_time = |session: &mut PostgresSession<'_>| {
                let value = attempt(session)?;
                if Instant::now() < until { Ok(value) } else { Err(late()) }
            };
            match self.attempt(&mut in_time, End::Commit) {
                Ended::Done(value) => return Ok(value),
                Ended::Failed(fault) => return Err(fault),
                Ended::Locked(fault) if locks == Locks::Leave => {
                    self.held = true;
                    return Err(fault);
                }
                Ended::Again(fault) | Ended::Locked(fault) => {
                    debug!(reason = %fault, "a transaction is tried again");
                    last = fault;
                }
                Ended::Unknown(number, value) => {
                    if self.has_committed(number)? {
                        return Ok(value);
                    }
                    last = Fault::Unavailable(
                        "database: the connection was lost while a transaction committed".to_owned(),
                    );
                }
            }
        }
        Err(last)
    }

    /// Runs `attempt` in one transaction, once only.
    pub(super) fn once<T>(
        &mut self,
        attempt: impl FnOnce(&mut PostgresSession<'_>) -> Result<T, Fault>,
        end: End,
    ) -> Result<T, Fault> {
        self.connect()?;
        let mut attempt = Some(attempt);
        let mut once = |session: &mut PostgresSession<'_>| match attempt.take() {
            Some(attempt) => attempt(session),
            None => Err(Fault::new("a script that runs once was run twice")),
        };
        match self.attempt(&mut once, end) {
            Ended::Done(value) => Ok(value),
            Ended::Failed(fault) | Ended::Again(fault) | Ended::Locked(fault) => Err(fault),
            Ended::Unknown(number, value) if self.has_committed(number)? => Ok(value),
            Ended::Unknown(..) => {
                Err(Fault::Unavailable("database: the connection was lost; nothing was changed".to_owned()))
            }
        }
    }

    fn attempt<T>(
        &mut self,
        attempt: &mut impl FnMut(&mut PostgresSession<'_>) -> Result<T, Fault>,
        end: End,
    ) -> Ended<T> {
        let Some(connection) = &mut self.connection else {
            return Ended::Failed(Fault::Unavailable("database: there is no connection".to_owned()));
        };
        let mut session = PostgresSession::new(&self.runtime, connection, Purpose::Write);
        let result = catch_unwind(AssertUnwindSafe(|| attempt(&mut session)))
            .unwrap_or_else(|_| Err(Fault::new("a script panicked; see the line before this one")));
        let (ended, recovery) = match (result, session.error.take(), end) {
            (_, Some(error), _) => (error.ended(), error.recovery),
            (Err(fault), None, _) => (Ended::Failed(fault), Recovery::None),
            (Ok(value), None, End::Rollback) => (Ended::Done(value), Recovery::None),
            (Ok(value), None, End::Commit) => {
                let began = Instant::now();
                let (ended, recovery) = commit(&mut session, value);
                self.count = matches!(ended, Ended::Done(_)).then_some(session.count);
                if self.count.is_some() {
                    self.committing = began.elapsed();
                }
                // Where COMMIT was never sent, such as behind a statement that could not be prepared, the transaction goes on.
                let failed = session.began && !matches!(ended, Ended::Done(_));
                if recovery == Recovery::Reconnect || (failed && session.send_plain("ROLLBACK").is_err()) {
                    self.connection = None;
                }
                self.used = Instant::now();
                return ended;
            }
        };
        // Without an answer, the transaction ends with its connection.
        if recovery == Recovery::Reconnect || (session.began && session.send_plain("ROLLBACK").is_err()) {
            self.connection = None;
        }
        self.used = Instant::now();
        ended
    }

    /// Whether the transaction with this number has committed. If not, it never will.
    pub(super) fn has_committed(&mut self, number: [u8; 16]) -> Result<bool, Fault> {
        let began = Instant::now();
        let mut attempt = 0;
        loop {
            self.connection = None;
            let answer = self.connect().and_then(|()| self.ask(number));
            if answer.is_err() {
                // Whatever the answer, the connection that was asked is not used again.
                self.connection = None;
            }
            match answer {
                Ok(committed) => {
                    info!(
                        committed,
                        "the connection was lost during a COMMIT; the database was asked how the transaction ended"
                    );
                    return Ok(committed);
                }
                Err(fault) if began.elapsed() >= ASKING => {
                    let why = "it is not known whether a transaction has committed";
                    return Err(Fault::new(format!("database: {why}: {fault}")));
                }
                Err(fault) => {
                    debug!(reason = %fault, "how a transaction ended cannot be read yet; the database is asked again");
                }
            }
            self.pause(attempt + 4);
            attempt += 1;
        }
    }

    fn ask(&mut self, number: [u8; 16]) -> Result<bool, Fault> {
        let lost = || Fault::Unavailable("database: there is no connection".to_owned());
        let mut session =
            PostgresSession::new(&self.runtime, self.connection.as_mut().ok_or_else(lost)?, Purpose::Write);
        let step = |sql| Step::Run(sql, vec![Parameter::from(Value::from(number))]);
        // If the transaction is still in progress, this waits for it.
        let mut answers = session.send(vec![step(ASK), step(ANSWER)])?;
        let row = answers.pop().and_then(|mut answer| answer.rows.pop());
        if row.ok_or_else(|| Fault::new("database: a row just written is not there"))?.integer()? == 0 {
            // Its row is visible, but after a crash it may not have reached the standbys that COMMIT waits
            // for. This row is written later: when its COMMIT returns, both have reached them.
            session.commit(vec![step(CONFIRM)])?;
            return Ok(true);
        }
        // Once this row is durable, the transaction can no longer insert its own.
        session.commit(Vec::new()).map(|()| false)
    }

    /// Sleeps for a random time that grows with the number of attempts.
    fn pause(&mut self, attempt: u32) {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let longest = FIRST_PAUSE.saturating_mul(1 << attempt.min(16)).min(LONGEST_PAUSE);
        let part = u32::try_from(self.random >> 40).unwrap_or_default();
        let pause = longest / 2 + (longest / 2).mul_f64(f64::from(part) / f64::from(1 << 24));
        // A timer must be made within its runtime.
        self.runtime.block_on(async { tokio::time::sleep(pause).await });
    }
}

/// Commits. Returns the outcome and what to do about the connection.
fn commit<T>(session: &mut PostgresSession<'_>, value: T) -> (Ended<T>, Recovery) {
    if !session.began {
        return (Ended::Done(value), Recovery::None);
    }
    let mut steps = Vec::with_capacity(2);
    let left = session.left;
    let number = left.unwrap_or_else(|| session.draw());
    if session.wrote && left.is_none() {
        steps.push(Step::Run(LEAVE, vec![Parameter::from(Value::from(number))]));
    }
    let _ = session.commit(steps);
    let Some(error) = session.error.take() else { return (Ended::Done(value), Recovery::None) };
    let ended = match error.recovery {
        Recovery::Reconnect if session.wrote => Ended::Unknown(number, value),
        // The transaction wrote nothing, so its reads are valid whatever its outcome.
        Recovery::Reconnect => Ended::Done(value),
        Recovery::Again | Recovery::Locked | Recovery::None => error.ended(),
    };
    (ended, error.recovery)
}

impl DatabaseError {
    /// The outcome of an attempt that failed before it began to commit.
    fn ended<T>(&self) -> Ended<T> {
        let fault = self.fault.clone();
        match self.recovery {
            Recovery::Again | Recovery::Reconnect => Ended::Again(fault),
            Recovery::Locked => Ended::Locked(fault),
            Recovery::None => Ended::Failed(fault),
        }
    }
}
