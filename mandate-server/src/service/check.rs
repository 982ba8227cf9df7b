//! Checks whether a database is sound: by the database's own check, by rules for its rows, and by computing the log
//! again.

mod account;
mod chain;
pub(super) mod closing;
mod kept;
mod log;
mod public_log;
mod sealed;
mod signed;
mod usage;

use mandate_core::{DecisionId, EscrowId, ExportId, MandateId, ReviewId};
use serde::Serialize;

use crate::error::Fault;
use crate::model::master_key::MasterKey;
use crate::store::sql::check::{self as rows, IdKind};
use crate::store::sql::checksums::{self, DamagedRow};
use crate::store::sql::escrows;
use crate::store::tx::{Tx, Value};
use crate::store::upkeep;

pub(super) use usage::instants;

/// How many findings of one kind are reported. A damaged database may have any number.
pub const MAX_FINDINGS: i64 = 1_000;
/// What is found where a checksum does not hold, and what is expected.
const CHECKSUM: (&str, &str) = ("a checksum of other values", "the checksum of its values");

/// An error in the database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The table.
    pub table: String,
    /// The number of the environment. None if the row belongs to no tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<i64>,
    /// The row. None if the finding is about the whole table or database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The agent, where the row is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The place among the agent's decisions: of a decision its own, of a mandate the first that it governs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    /// What was found.
    pub found: String,
    /// What a sound database has instead.
    pub expected: String,
}

impl Finding {
    fn whole(table: impl Into<String>, found: impl Into<String>, expected: impl Into<String>) -> Self {
        let (table, found, expected) = (table.into(), found.into(), expected.into());
        Self { table, environment: None, id: None, agent: None, sequence: None, found, expected }
    }

    fn row(
        table: &str,
        environment: i64,
        id: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let whole = Self::whole(table, found, expected);
        Self { environment: Some(environment), id: Some(id.into()), ..whole }
    }

    /// The same, about a place among an agent's decisions.
    fn of(self, agent: Option<String>, sequence: Option<i64>) -> Self {
        Self { agent, sequence, ..self }
    }
}

/// Receives the findings and the progress of a check.
pub trait Listener {
    /// An error was found.
    fn finding(&mut self, finding: Finding);

    /// `decisions` of the `of` decisions have been checked.
    fn looked_at(&mut self, decisions: i64, of: i64);

    /// Something that is no error, and that an operator may want otherwise.
    fn note(&mut self, note: &str) {
        let _ = note;
    }
}

/// Checks what can be checked without the log: the file, the schema, and the rules for rows. Returns true if the
/// schema is the newest, so that the log can be checked too.
///
/// # Errors
/// The database does not answer.
pub fn quick(tx: &mut Tx<'_>, listener: &mut dyn Listener) -> Result<bool, Fault> {
    match upkeep::damage(tx) {
        Ok(damage) => {
            for found in damage {
                listener.finding(Finding::whole("database", found, "pages and indexes that are whole"));
            }
        }
        Err(fault) if fault.hides_the_database() => return Err(fault),
        Err(fault) => {
            listener.finding(unreadable(&fault));
            return Ok(false);
        }
    }
    let schema = upkeep::schema_in(tx)?;
    if !schema.is_newest() {
        let expected = format!("version {}", schema.newest);
        listener.finding(Finding::whole("refinery_schema_history", schema.found(), expected));
        return Ok(false);
    }
    for (table, other) in upkeep::dangling(tx)? {
        listener.finding(Finding::whole(table, format!("a row refers to {other}"), "a row that is there"));
    }
    if !upkeep::has_page_checksums(tx)? {
        listener.note(
            "data_checksums is off: PostgreSQL does not notice a flipped bit in a page; stop it and run \
             `pg_checksums --enable`",
        );
    }
    if let Some(end) = upkeep::partitions_short(tx)? {
        listener.note(&format!(
            "the partitions of decisions and events end at {end}: run `mandate-server migrate` with the role that owns the \
             tables"
        ));
    }
    for guarded in checksums::deciding(tx) {
        checked(tx, guarded.table, |tx, found| guarded.broken(tx, found), listener)?;
    }
    checked(tx, "escrows", |tx, found| escrows::broken(tx, found), listener)?;
    sealed::lost(tx, listener)?;
    for rule in rows::rules(tx) {
        let breaches = rows::breaches(tx, rule, MAX_FINDINGS)?;
        let more = i64::try_from(breaches.len()).is_ok_and(|found| found == MAX_FINDINGS);
        for breach in breaches {
            let found = rule.found.replace("{}", &shown(&breach.other, rule.other));
            let id = shown(&breach.id, rule.of);
            let finding = Finding::row(rule.table, breach.environment, id, found, rule.expected);
            listener.finding(finding.of(breach.agent, breach.sequence));
        }
        if more {
            listener.finding(Finding::whole(
                rule.table,
                format!("{MAX_FINDINGS} rows or more"),
                rule.expected,
            ));
        }
    }
    Ok(true)
}

/// Reports the rows of a table whose checksum does not hold.
fn checked(
    tx: &mut Tx<'_>,
    table: &'static str,
    broken: impl FnOnce(&mut Tx<'_>, &mut dyn FnMut(DamagedRow)) -> Result<(), Fault>,
    listener: &mut dyn Listener,
) -> Result<(), Fault> {
    let mut count = 0;
    broken(tx, &mut |broken| {
        count += 1;
        if count <= MAX_FINDINGS {
            let whole = Finding::whole(table, CHECKSUM.0, CHECKSUM.1);
            let id = Some(broken.id).filter(|id| !id.is_empty());
            listener.finding(Finding { environment: broken.environment, id, ..whole });
        }
    })?;
    if count > MAX_FINDINGS {
        listener.finding(Finding::whole(table, format!("{count} such checksums"), CHECKSUM.1));
    }
    Ok(())
}

/// Checks everything: what [`quick`] does, each signature, each verdict and the metering computed again from the
/// log, the checksums of what is written down, the answers kept under idempotency keys among it, what people have signed,
/// whether what is sealed opens under `master`, and the public logs. Without the master key what the rows say is not compared
/// with the public logs, but for their tokens.
///
/// # Errors
/// The database does not answer.
pub fn full(tx: &mut Tx<'_>, master: Option<&MasterKey>, listener: &mut dyn Listener) -> Result<(), Fault> {
    if !quick(tx, listener)? {
        return Ok(());
    }
    let mut counters = usage::Counters::default();
    log::walk(tx, &mut counters, listener)?;
    counters.end(tx, listener)?;
    for guarded in checksums::written() {
        checked(tx, guarded.table, |tx, found| guarded.broken(tx, found), listener)?;
    }
    kept::walk(tx, listener)?;
    signed::walk(tx, listener)?;
    let secrets = sealed::open(tx, master, listener)?;
    public_log::walk(tx, secrets.as_ref(), listener)
}

/// Whether the database still answers. Once the connection or the transaction has failed, every further row would be a
/// finding without a meaning.
pub fn answers(tx: &mut Tx<'_>) -> bool {
    rows::answers(tx).is_ok()
}

/// Whether an error that ends a check is damage, and so a finding. A file is read by this process: what hides it has a fault
/// of its own. PostgreSQL has many errors that say nothing about what is stored, so only those count that do: a page or an
/// index that it cannot read, or a table or column that the newest schema has and the database does not.
#[must_use]
pub fn is_damage(fault: &Fault, is_remote: bool) -> bool {
    if is_remote {
        matches!(fault, Fault::Corrupt(_) | Fault::Schema(_))
    } else {
        !fault.hides_the_database()
    }
}

/// The finding that the database cannot be read, or no further.
#[must_use]
pub fn unreadable(fault: &Fault) -> Finding {
    Finding::whole("database", fault.to_string(), "pages and indexes that are whole")
}

/// How many rows the main tables have.
///
/// # Errors
/// The database does not answer.
pub fn counts(tx: &mut Tx<'_>) -> Result<Vec<(&'static str, i64)>, Fault> {
    rows::counts(tx)
}

/// An id or another value, in a readable form.
fn shown(value: &Value, of: IdKind) -> String {
    let id = match value {
        Value::Null => return "none".to_owned(),
        Value::Integer(number) => return number.to_string(),
        Value::Text(text) => return text.clone(),
        Value::Blob(bytes) => <[u8; 16]>::try_from(bytes.as_slice()),
    };
    let Ok(id) = id else { return "bytes that are no id".to_owned() };
    match of {
        IdKind::Itself => "bytes".to_owned(),
        IdKind::Decision => DecisionId::from_bytes(id).to_string(),
        IdKind::Mandate => MandateId::from_bytes(id).to_string(),
        IdKind::Review => ReviewId::from_bytes(id).to_string(),
        IdKind::Escrow => EscrowId::from_bytes(id).to_string(),
        IdKind::Export => ExportId::from_bytes(id).to_string(),
    }
}
