//! One transaction as scripts see it: SQL text, parameters and rows. It is the same for every database.
#![allow(clippy::missing_errors_doc, reason = "each of these fails when the database does")]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use mandate_core::{DecisionId, Verdict};

use super::decider::{AgentContext, DecisionAndReview};
use super::uncounted::Uncounted;
use crate::error::Fault;
use crate::model::records::{AgentKey, DecisionRecord, Mode};

/// A value in the database.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// NULL.
    Null,
    /// A number or an instant in milliseconds.
    Integer(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// Shows only the type, since values hold tenants' data and hashes of keys.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Integer(_) => "integer",
            Self::Text(_) => "text",
            Self::Blob(_) => "blob",
        })
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value)
    }
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(value: [u8; N]) -> Self {
        Self::Blob(value.to_vec())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// One row of a result, read from left to right.
#[derive(Debug)]
pub struct Row {
    values: std::vec::IntoIter<Value>,
    column: usize,
}

impl Row {
    /// A row of these values.
    #[must_use]
    pub fn new(values: Vec<Value>) -> Self {
        Self { values: values.into_iter(), column: 0 }
    }

    /// All columns, from left to right.
    #[must_use]
    pub fn into_values(self) -> Vec<Value> {
        self.values.collect()
    }

    fn next(&mut self) -> Option<Value> {
        self.column += 1;
        self.values.next()
    }

    fn unexpected(&self, wanted: &str) -> Fault {
        Fault::corrupt(format!("database: column {} is not {wanted}", self.column))
    }

    /// The columns that are not read yet.
    #[must_use]
    pub fn rest(&self) -> &[Value] {
        self.values.as_slice()
    }

    /// Passes over the next `count` columns.
    pub fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.next();
        }
    }

    /// The next column, of any type.
    pub fn value(&mut self) -> Result<Value, Fault> {
        self.next().ok_or_else(|| self.unexpected("there"))
    }

    /// The next column, a number.
    pub fn integer(&mut self) -> Result<i64, Fault> {
        self.maybe_integer()?.ok_or_else(|| self.unexpected("an integer"))
    }

    /// The next column, a number or nothing.
    pub fn maybe_integer(&mut self) -> Result<Option<i64>, Fault> {
        match self.next() {
            Some(Value::Integer(value)) => Ok(Some(value)),
            Some(Value::Null) => Ok(None),
            _ => Err(self.unexpected("an integer or null")),
        }
    }

    /// The next column, a text.
    pub fn text(&mut self) -> Result<String, Fault> {
        self.maybe_text()?.ok_or_else(|| self.unexpected("a text"))
    }

    /// The next column, a text or nothing.
    pub fn maybe_text(&mut self) -> Result<Option<String>, Fault> {
        match self.next() {
            Some(Value::Text(value)) => Ok(Some(value)),
            Some(Value::Null) => Ok(None),
            _ => Err(self.unexpected("a text or null")),
        }
    }

    /// The next column, bytes.
    pub fn blob(&mut self) -> Result<Vec<u8>, Fault> {
        match self.next() {
            Some(Value::Blob(value)) => Ok(value),
            _ => Err(self.unexpected("bytes")),
        }
    }

    /// The next column, exactly `N` bytes.
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.maybe_bytes()?.ok_or_else(|| self.unexpected("bytes"))
    }

    /// The next column, exactly `N` bytes or nothing.
    pub fn maybe_bytes<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Fault> {
        match self.next() {
            Some(Value::Null) => Ok(None),
            Some(Value::Blob(value)) => {
                value.try_into().map(Some).map_err(|_| self.unexpected(&format!("{N} bytes")))
            }
            _ => Err(self.unexpected("bytes or null")),
        }
    }
}

/// Which database a transaction runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// One file, and one writer at a time.
    Sqlite,
    /// A database server, and many writers at a time.
    Postgres,
}

/// When decisions are counted in agents' rows; see `sql::uncounted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// With each decision.
    AtOnce,
    /// Later: rows may lack some decisions, and this transaction only reads.
    Reading,
    /// Later: rows may lack some decisions, and this transaction can write.
    Writing,
}

/// What a transaction needs of its database.
pub trait Session {
    /// Which database it is.
    fn backend(&self) -> Backend;

    /// Locks what `sql` finds or names until the transaction ends. Does nothing on a database with one writer, and in a
    /// transaction that only reads.
    fn hold(&mut self, sql: &'static str, parameters: &[Value]) -> Result<(), Fault>;

    /// When decisions are counted in this database.
    fn counting(&self) -> Counting {
        Counting::AtOnce
    }

    /// The decisions that no agent's rows count yet.
    fn uncounted(&mut self) -> Result<Arc<Uncounted>, Fault> {
        Ok(Arc::default())
    }

    /// Runs a statement that returns rows.
    fn query(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Vec<Row>, Fault>;

    /// Runs a statement that changes rows. Returns how many.
    fn execute(&mut self, sql: &'static str, parameters: &[Value]) -> Result<usize, Fault>;

    /// Writes a decision that a script has made, in the way in which this database writes those of a batch: see
    /// [`Tx::keep`].
    fn keep(&mut self, decided: DecisionAndReview, context: AgentContext<'_>) -> Result<Tally, Fault>;
}

/// One transaction.
///
/// A script that decides, or changes what decisions depend on, first locks the agents' rows through [`Tx::hold`].
/// Limits are kept by locks, not by isolation levels. docs/scaling.md has the order of all locks.
pub struct Tx<'a> {
    session: &'a mut dyn Session,
    tally: Tally,
}

/// What a transaction has done that is reported once it has been committed.
#[derive(Debug, Default)]
pub struct Tally {
    /// The decisions that were written: their verdicts, each with its mode.
    pub decided: Vec<(Verdict, Mode)>,
    /// Whether there is something to deliver.
    pub announced: bool,
    /// What deciding rests on, and may have been changed.
    pub touched: Touched,
    /// The newest decision that was written.
    pub newest: Option<DecisionId>,
    /// Agents whose rows lack nothing up to these decisions.
    pub counted: Vec<(AgentKey, DecisionId)>,
}

/// What deciding rests on: of whom a transaction may have changed it.
#[derive(Debug, Default)]
pub struct Touched {
    /// Agents whose mandate, newest requests or metering may be others now.
    pub agents: BTreeSet<AgentKey>,
    /// Environments whose mode may be another now.
    pub environments: BTreeSet<i64>,
}

impl Tally {
    /// Adds what another script of the same transaction has done.
    pub fn add(&mut self, other: Self) {
        self.decided.extend(other.decided);
        self.announced |= other.announced;
        self.newest = self.newest.max(other.newest);
        self.counted.extend(other.counted);
        self.touched.agents.extend(other.touched.agents);
        self.touched.environments.extend(other.touched.environments);
    }
}

impl fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tx")
    }
}

impl<'a> Tx<'a> {
    /// A transaction over an open session.
    pub fn new(session: &'a mut dyn Session) -> Self {
        Self { session, tally: Tally::default() }
    }

    /// Writes a decision that was made on `context`, with the metering that it is counted in, and raises the clock's mark
    /// for it. The script has locked the agent (`sql::agents::lock`), and has read `context` since. It calls this last:
    /// the mark is the last row that a transaction locks.
    pub fn keep(&mut self, decided: DecisionAndReview, context: AgentContext<'_>) -> Result<(), Fault> {
        let tally = self.session.keep(decided, context)?;
        self.tally.add(tally);
        Ok(())
    }

    /// Notes a decision that was written, to be counted when the transaction has been committed.
    pub fn note(&mut self, decision: &DecisionRecord) {
        self.tally.decided.push((decision.verdict, decision.mode));
        self.tally.newest = self.tally.newest.max(Some(decision.id));
    }

    /// Wakes the delivery worker, once the transaction has been committed.
    pub fn announce(&mut self) {
        self.tally.announced = true;
    }

    /// When decisions are counted in this database.
    #[must_use]
    pub fn counting(&self) -> Counting {
        self.session.counting()
    }

    /// Whether what decides is verified as it is read: see `sql::checksums`. On SQLite, where this transaction can write.
    #[must_use]
    pub fn verifies(&self) -> bool {
        self.counting() == Counting::Writing
    }

    /// The decisions that no agent's rows count yet.
    pub fn uncounted(&mut self) -> Result<Arc<Uncounted>, Fault> {
        self.session.uncounted()
    }

    /// Notes that an agent's rows lack nothing up to a decision.
    pub fn counted(&mut self, agent: &AgentKey, up_to: DecisionId) {
        self.tally.counted.push((agent.clone(), up_to));
    }

    /// Notes that what decides on an agent's requests may be changed. A script that takes the agent to decide, or to
    /// change what decides, notes it by that.
    pub fn touch(&mut self, agent: &AgentKey) {
        if !self.tally.touched.agents.contains(agent) {
            self.tally.touched.agents.insert(agent.clone());
        }
    }

    /// Notes that the mode of an environment is changed.
    pub fn touch_environment(&mut self, environment: i64) {
        self.tally.touched.environments.insert(environment);
    }

    /// What was done.
    #[must_use]
    pub fn into_tally(self) -> Tally {
        self.tally
    }

    /// The rows of `sql`.
    pub fn query(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Vec<Row>, Fault> {
        self.session.query(sql, parameters)
    }

    /// The one row of `sql`, if there is one.
    pub fn row(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Option<Row>, Fault> {
        Ok(self.session.query(sql, parameters)?.into_iter().next())
    }

    /// The row of `sql`, which always has one: a count, a setting, the time.
    pub fn one_row(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Row, Fault> {
        self.row(sql, parameters)?.ok_or_else(|| Fault::new("database: a statement without its row"))
    }

    /// Locks what `sql` finds or names until the transaction ends. What is read afterwards stays true until then.
    ///
    /// Only PostgreSQL runs the statement: on SQLite the one writer is the lock. The lock is separate from the
    /// query that reads, since a query that has waited for a lock still sees other rows as they were before.
    pub fn hold(&mut self, sql: &'static str, parameters: &[Value]) -> Result<(), Fault> {
        self.session.hold(sql, parameters)
    }

    /// The text for this kind of database, if one text cannot serve both.
    #[must_use]
    pub fn either(&self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        match self.session.backend() {
            Backend::Sqlite => sqlite,
            Backend::Postgres => postgres,
        }
    }

    /// The kind of database.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.session.backend()
    }

    /// Changes rows. Returns how many.
    pub fn execute(&mut self, sql: &'static str, parameters: &[Value]) -> Result<usize, Fault> {
        self.session.execute(sql, parameters)
    }

    /// Changes exactly one row.
    ///
    /// # Errors
    /// The condition holds for another number of rows, so what the script knew was wrong.
    pub fn execute_one(&mut self, sql: &'static str, parameters: &[Value]) -> Result<(), Fault> {
        match self.session.execute(sql, parameters)? {
            1 => Ok(()),
            n => Err(Fault::corrupt(format!("database: {n} rows instead of one changed by {sql}"))),
        }
    }
}
