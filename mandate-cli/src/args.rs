//! The command line: what can be typed, and the help that explains it.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::{Parser, Subcommand};
use mandate_core::verify::Leeway;
use mandate_core::{AgentName, Amount, Category, Currency, Invalid, MandateId, Recipient, Timestamp};

use crate::input::Source;

/// The longest idempotency key.
const MAX_IDEMPOTENCY_KEY: usize = 255;

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
    Verify(Verify),
    Inspect(Inspect),
    /// Register agents
    #[command(subcommand)]
    Agent(Agent),
    /// Write and revoke mandates
    #[command(subcommand)]
    Mandate(Mandate),
    Authorize(Authorize),
}

/// Check a signed verdict: signature, issuer, time, verdict, and what it is for
///
/// Needs no account. The key set comes from the issuer, another URL, or a file; nothing is sent to anybody else. What is
/// not given (an amount, a recipient ...) is shown but not compared: compare all of it before you deliver.
#[derive(Debug, clap::Args)]
#[command(after_help = VERIFY_HELP)]
pub(crate) struct Verify {
    /// The token, or `-` to read it from standard input
    #[arg(value_name = "TOKEN|-")]
    pub(crate) token: String,

    /// The issuer that the token must name [env: MANDATE_ISSUER]
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Option<String>,

    /// The issuer's key set [default: {issuer}/.well-known/jwks.json] [env: MANDATE_JWKS]
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) jwks: Option<String>,

    /// The amount that is to be paid
    #[arg(long, value_name = "AMOUNT", value_parser = Amount::parse, allow_negative_numbers = true)]
    pub(crate) amount: Option<Amount>,

    /// The currency that is to be paid in
    #[arg(long, value_name = "CODE", value_parser = Currency::parse)]
    pub(crate) currency: Option<Currency>,

    /// Who is to be paid, `vendor:<name>`
    #[arg(long, value_name = "VENDOR", value_parser = Recipient::parse)]
    pub(crate) recipient: Option<Recipient>,

    /// The mandate under which the verdict must have been given
    #[arg(long, value_name = "ID", value_parser = MandateId::parse)]
    pub(crate) mandate: Option<MandateId>,

    /// Remember the nonce in this file, and refuse one that is there. Many processes may share the file
    #[arg(long, value_name = "FILE")]
    pub(crate) nonce_store: Option<std::path::PathBuf>,

    /// Verify as of this time: RFC 3339, or seconds since the epoch [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant, allow_negative_numbers = true)]
    pub(crate) at: Option<Timestamp>,

    /// How far the clocks of issuer and verifier may disagree, 0 to 30
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = leeway, allow_negative_numbers = true)]
    pub(crate) leeway: Leeway,
}

const VERIFY_HELP: &str = "\
Examples:
  mandate verify \"$TOKEN\" --issuer https://verdicts.example.com \\
      --amount 40 --currency USD --recipient vendor:acme --nonce-store nonces.db
  mandate verify - --issuer https://verdicts.example.com --jwks jwks.json --json < token.txt

Exit codes:
  0 valid    10 malformed    11 signature or key    12 expired    13 not yet valid    14 issuer
  15 not a verdict    16 not `allow`    17 amount, currency, recipient or mandate differ
  18 replayed    19 no key set    2 usage    3 file cannot be read or written";

/// Show what a token says, without verifying anything
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate inspect \"$TOKEN\"
  mandate inspect - --json < token.txt

Nothing that is shown is to be believed: use `mandate verify` for that.")]
pub(crate) struct Inspect {
    /// The token, or `-` to read it from standard input
    #[arg(value_name = "TOKEN|-")]
    pub(crate) token: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Agent {
    /// Register an agent; its key is shown once
    #[command(after_help = "\
Examples:
  mandate agent create buyer
  mandate agent create buyer --json | jq -r .agent_key > agent.key

Needs an organization key: MANDATE_ORGANIZATION_KEY, MANDATE_ORGANIZATION_KEY_FILE or --key-file.")]
    Create {
        /// The agent's name, unique in the organization; its id becomes `agt_<NAME>`
        #[arg(value_parser = AgentName::parse)]
        name: AgentName,
        #[command(flatten)]
        service: Service,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Mandate {
    /// Write a mandate; it replaces the one that governs the agent so far
    #[command(after_help = MANDATE_CREATE_HELP)]
    Create {
        /// The mandate as JSON, or `-` to read it from standard input
        #[arg(short, long, value_name = "FILE|-", value_parser = source)]
        file: Source,
        #[command(flatten)]
        service: Service,
    },
    /// Revoke a mandate: the agent's next request is denied
    #[command(after_help = "\
Examples:
  mandate mandate revoke mnd_01hf7yat000000000000000007

Needs an organization key: MANDATE_ORGANIZATION_KEY, MANDATE_ORGANIZATION_KEY_FILE or --key-file.")]
    Revoke {
        /// The mandate's id, `mnd_...`
        #[arg(value_parser = MandateId::parse)]
        id: MandateId,
        #[command(flatten)]
        service: Service,
    },
}

const MANDATE_CREATE_HELP: &str = "\
Examples:
  mandate mandate create -f mandate.json
  mandate mandate create -f - <<'END'
  {
    \"principal\": \"role:finance_lead\",
    \"agent\": \"agt_buyer\",
    \"limits\": {\"per_transaction\": 500, \"per_month\": 2000, \"currency\": \"USD\"},
    \"categories\": [\"software\", \"cloud.compute\"],
    \"review_above\": 200,
    \"expires\": \"2027-12-31\"
  }
  END

The file is checked before it is sent, by the rules that the service applies.
Needs an organization key: MANDATE_ORGANIZATION_KEY, MANDATE_ORGANIZATION_KEY_FILE or --key-file.";

/// Ask whether money may be spent; a verdict of `allow` comes with a token for the counterparty
#[derive(Debug, clap::Args)]
#[command(after_help = AUTHORIZE_HELP)]
pub(crate) struct Authorize {
    /// How much, an exact decimal
    #[arg(value_parser = amount_text, allow_negative_numbers = true)]
    pub(crate) amount: String,

    /// The currency, for example USD
    #[arg(value_parser = Currency::parse)]
    pub(crate) currency: Currency,

    /// Who is to be paid, `vendor:<name>`
    #[arg(long, value_name = "VENDOR", value_parser = Recipient::parse)]
    pub(crate) to: Recipient,

    /// What the money is for
    #[arg(long, value_name = "CATEGORY", value_parser = Category::parse)]
    pub(crate) category: Category,

    /// In observe mode, too, let a verdict other than `allow` decide the exit code
    #[arg(long)]
    pub(crate) strict: bool,

    #[command(flatten)]
    pub(crate) service: Service,
}

const AUTHORIZE_HELP: &str = "\
Examples:
  mandate authorize 40 USD --to vendor:acme --category software
  mandate authorize 40.50 USD --to vendor:acme --category software --json | jq -r .verdict_token

Needs an agent key: MANDATE_AGENT_KEY, MANDATE_AGENT_KEY_FILE or --key-file.

Exit codes:
  0 allow (in observe mode any verdict, unless --strict)    20 denied    21 review
  2 usage    30 to 38 no verdict; see docs/cli.md";

/// How the service is reached.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct Service {
    /// The service's address, which ends in /v1 [env: MANDATE_BASE_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Read the API key from this file, or from standard input with `-`
    #[arg(long, value_name = "FILE|-", value_parser = source)]
    pub(crate) key_file: Option<Source>,

    /// Send this idempotency key: requests that carry the same one take effect once [default: random]
    #[arg(long, value_name = "KEY", value_parser = idempotency_key)]
    pub(crate) idempotency_key: Option<String>,
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of a value parser")]
fn source(text: &str) -> Result<Source, std::convert::Infallible> {
    Ok(Source::from(text))
}

/// The text as it stands, once it is known to be an amount.
fn amount_text(text: &str) -> Result<String, Invalid> {
    Amount::parse(text).map(|_| text.to_owned())
}

fn instant(text: &str) -> Result<Timestamp, Invalid> {
    match text.parse::<i64>() {
        Ok(seconds) if seconds >= 0 => Ok(Timestamp::from_seconds(seconds)),
        _ => Timestamp::parse(text),
    }
}

fn leeway(text: &str) -> Result<Leeway, String> {
    let seconds = text.parse().map_err(|_| "must be whole seconds".to_owned())?;
    Leeway::from_seconds(seconds).map_err(|e| e.to_string())
}

fn idempotency_key(text: &str) -> Result<String, &'static str> {
    let fits = (1..=MAX_IDEMPOTENCY_KEY).contains(&text.len());
    if fits && text.bytes().all(|b| matches!(b, b' '..=b'~')) && text.trim() == text {
        Ok(text.to_owned())
    } else {
        Err("must be 1 to 255 printable ASCII characters, the first and last no space")
    }
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

    #[test]
    fn times_are_read_in_both_forms() {
        assert_eq!(instant("1772362800").unwrap(), instant("2026-03-01T12:00:00+01:00").unwrap());
        assert!(instant("-1").is_err() && instant("tomorrow").is_err() && instant("1.5").is_err());
    }

    #[test]
    fn idempotency_keys_fit_a_header() {
        for text in ["", " a", "a ", "a\n", "ä", &"a".repeat(256)] {
            assert!(idempotency_key(text).is_err(), "{text:?}");
        }
        assert!(idempotency_key("order 7/a").is_ok());
    }
}
