//! The schema of a database, by the migrations that have been applied to it, and what differs from this program's.

use refinery::{Migration, Runner};

use super::tx::Tx;
use crate::error::Fault;

/// The migrations that have been applied to a database, in order: number, name and checksum of each.
pub(super) const HISTORY: &str = "/* schema.history */
    SELECT CAST(version AS bigint), CAST(name AS text), CAST(checksum AS text)
    FROM refinery_schema_history ORDER BY version";

/// The schema of a database, compared with the schemas that this program knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// The version of the database, or 0 if it has no schema yet.
    pub current: i64,
    /// The newest version that this program knows.
    pub newest: i64,
    /// The migrations that lead from the one to the other, in order.
    pub missing: Vec<Step>,
    /// The first migration in the database that is not this program's.
    foreign: Option<Foreign>,
}

/// One migration of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The version that it leads to.
    pub version: i64,
    /// Its name.
    pub name: String,
}

/// A migration in a database that is not this program's.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Foreign {
    change: Step,
    difference: Difference,
}

/// How a migration in a database differs from this program's.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Difference {
    /// This program has none of that number.
    Number,
    /// This program's of that number has this name.
    Name(String),
    /// The checksums in the database and in this program, of the same number and name.
    Checksum(String, String),
}

impl Foreign {
    fn new(applied: &Applied, known: Option<&Migration>) -> Self {
        let known = known.filter(|known| applied.version == i64::from(known.version()));
        let difference = known.map_or(Difference::Number, |known| match known.name() {
            name if name == applied.name => {
                Difference::Checksum(applied.checksum.clone(), known.checksum().to_string())
            }
            name => Difference::Name(step(applied.version, name).name),
        });
        Self { change: step(applied.version, &applied.name), difference }
    }
}

/// A migration that has been applied to a database.
pub(super) struct Applied {
    pub(super) version: i64,
    pub(super) name: String,
    /// The checksum of its number, name and text.
    pub(super) checksum: String,
}

impl Applied {
    /// Whether it is the migration `known`.
    fn is(&self, known: &Migration) -> bool {
        self.version == i64::from(known.version())
            && self.name == known.name()
            && self.checksum == known.checksum().to_string()
    }
}

/// A migration with its name in a readable form.
fn step(version: i64, name: &str) -> Step {
    Step { version, name: name.replace('_', " ") }
}

impl Schema {
    /// Compares the migrations `applied` with those of `runner`.
    pub(super) fn of(applied: &[Applied], runner: &Runner) -> Self {
        let mut known: Vec<_> = runner.get_migrations().iter().collect();
        known.sort_by_key(|migration| migration.version());
        let same = known.iter().zip(applied).take_while(|(known, applied)| applied.is(known)).count();
        Self {
            current: applied.last().map_or(0, |applied| applied.version),
            newest: last(runner),
            missing: known.iter().skip(same).map(|m| step(m.version().into(), m.name())).collect(),
            foreign: applied.get(same).map(|applied| Foreign::new(applied, known.get(same).copied())),
        }
    }

    /// Refuses a database with a migration of a newer program, or of another schema.
    ///
    /// # Errors
    /// The database has such a migration.
    pub fn must_be_known(&self, database: &str) -> Result<(), Fault> {
        let Some(Foreign { change: Step { version, name }, difference }) = &self.foreign else {
            return Ok(());
        };
        let difference = match difference {
            Difference::Checksum(there, here) => format!(
                "its schema change {version} ({name}) has the checksum {there}, where this program's has {here}"
            ),
            Difference::Name(here) => format!(
                "its schema change {version} is named {name}, where this program's is named {here}, and this program cannot \
                 upgrade it"
            ),
            Difference::Number => format!(
                "it has the schema change {version} ({name}), and this program has the changes 1 to {} only",
                self.newest
            ),
        };
        Err(Fault::Schema(format!(
            "database: {database} has another schema than this program: {difference}. Nothing is released before 0.1.0, and \
             until then no schema is upgraded. Make a new database: name one that is empty or does not exist. Or use the \
             program that made this one"
        )))
    }

    /// Refuses a database without the newest schema.
    pub(super) fn must_be_newest(&self, database: &str) -> Result<(), Fault> {
        self.must_be_known(database)?;
        if self.missing.is_empty() {
            return Ok(());
        }
        let Self { current, newest, .. } = self;
        Err(Fault::Schema(format!(
            "database: {database} has schema {current}, and this program needs {newest}: run `mandate-server migrate` first"
        )))
    }

    /// The version, the name or the checksum that differs from the newest schema.
    #[must_use]
    pub fn found(&self) -> String {
        let Some(Foreign { change: Step { version, name }, difference }) = &self.foreign else {
            return format!("version {}", self.current);
        };
        let difference = match difference {
            Difference::Checksum(there, here) => {
                format!(" of another schema, with the checksum {there} where this program's has {here}")
            }
            Difference::Name(here) => format!(" of another schema, where this program's is named {here}"),
            Difference::Number => String::new(),
        };
        format!("version {version} ({name}){difference}")
    }

    /// Whether it is the newest schema that this program knows.
    #[must_use]
    pub fn is_newest(&self) -> bool {
        self.foreign.is_none() && self.missing.is_empty()
    }
}

/// The version of the newest schema of `runner`.
fn last(runner: &Runner) -> i64 {
    runner.get_migrations().iter().map(|m| i64::from(m.version())).max().unwrap_or(0)
}

/// The migrations that have been applied. None if `there` finds no table of them.
pub(super) fn applied(tx: &mut Tx<'_>, there: &'static str) -> Result<Vec<Applied>, Fault> {
    if tx.one_row(there, &[])?.integer()? == 0 {
        return Ok(Vec::new());
    }
    let rows = tx.query(HISTORY, &[])?.into_iter();
    rows.map(|mut row| Ok(Applied { version: row.integer()?, name: row.text()?, checksum: row.text()? }))
        .collect()
}
