//! The command line: the root, and the list of commands.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::{Parser, Subcommand};

use crate::command::{
    agent, api, audit, authorize, decision, doctor, enforcement, escrow, event, export, inspect, jwks,
    listen, log, mandate, manual, mcp, open, plan, profile, replay, report, review, simulate, stop, trigger,
    usage, verify, version, webhook,
};
use crate::global::Global;

/// Spending mandates for autonomous agents: verify verdicts, manage mandates, request authorizations
#[derive(Debug, Parser)]
#[command(name = "mandate", version = version::VERSION, arg_required_else_help = true, after_help = ROOT_HELP)]
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
  mandate verify \"$TOKEN\" --issuer https://verdicts.example.com \\
      --order order.json --nonce-store nonces.db
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
    /// Prove, watch, audit and witness the public log
    #[command(subcommand)]
    Log(log::Log),
    Login(profile::Login),
    Whoami(profile::Whoami),
    Switch(profile::Switch),
    Logout(profile::Logout),
    /// What people of other command lines type: `auth login`, `auth status`
    #[command(subcommand, hide = true)]
    Auth(profile::Auth),
    /// List profiles
    #[command(subcommand, alias = "profiles")]
    Profile(profile::Profile),
    /// Register and show agents
    #[command(subcommand, alias = "agents")]
    Agent(agent::Agent),
    /// Create, compare and revoke mandates
    #[command(subcommand, alias = "mandates")]
    Mandate(mandate::Mandate),
    Plan(plan::Plan),
    Apply(plan::Apply),
    Drift(plan::Drift),
    Stop(stop::Stop),
    Authorize(authorize::Authorize),
    Mcp(mcp::Mcp),
    /// List and show decisions
    #[command(subcommand, alias = "decisions")]
    Decision(decision::Decision),
    /// Approve or deny requests that need a review
    #[command(subcommand, alias = "reviews")]
    Review(review::Review),
    /// Show or switch the enforcement mode
    #[command(subcommand)]
    Enforcement(enforcement::Enforcement),
    /// Manage webhooks
    #[command(subcommand, alias = "webhooks")]
    Webhook(webhook::Webhook),
    /// List and show events
    #[command(subcommand, alias = "events")]
    Event(event::Event),
    /// Manage escrows: funds locked until a condition is met
    #[command(subcommand, alias = "escrows")]
    Escrow(escrow::Escrow),
    /// Export the decision log to a file
    #[command(subcommand, alias = "exports")]
    Export(export::Export),
    Usage(usage::Usage),
    Listen(listen::Listen),
    Replay(replay::Replay),
    Trigger(trigger::Trigger),
    Doctor(doctor::Doctor),
    Api(api::Api),
    Open(open::Open),
    Version(version::Version),
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
    fn commands_are_told_from_sentences_by_their_words() {
        fn names(command: &clap::Command, found: &mut std::collections::BTreeSet<String>) {
            for below in command.get_subcommands() {
                found.insert(below.get_name().to_owned());
                names(below, found);
            }
        }
        let mut found = std::collections::BTreeSet::from(["help".to_owned()]);
        names(&Args::command(), &mut found);
        found.remove("reference");
        let found: Vec<String> = found.into_iter().collect();
        assert_eq!(found.join(" "), crate::wrap::SUBCOMMANDS);
    }

    #[test]
    fn options_are_below_their_own_heading() {
        fn check(command: &clap::Command) {
            for arg in command.get_arguments() {
                let own: &[&str] = match arg.get_help_heading() {
                    Some("Public log") => &["issuer", "sandbox", "log", "log_key", "policy", "proof"],
                    Some("Service") => &["base_url", "key_file", "idempotency_key"],
                    Some("List") => &["limit", "all"],
                    Some("Tail") => &["lines", "follow", "interval"],
                    _ => continue,
                };
                assert!(own.contains(&arg.get_id().as_str()), "{}: {}", command.get_name(), arg.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }

    #[test]
    fn every_command_has_examples() {
        fn check(command: &clap::Command) {
            if !command.has_subcommands() && !command.is_hide_set() {
                let help =
                    command.get_after_help().unwrap_or_else(|| panic!("{}", command.get_name())).to_string();
                assert!(help.starts_with("Examples:\n"), "{}", command.get_name());
                // The terminal's width wraps prose: a line that is broken here would be broken twice.
                let prose = help.lines().filter(|line| !line.is_empty() && !line.starts_with("  "));
                for line in prose.filter(|line| !line.starts_with("Exit codes:")) {
                    assert!(line.ends_with(['.', ':']), "{}: {line}", command.get_name());
                }
            }
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }
}
