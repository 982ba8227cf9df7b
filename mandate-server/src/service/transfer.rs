//! Moves an installation from one database to another: all rows are copied, then compared, then the whole
//! target is checked like any database. A server can start on it only after all of that has succeeded.

use std::collections::BTreeMap;

use mandate_core::{DecisionId, EscrowId, EventId, ExportId, MandateId, ReviewId, Total, WebhookId};
use serde::Serialize;
use serde_json::json;

use super::audit::{self, AuditEntry, Operator};
use super::check::{self, Finding};
use crate::error::Fault;
use crate::model::database;
use crate::store;
use crate::store::transfer::{Source, Table, Target, TargetState, must_be_newest, must_be_possible, tables};
use crate::store::tx::{Tx, Value};
use crate::store::upkeep;

/// The action in audit records.
const ACTION: &str = "transfer";
/// The table whose sums are reported.
const USAGE: &str = "usage";

/// Receives the progress of a transfer.
pub trait Listener: check::Listener {
    /// `rows` of the `of` rows of a table are durable in the target.
    ///
    /// # Errors
    /// The transfer must stop here. It can be continued.
    fn moved(&mut self, table: &str, rows: i64, of: i64) -> Result<(), Fault>;

    /// The rows of a table are the same in both databases.
    fn compared(&mut self, table: &str, rows: i64);
}

/// Spending and requests in one currency, over all months and agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// The total spent.
    pub spent: Total,
    /// How many requests were counted.
    pub requests: i64,
}

/// What was moved, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The source.
    pub from: String,
    /// The target.
    pub to: String,
    /// Whether it is complete.
    pub complete: bool,
    /// The state of the target: `empty`, `gone on with`, or `emptied`, if the source had changed.
    pub target: &'static str,
    /// Rows by table.
    pub rows: BTreeMap<&'static str, i64>,
    /// The metering, by currency.
    pub usage: BTreeMap<String, Sums>,
    /// Rows that the target does not take, [`MAX_UNMOVABLE`] of each table at most. A transfer is refused while there are
    /// any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmovable: Vec<Unmovable>,
}

/// How many rows that cannot be moved are named of each table.
pub const MAX_UNMOVABLE: i64 = 100;

/// A row that cannot be moved: a text in it holds U+0000, which PostgreSQL does not store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmovable {
    /// The table.
    pub table: &'static str,
    /// The id of the object, or the key of the row.
    pub id: String,
    /// The column.
    pub field: String,
}

impl std::fmt::Display for Unmovable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { table, id, field } = self;
        write!(f, "{table} {id}: {field} holds U+0000, which PostgreSQL does not store")
    }
}

/// What becomes of texts with U+0000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nul {
    /// Their rows are named, and nothing is moved.
    Refused,
    /// The target has U+FFFD in its place, except in keys.
    Replaced,
}

/// Reports what a transfer would move, beside a running server. Changes nothing.
///
/// # Errors
/// The source is not sound, the target is not empty, or one of them does not answer.
pub fn dry_run(from: &str, to: &str, nul: Nul) -> Result<Summary, Fault> {
    must_be_possible(from, to)?;
    let (rows, usage, unmovable) = upkeep::snapshot(from, |source| {
        must_be_sound(source, from)?;
        let rows = tables().iter().map(|table| Ok((table.name, table.count(source)?)));
        let rows = rows.collect::<Result<BTreeMap<_, _>, Fault>>()?;
        Ok((rows, usage(source)?, unmovable(source, nul)?))
    })?;
    let begun = store::transfer::look(to)?;
    Ok(Summary { unmovable, ..Summary::new(from, to, begun, rows, usage) })
}

/// Moves an installation, `page` rows at a time. An interrupted transfer continues, or starts over if the
/// source has changed. Of the source only agents' rows change: they count decisions that a server left uncounted.
///
/// # Errors
/// A server has the source open, the target is not empty, the copies differ, or a database does not answer.
pub fn run(
    from: &str,
    to: &str,
    (page, nul): (i64, Nul),
    by: &Operator,
    listener: &mut dyn Listener,
) -> Result<Summary, Fault> {
    must_be_possible(from, to)?;
    let claimed = Source::claim(from)?;
    claimed.read(|source| {
        must_be_sound(source, from)?;
        must_be_movable(source, nul)?;
        let mut target = Target::begin(to, &claimed, by.at)?;
        for table in tables() {
            fill(source, &mut target, table, (page, nul), listener)?;
        }
        let (rows, usage) = upkeep::snapshot(to, |arrived| compare(source, arrived, (page, nul), listener))?;
        must_pass(to, listener)?;
        let summary = Summary { complete: true, ..Summary::new(from, to, target.begun, rows, usage) };
        target.complete(|tx| record(tx, by, &summary))?;
        Ok(summary)
    })
}

impl Summary {
    fn new(
        from: &str,
        to: &str,
        begun: TargetState,
        rows: BTreeMap<&'static str, i64>,
        usage: BTreeMap<String, Sums>,
    ) -> Self {
        let target = match begun {
            TargetState::Fresh => "empty",
            TargetState::GoesOn => "gone on with",
            TargetState::Anew => "emptied",
        };
        Self {
            from: database::redacted(from),
            to: database::redacted(to),
            complete: false,
            target,
            rows,
            usage,
            unmovable: Vec::new(),
        }
    }
}

/// The rows that the target would not take.
fn unmovable(source: &mut Tx<'_>, nul: Nul) -> Result<Vec<Unmovable>, Fault> {
    let mut all = Vec::new();
    for table in tables() {
        let rows = table.unmovable(source, MAX_UNMOVABLE)?.into_iter();
        let rows = rows.filter(|(field, _)| nul == Nul::Refused || table.is_of_key(field));
        all.extend(rows.map(|(field, key)| Unmovable { table: table.name, id: id(table, &key), field }));
    }
    Ok(all)
}

fn must_be_movable(source: &mut Tx<'_>, nul: Nul) -> Result<(), Fault> {
    let unmovable = unmovable(source, nul)?;
    let Some(first) = unmovable.first() else { return Ok(()) };
    let count = unmovable.len();
    Err(Fault::new(format!("{first} ({count} such rows; `mandate-server transfer --dry-run` names them)")))
}

/// What a row is called by people: the ids in its key as the API shows them, without the number of the environment.
fn id(table: &Table, key: &[Value]) -> String {
    let named =
        table.columns.iter().zip(key).filter(|(column, _)| **column != "environment" || key.len() == 1);
    let named: Vec<_> = named.map(|(column, value)| shown(column, value)).collect();
    named.join(" ")
}

fn shown(column: &str, value: &Value) -> String {
    match (column, value) {
        (_, Value::Integer(number)) => number.to_string(),
        (_, Value::Text(text)) => text.escape_debug().to_string(),
        (column, Value::Blob(bytes)) => match (<[u8; 16]>::try_from(bytes.as_slice()), column) {
            (Ok(bytes), "mandate") => MandateId::from_bytes(bytes).to_string(),
            (Ok(bytes), "decision") => DecisionId::from_bytes(bytes).to_string(),
            (Ok(bytes), "review") => ReviewId::from_bytes(bytes).to_string(),
            (Ok(bytes), "webhook") => WebhookId::from_bytes(bytes).to_string(),
            (Ok(bytes), "event") => EventId::from_bytes(bytes).to_string(),
            (Ok(bytes), "escrow") => EscrowId::from_bytes(bytes).to_string(),
            (Ok(bytes), "export") => ExportId::from_bytes(bytes).to_string(),
            _ => {
                let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
                digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
            }
        },
        _ => "?".to_owned(),
    }
}

/// Inconsistent references in the source would fail in the target.
fn must_be_sound(source: &mut Tx<'_>, name: &str) -> Result<(), Fault> {
    must_be_newest(source, name)?;
    let mut first = First::default();
    check::quick(source, &mut first)?;
    first.refuse("the source is not sound")
}

/// Runs the whole check on the target.
fn must_pass(to: &str, listener: &mut dyn Listener) -> Result<(), Fault> {
    let mut first = First { to: Some(listener), ..First::default() };
    upkeep::snapshot(to, |tx| check::full(tx, None, &mut first))?;
    first.refuse("each row has arrived as it was, and the whole is not sound, nor was the source")
}

/// The rows of a page of the source as the target has them.
fn page_of(
    source: &mut Tx<'_>,
    table: &Table,
    after: Option<&[Value]>,
    (page, nul): (i64, Nul),
) -> Result<Vec<Vec<Value>>, Fault> {
    let mut rows = table.page(source, after, page)?;
    if nul == Nul::Replaced {
        rows.iter_mut().try_for_each(|row| table.replace_nul(row))?;
    }
    Ok(rows)
}

/// Copies the rows of a table that are not in the target yet.
fn fill(
    source: &mut Tx<'_>,
    target: &mut Target,
    table: &'static Table,
    pages: (i64, Nul),
    listener: &mut dyn Listener,
) -> Result<(), Fault> {
    let of = table.count(source)?;
    let (mut last, mut done) = target.arrived(table)?;
    loop {
        let rows = page_of(source, table, last.as_deref(), pages)?;
        let Some(newest) = rows.last() else { return Ok(()) };
        last = Some(table.key(newest));
        target.put(table, &rows)?;
        done += count(&rows);
        listener.moved(table.name, done, of)?;
    }
}

/// The number of rows in each table, and the sums of the metering.
type Compared = (BTreeMap<&'static str, i64>, BTreeMap<String, Sums>);

/// Compares the rows of both databases. Returns their number and the sums of the metering.
fn compare(
    source: &mut Tx<'_>,
    arrived: &mut Tx<'_>,
    pages: (i64, Nul),
    listener: &mut dyn Listener,
) -> Result<Compared, Fault> {
    let mut rows = BTreeMap::new();
    for table in tables() {
        let (mut last, mut seen) = (None, 0);
        loop {
            let there = page_of(source, table, last.as_deref(), pages)?;
            let here = table.page(arrived, last.as_deref(), pages.0)?;
            if there != here {
                let at = there.iter().zip(&here).take_while(|(one, other)| one == other).count();
                return Err(differs(table, seen + i64::try_from(at).unwrap_or_default() + 1));
            }
            let Some(newest) = there.last() else { break };
            last = Some(table.key(newest));
            seen += count(&there);
        }
        if [table.count(source)?, table.count(arrived)?] != [seen; 2] {
            return Err(differs(table, seen));
        }
        listener.compared(table.name, seen);
        rows.insert(table.name, seen);
    }
    let (was, is) = (usage(source)?, usage(arrived)?);
    if was != is {
        return Err(Fault::new(format!("the sums of the metering were {was:?}, and are {is:?}")));
    }
    Ok((rows, is))
}

fn differs(table: &Table, row: i64) -> Fault {
    Fault::new(format!(
        "row {row} of {} is not the same in both databases: drop the target, create it anew, and run the transfer again",
        table.name
    ))
}

/// The metering, summed by currency.
fn usage(tx: &mut Tx<'_>) -> Result<BTreeMap<String, Sums>, Fault> {
    const PAGE: i64 = 1_000;
    let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
    let Some(table) = tables().iter().find(|table| table.name == USAGE) else { return Ok(sums) };
    let mut last = None;
    loop {
        let rows = table.page(tx, last.as_deref(), PAGE)?;
        let Some(newest) = rows.last() else { return Ok(sums) };
        last = Some(table.key(newest));
        for row in &rows {
            let columns = ["currency", "spent", "requests"].map(|column| table.value(row, column));
            let [Some(Value::Text(currency)), Some(Value::Text(spent)), Some(Value::Integer(requests))] =
                columns
            else {
                return Err(Fault::new(
                    "database: a row of the metering cannot be read: its currency, spending or requests have another type",
                ));
            };
            let sum = sums.entry(currency.clone()).or_insert(Sums { spent: Total::ZERO, requests: 0 });
            sum.spent = [sum.spent, Total::parse(spent)?].into_iter().sum();
            sum.requests = sum.requests.saturating_add(*requests);
        }
    }
}

fn count(rows: &[Vec<Value>]) -> i64 {
    i64::try_from(rows.len()).unwrap_or(i64::MAX)
}

fn record(tx: &mut Tx<'_>, by: &Operator, summary: &Summary) -> Result<(), Fault> {
    let details = json!({ "from": summary.from, "rows": summary.rows, "usage": summary.usage });
    let (organization, environment) = (None, None);
    audit::write(
        tx,
        by,
        &AuditEntry { action: ACTION, organization, environment, subject: &summary.to, details },
    )
}

/// Keeps the first finding and the number of findings, and passes on the progress of a check.
#[derive(Default)]
struct First<'a> {
    finding: Option<Finding>,
    count: u64,
    to: Option<&'a mut dyn Listener>,
}

impl First<'_> {
    fn refuse(self, what: &str) -> Result<(), Fault> {
        let Some(Finding { table, found, expected, .. }) = self.finding else { return Ok(()) };
        let (count, remedy) = (self.count, "`mandate-server check` of the source shows all of them");
        Err(Fault::new(format!(
            "{what}: {found} in {table}, where {expected} is expected ({count} findings; {remedy})"
        )))
    }
}

impl check::Listener for First<'_> {
    fn finding(&mut self, finding: Finding) {
        self.count += 1;
        self.finding.get_or_insert(finding);
    }

    fn looked_at(&mut self, decisions: i64, of: i64) {
        if let Some(listener) = &mut self.to {
            listener.looked_at(decisions, of);
        }
    }
}
