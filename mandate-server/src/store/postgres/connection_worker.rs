//! One thread's place at the database: its connection, made anew when it is lost, and transactions tried again.
//!
//! A transaction is run again when the database has taken it back (a deadlock, a lock that was not had in time) or the
//! connection was lost before COMMIT was sent. After that its outcome is unknown: the database is asked for the row that
//! the transaction left in `commits`, with a row of the same number, so that one that has not committed by then never will.
//! The same is done where a COMMIT was answered without waiting for the standby.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tracing::{debug, info, warn};

use super::super::tx::{Tx, Value};
use super::address::Address;
use super::connection::{Connection, Parameter, Step};
use super::database_error::{DatabaseError, Recovery};
use super::purpose::{End, Locks, Purpose};
use super::session::{PostgresSession, Scripted, run};
use crate::error::Fault;
use crate::model::call::ScriptError;

/// How often a transaction is tried.
const ATTEMPTS: u32 = 10;
/// How long it is waited before the second attempt at most; twice as long before each that follows, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(256);
/// After so long a transaction is tried no more, and not committed: the ids that it has drawn are of the time before.
const TRYING: Duration = Duration::from_secs(20);
/// How long jobs wait for a database that has just gone away. After that they fail at once, until it is back.
const AWAY: Duration = Duration::from_secs(5);
/// How long it is not tried again to reach a database that is away, so that waiting callers get an error.
const REST: Duration = Duration::from_millis(500);
/// How long it is tried to find out how a transaction ended.
const ASKING: Duration = Duration::from_secs(20);
/// How often a script that reads is run, where the connection is lost beneath it.
const READINGS: u32 = 3;
/// After so long without use a connection is asked whether it is there, before a script that runs once relies on it.
const STALE: Duration = Duration::from_millis(500);

pub(super) const LEAVE: &str =
    "/* connection_worker.leave */ INSERT INTO commits (commit, asked) VALUES ($1, 0)";
const ASK: &str = "/* connection_worker.ask */
    INSERT INTO commits (commit, asked) VALUES ($1, 1) ON CONFLICT DO NOTHING";
const CONFIRM: &str = "/* connection_worker.confirm */ UPDATE commits SET asked = 0 WHERE commit = $1";
const ANSWER: &str = "/* connection_worker.answer */ SELECT asked FROM commits WHERE commit = $1";

/// A thread's place at the database.
pub(super) struct ConnectionWorker {
    runtime: Runtime,
    address: Arc<Address>,
    connection: Option<Connection>,
    used: Instant,
    /// Since when it could not be connected to.
    away: Option<Instant>,
    /// When that was tried last, and why it failed.
    failed: Option<(Instant, Fault)>,
    /// How long the last COMMIT took, with what travelled with it.
    committing: Duration,
    /// Whether the last transaction ended because another transaction held a lock.
    held: bool,
    /// How many rows its counted statements changed; nothing when its outcome had to be asked for.
    pub(super) count: Option<usize>,
    /// How long a transaction is tried.
    pub(super) trying: Duration,
    random: u64,
}

/// What has come of an attempt.
enum Ended<T> {
    Done(T),
    Again(Fault),
    /// The same, where another transaction holds a lock.
    Held(Fault),
    Failed(Fault),
    /// The connection was lost while the transaction of this number committed.
    Unknown([u8; 16], T),
}

impl ConnectionWorker {
    pub(super) fn new(address: Arc<Address>) -> Result<Self, Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|e| Fault::new(format!("cannot start a thread for the database: {e}")))?;
        Ok(Self {
            runtime,
            address,
            connection: None,
            used: Instant::now(),
            away: None,
            failed: None,
            committing: Duration::ZERO,
            held: false,
            count: None,
            trying: TRYING,
            random: 0,
        })
    }

    /// Waits for `what`, while the connection stays alive.
    pub(super) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// Gives the connection up, whatever state it is in.
    pub(super) fn leave(&mut self) {
        self.connection = None;
    }

    /// Whether the database could not be connected to.
    pub(super) fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// Whether the last transaction ended because another transaction held a lock.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// How long the last COMMIT took, with what travelled with it.
    pub(super) fn committing(&self) -> Duration {
        self.committing
    }

    /// Connects, if need be.
    pub(super) fn connect(&mut self) -> Result<(), Fault> {
        if self
            .connection
            .as_ref()
            .is_some_and(|connection| connection.is_closed() || connection.is_doubtful())
        {
            self.connection = None;
        }
        let is_away = self.away.is_some_and(|since| since.elapsed() >= AWAY);
        if self.connection.is_none()
            && is_away
            && let Some((at, why)) = &self.failed
            && at.elapsed() < REST
        {
            return Err(why.clone());
        }
        let mut attempt = 0;
        while self.connection.is_none() {
            let began = Instant::now();
            match self.runtime.block_on(Connection::open(&self.address)) {
                Ok(mut connection) => {
                    if !connection.durable {
                        warn!(
                            "the database runs with fsync off: what it acknowledges is lost when its machine fails"
                        );
                    }
                    if let Some(since) = self.away.take() {
                        info!(seconds = since.elapsed().as_secs(), "the database is back");
                    }
                    self.random ^= u64::from_be_bytes(*connection.draw().last_chunk().unwrap_or(&[0; 8]));
                    (self.connection, self.used) = (Some(connection), Instant::now());
                }
                Err(error) => {
                    let since = *self.away.get_or_insert_with(|| {
                        warn!(reason = %error.fault, "the database cannot be connected to");
                        began
                    });
                    self.failed = Some((Instant::now(), error.fault.clone()));
                    if error.recovery == Recovery::None || since.elapsed() >= AWAY {
                        return Err(error.fault);
                    }
                    self.pause(attempt + 4);
                    attempt += 1;
                }
            }
        }
        Ok(())
    }

    /// Runs `script` over one snapshot; over another one and a fresh connection when that was lost beneath it.
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

    /// Runs `script` over one snapshot, once: it may have passed on what it has read.
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
        Err(Fault::Unavailable("database: no connection lasts".to_owned()))
    }

    /// Runs `script` over one snapshot; says what is to be done about what went wrong beneath it.
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
        // What was read is true, however the transaction ends.
        if recovery == Recovery::Reconnect || (session.began && session.send_plain("COMMIT").is_err()) {
            self.connection = None;
        }
        self.used = Instant::now();
        Ok((result, recovery))
    }

    /// Runs `script` in one transaction, again where that helps.
    #[cfg(test)]
    pub(super) fn write<T>(
        &mut self,
        script: &impl Fn(&mut Tx<'_>) -> Result<T, ScriptError>,
    ) -> Result<Scripted<T>, Fault> {
        self.transact(&mut |session: &mut PostgresSession<'_>| run(session, script))
    }

    /// Runs `script` in one transaction, again where that helps, and gives it up where a lock is not had within `bound`,
    /// which is a setting; after `until` nothing is begun or committed.
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

    /// Runs `attempt` in one transaction, which commits when it ends well; again where that helps.
    pub(super) fn transact<T>(
        &mut self,
        attempt: &mut impl FnMut(&mut PostgresSession<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.transact_until(Instant::now() + self.trying, Locks::Wait, attempt)
    }

    /// The same; after `until` nothing is begun or committed.
    pub(super) fn transact_until<T>(
        &mut self,
        until: Instant,
        locks: Locks,
        attempt: &mut impl FnMut(&mut PostgresSession<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let late = || Fault::new("database: a transaction took too long to be committed");
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
                Ended::Held(fault) if locks == Locks::Leave => {
                    self.held = true;
                    return Err(fault);
                }
                Ended::Again(fault) | Ended::Held(fault) => {
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

    /// Runs `attempt` in one transaction and ends that, without trying it again.
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
            Ended::Failed(fault) | Ended::Again(fault) | Ended::Held(fault) => Err(fault),
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
                self.committing = began.elapsed();
                self.count = matches!(ended, Ended::Done(_)).then_some(session.count);
                if recovery == Recovery::Reconnect {
                    self.connection = None;
                }
                self.used = Instant::now();
                return ended;
            }
        };
        // Without an answer the transaction is gone with its connection.
        if recovery == Recovery::Reconnect || (session.began && session.send_plain("ROLLBACK").is_err()) {
            self.connection = None;
        }
        self.used = Instant::now();
        ended
    }

    /// Whether the transaction of this number has committed. If not, it never will.
    pub(super) fn has_committed(&mut self, number: [u8; 16]) -> Result<bool, Fault> {
        let began = Instant::now();
        let mut attempt = 0;
        loop {
            self.connection = None;
            let answer = self.connect().and_then(|()| self.ask(number));
            if answer.is_err() {
                // Whatever has become of the question, the connection where it was asked is not used again.
                self.connection = None;
            }
            match answer {
                Ok(committed) => {
                    info!(
                        committed,
                        "the connection was lost while a transaction committed; it is known how it ended"
                    );
                    return Ok(committed);
                }
                Err(fault) if began.elapsed() >= ASKING => {
                    let why = "it is not known whether a transaction has committed";
                    return Err(Fault::new(format!("database: {why}: {fault}")));
                }
                Err(fault) => debug!(reason = %fault, "it is asked again how a transaction ended"),
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
        // A transaction that is under way is waited for.
        let mut answers = session.send(vec![step(ASK), step(ANSWER)])?;
        let row = answers.pop().and_then(|mut answer| answer.rows.pop());
        if row.ok_or_else(|| Fault::new("database: a row just written is not there"))?.integer()? == 0 {
            // Its row is to be seen, and need not have come to the standbys that COMMIT waits for: after a crash no
            // caller waits for them any more. What is written here comes after it, and so does its COMMIT.
            session.commit(vec![step(CONFIRM)])?;
            return Ok(true);
        }
        // Once this row is there for good, the transaction cannot leave its own.
        session.commit(Vec::new()).map(|()| false)
    }

    /// Waits a little, the longer the more attempts were made, and not as long as others do.
    fn pause(&mut self, attempt: u32) {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let longest = FIRST_PAUSE.saturating_mul(1 << attempt.min(16)).min(LONGEST_PAUSE);
        let part = u32::try_from(self.random >> 40).unwrap_or_default();
        let pause = longest / 2 + (longest / 2).mul_f64(f64::from(part) / f64::from(1 << 24));
        // The timer belongs to the runtime, and is made within it.
        self.runtime.block_on(async { tokio::time::sleep(pause).await });
    }
}

/// Commits; says what came of it, and what is to be done about the connection.
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
        // Whatever became of a transaction that wrote nothing, what it read is true.
        Recovery::Reconnect => Ended::Done(value),
        Recovery::Again | Recovery::Held | Recovery::None => error.ended(),
    };
    (ended, error.recovery)
}

impl DatabaseError {
    /// What it means for an attempt that has not begun to commit.
    fn ended<T>(&self) -> Ended<T> {
        let fault = self.fault.clone();
        match self.recovery {
            Recovery::Again | Recovery::Reconnect => Ended::Again(fault),
            Recovery::Held => Ended::Held(fault),
            Recovery::None => Ended::Failed(fault),
        }
    }
}
