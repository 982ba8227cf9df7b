//! `audit`: what operators have done.

use std::time::Duration;

use clap::Subcommand;
use mandate_core::{AgentName, Day, Timestamp};

use super::{Common, Failure, operator, terminal};
use crate::service::audit;

/// The most records that one command shows.
const MAX_RECORDS: u32 = 100_000;

/// The record of what operators have done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List audit records, newest first
    #[command(after_help = LIST_HELP)]
    List {
        /// Only records about this organization
        #[arg(long, value_name = "NAME", value_parser = AgentName::parse)]
        organization: Option<AgentName>,

        /// Only records since a day, an instant (RFC 3339), or an age such as 24h
        #[arg(long, value_name = "WHEN", value_parser = since)]
        since: Option<Since>,

        /// The largest number of records
        #[arg(long, value_name = "RECORDS", default_value_t = 50,
            value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RECORDS)))]
        limit: u32,

        #[command(flatten)]
        common: Common,
    },
}

const LIST_HELP: &str = "\
Examples:
  mandate-server audit list
  mandate-server audit list --organization acme --since 2026-11-01 --limit 1000
  mandate-server audit list --since 24h --json \\
      | jq '.[] | select(.action == \"key.revoke\")'

Each command that changes something writes a record in the same transaction: the time, the command, what it changed, and \
the user of the operating system. A backup and a migration are recorded when they have ended, a restore in the restored \
database. No record holds a secret.";

/// A moment in the past.
#[derive(Debug, Clone, Copy)]
pub enum Since {
    /// That moment.
    At(Timestamp),
    /// So long ago.
    Ago(Duration),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// Standard output cannot be written, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        let Self::List { organization, since, limit, common } = self;
        let since = match since {
            None => Timestamp::from_millis(0),
            Some(Since::At(at)) => at,
            Some(Since::Ago(time)) => {
                let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
                operator::here().at.plus_seconds(-seconds)
            }
        };
        let name = organization.as_ref().map(AgentName::as_str);
        let database = common.settings()?.database;
        let records = terminal::run(&database, |tx| Ok(audit::newest(tx, name, since, limit)?))?;
        terminal::print(common.json, &records, |out| {
            let heads = ["AT", "ACTION", "ORGANIZATION", "ENVIRONMENT", "SUBJECT", "OPERATOR", "DETAILS"];
            let rows = records.iter().map(|record| {
                [
                    terminal::instant(Some(record.at)),
                    record.action.clone(),
                    record.organization.clone().unwrap_or_default(),
                    record.environment.unwrap_or_default().to_owned(),
                    record.subject.clone(),
                    record.operator.clone(),
                    record.details.get().to_owned(),
                ]
            });
            terminal::table(out, heads, rows)
        })
    }
}

fn since(text: &str) -> Result<Since, String> {
    let instant = Timestamp::parse(text).ok().or_else(|| Day::parse(text).ok().map(Day::start));
    let length = || humantime::parse_duration(text).ok().map(Since::Ago);
    instant.map(Since::At).or_else(length).ok_or_else(|| {
        "must be a day such as 2026-11-01, an instant such as 2026-11-01T12:00:00Z, or a length of time such as 24h"
            .to_owned()
    })
}
