//! `rate`: how many requests a key may make in any 60 seconds.

use clap::Subcommand;

use super::key::{self, KeyView};
use super::selection::KeyArguments;
use super::{Common, Failure, operator, terminal};
use crate::service::issuance::{self, MAX_RATE};

/// Rates.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Set how many requests a key may make in any 60 seconds
    #[command(after_help = SET_HELP)]
    Set {
        #[command(flatten)]
        keys: KeyArguments,

        /// Requests in any 60 seconds
        #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RATE)))]
        requests_per_minute: u32,

        #[command(flatten)]
        common: Common,
    },
    /// Show the rates of keys in force
    #[command(after_help = SHOW_HELP)]
    Show {
        #[command(flatten)]
        keys: KeyArguments,

        #[command(flatten)]
        common: Common,
    },
}

const SET_HELP: &str = "\
Examples:
  mandate-server rate set --organization acme --environment production 12000
  mandate-server rate set --organization acme --environment sandbox \\
      --agent buyer 600
  mandate-server rate set --key key_0a1b2c3d4e5f 600

Each key has its own count. Within a second every server applies the new rate, also to requests already counted. Requests \
above the rate get 429 with Retry-After.";

const SHOW_HELP: &str = "\
Examples:
  mandate-server rate show --organization acme --environment production
  mandate-server rate show --key key_0a1b2c3d4e5f --json";

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// There is no such key in force, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        let by = operator::here();
        let (common, keys) = match self {
            Self::Set { keys, requests_per_minute, common } => {
                let (settings, selection) = (common.settings()?, keys.selection()?);
                let set = terminal::run(&settings.database, |tx| {
                    issuance::set_rate(tx, &selection, requests_per_minute, &by)
                })?;
                (common, set)
            }
            Self::Show { keys, common } => {
                let (settings, selection) = (common.settings()?, keys.selection()?);
                let found = terminal::run(&settings.database, |tx| issuance::select(tx, &selection, by.at))?;
                (common, found)
            }
        };
        let views: Vec<_> = keys.iter().map(|key| KeyView::of(key, by.at)).collect();
        terminal::print(common.json, &views, |out| key::table(out, &views))
    }
}
