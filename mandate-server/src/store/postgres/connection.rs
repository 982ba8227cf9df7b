//! One connection: prepared statements, typed values, and pipelined statements.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_util::TryStreamExt as _;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{AsyncMessage, Client, Config, Statement};

use super::super::tx::{Row, Value};
use super::address::Address;
use super::database_error::DatabaseError;
use super::room::Open;
use crate::error::Fault;

/// Draws the number that names the connection's transactions, and asks for the time and whether commits are durable.
const GREET: &str = "/* connection.greet */ SELECT uuid_send(gen_random_uuid()),
    extract(epoch FROM clock_timestamp())::bigint, current_setting('fsync')";
/// The time, in seconds.
pub(super) const CLOCK: &str = "/* connection.clock */ SELECT extract(epoch FROM clock_timestamp())::bigint";
/// After so long a connection reads the database's clock again, which may have been set.
pub(super) const CURRENT: Duration = Duration::from_mins(10);
/// How many partitions `commits` has. Each has the numbers that begin with its place.
pub(super) const RING: u64 = 4;
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// A value of a statement. Its type is needed where the statement was not prepared.
pub(super) struct Parameter {
    value: Box<dyn ToSql + Sync + Send>,
    kind: Type,
}

impl Parameter {
    /// An array of one type.
    pub(super) fn array(values: impl ToSql + Sync + Send + 'static, kind: Type) -> Self {
        Self { value: Box::new(values), kind }
    }
}

impl From<Value> for Parameter {
    fn from(value: Value) -> Self {
        let kind = match &value {
            Value::Null => Type::UNKNOWN,
            Value::Integer(_) => Type::INT8,
            Value::Text(_) => Type::TEXT,
            Value::Blob(_) => Type::BYTEA,
        };
        Self { value: Box::new(value), kind }
    }
}

/// One message of a pipeline.
pub(super) enum Step {
    /// Texts without parameters or results.
    Plain(Cow<'static, str>),
    /// A statement.
    Run(&'static str, Vec<Parameter>),
}

impl Step {
    pub(super) fn plain(text: &'static str) -> Self {
        Self::Plain(Cow::Borrowed(text))
    }
}

/// The result of a statement.
#[derive(Debug, Default)]
pub(super) struct StatementResult {
    pub(super) rows: Vec<Row>,
    /// How many rows were found or changed.
    pub(super) count: usize,
}

/// A connection.
pub(super) struct Connection {
    client: Client,
    prepared: Option<HashMap<(usize, usize), Statement>>,
    seed: [u8; 16],
    drawn: u64,
    /// The database's time in seconds, and when it was read.
    shown: (u64, Instant),
    /// Whether the database says that its commits survive a crash.
    pub(super) durable: bool,
    /// Whether the database has sent a warning.
    warned: Arc<AtomicBool>,
    /// How often the peer did not answer in time; and that number when this connection was opened.
    unresponsive: watch::Sender<usize>,
    unresponsive_before: usize,
    /// Counts it among the server's connections.
    pub(super) open: Option<Open>,
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<StatementResult, DatabaseError>> + 'a>>;

impl Connection {
    /// Connects to the first host that answers, within a time limit for each. The current runtime drives the
    /// connection.
    pub(super) async fn open(address: &Address) -> Result<Self, DatabaseError> {
        address.connect(async |host| Self::greet(address, host).await).await
    }

    async fn greet(address: &Address, host: &Config) -> Result<Self, DatabaseError> {
        let unresponsive = address.unresponsive.clone();
        let unresponsive_before = *unresponsive.borrow();
        let (client, mut connection) = host.connect(address.connector()).await?;
        let warned = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&warned);
        tokio::spawn(async move {
            // The connection's users learn of its end from their calls. Messages of the database come before
            // its answers.
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if matches!(message, AsyncMessage::Notice(notice) if *notice.code() == SqlState::WARNING) {
                    noted.store(true, Ordering::SeqCst);
                }
            }
        });
        let prepared = address.prepares.then(HashMap::new);
        let (seed, drawn, shown) = ([0; 16], 0, (0, Instant::now()));
        let mut connection = Self {
            client,
            prepared,
            seed,
            drawn,
            shown,
            durable: false,
            warned,
            unresponsive,
            unresponsive_before,
            open: None,
        };
        let greeted = connection.send(vec![Step::Run(GREET, Vec::new())]).await?.rows.pop();
        let mut row = greeted.ok_or_else(|| DatabaseError::other("database: a greeting without a row"))?;
        connection.seed = row.bytes()?;
        connection.note_time(row.integer()?);
        connection.durable = row.text()? == "on";
        Ok(connection)
    }

    /// Whether the connection is known to be closed.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Whether the database's clock is to be read again.
    pub(super) fn is_outdated(&self) -> bool {
        self.shown.1.elapsed() >= CURRENT
    }

    /// Notes what the database's clock shows, in seconds.
    pub(super) fn note_time(&mut self, seconds: i64) {
        self.shown = (seconds.unsigned_abs(), Instant::now());
    }

    /// Notes that the peer did not answer in time, so that other connections to it need not wait as long.
    pub(super) fn note_unresponsive(&self) {
        self.unresponsive.send_modify(|times| *times += 1);
    }

    /// Whether any connection to the peer got no answer in time since this one was opened.
    pub(super) fn is_doubtful(&self) -> bool {
        *self.unresponsive.borrow() != self.unresponsive_before
    }

    /// Waits until that is the case.
    pub(super) fn doubted(&self) -> impl Future<Output = ()> + 'static {
        let (mut unresponsive, before) = (self.unresponsive.subscribe(), self.unresponsive_before);
        async move {
            if unresponsive.wait_for(|times| *times != before).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Forgets the database's warnings.
    pub(super) fn forget_warnings(&self) {
        self.warned.store(false, Ordering::SeqCst);
    }

    /// Whether the database has sent a warning since.
    pub(super) fn was_warned(&self) -> bool {
        self.warned.load(Ordering::SeqCst)
    }

    /// A number that no transaction has had before. It begins with the day's place in the ring.
    pub(super) fn draw(&mut self) -> [u8; 16] {
        self.drawn += 1;
        let mut number = (u128::from_be_bytes(self.seed) ^ u128::from(self.drawn)).to_be_bytes();
        let (shown, since) = self.shown;
        if let Some(first) = number.first_mut() {
            *first = place((shown + since.elapsed().as_secs()) / DAY_SECONDS);
        }
        number
    }

    /// Sends `steps` in one pipeline and waits for all answers. Returns the last result, or the first error.
    pub(super) async fn send(&mut self, steps: Vec<Step>) -> Result<StatementResult, DatabaseError> {
        Ok(self.send_all(steps).await?.pop().unwrap_or_default())
    }

    /// Sends `steps` in one pipeline and waits for all answers. Returns each result, or the first error.
    pub(super) async fn send_all(&mut self, steps: Vec<Step>) -> Result<Vec<StatementResult>, DatabaseError> {
        for step in &steps {
            if let Step::Run(sql, _) = step {
                self.prepare(sql).await?;
            }
        }
        let ended = join_all(steps.into_iter().map(|step| self.begin(step))).await;
        ended.into_iter().collect()
    }

    async fn prepare(&mut self, sql: &'static str) -> Result<(), DatabaseError> {
        let Some(prepared) = &mut self.prepared else { return Ok(()) };
        if let Entry::Vacant(place) = prepared.entry(key(sql)) {
            place.insert(self.client.prepare(sql).await?);
        }
        Ok(())
    }

    fn begin(&self, step: Step) -> Sent<'_> {
        match step {
            Step::Plain(text) => Box::pin(async move {
                self.client.batch_execute(&text).await?;
                Ok(StatementResult::default())
            }),
            Step::Run(sql, parameters) => Box::pin(self.run(sql, parameters)),
        }
    }

    async fn run(
        &self,
        sql: &'static str,
        parameters: Vec<Parameter>,
    ) -> Result<StatementResult, DatabaseError> {
        let statement = self.prepared.as_ref().and_then(|prepared| prepared.get(&key(sql)));
        let stream = if let Some(statement) = statement {
            let values = parameters.iter().map(|p| &*p.value as &(dyn ToSql + Sync));
            self.client.query_raw(statement, values).await?
        } else {
            let values = parameters.iter().map(|p| (&*p.value as &(dyn ToSql + Sync), p.kind.clone()));
            self.client.query_typed_raw(sql, values).await?
        };
        let mut stream = std::pin::pin!(stream);
        let mut rows = Vec::new();
        while let Some(row) = stream.try_next().await? {
            rows.push(Row::new(values(&row)?));
        }
        let count = stream.rows_affected().and_then(|count| usize::try_from(count).ok());
        Ok(StatementResult { count: count.unwrap_or(rows.len()), rows })
    }
}

/// The place of a day in the ring of `commits`.
pub(super) fn place(day: u64) -> u8 {
    u8::try_from(day % RING).unwrap_or_default()
}

/// A static text is identified by its address and length.
fn key(sql: &'static str) -> (usize, usize) {
    (sql.as_ptr().addr(), sql.len())
}

fn values(row: &tokio_postgres::Row) -> Result<Vec<Value>, DatabaseError> {
    let mut values = Vec::with_capacity(row.len());
    for (number, column) in row.columns().iter().enumerate() {
        values.push(match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(number)?.into(),
            Type::INT4 => row.try_get::<_, Option<i32>>(number)?.map(i64::from).into(),
            Type::TEXT | Type::VARCHAR | Type::NAME => row.try_get::<_, Option<String>>(number)?.into(),
            Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(number)?.into(),
            Type::VOID => Value::Null,
            ref other => return Err(Fault::new(format!("database: a column of type {other}")).into()),
        });
    }
    Ok(values)
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match (self, kind) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Integer(value), &Type::INT8) => value.to_sql(kind, out),
            (Self::Integer(value), &Type::INT4) => i32::try_from(*value)?.to_sql(kind, out),
            (Self::Text(value), &(Type::TEXT | Type::VARCHAR | Type::NAME)) => value.to_sql(kind, out),
            (Self::Blob(value), &Type::BYTEA) => value.to_sql(kind, out),
            _ => Err(format!("{self:?} where {kind} is wanted").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
