//! The command line: the root, and the list of commands.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::{Parser, Subcommand};

use crate::command::{
    agent, api, audit, authorize, decision, doctor, enforcement, escrow, event, export, inspect, jwks,
    listen, mandate, manual, profile, replay, report, review, simulate, trigger, usage, verify, webhook,
};
use crate::global::Global;

/// Spending mandates for autonomous agents: verify verdicts, manage mandates, request authorizations
#[derive(Debug, Parser)]
#[command(name = "mandate", version, arg_required_else_help = true, after_help = ROOT_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const ROOT_HELP: &str = "\
Counterparties need no account: `mandate verify` checks a token against the issuer's public keys.
Organizations and agents start with `mandate login`, or set MANDATE_BASE_URL, and MANDATE_ORGANIZATION_KEY or MANDATE_AGENT_KEY.
API keys are never command-line arguments, which other users of the machine could read.

Examples:
  mandate verify \"$TOKEN\" --issuer https://verdicts.example.com --amount 40 \\
      --currency USD
  mandate login
  mandate agent create buyer
  mandate mandate create -f mandate.json
  mandate authorize 40 USD --to vendor:acme --category software";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Verify(verify::Verify),
    Inspect(inspect::Inspect),
    Audit(audit::Audit),
    Simulate(simulate::Simulate),
    Report(report::Report),
    /// Show an issuer's keys, and pin the ones you trust
    #[command(subcommand)]
    Jwks(jwks::Jwks),
    Login(profile::Login),
    Whoami(profile::Whoami),
    Switch(profile::Switch),
    Logout(profile::Logout),
    /// List profiles
    #[command(subcommand)]
    Profile(profile::Profile),
    /// Register and show agents
    #[command(subcommand)]
    Agent(agent::Agent),
    /// Create, compare and revoke mandates
    #[command(subcommand)]
    Mandate(mandate::Mandate),
    Authorize(authorize::Authorize),
    /// List and show decisions
    #[command(subcommand)]
    Decision(decision::Decision),
    /// Approve or deny requests that need a review
    #[command(subcommand)]
    Review(review::Review),
    /// Show or switch the enforcement mode
    #[command(subcommand)]
    Enforcement(enforcement::Enforcement),
    /// Manage webhooks
    #[command(subcommand)]
    Webhook(webhook::Webhook),
    /// List and show events
    #[command(subcommand)]
    Event(event::Event),
    /// Manage escrows: funds locked until a condition is met
    #[command(subcommand)]
    Escrow(escrow::Escrow),
    /// Export the decision log to a file
    #[command(subcommand)]
    Export(export::Export),
    Usage(usage::Usage),
    Listen(listen::Listen),
    Replay(replay::Replay),
    Trigger(trigger::Trigger),
    Doctor(doctor::Doctor),
    Api(api::Api),
    #[command(flatten)]
    Manual(manual::Manual),
    /// Print docs/cli.md
    #[command(hide = true)]
    Reference,
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
            if !command.has_subcommands() && !command.is_hide_set() {
                let help =
                    command.get_after_help().unwrap_or_else(|| panic!("{}", command.get_name())).to_string();
                assert!(help.starts_with("Examples:\n"), "{}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }
}
