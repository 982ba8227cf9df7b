//! A connection as the session of a transaction. What needs no answer at once travels with what does.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::super::tx::{Backend, Row, Session, Tally, Tx, Value};
use super::connection::{Connection, Parameter, Ran, Step};
use super::database_error::{DatabaseError, Recovery};
use super::purpose::{DOUBTFUL, Purpose};
use crate::error::{Fault, Refusal};
use crate::model::call::ScriptError;

/// A transaction on a connection. It begins with the first statement.
pub(super) struct PostgresSession<'a> {
    runtime: &'a Runtime,
    connection: &'a mut Connection,
    purpose: Purpose,
    waiting: Vec<Step>,
    /// The places in `waiting` of what is counted.
    counted: Vec<usize>,
    /// How many rows those changed that were counted.
    pub(super) count: usize,
    /// Whether anything was sent.
    pub(super) began: bool,
    /// Whether anything may have been written.
    pub(super) wrote: bool,
    /// The number of the transaction, where a statement of its own leaves it.
    pub(super) left: Option<[u8; 16]>,
    /// What went wrong first. Nothing can be done in the transaction after that.
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
            left: None,
            error: None,
        }
    }

    /// Has `step` sent with what is sent next, at the latest with COMMIT.
    pub(super) fn later(&mut self, step: Step) {
        match (self.waiting.last_mut(), step) {
            // Each message is answered by itself, and each answer is sent, and wakes the waiter: texts go as one.
            (Some(Step::Plain(before)), Step::Plain(text)) => {
                let before = before.to_mut();
                before.push_str("; ");
                before.push_str(&text);
            }
            (_, step) => self.waiting.push(step),
        }
    }

    /// The same, for a statement that writes.
    pub(super) fn write_later(&mut self, sql: &'static str, parameters: Vec<Parameter>) {
        self.wrote = true;
        self.later(Step::Run(sql, parameters));
    }

    /// The same; how many rows it changes is known once it was sent.
    pub(super) fn later_counted(&mut self, step: Step) {
        self.counted.push(self.waiting.len());
        self.waiting.push(step);
    }

    /// Sends what waits and `steps`, at once; gives what came of `steps`.
    pub(super) fn send(&mut self, steps: Vec<Step>) -> Result<Vec<Ran>, Fault> {
        if self.error.is_some() {
            return Err(Fault::new("database: the transaction has met an error before"));
        }
        let mut all = std::mem::take(&mut self.waiting);
        let before = all.len();
        all.extend(steps);
        self.began = true;
        let doubted = self.connection.doubted();
        let sending = self.connection.send_all(all);
        let ended = match self.purpose.patience() {
            None => self.runtime.block_on(sending),
            Some(limit) => self.runtime.block_on(within(limit, doubted, sending)).unwrap_or_else(|mute| {
                if mute == Mute::Found {
                    self.connection.note_mute();
                }
                Err(DatabaseError::lost("it does not answer in time"))
            }),
        };
        match ended {
            Ok(mut ran) => {
                let counted = std::mem::take(&mut self.counted);
                self.count +=
                    counted.iter().filter_map(|place| ran.get(*place)).map(|ran| ran.count).sum::<usize>();
                Ok(ran.split_off(before))
            }
            Err(error) => {
                let told = error.fault.clone();
                self.error = Some(error);
                Err(told)
            }
        }
    }

    /// Asks whether the other end is there. No transaction is begun.
    pub(super) fn ping(&mut self) -> Result<(), Fault> {
        self.send_plain("/* session.ping */ SELECT 1")
    }

    /// Sends `steps` and COMMIT. An answer with a warning is none: an operator has told the database not to wait any
    /// longer for the standby, and what is committed may be lost with its machine.
    pub(super) fn commit(&mut self, mut steps: Vec<Step>) -> Result<(), Fault> {
        self.connection.forget_warnings();
        steps.push(Step::plain("COMMIT"));
        self.send(steps)?;
        if !self.connection.was_warned() {
            return Ok(());
        }
        let error = DatabaseError::lost("it has committed without waiting for its standby");
        let told = error.fault.clone();
        self.error = Some(error);
        Err(told)
    }

    /// Sends a text without values and without a result, and nothing else.
    pub(super) fn send_plain(&mut self, text: &'static str) -> Result<(), Fault> {
        self.waiting.clear();
        self.counted.clear();
        self.send(vec![Step::plain(text)]).map(|_| ())
    }

    fn run(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Ran, Fault> {
        Ok(self.send(vec![step(sql, parameters)])?.pop().unwrap_or_default())
    }

    /// A number that no transaction has had before.
    pub(super) fn draw(&mut self) -> [u8; 16] {
        self.connection.draw()
    }

    /// Draws the number of this transaction, for a statement that leaves it in `commits` with what else it writes.
    pub(super) fn leave(&mut self) -> [u8; 16] {
        *self.left.insert(self.connection.draw())
    }
}

/// How an answer was waited for in vain.
#[derive(PartialEq)]
enum Mute {
    /// For as long as it may take.
    Found,
    /// For as long as one may take to a transaction that writes, and the other end is in doubt.
    Doubted,
}

async fn within<T>(
    limit: Duration,
    doubted: impl Future<Output = ()>,
    answer: impl Future<Output = T>,
) -> Result<T, Mute> {
    let given_up = async {
        sleep(DOUBTFUL).await;
        doubted.await;
    };
    tokio::select! {
        biased;
        answer = answer => Ok(answer),
        () = sleep(limit) => Err(Mute::Found),
        () = given_up => Err(Mute::Doubted),
    }
}

fn step(sql: &'static str, parameters: &[Value]) -> Step {
    Step::Run(sql, parameters.iter().cloned().map(Parameter::from).collect())
}

/// Whether a statement, behind its name, is a SELECT.
fn reads(sql: &str) -> bool {
    let text = sql.split_once("*/").map_or(sql, |(_, text)| text);
    text.trim_start().starts_with("SELECT")
}

impl Session for PostgresSession<'_> {
    fn backend(&self) -> Backend {
        Backend::Postgres
    }

    /// Not where the database reports damage, or of anything else that remains.
    fn is_lost(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.recovery != Recovery::None)
    }

    fn hold(&mut self, sql: &'static str, parameters: &[Value]) -> Result<(), Fault> {
        if self.purpose == Purpose::Write {
            // What is held may be a kept answer that is given again: COMMIT waits for where that has to come to.
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
}

/// What a script has come to, and what it has done.
pub(super) type Scripted<T> = (Result<T, Refusal>, Tally);

/// Runs a script over a transaction.
pub(super) fn run<T>(
    session: &mut PostgresSession<'_>,
    script: &impl Fn(&mut Tx<'_>) -> Result<T, ScriptError>,
) -> Result<Scripted<T>, Fault> {
    let mut tx = Tx::new(session);
    let result = settled(script(&mut tx))?;
    Ok((result, tx.into_tally()))
}

/// A refusal is committed like a success.
pub(super) fn settled<T>(result: Result<T, ScriptError>) -> Result<Result<T, Refusal>, Fault> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(ScriptError::Refused(refusal)) => Ok(Err(refusal)),
        Err(ScriptError::Fault(fault)) => Err(fault),
    }
}
