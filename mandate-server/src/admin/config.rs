//! `config`: the settings in force, and the source of each.

use std::io::Write as _;

use clap::Subcommand;
use serde::Serialize;
use tracing::level_filters::LevelFilter;

use super::backup::newest_keys;
use super::{Failure, terminal};
use crate::clock::{Clock as _, SystemClock};
use crate::config::{self, Flags, LogFormat, Setting, Settings};
use crate::error::Fault;
use crate::http::Identity;
use crate::logs;
use crate::model::database;
use crate::model::master_key::MasterKey;
use crate::service::public_log::keys;
use crate::store::sql::check::{SigningKeyRow, signing_keys};
use crate::store::upkeep;

/// The settings.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print every setting with its value and source; secrets are not shown
    #[command(after_help = PRINT_HELP)]
    Print {
        /// Print JSON
        #[arg(long, conflicts_with = "toml")]
        json: bool,

        /// Print the settings as a configuration file
        #[arg(long)]
        toml: bool,

        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// Check that a server could start with these settings
    #[command(after_help = CHECK_HELP)]
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        flags: Box<Flags>,
    },
}

/// What is wrong with a secret under a master key that opens others.
const DAMAGED: &str =
    "does not open, and the newest signing keys do: it is damaged; restore a backup that has it whole";

const PRINT_HELP: &str = "\
Examples:
  mandate-server config print
  mandate-server config print --config /etc/mandate/server.toml --toml

Takes the flags of `serve`. A flag overrides a MANDATE_* variable, a variable the file, the file the default.";

const CHECK_HELP: &str = "\
Examples:
  mandate-server config check --config /etc/mandate/server.toml \\
      && systemctl restart mandate-server

Takes the flags of `serve`, and prints its warnings. Exit code 2: a setting or the master key cannot be used. Exit code 1: a \
TLS certificate or key cannot be used, the database has a schema that this program does not accept, or the master key does \
not decrypt its signing keys or the secret of its public logs. Run it as the user of the server: root can read files that this user cannot.";

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Print { json, toml, flags } => {
                let settings = config::sources(&flags).map_err(Failure::unusable)?;
                print(&settings, json, toml).map_err(Failure::failed)
            }
            Self::Check { json, flags } => {
                let warnings = logs::Gathered::default();
                logs::start_gathering(LogFormat::Text, LevelFilter::WARN, Some(warnings.clone()));
                let checked = check(&flags);
                let problem = checked.as_ref().err().map(ToString::to_string);
                if json {
                    let view = View { usable: problem.is_none(), warnings: warnings.lines(), problem };
                    terminal::print(true, &view, |_| Ok(()))?;
                } else if problem.is_none() {
                    writeln!(std::io::stdout(), "the configuration can be used").map_err(Failure::failed)?;
                }
                checked
            }
        }
    }
}

#[derive(Serialize)]
struct View {
    usable: bool,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Checks all that `serve` checks before it listens. Changes nothing.
fn check(flags: &Flags) -> Result<(), Failure> {
    let settings = Settings::load(flags).map_err(Failure::unusable)?;
    let master_key = config::master_key().map_err(Failure::unusable)?;
    logs::warn_of_environment();
    let now = SystemClock.now();
    let own = settings.public_tls.as_ref().filter(|_| settings.public_tls != settings.tls);
    for files in settings.tls.iter().chain(own) {
        Identity::read(files.clone(), now).map_err(Failure::failed)?;
    }
    opens(&settings.database, &master_key).map_err(Failure::failed)
}

/// Refuses a database that a server with this master key would refuse. A missing one is accepted: the server
/// creates it.
fn opens(database: &str, master_key: &MasterKey) -> Result<(), Fault> {
    let schema = upkeep::schema(database)?;
    schema.must_be_known(&database::redacted(database))?;
    if schema.current == 0 {
        return Ok(());
    }
    let (keys, secret) =
        upkeep::snapshot(database, |tx| Ok((signing_keys(tx)?, keys::must_open(tx, master_key))))?;
    let name = database::redacted(database);
    let closed = |key: &&SigningKeyRow| !master_key.opens(&key.kid, &key.sealed);
    if let Some(key) = newest_keys(&keys).find(closed) {
        return Err(Fault::new(format!(
            "signing key {} in {name} does not open under the master key that is set: this is not the one that it was \
             sealed under",
            key.kid
        )));
    }
    if let Some(key) = keys.iter().filter(|key| key.revoked_at.is_none()).find(closed) {
        return Err(Fault::new(format!("signing key {} in {name} {DAMAGED}", key.kid)));
    }
    secret.map_err(|fault| match fault {
        Fault::NoSigningKey(_) => Fault::new(format!("the secret of the public logs in {name} {DAMAGED}")),
        other => other,
    })
}

fn print(settings: &[Setting], json: bool, toml: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, settings)?;
        return writeln!(out);
    }
    let name_width = settings.iter().map(|s| s.name.len()).max().unwrap_or(0);
    let rendered = |setting: &Setting| setting.value.as_ref().map_or("-".to_owned(), config::rendered);
    let value_width = settings.iter().map(|s| rendered(s).len()).max().unwrap_or(0);
    for setting in settings {
        let Setting { name, value, source } = setting;
        match value {
            _ if !toml => {
                writeln!(out, "{name:name_width$}  {:value_width$}  {source}", rendered(setting))?;
            }
            // JSON strings, numbers and booleans are valid TOML.
            Some(value) if setting.is_for_a_file() => writeln!(out, "{name} = {value}  # {source}")?,
            _ => writeln!(out, "# {name}: {}  # {source}", rendered(setting))?,
        }
    }
    Ok(())
}
