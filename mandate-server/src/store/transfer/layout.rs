//! The tables that are moved, and the statements that read and fill them.

use std::fmt::Write as _;
use std::sync::LazyLock;

use super::super::sql::checksums;
use super::super::tx::{Tx, Value};
use crate::error::Fault;

/// The tables, each after those that it refers to: its name, the number of key columns, and all columns with their
/// kinds, those of the key first. `i` means numbers, `t` texts, `b` bytes.
///
/// What only one kind of database has is not moved: `commits`, the pieces of exports, leases on them, and the checksums of
/// what decides.
const LAYOUT: &[(&str, usize, &str)] = &[
    ("organizations", 1, "organization:i name:t created_at:i"),
    ("environments", 1, "environment:i organization:i kind:t policy_version:t mode:t since:i"),
    ("revisions", 1, "name:t revision:i"),
    ("clock", 1, "one:i mark:i held:i"),
    ("issuers", 1, "issuer:i url:t"),
    (
        "signing_keys",
        1,
        "signing_key:i kind:t kid:t public_key:b sealed:b created_at:i sign_from:i sign_until:i publish_until:i \
         revoked_at:i",
    ),
    (
        "api_keys",
        1,
        "api_key:i hash:b environment:i agent:t rate:i created_at:i expires_at:i revoked_at:i name:t",
    ),
    (
        "agents",
        2,
        "environment:i agent:t position:b created_at:i governing:b recent:b sequence:i last_decision:b",
    ),
    (
        "mandates",
        2,
        "environment:i mandate:b agent:t terms:t created_at:i revoked_at:i replaced_by:b \
         governs_from:i revoked_after:i governed_until:i expiring_at:i",
    ),
    (
        "decisions",
        2,
        "environment:i decision:b sequence:i decided_at:i verdict:t mandate:b nonce:b agent:t amount:t currency:t \
         recipient:t category:t mode:t reason:t denials:t spent:t recent_requests:i supersedes:b review:b issuer:i signing_key:i signature:b \
         checksum:i",
    ),
    (
        "reviews",
        2,
        "environment:i review:b decision:b status:t waits_for:t expires_at:i resolved_at:i resolved_after:i fresh:b \
         reason:t resolved_by:t checksum:i",
    ),
    (
        "usage",
        4,
        "environment:i month:t agent:t currency:t spent:t requests:i allow:i review:i deny_no_mandate:i deny_revoked:i \
         deny_expired:i deny_limit:i deny_category:i deny_velocity:i",
    ),
    (
        "idempotency",
        1,
        "kept:i environment:i api_key:i name:t fingerprint:b status:i body:b sealed:i created_at:i \
         checksum:i",
    ),
    ("webhooks", 2, "environment:i webhook:b url:t created_at:i due_at:i leased_until:i"),
    ("subscriptions", 3, "environment:i type:t webhook:b"),
    ("notices", 1, "environment:i webhook:b sealed:b format:t details:i"),
    ("events", 2, "environment:i event:b type:t created_at:i data:t checksum:i"),
    ("deliveries", 3, "environment:i event:b webhook:b state:t due_at:i attempts:i retried_at:i"),
    ("attempts", 4, "environment:i event:b webhook:b attempt:i at:i status:i error:t"),
    (
        "escrows",
        2,
        "environment:i escrow:b contract:b decision:b agent:t arbiter:t condition:t refund_after:i",
    ),
    ("escrow_history", 3, "environment:i escrow:b number:i state:t disputed:i at:i note:t"),
    (
        "instructions",
        3,
        "environment:i escrow:b number:i action:t attempt:i at:i note:t status:t reason:t sent:i next_at:i",
    ),
    (
        "exports",
        2,
        "environment:i export:b format:t verdict:t agent:t since:i until:i status:t rows:i sha256:b expires_at:i \
         incomplete_since:i",
    ),
    ("openings", 2, "environment:i agent:t sequence:i decision:b recent:b"),
    (
        "balances",
        4,
        "environment:i agent:t month:t currency:t spent:t requests:i allow:i review:i deny_no_mandate:i deny_revoked:i \
         deny_expired:i deny_limit:i deny_category:i deny_velocity:i",
    ),
    ("closings", 1, "month:t directory:t step:t behind:b began_at:i closed_at:i"),
    ("closed_months", 2, "environment:i month:t file:t sha256:b rows:i first_decision:b last_decision:b"),
    (
        "logs",
        1,
        "log:i kind:t origin:t verifier_key:t sealed:b created_at:i size:i frontier:b indexed:i key_entries:t \
         signed:t checkpoint:t witnessed:t stopped:t",
    ),
    ("log_secret", 1, "one:i sealed:b"),
    ("log_pending", 1, "pending:i kind:t at:i entries:b"),
    ("log_tiles", 3, "log:i level:i tile:i content:b"),
    ("log_index", 3, "log:i first:i run:i places:b"),
    ("log_records", 2, "environment:i number:i record:t logged:i"),
    ("log_witnesses", 1, "verifier_key:t url:t created_at:i"),
    ("people", 2, "environment:i person:b name:t roles:t may:t created_at:i disabled_at:i checksum:i"),
    (
        "person_keys",
        2,
        "environment:i credential:b person:b key:b label:t origin:t is_synced:i enrolled_at:i withdrawn_at:i checksum:i",
    ),
    ("enrolments", 2, "environment:i hash:b person:b expires_at:i used_at:i"),
    ("sessions", 1, "session:i environment:i hash:b person:b credential:b created_at:i seen_at:i"),
    ("challenges", 2, "environment:i challenge:b expires_at:i"),
    ("statements", 2, "environment:i challenge:b session:i statement:t expires_at:i used_at:i"),
    ("answers", 2, "environment:i answer:b person:b review:b mandate:b at:i content:t checksum:i"),
    ("audit", 1, "audit:i at:i action:t organization:t environment:t subject:t operator:t details:t"),
];

/// The column that has the checksum of the others.
const CHECKSUM: &str = "checksum";
/// What a text has in place of U+0000, which PostgreSQL does not store.
const REPLACEMENT: &str = "\u{fffd}";

/// A table that is moved. Its statements are the same for every database, except those that only the target runs.
#[derive(Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns, those of the key first.
    pub columns: Vec<&'static str>,
    /// The kind of each column.
    pub(in crate::store) kinds: String,
    keys: usize,
    first: &'static str,
    next: &'static str,
    counted: &'static str,
    /// Rows with a text that the target does not store, each with the first such column.
    unmovable: Option<&'static str>,
    /// The key of the last row.
    pub(in crate::store) last: &'static str,
    /// One row, if there is any.
    pub(in crate::store) any: &'static str,
    /// Inserts rows. Its parameters are an array for each column.
    pub(in crate::store) insert: &'static str,
    /// Lets the numbers that the database draws go on after the greatest. None if it draws none.
    pub(in crate::store) renumber: Option<&'static str>,
}

/// The tables that are moved, in the order in which they can be filled.
#[must_use]
pub fn tables() -> &'static [Table] {
    static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| LAYOUT.iter().map(Table::new).collect());
    &TABLES
}

impl Table {
    fn new((name, keys, layout): &(&'static str, usize, &'static str)) -> Self {
        let (columns, kinds): (Vec<_>, Vec<_>) =
            layout.split(' ').filter_map(|column| column.split_once(':')).unzip();
        let (all, key) = (columns.join(", "), columns.iter().take(*keys).copied().collect::<Vec<_>>());
        let (order, downwards) = (key.join(", "), format!("{} DESC", key.join(" DESC, ")));
        let places: Vec<_> = (1..=*keys).map(|number| format!("${number}")).collect();
        let (places, limit) = (places.join(", "), keys + 1);
        let arrays = kinds.iter().enumerate().fold(String::new(), |mut text, (number, kind)| {
            let kind = match *kind {
                "i" => "bigint",
                "t" => "text",
                _ => "bytea",
            };
            let comma = if number == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}${}::{kind}[]", number + 1);
            text
        });
        let drawn = *keys == 1 && kinds.first() == Some(&"i");
        let texts = columns.iter().zip(&kinds).filter(|(_, kind)| **kind == "t").map(|(column, _)| *column);
        let unmovable = texts.fold(String::new(), |mut cases, column| {
            let _ = write!(cases, " WHEN instr({column}, char(0)) > 0 THEN '{column}'");
            cases
        });
        // Statements are cached by their address, so these live as long as the program.
        Self {
            name,
            first: format!("/* transfer.{name}.first */ SELECT {all} FROM {name} ORDER BY {order} LIMIT $1").leak(),
            next: format!(
                "/* transfer.{name}.next */ SELECT {all} FROM {name} WHERE ({order}) > ({places}) ORDER BY {order} LIMIT ${limit}"
            )
            .leak(),
            unmovable: (!unmovable.is_empty()).then(|| -> &'static str {
                format!(
                    "/* transfer.{name}.unmovable */ SELECT * FROM (SELECT CASE{unmovable} END AS field, {order} FROM {name})
                        WHERE field IS NOT NULL ORDER BY {order} LIMIT $1"
                )
                .leak()
            }),
            counted: format!("/* transfer.{name}.counted */ SELECT COUNT(*) FROM {name}").leak(),
            last: format!("/* transfer.{name}.last */ SELECT {order} FROM {name} ORDER BY {downwards} LIMIT 1").leak(),
            any: format!("/* transfer.{name}.any */ SELECT {order} FROM {name} LIMIT 1").leak(),
            insert: format!(
                "/* transfer.{name}.insert */ INSERT INTO {name} ({all}) OVERRIDING SYSTEM VALUE SELECT * FROM unnest({arrays})"
            )
            .leak(),
            renumber: drawn.then(|| -> &'static str {
                format!(
                    "/* transfer.{name}.renumber */ SELECT setval(pg_get_serial_sequence('{name}', '{order}'), COALESCE(MAX({order}), 1),
                        MAX({order}) IS NOT NULL) FROM {name}"
                )
                .leak()
            }),
            columns,
            kinds: kinds.concat(),
            keys: *keys,
        }
    }

    /// At most `limit` rows after the one with this key, or from the first on, in the order of the key.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn page(
        &self,
        tx: &mut Tx<'_>,
        after: Option<&[Value]>,
        limit: i64,
    ) -> Result<Vec<Vec<Value>>, Fault> {
        let rows = match after {
            None => tx.query(self.first, &[limit.into()])?,
            Some(key) => {
                let parameters: Vec<Value> = key.iter().cloned().chain([limit.into()]).collect();
                tx.query(self.next, &parameters)?
            }
        };
        Ok(rows.into_iter().map(super::super::tx::Row::into_values).collect())
    }

    /// The key of a row.
    #[must_use]
    pub fn key(&self, row: &[Value]) -> Vec<Value> {
        row.iter().take(self.keys).cloned().collect()
    }

    /// How many rows there are.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn count(&self, tx: &mut Tx<'_>) -> Result<i64, Fault> {
        tx.one_row(self.counted, &[])?.integer()
    }

    /// At most `limit` rows with a text that holds U+0000, which PostgreSQL does not store: the first such column, and the
    /// row's key. For a source on SQLite.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn unmovable(&self, tx: &mut Tx<'_>, limit: i64) -> Result<Vec<(String, Vec<Value>)>, Fault> {
        let Some(sql) = self.unmovable else { return Ok(Vec::new()) };
        let rows = tx.query(sql, &[limit.into()])?.into_iter();
        rows.map(|mut row| Ok((row.text()?, row.into_values()))).collect()
    }

    /// Whether a column is of the key.
    #[must_use]
    pub fn is_of_key(&self, column: &str) -> bool {
        self.columns.iter().take(self.keys).any(|name| *name == column)
    }

    /// Writes U+FFFD for each U+0000 in the texts of a row, but for those of its key, and the checksum that it has then.
    ///
    /// # Errors
    /// The row's checksum was not that of its values.
    pub fn replace_nul(&self, row: &mut [Value]) -> Result<(), Fault> {
        let has_nul = |value: &Value| matches!(value, Value::Text(text) if text.contains('\0'));
        if !row.iter().skip(self.keys).any(has_nul) {
            return Ok(());
        }
        let checksum = |row: &[Value]| {
            checksums::of_both(self.name).map(|guarded| guarded.checksum_of(|column| self.value(row, column)))
        };
        let before = checksum(row);
        if before.is_some() && before.as_ref() != self.value(row, CHECKSUM) {
            let message = format!("database: a row of {} has another checksum than its values", self.name);
            return Err(Fault::corrupt(format!("{message}; `mandate-server check` finds all of them")));
        }
        for value in row.iter_mut().skip(self.keys) {
            if let Value::Text(text) = value {
                *text = text.replace('\0', REPLACEMENT);
            }
        }
        if let Some(checksum) = checksum(row) {
            let names = self.columns.iter().zip(row);
            names.filter(|(name, _)| **name == CHECKSUM).for_each(|(_, value)| *value = checksum.clone());
        }
        Ok(())
    }

    /// The value of a column of a row.
    #[must_use]
    pub fn value<'a>(&self, row: &'a [Value], column: &str) -> Option<&'a Value> {
        row.get(self.columns.iter().position(|name| *name == column)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::upkeep;

    const TABLES: &str =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'refinery_schema_history'
        AND name NOT LIKE 'sqlite_%' ORDER BY name";
    /// A table that only SQLite has, and that it fills itself: the decisions of each agent.
    const NOT_MOVED: [&str; 2] = ["agent_decisions", "uncounted"];
    /// Columns that only SQLite has: its rows that decide have checksums.
    const NOT_MOVED_OF: [(&str, &str); 9] = [
        ("clock", "checksum"),
        ("api_keys", "checksum"),
        ("environments", "checksum"),
        ("agents", "newest_month"),
        ("agents", "newest_rows"),
        ("agents", "checksum"),
        ("mandates", "checksum"),
        ("usage", "checksum"),
        ("escrows", "checksum"),
    ];
    const COLUMNS: &str = "SELECT name, type FROM pragma_table_info($1) ORDER BY name";

    fn table(name: &str) -> &'static Table {
        tables().iter().find(|table| table.name == name).unwrap()
    }

    /// The checksum that `check` compares with.
    fn sum(table: &Table, row: &[Value]) -> Value {
        checksums::of_both(table.name).unwrap().checksum_of(|column| table.value(row, column))
    }

    #[test]
    fn a_row_without_nul_has_the_checksum_of_what_it_is_then() {
        let reviews = table("reviews");
        let mut row: Vec<Value> = vec![Value::Null; reviews.columns.len()];
        row[0] = 1.into();
        row[9] = "no\0thanks\0".into();
        row[11] = sum(reviews, &row);
        let (mut replaced, mut damaged) = (row.clone(), row.clone());
        reviews.replace_nul(&mut replaced).unwrap();
        assert!(reviews.value(&replaced, "reason") == Some(&"no\u{fffd}thanks\u{fffd}".into()));
        assert!(reviews.value(&replaced, "checksum") == Some(&sum(reviews, &replaced)));
        assert!(replaced[11] != row[11]);
        let again = replaced.clone();
        reviews.replace_nul(&mut replaced).unwrap();
        assert!(replaced == again, "nothing is left to be replaced");
        damaged[3] = "approved".into();
        let refused = reviews.replace_nul(&mut damaged).unwrap_err().to_string();
        assert!(refused.contains("a row of reviews has another checksum"), "{refused}");

        let mut escrow: Vec<Value> = vec!["a\0".into(); table("escrows").columns.len()];
        table("escrows").replace_nul(&mut escrow).unwrap();
        assert!(escrow[1] == "a\0".into() && escrow[2] == "a\u{fffd}".into(), "a key stays as it is");
    }

    /// Fails if a migration adds something that is not moved.
    #[test]
    fn no_table_and_no_column_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite://{}", folder.path().join("mandate.db").display());
        upkeep::migrate(&database).unwrap();
        upkeep::snapshot(&database, |tx| {
            let mut known: Vec<_> = tables().iter().map(|table| table.name.to_owned()).collect();
            known.sort();
            let there = tx.query(TABLES, &[])?.into_iter().map(|mut row| row.text().unwrap());
            let there: Vec<_> = there.filter(|name| !NOT_MOVED.contains(&name.as_str())).collect();
            assert_eq!(known, there);
            for table in tables() {
                let kinds = table.kinds.chars().map(|kind| match kind {
                    'i' => "INTEGER",
                    't' => "TEXT",
                    _ => "BLOB",
                });
                let columns = table.columns.iter().map(|name| (*name).to_owned());
                let mut known: Vec<_> = columns.zip(kinds.map(str::to_owned)).collect();
                known.sort();
                let there = tx.query(COLUMNS, &[table.name.into()])?.into_iter();
                let there = there.map(|mut row| (row.text().unwrap(), row.text().unwrap()));
                let is_moved = |name: &str| !NOT_MOVED_OF.contains(&(table.name, name));
                let there: Vec<_> = there.filter(|(name, _)| is_moved(name)).collect();
                assert_eq!(known, there, "{}", table.name);
            }
            Ok(())
        })
        .unwrap();
    }
}
