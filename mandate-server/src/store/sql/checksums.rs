//! Checksums of rows, so that a flipped bit is a fault and never a verdict. Two cases are left out: the index that finds kept
//! answers can hide one, so that its retry is decided again (docs/operations.md says why); and the last transaction of the
//! write-ahead log cannot be told from one that a crash has cut short.
//!
//! A row's checksum is the CRC-32C of its table's name, its key and its values. On both kinds of database the rows of the
//! log, reviews, events and kept answers have one. On SQLite, whose pages have none, the rows that decide have one too;
//! PostgreSQL sees to its pages itself (`data_checksums`).
//!
//! What decides is verified where it is read to be decided on ([`Tx::verifies`]). A transaction that only reads shows what
//! is there, and `check` finds all that is damaged.
//!
//! An escrow has one checksum for its row, its states and its newest instruction together, so that none of them can be hidden
//! ([`super::escrows`]). It is verified, and that of its decision, when the escrow is moved on and before an instruction is sent.

use std::sync::LazyLock;

use mandate_core::people::CredentialId;
use mandate_core::{DecisionId, EscrowId, EventId, MandateId, PersonId, ReviewId};

use crate::error::Fault;
use crate::store::tx::{Backend, Row, Tx, Value};

/// How many rows are held in memory at a time.
const PAGE: i64 = 1_024;

/// The column that names a row's tenant.
const TENANT: &str = "environment";
/// The key of a table with one row.
const ONE: &str = "one";
/// Bytes of the hash of an API key by which operators know it.
const KEY_ID_BYTES: usize = 6;

/// Environments: whose they are, their policy versions and modes.
pub(in crate::store) static ENVIRONMENTS: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new("environments", 1, "environment organization kind policy_version mode since")
});
/// What of agents' rows decides.
pub(in crate::store) static AGENTS: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new(
        "agents",
        2,
        "environment agent governing recent sequence last_decision newest_month newest_rows",
    )
});
/// Mandates, without when their coming end is announced.
pub(in crate::store) static MANDATES: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new(
        "mandates",
        2,
        "environment mandate agent terms created_at revoked_at replaced_by governs_from revoked_after governed_until",
    )
});
/// The metering.
pub(in crate::store) static USAGE: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new(
        "usage",
        4,
        "environment month agent currency spent requests allow review deny_no_mandate deny_revoked deny_expired \
         deny_limit deny_category deny_velocity",
    )
});
/// API keys, found by their hash, without their names.
pub(in crate::store) static API_KEYS: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new("api_keys", 1, "hash environment agent rate expires_at revoked_at api_key")
});
/// The high-water mark of decisions.
pub(in crate::store) static CLOCK: LazyLock<ChecksummedTable> =
    LazyLock::new(|| ChecksummedTable::new("clock", 1, "one mark held"));
/// Escrows, by their keys: what else is covered is in three tables.
pub(in crate::store) static ESCROWS: LazyLock<ChecksummedTable> =
    LazyLock::new(|| ChecksummedTable::new("escrows", 2, "environment escrow"));
/// Where the uncounted decisions begin.
pub(in crate::store) static UNCOUNTED: LazyLock<ChecksummedTable> =
    LazyLock::new(|| ChecksummedTable::new("uncounted", 1, "one since"));
/// The log.
pub static DECISIONS: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new(
        "decisions",
        2,
        "environment decision sequence decided_at verdict mandate nonce agent amount currency recipient category mode \
         reason denials spent recent_requests supersedes review issuer signing_key signature",
    )
});
/// Reviews.
pub(in crate::store) static REVIEWS: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new(
        "reviews",
        2,
        "environment review decision status waits_for expires_at resolved_at resolved_after fresh reason \
         resolved_by",
    )
});
/// People, found by their ids.
pub(in crate::store) static PEOPLE: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new("people", 2, "environment person name roles may created_at disabled_at")
});
/// Their passkeys.
pub(in crate::store) static PERSON_KEYS: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new(
        "person_keys",
        2,
        "environment credential person key label origin is_synced enrolled_at withdrawn_at",
    )
});
/// Their answers.
pub(in crate::store) static ANSWERS: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new("answers", 2, "environment answer person review mandate at content")
});
/// Events.
pub(in crate::store) static EVENTS: LazyLock<ChecksummedTable> =
    LazyLock::new(|| ChecksummedTable::new("events", 2, "environment event type created_at data"));
/// Answers kept under idempotency keys.
pub(in crate::store) static IDEMPOTENCY: LazyLock<ChecksummedTable> = LazyLock::new(|| {
    ChecksummedTable::new(
        "idempotency",
        3,
        "environment api_key name fingerprint status body sealed created_at",
    )
});

/// A table whose rows have a checksum.
#[derive(Debug)]
pub struct ChecksummedTable {
    /// Its name.
    pub table: &'static str,
    keys: usize,
    /// The columns that the checksum covers, those of the key first.
    columns: Vec<&'static str>,
    /// One row by its key: what is covered, and the checksum.
    row: &'static str,
    seal: &'static str,
    first: &'static str,
    next: &'static str,
}

/// A row whose checksum is not that of its values.
#[derive(Debug)]
pub struct DamagedRow {
    /// The number of its environment. None if it belongs to no tenant.
    pub environment: Option<i64>,
    /// Its key without the environment.
    pub id: String,
}

/// The tables of this kind of database whose rows decide and have a checksum.
#[must_use]
pub fn deciding(tx: &Tx<'_>) -> Vec<&'static ChecksummedTable> {
    match tx.backend() {
        Backend::Sqlite => vec![&ENVIRONMENTS, &API_KEYS, &CLOCK, &AGENTS, &MANDATES, &USAGE, &UNCOUNTED],
        Backend::Postgres => Vec::new(),
    }
}

/// The tables whose rows are written down and have a checksum, without the log, which is checked decision by decision.
#[must_use]
pub fn written() -> [&'static ChecksummedTable; 6] {
    [&REVIEWS, &EVENTS, &IDEMPOTENCY, &PEOPLE, &PERSON_KEYS, &ANSWERS]
}

/// The table of this name, if its rows are written down and have a checksum on both kinds of database.
pub(in crate::store) fn of_both(table: &str) -> Option<&'static ChecksummedTable> {
    written().into_iter().chain([&*DECISIONS]).find(|guarded| guarded.table == table)
}

impl ChecksummedTable {
    /// Statements are cached by their address, so these live as long as the program.
    fn new(table: &'static str, keys: usize, columns: &'static str) -> Self {
        let names: Vec<_> = columns.split(' ').collect();
        let key: Vec<_> = names.iter().copied().take(keys).collect();
        let equal = |from: usize| {
            let pairs = key.iter().enumerate().map(|(n, name)| format!("{name} = ${}", n + from));
            pairs.collect::<Vec<_>>().join(" AND ")
        };
        let (all, order) = (names.join(", "), key.join(", "));
        let places = (1..=keys).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ");
        let (by_key, behind, limit) = (equal(1), equal(2), keys + 1);
        Self {
            table,
            keys,
            columns: names,
            row: format!("/* checksums.{table}.row */ SELECT {all}, checksum FROM {table} WHERE {by_key}")
                .leak(),
            seal: format!("/* checksums.{table}.seal */ UPDATE {table} SET checksum = $1 WHERE {behind}")
                .leak(),
            first: format!(
                "/* checksums.{table}.first */ SELECT {all}, checksum FROM {table} ORDER BY {order} LIMIT $1"
            )
            .leak(),
            next: format!(
                "/* checksums.{table}.next */ SELECT {all}, checksum FROM {table} WHERE ({order}) > ({places})
                    ORDER BY {order} LIMIT ${limit}"
            )
            .leak(),
        }
    }

    /// The checksum of a row whose columns have these values.
    pub(in crate::store) fn checksum_of<'a>(&self, value: impl Fn(&str) -> Option<&'a Value>) -> Value {
        self.checksum(self.columns.iter().map(|name| value(name).unwrap_or(&Value::Null)))
    }

    /// The checksum of a row with these values, those of the key first.
    pub(in crate::store) fn checksum<'a>(&self, values: impl IntoIterator<Item = &'a Value>) -> Value {
        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(self.table.as_bytes());
        let mut add = |kind: u8, value: &[u8]| {
            let [a, b, c, d] = u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes();
            bytes.extend_from_slice(&[kind, a, b, c, d]);
            bytes.extend_from_slice(value);
        };
        for value in values {
            match value {
                Value::Null => add(0, &[]),
                Value::Integer(number) => add(1, &number.to_be_bytes()),
                Value::Text(text) => add(2, text.as_bytes()),
                Value::Blob(blob) => add(3, blob),
            }
        }
        i64::from(crc32c::crc32c(&bytes)).into()
    }

    /// Whether the checksum holds of a row that is `key`, the other columns that are covered, and the checksum.
    pub(in crate::store) fn holds(&self, key: &[Value], row: &Row) -> bool {
        let Some((values, rest)) = row.rest().split_at_checked(self.columns.len() - key.len()) else {
            return false;
        };
        rest.first() == Some(&self.checksum(key.iter().chain(values)))
    }

    /// Refuses a row of which the checksum does not hold: see [`ChecksummedTable::holds`].
    ///
    /// # Errors
    /// It does not.
    pub(in crate::store) fn must_hold(&self, key: &[Value], row: &Row) -> Result<(), Fault> {
        if self.holds(key, row) {
            return Ok(());
        }
        let values: Vec<_> = key.iter().chain(row.rest()).cloned().collect();
        Err(self.damaged(&values, "its checksum is not that of its values"))
    }

    /// The fault that a row is not as it was written. `values` begin with its key.
    pub(in crate::store) fn damaged(&self, values: &[Value], what: &str) -> Fault {
        let DamagedRow { environment, id } = self.named(values);
        let of = environment.map(|number| format!(" of environment {number}")).unwrap_or_default();
        let space = if id.is_empty() { "" } else { " " };
        let table = self.table;
        Fault::corrupt(format!(
            "database: {table}{space}{id}{of}: {what}; `mandate-server check` finds others"
        ))
    }

    fn named(&self, values: &[Value]) -> DamagedRow {
        let named = || self.columns.iter().zip(values);
        let environment = named().find_map(|(column, value)| match value {
            Value::Integer(number) if *column == TENANT => Some(*number),
            _ => None,
        });
        let key = named().take(self.keys).filter(|(column, _)| ![TENANT, ONE].contains(column));
        let id: Vec<_> = key.map(|(_, value)| self.shown(value)).collect();
        DamagedRow { environment, id: id.join(" ") }
    }

    /// A value of a key, as the API shows it.
    fn shown(&self, value: &Value) -> String {
        let id = match value {
            Value::Null => return "none".to_owned(),
            Value::Integer(number) => return number.to_string(),
            Value::Text(text) => return text.clone(),
            Value::Blob(hash) if self.table == "api_keys" => {
                let digits = hash.iter().take(KEY_ID_BYTES).map(|byte| format!("{byte:02x}"));
                return format!("key_{}", digits.collect::<String>());
            }
            Value::Blob(bytes) if ["person_keys", "answers"].contains(&self.table) => {
                let shown = CredentialId::from_bytes(bytes).map(|id| id.to_string());
                return shown.unwrap_or_else(|_| "none".to_owned());
            }
            Value::Blob(bytes) => <[u8; 16]>::try_from(bytes.as_slice()),
        };
        match (id, self.table) {
            (Ok(id), "mandates") => MandateId::from_bytes(id).to_string(),
            (Ok(id), "decisions") => DecisionId::from_bytes(id).to_string(),
            (Ok(id), "reviews") => ReviewId::from_bytes(id).to_string(),
            (Ok(id), "events") => EventId::from_bytes(id).to_string(),
            (Ok(id), "escrows") => EscrowId::from_bytes(id).to_string(),
            (Ok(id), "people") => PersonId::from_bytes(id).to_string(),
            _ => "bytes that are no id".to_owned(),
        }
    }

    /// Changes one row. Where its checksum decides, it must hold before, and is written again.
    ///
    /// # Errors
    /// It does not hold, or the statement changes no row, or several.
    pub(in crate::store) fn change(
        &self,
        tx: &mut Tx<'_>,
        key: &[Value],
        sql: &'static str,
        parameters: &[Value],
    ) -> Result<(), Fault> {
        self.verify(tx, key)?;
        tx.execute_one(sql, parameters)?;
        self.seal(tx, key)
    }

    /// Refuses a row that is not there, or of which the checksum does not hold, where it decides.
    ///
    /// # Errors
    /// It is such a row.
    pub(in crate::store) fn verify(&self, tx: &mut Tx<'_>, key: &[Value]) -> Result<(), Fault> {
        if !tx.verifies() {
            return Ok(());
        }
        let row = tx.row(self.row, key)?.ok_or_else(|| self.damaged(key, "it is not there"))?;
        self.must_hold(&[], &row)
    }

    /// Writes the checksum of a row that was written in this transaction, where it decides.
    ///
    /// # Errors
    /// The row is not there.
    pub fn seal(&self, tx: &mut Tx<'_>, key: &[Value]) -> Result<(), Fault> {
        if !tx.verifies() {
            return Ok(());
        }
        let row = tx.row(self.row, key)?.ok_or_else(|| self.damaged(key, "it is not there"))?;
        let checksum = self.checksum(row.rest().iter().take(self.columns.len()));
        let parameters: Vec<_> = std::iter::once(checksum).chain(key.iter().cloned()).collect();
        tx.execute_one(self.seal, &parameters)
    }

    /// Calls `found` for each row whose checksum does not hold.
    pub fn broken(&self, tx: &mut Tx<'_>, found: &mut dyn FnMut(DamagedRow)) -> Result<(), Fault> {
        let mut rows = tx.query(self.first, &[PAGE.into()])?;
        while let Some(last) = rows.last() {
            let mut after: Vec<_> = last.rest().iter().take(self.keys).cloned().collect();
            for row in rows.iter().filter(|row| !self.holds(&[], row)) {
                found(self.named(row.rest()));
            }
            after.push(PAGE.into());
            rows = tx.query(self.next, &after)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[Value]) -> Row {
        let mut values = values.to_vec();
        values.push(EVENTS.checksum(&values));
        Row::new(values)
    }

    fn event() -> Vec<Value> {
        vec![1.into(), [7; 16].into(), "ping".into(), 5.into(), "{}".into()]
    }

    #[test]
    fn the_checksum_is_the_same_for_ever() {
        // Rows that were written before hold it: another one would be damage in all of them.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        let values = [Value::Null, 1.into(), "a".into(), vec![1].into()];
        let bytes = b"events\
            \x00\0\0\0\0\
            \x01\0\0\0\x08\0\0\0\0\0\0\0\x01\
            \x02\0\0\0\x01a\
            \x03\0\0\0\x01\x01";
        assert!(EVENTS.checksum(&values) == i64::from(crc32c::crc32c(bytes)).into());
    }

    #[test]
    fn each_value_its_kind_and_its_place_are_covered() {
        assert!(EVENTS.holds(&[], &row(&event())));
        let sound = EVENTS.checksum(&event());
        let mut others = vec![event()];
        for (place, other) in [
            (0, 2.into()),
            (1, [8; 16].into()),
            (2, "pinh".into()),
            (2, Value::Blob(b"ping".to_vec())),
            (3, Value::Null),
            (3, Value::Text("5".to_owned())),
            (4, "{} ".into()),
        ] {
            let mut values = event();
            values[place] = other;
            others.push(values);
        }
        for values in &others[1..] {
            assert!(EVENTS.checksum(values) != sound);
        }
        assert!(REVIEWS.checksum(&event()) != sound, "a row of another table");
        assert!(
            EVENTS.checksum(["ab".into(), "c".into()].iter())
                != EVENTS.checksum(["a".into(), "bc".into()].iter())
        );
    }

    #[test]
    fn what_is_damaged_is_named() {
        let mut values = event();
        values.push(0.into());
        let fault = EVENTS.must_hold(&[], &Row::new(values)).unwrap_err();
        assert_eq!(fault.kind(), "corrupt");
        let id = EventId::from_bytes([7; 16]);
        let text = fault.to_string();
        assert!(
            text.starts_with(&format!("database: events {id} of environment 1: its checksum ")),
            "{text}"
        );
        let key = API_KEYS.damaged(&[vec![0xab; 32].into(), 3.into()], "it is lost").to_string();
        assert!(key.starts_with("database: api_keys key_abababababab of environment 3: it is lost"), "{key}");
        let clock = CLOCK.damaged(&[1.into(), 5.into()], "it is lost").to_string();
        assert!(clock.starts_with("database: clock: it is lost"), "{clock}");
        let cut = Row::new(vec![1.into()]);
        assert!(EVENTS.must_hold(&[], &cut).is_err());
    }
}
