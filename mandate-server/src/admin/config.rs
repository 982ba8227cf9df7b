//! `config`: the settings in force, and where each comes from.

use std::io::Write as _;

use clap::Subcommand;

use super::Failure;
use crate::config::{self, Flags, Setting, Settings};

/// The settings.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show every setting, its value and its source; secrets are not shown
    #[command(after_help = PRINT_HELP)]
    Print {
        /// Print JSON
        #[arg(long, conflicts_with = "toml")]
        json: bool,

        /// Print a configuration file that says the same
        #[arg(long)]
        toml: bool,

        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// Say whether a server could start with these settings
    #[command(after_help = CHECK_HELP)]
    Check {
        #[command(flatten)]
        flags: Box<Flags>,
    },
}

const PRINT_HELP: &str = "\
Examples:
  mandate-server config print
  mandate-server config print --config /etc/mandate/server.toml --toml

Takes the flags of `serve`. Flags win over MANDATE_* variables, these over the file, that over the defaults.";

const CHECK_HELP: &str = "\
Examples:
  mandate-server config check --config /etc/mandate/server.toml && systemctl restart mandate-server

Takes the flags of `serve`. Also reads the master key. Exit code 2 when something cannot be used.";

impl Command {
    /// Does what the command says.
    ///
    /// # Errors
    /// A setting cannot be used.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Print { json, toml, flags } => {
                let settings = config::sources(&flags).map_err(Failure::unusable)?;
                print(&settings, json, toml).map_err(Failure::failed)
            }
            Self::Check { flags } => {
                Settings::load(&flags).map_err(Failure::unusable)?;
                config::master_key().map_err(Failure::unusable)?;
                writeln!(std::io::stdout(), "the configuration can be used").map_err(Failure::failed)
            }
        }
    }
}

fn print(settings: &[Setting], json: bool, toml: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, settings)?;
        return writeln!(out);
    }
    let name_width = settings.iter().map(|s| s.name.len()).max().unwrap_or(0);
    let shown = |setting: &Setting| setting.value.as_ref().map_or("-".to_owned(), config::shown);
    let value_width = settings.iter().map(|s| shown(s).len()).max().unwrap_or(0);
    for setting in settings {
        let Setting { name, value, source } = setting;
        match value {
            _ if !toml => {
                writeln!(out, "{name:name_width$}  {:value_width$}  {source}", shown(setting))?;
            }
            // JSON's texts, numbers and booleans are TOML's.
            Some(value) if !setting.is_secret() => writeln!(out, "{name} = {value}  # {source}")?,
            _ => writeln!(out, "# {name}: {}  # {source}", shown(setting))?,
        }
    }
    Ok(())
}
