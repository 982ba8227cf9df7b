//! `migrate`: the schema of the database.

use std::io::Write as _;

use mandate_core::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::{Common, Failure, operator};
use crate::error::Fault;
use crate::model::database;
use crate::store::sql::servers;
use crate::store::{Schema, upkeep};

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
Until 0.1.0 a database of another version is refused, not upgraded.

On PostgreSQL this also makes the partitions of decisions and events for a year ahead, if the role owns the tables, and says \
until when there are any. Where servers have a role of their own that does not, run it once a month with the owner's URL. If \
fewer than 90 days are left and the role may make none, it exits with 1; and where a table that is not attached has the name of \
a partition, which it says.";

#[derive(Serialize)]
struct View<'a> {
    current: i64,
    newest: i64,
    dry_run: bool,
    changes: Vec<Change<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions_end: Option<Timestamp>,
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
    /// The database cannot be opened, its schema is newer than this program's, a migration fails, partitions end soon that
    /// this role may not make, or a table is in the place of one.
    pub fn run(self) -> Result<(), Failure> {
        let database = self.common.settings()?.database;
        let looked = if self.dry_run {
            upkeep::must_be_complete(&database).and_then(|()| upkeep::schema(&database))
        } else {
            upkeep::migrate(&database)
        };
        let schema = looked.map_err(Failure::failed)?;
        schema.must_be_known(&database::redacted(&database)).map_err(Failure::failed)?;
        if !self.dry_run && !schema.missing.is_empty() {
            let subject = upkeep::subject(&database).map_err(Failure::failed)?;
            let details = json!({ "from": schema.current, "to": schema.newest });
            operator::record_named(&database, "migrate", &subject, details)?;
        }
        // A dry run may have found no tables.
        let is_there = !self.dry_run || schema.is_newest();
        let partitions =
            if is_there { partitions(&database).map_err(Failure::failed)? } else { Partitions::default() };
        self.print(&schema, partitions.end).map_err(Failure::failed)?;
        if self.dry_run {
            return Ok(());
        }
        if !partitions.detached.is_empty() {
            let tables = partitions.detached.iter().map(|(table, attach)| format!("{table}: {attach}"));
            return Err(Failure::failed(format!(
                "these tables have the names of partitions and are not attached, or half detached, so that none is made in their place. Attach \
                 each, or rename or drop it, and run this again:\n{}",
                tables.collect::<Vec<_>>().join("\n")
            )));
        }
        if partitions.is_short {
            return Err(Failure::failed(
                "the partitions end soon, and this role may make none: run this with the role that owns the tables",
            ));
        }
        Ok(())
    }

    fn print(&self, schema: &Schema, partitions_end: Option<Timestamp>) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        let Schema { current, newest, missing, .. } = schema;
        if self.common.json {
            let changes =
                missing.iter().map(|step| Change { version: step.version, name: &step.name }).collect();
            let (current, newest, dry_run) = (*current, *newest, self.dry_run);
            let view = View { current, newest, dry_run, changes, partitions_end };
            serde_json::to_writer(&mut out, &view)?;
            return writeln!(out);
        }
        writeln!(out, "schema {current}, newest {newest}")?;
        let done = if self.dry_run { "would apply" } else { "applied" };
        missing.iter().try_for_each(|step| writeln!(out, "{done} {}: {}", step.version, step.name))?;
        partitions_end.map_or(Ok(()), |end| writeln!(out, "partitions until {end}"))
    }
}

/// The partitions, where the database has them.
#[derive(Default)]
struct Partitions {
    /// Until when there are any.
    end: Option<Timestamp>,
    /// Whether that is soon.
    is_short: bool,
    /// Tables in the place of partitions, each with the statement that makes it one.
    detached: Vec<(String, String)>,
}

fn partitions(database: &str) -> Result<Partitions, Fault> {
    if !upkeep::is_remote(database)? {
        return Ok(Partitions::default());
    }
    upkeep::snapshot(database, |tx| {
        let now = servers::now(tx)?;
        let end = upkeep::partitions_end(tx, now)?;
        let (is_short, detached) =
            (upkeep::partitions_short(tx)?.is_some(), upkeep::detached_partitions(tx, now)?);
        Ok(Partitions { end, is_short, detached })
    })
}
