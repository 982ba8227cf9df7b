//! A connection in a transaction. Statements whose result is not needed at once are sent with the next that
//! is.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::super::tx::{Backend, Row, Session, Tally, Tx, Value};
use super::super::{AgentContext, DecisionAndReview};
use super::connection::{CLOCK, Connection, Parameter, StatementResult, Step};
use super::database_error::DatabaseError;
use super::keep;
use super::purpose::{DOUBTFUL, Purpose};
use crate::error::{Fault, Refusal};
use crate::model::call::ScriptError;

/// A transaction on a connection. It begins with its first statement.
pub(super) struct PostgresSession<'a> {
    runtime: &'a Runtime,
    connection: &'a mut Connection,
    purpose: Purpose,
    waiting: Vec<Step>,
    /// The indexes in `waiting` of the statements whose rows are counted.
    counted: Vec<usize>,
    /// How many rows the counted statements changed.
    pub(super) count: usize,
    /// Whether anything was sent.
    pub(super) began: bool,
    /// Whether anything may have been written.
    pub(super) wrote: bool,
    /// Whether a statement that took too long has met a held row.
    meets_rows: bool,
    /// The transaction's number, if one of its own statements writes it to `commits`.
    pub(super) left: Option<[u8; 16]>,
    /// The first error. Nothing more is sent in the transaction after it.
    pub(super) error: Option<DatabaseError>,
}

impl<'a> PostgresSession<'a> {
    pub(super) fn new(runtime: &'a Runtime, connection: &'a mut Connection, purpose: Purpose) -> Self {
        Self {
            runtime,
            connection,
            purpose,
            waiting: vec![Step::plain(purpose.begin())],
            counted: Vec::new(),
            count: 0,
            began: false,
            wrote: false,
            meets_rows: false,
            left: None,
            error: None,
        }
    }

    /// Queues `step`. It is sent with the next message, at the latest with COMMIT.
    pub(super) fn later(&mut self, step: Step) {
        match (self.waiting.last_mut(), step) {
            // The database answers each message separately, and each answer wakes the reader. So texts are
            // joined into one.
            (Some(Step::Plain(before)), Step::Plain(text)) => {
                let before = before.to_mut();
                before.push_str("; ");
                before.push_str(&text);
            }
            (_, step) => self.waiting.push(step),
        }
    }

    /// Queues a statement that writes.
    pub(super) fn write_later(&mut self, sql: &'static str, parameters: Vec<Parameter>) {
        self.wrote = true;
        self.later(Step::Run(sql, parameters));
    }

    /// Queues a statement whose changed rows are counted once it was sent.
    pub(super) fn later_counted(&mut self, step: Step) {
        self.counted.push(self.waiting.len());
        self.waiting.push(step);
    }

    /// Sends the queue and `steps` in one pipeline. Returns the results of `steps`.
    pub(super) fn send(&mut self, steps: Vec<Step>) -> Result<Vec<StatementResult>, Fault> {
        self.send_within(self.purpose.patience(), steps)
    }

    /// As [`Self::send`], with another limit for the answer.
    fn send_within(
        &mut self,
        limit: Option<Duration>,
        steps: Vec<Step>,
    ) -> Result<Vec<StatementResult>, Fault> {
        if self.error.is_some() {
            return Err(Fault::new("database: the transaction has met an error before"));
        }
        let mut all = std::mem::take(&mut self.waiting);
        let before = all.len();
        all.extend(steps);
        self.began = true;
        let doubted = self.connection.doubted();
        let sending = self.connection.send_all(all);
        let ended = match limit {
            None => self.runtime.block_on(sending),
            Some(limit) => {
                self.runtime.block_on(within(limit, doubted, sending)).unwrap_or_else(|timed_out| {
                    if timed_out == TimedOut::Limit {
                        self.connection.note_unresponsive();
                    }
                    Err(DatabaseError::lost("it does not answer in time"))
                })
            }
        };
        match ended {
            Ok(mut ran) => {
                let counted = std::mem::take(&mut self.counted);
                self.count +=
                    counted.iter().filter_map(|place| ran.get(*place)).map(|ran| ran.count).sum::<usize>();
                Ok(ran.split_off(before))
            }
            Err(error) => {
                let error = if self.meets_rows { error.at_a_held_row() } else { error };
                let fault = error.fault.clone();
                self.error = Some(error);
                Err(fault)
            }
        }
    }

    /// As [`Self::send`], for statements that lock rows, and may take `waiting` longer for that. A wait for a lock has its
    /// limit, but behind another waiter there are two waits for one row. So one that took too long as a whole met a held
    /// row too, and so has each that follows in this transaction, COMMIT and what is sent with it included.
    pub(super) fn send_locking(
        &mut self,
        waiting: Duration,
        steps: Vec<Step>,
    ) -> Result<Vec<StatementResult>, Fault> {
        let limit = self.purpose.patience().map(|patience| patience.saturating_add(waiting));
        self.meets_rows = true;
        self.send_within(limit, steps)
    }

    /// Checks that the peer answers, without beginning a transaction.
    pub(super) fn ping(&mut self) -> Result<(), Fault> {
        self.send_plain("/* session.ping */ SELECT 1")
    }

    /// Has the connection read the database's clock, without beginning a transaction.
    pub(super) fn look_at_clock(&mut self) -> Result<(), Fault> {
        self.waiting.clear();
        let ran = self.send(vec![Step::Run(CLOCK, Vec::new())])?.pop().and_then(|mut ran| ran.rows.pop());
        let seconds = ran.ok_or_else(|| Fault::new("database: a time without a row"))?.integer()?;
        self.connection.note_time(seconds);
        Ok(())
    }

    /// Sends `steps` and COMMIT. An answer with a warning counts as none: an operator has cancelled the wait
    /// for the standby, and the commit may be lost with its machine.
    pub(super) fn commit(&mut self, mut steps: Vec<Step>) -> Result<(), Fault> {
        self.connection.forget_warnings();
        steps.push(Step::plain("COMMIT"));
        self.send(steps)?;
        if !self.connection.was_warned() {
            return Ok(());
        }
        let error = DatabaseError::lost("it has committed without waiting for its standby");
        let fault = error.fault.clone();
        self.error = Some(error);
        Err(fault)
    }

    /// Sends one text without parameters or results, and nothing else.
    pub(super) fn send_plain(&mut self, text: &'static str) -> Result<(), Fault> {
        self.waiting.clear();
        self.counted.clear();
        self.send(vec![Step::plain(text)]).map(|_| ())
    }

    fn run(&mut self, sql: &'static str, parameters: &[Value]) -> Result<StatementResult, Fault> {
        Ok(self.send(vec![step(sql, parameters)])?.pop().unwrap_or_default())
    }

    /// A number that no transaction has had before.
    pub(super) fn draw(&mut self) -> [u8; 16] {
        self.connection.draw()
    }

    /// Draws the number of this transaction, for a statement that writes it to `commits` together with other
    /// rows.
    pub(super) fn leave(&mut self) -> [u8; 16] {
        *self.left.insert(self.connection.draw())
    }
}

/// Which time limit an answer exceeded.
#[derive(PartialEq)]
enum TimedOut {
    /// The limit of its transaction.
    Limit,
    /// The shorter limit that holds while the peer is in doubt.
    InDoubt,
}

async fn within<T>(
    limit: Duration,
    doubted: impl Future<Output = ()>,
    answer: impl Future<Output = T>,
) -> Result<T, TimedOut> {
    let given_up = async {
        sleep(DOUBTFUL).await;
        doubted.await;
    };
    tokio::select! {
        biased;
        answer = answer => Ok(answer),
        () = sleep(limit) => Err(TimedOut::Limit),
        () = given_up => Err(TimedOut::InDoubt),
    }
}

fn step(sql: &'static str, parameters: &[Value]) -> Step {
    Step::Run(sql, parameters.iter().cloned().map(Parameter::from).collect())
}

/// Whether a statement is a SELECT, after the name in its text.
fn reads(sql: &str) -> bool {
    let text = sql.split_once("*/").map_or(sql, |(_, text)| text);
    text.trim_start().starts_with("SELECT")
}

impl Session for PostgresSession<'_> {
    fn backend(&self) -> Backend {
        Backend::Postgres
    }

    fn hold(&mut self, sql: &'static str, parameters: &[Value]) -> Result<(), Fault> {
        if self.purpose == Purpose::Write {
            // A locked row may be a kept answer that is replayed: COMMIT then waits until it has reached the
            // standby.
            self.wrote = true;
            self.later(step(sql, parameters));
        }
        Ok(())
    }

    fn query(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Vec<Row>, Fault> {
        self.wrote |= !reads(sql);
        Ok(self.run(sql, parameters)?.rows)
    }

    fn execute(&mut self, sql: &'static str, parameters: &[Value]) -> Result<usize, Fault> {
        self.wrote = true;
        Ok(self.run(sql, parameters)?.count)
    }

    fn keep(&mut self, decided: DecisionAndReview, context: AgentContext<'_>) -> Result<Tally, Fault> {
        keep::keep_one(self, decided, context)
    }
}

/// The result of a script, and what it has counted.
pub(super) type Scripted<T> = (Result<T, Refusal>, Tally);

/// Runs a script in a transaction.
pub(super) fn run<T>(
    session: &mut PostgresSession<'_>,
    script: &impl Fn(&mut Tx<'_>) -> Result<T, ScriptError>,
) -> Result<Scripted<T>, Fault> {
    let mut tx = Tx::new(session);
    let result = split_error(script(&mut tx))?;
    Ok((result, tx.into_tally()))
}

/// A refusal is committed like a success.
pub(super) fn split_error<T>(result: Result<T, ScriptError>) -> Result<Result<T, Refusal>, Fault> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(ScriptError::Refused(refusal)) => Ok(Err(refusal)),
        Err(ScriptError::Fault(fault)) => Err(fault),
    }
}
