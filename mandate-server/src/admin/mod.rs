//! The operator's commands, one file for each noun. They work on the database while a server runs, except
//! those that need a SQLite file for themselves: `migrate`, `restore`, `transfer` and `retention close`.

pub mod audit;
pub mod backup;
pub mod check;
pub mod clock;
pub mod config;
pub mod export;
pub mod healthcheck;
pub mod key;
pub mod manual;
pub mod migrate;
pub mod notice;
pub mod operator;
pub mod organization;
pub mod person;
pub mod public_log;
pub mod rate;
pub mod retention;
pub mod selection;
pub mod settlement;
pub mod signing_key;
pub mod terminal;
pub mod transfer;
pub mod webhook;

use std::fmt;
use std::path::PathBuf;

use clap::Subcommand;

use crate::config::{Flags, Settings};

/// The command was refused, or failed.
const FAILED: u8 = 1;
/// The command line or the configuration cannot be used. clap ends with the same code.
const USAGE: u8 = 2;
/// What a command was to look at could not be read.
const UNSEEN: u8 = 3;

/// The operator's commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create and list organizations
    #[command(subcommand, after_help = "Examples:\n  mandate-server organization create acme")]
    Organization(organization::Command),
    /// Take, verify and restore backups
    #[command(subcommand, after_help = "Examples:\n  mandate-server backup create today.db")]
    Backup(backup::Command),
    /// Check that the database is consistent
    #[command(after_help = check::HELP)]
    Check(check::Options),
    /// Show the clock by which decisions are made, and accept one that was set back
    #[command(subcommand, after_help = "Examples:\n  mandate-server clock show")]
    Clock(clock::Command),
    /// Create or update the schema of the database
    #[command(after_help = migrate::HELP)]
    Migrate(migrate::Options),
    /// Move an installation from SQLite to PostgreSQL
    #[command(after_help = transfer::HELP)]
    Transfer(transfer::Options),
    /// Show and check the settings
    #[command(subcommand, after_help = "Examples:\n  mandate-server config print")]
    Config(config::Command),
    /// Ask whether a server is ready
    #[command(after_help = healthcheck::HELP)]
    Healthcheck(healthcheck::Options),
    /// Issue, list, rotate and revoke API keys
    #[command(subcommand, after_help = "Examples:\n  mandate-server key list --organization acme")]
    Key(key::Command),
    /// Create, enrol, list and disable the people who answer reviews in the console
    #[command(
        subcommand,
        after_help = "Examples:\n  mandate-server person list --organization acme --environment production"
    )]
    Person(person::Command),
    /// Show and set the request rates of API keys
    #[command(
        subcommand,
        after_help = "Examples:\n  mandate-server rate set --organization acme --environment production 12000"
    )]
    Rate(rate::Command),
    /// List, rotate and revoke the keys that sign verdicts
    #[command(subcommand, after_help = "Examples:\n  mandate-server signing-key list")]
    SigningKey(signing_key::Command),
    /// Rotate the master key, which encrypts the signing keys
    #[command(subcommand, after_help = "Examples:\n  mandate-server master-key rotate --help")]
    MasterKey(signing_key::MasterCommand),
    /// Have messages sent to a chat for each review that waits
    #[command(subcommand, after_help = "Examples:\n  mandate-server notice show --organization acme")]
    Notice(notice::Command),
    /// List webhooks and the state of their deliveries
    #[command(subcommand, after_help = "Examples:\n  mandate-server webhook list --organization acme")]
    Webhook(webhook::Command),
    /// List and delete exports
    #[command(subcommand, after_help = "Examples:\n  mandate-server export list")]
    Export(export::Command),
    /// List settlement instructions that are pending or were refused, and send one now
    #[command(subcommand, after_help = "Examples:\n  mandate-server settlement list")]
    Settlement(settlement::Command),
    /// Show and keep the public logs, and their witnesses
    #[command(subcommand, after_help = "Examples:\n  mandate-server log show")]
    Log(public_log::Command),
    /// Close old months: write their decisions into files and delete their rows
    #[command(
        subcommand,
        after_help = "Examples:\n  mandate-server retention plan 2026-01\n  mandate-server retention close 2026-01 --to /archive"
    )]
    Retention(retention::Command),
    /// Read the audit records of operator commands
    #[command(subcommand, after_help = "Examples:\n  mandate-server audit list --limit 20")]
    Audit(audit::Command),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The reason it failed, with the exit code.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Organization(command) => command.run(),
            Self::Backup(command) => command.run(),
            Self::Check(options) => options.run(),
            Self::Clock(command) => command.run(),
            Self::Migrate(options) => options.run(),
            Self::Transfer(options) => options.run(),
            Self::Config(command) => command.run(),
            Self::Healthcheck(options) => options.run(),
            Self::Key(command) => command.run(),
            Self::Person(command) => command.run(),
            Self::Rate(command) => command.run(),
            Self::SigningKey(command) => command.run(),
            Self::MasterKey(command) => command.run(),
            Self::Notice(command) => command.run(),
            Self::Webhook(command) => command.run(),
            Self::Export(command) => command.run(),
            Self::Settlement(command) => command.run(),
            Self::Log(command) => command.run(),
            Self::Retention(command) => command.run(),
            Self::Audit(command) => command.run(),
        }
    }
}

/// The arguments of every operator's command: which database, and how to print.
#[derive(Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "the words are help for a terminal")]
pub struct Common {
    /// The database: sqlite://PATH, or postgres://… [env: MANDATE_DATABASE] [default: sqlite://mandate.db]
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,

    /// Read settings from this TOML file [env: MANDATE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Common {
    /// The settings that result from flags, environment, file and defaults.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let flags =
            Flags { database: self.database.clone(), config: self.config.clone(), ..Flags::default() };
        Settings::load(&flags).map_err(Failure::unusable)
    }
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// The command was refused, or failed.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "it is what map_err brings")]
    pub fn failed(why: impl ToString) -> Self {
        Self { code: FAILED, message: why.to_string() }
    }

    /// The command line or the configuration is invalid.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "it is what map_err brings")]
    pub fn unusable(why: impl ToString) -> Self {
        Self { code: USAGE, message: why.to_string() }
    }

    /// What the command was to look at could not be read. That says nothing about it.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "it is what map_err brings")]
    pub fn unseen(why: impl ToString) -> Self {
        Self { code: UNSEEN, message: why.to_string() }
    }

    /// The exit code.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
