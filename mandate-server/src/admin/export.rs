//! `export`: the exports that organizations have asked for.

use clap::Subcommand;
use mandate_core::{ExportId, Timestamp};
use serde::Serialize;
use serde_json::json;

use super::{Common, Failure, operator, terminal};
use crate::service::exports::kept::{self, KeptExport};
use crate::service::exports::requested_at;

/// Exports.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the exports of all organizations that are kept
    #[command(after_help = LIST_HELP)]
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Delete an export before it expires
    #[command(after_help = DELETE_HELP)]
    Delete {
        /// The export, as `export list` shows it
        export: String,

        #[command(flatten)]
        common: Common,
    },
}

const LIST_HELP: &str = "\
Examples:
  mandate-server export list
  mandate-server export list --json | jq -r '.[] | select(.rows > 1000000).export'

INCOMPLETE SINCE is where the clock was set back after an export was built: it may lack decisions from then on.";

const DELETE_HELP: &str = "\
Examples:
  mandate-server export delete exp_01k9x5s7q4w8v3r2m6n0p1t5ya

The export is absent at once. A running server removes its file within seconds; without one, the next start does. The \
organization can request it again.";

#[derive(Serialize)]
struct View<'a> {
    export: ExportId,
    organization: &'a str,
    environment: &'static str,
    format: &'static str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<i64>,
    created_at: Timestamp,
    expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete_since: Option<Timestamp>,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// There is no such export, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::List { common } => list(&common),
            Self::Delete { export, common } => delete(&export, &common),
        }
    }
}

fn list(common: &Common) -> Result<(), Failure> {
    let (database, now) = (common.settings()?.database, operator::here().at);
    let found = terminal::run(&database, |tx| kept::all(tx, now))?;
    let views: Vec<_> = found.iter().map(View::of).collect();
    terminal::print(common.json, &views, |out| {
        let heads = [
            "EXPORT",
            "ORGANIZATION",
            "ENVIRONMENT",
            "FORMAT",
            "STATUS",
            "DECISIONS",
            "EXPIRES",
            "INCOMPLETE SINCE",
        ];
        let rows = views.iter().map(|view| {
            [
                view.export.to_string(),
                view.organization.to_owned(),
                view.environment.to_owned(),
                view.format.to_owned(),
                view.status.to_owned(),
                view.rows.map(|rows| rows.to_string()).unwrap_or_default(),
                terminal::instant(Some(view.expires_at)),
                terminal::instant(view.incomplete_since),
            ]
        });
        terminal::table(out, heads, rows)
    })
}

fn delete(export: &str, common: &Common) -> Result<(), Failure> {
    let by = operator::here();
    let id = ExportId::parse(export).map_err(Failure::unusable)?;
    let database = common.settings()?.database;
    terminal::run(&database, |tx| kept::delete(tx, id, &by))?;
    let done = json!({ "export": id, "status": "deleted" });
    terminal::print(common.json, &done, |out| {
        writeln!(out, "{id} is deleted. A running server removes its file within seconds.")
    })
}

impl<'a> View<'a> {
    fn of(kept: &'a KeptExport) -> Self {
        Self {
            export: kept.id,
            organization: &kept.organization,
            environment: kept.kind.as_str(),
            format: kept.format.as_str(),
            status: kept.status.as_str(),
            rows: kept.rows,
            created_at: requested_at(kept.expires_at),
            expires_at: kept.expires_at,
            incomplete_since: kept.incomplete_since,
        }
    }
}
