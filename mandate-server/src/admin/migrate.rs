//! `migrate`: the schema of the database.

use std::io::Write as _;

use serde::Serialize;
use serde_json::json;

use super::{Common, Failure, operator};
use crate::model::database;
use crate::store::upkeep::{self, Schema};

/// The schema of the database.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only print what would be done
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    common: Common,
}

pub(super) const HELP: &str = "\
Examples:
  mandate-server migrate --dry-run
  mandate-server migrate --database sqlite:///var/lib/mandate/mandate.db

`serve` does the same when it starts. All changes are made in one transaction. They cannot be undone: take a backup first. \
Until 0.1.0 a database of another version is refused, not upgraded.";

#[derive(Serialize)]
struct View<'a> {
    current: i64,
    newest: i64,
    dry_run: bool,
    changes: Vec<Change<'a>>,
}

#[derive(Serialize)]
struct Change<'a> {
    version: i64,
    name: &'a str,
}

impl Options {
    /// Prints what is to be done, and does it unless it is a dry run.
    ///
    /// # Errors
    /// The database cannot be opened, its schema is newer than this program's, or a migration fails.
    pub fn run(self) -> Result<(), Failure> {
        let database = self.common.settings()?.database;
        let looked = if self.dry_run { upkeep::schema(&database) } else { upkeep::migrate(&database) };
        let schema = looked.map_err(Failure::failed)?;
        schema.must_be_known(&database::redacted(&database)).map_err(Failure::failed)?;
        if !self.dry_run && !schema.missing.is_empty() {
            let subject = upkeep::subject(&database).map_err(Failure::failed)?;
            let details = json!({ "from": schema.current, "to": schema.newest });
            operator::record_named(&database, "migrate", &subject, details)?;
        }
        self.print(&schema).map_err(Failure::failed)
    }

    fn print(&self, schema: &Schema) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        let Schema { current, newest, missing, .. } = schema;
        if self.common.json {
            let changes =
                missing.iter().map(|step| Change { version: step.version, name: &step.name }).collect();
            let view = View { current: *current, newest: *newest, dry_run: self.dry_run, changes };
            serde_json::to_writer(&mut out, &view)?;
            return writeln!(out);
        }
        writeln!(out, "schema {current}, newest {newest}")?;
        let done = if self.dry_run { "would apply" } else { "applied" };
        missing.iter().try_for_each(|step| writeln!(out, "{done} {}: {}", step.version, step.name))
    }
}
