//! The command line: the root, the flags that every command has, and the list of commands.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::{Parser, Subcommand};

use crate::command::{agent, authorize, inspect, jwks, mandate, manual, verify};

/// Spending mandates for autonomous agents: verify verdicts, write mandates, ask for authorizations.
#[derive(Debug, Parser)]
#[command(name = "mandate", version, arg_required_else_help = true, after_help = ROOT_HELP)]
pub(crate) struct Args {
    /// Print JSON instead of text
    #[arg(long, global = true, display_order = 100)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const ROOT_HELP: &str = "\
Counterparties need no account: `mandate verify` checks a token against the issuer's public keys.
Organizations and agents set MANDATE_BASE_URL, and MANDATE_ORGANIZATION_KEY or MANDATE_AGENT_KEY.
Keys are never taken from the command line, where other users of the machine could read them.

Examples:
  mandate verify \"$TOKEN\" --issuer https://verdicts.example.com --amount 40 --currency USD
  mandate agent create buyer
  mandate mandate create -f mandate.json
  mandate authorize 40 USD --to vendor:acme --category software";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Verify(verify::Verify),
    Inspect(inspect::Inspect),
    /// Look at an issuer's keys, and pin those that you trust
    #[command(subcommand)]
    Jwks(jwks::Jwks),
    /// Register agents
    #[command(subcommand)]
    Agent(agent::Agent),
    /// Write and revoke mandates
    #[command(subcommand)]
    Mandate(mandate::Mandate),
    Authorize(authorize::Authorize),
    #[command(flatten)]
    Manual(manual::Manual),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_tree_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        fn check(command: &clap::Command) {
            if !command.has_subcommands() {
                let help =
                    command.get_after_help().unwrap_or_else(|| panic!("{}", command.get_name())).to_string();
                assert!(help.starts_with("Examples:\n"), "{}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }
}
