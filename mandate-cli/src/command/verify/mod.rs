//! `mandate verify`: verifies signed verdicts and webhook events, for counterparties.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod check;
mod explain;
mod many;
mod report;

use mandate_core::verify::Leeway;
use mandate_core::{Amount, Currency, MandateId, Recipient, Timestamp};

use self::check::{Verifier, Wanted, claim};
pub(crate) use self::report::SANDBOX;
use self::report::{Refusal, Report};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::input::Source;
use crate::key_set::Issuer;
use crate::nonce_store::FileNonces;
use crate::output::Output;
use crate::value::{instant, leeway, source};

/// Verify a signed verdict: signature, issuer, time, verdict and payment
///
/// No account is needed. The issuer's key set is fetched from the issuer or another URL, read from a file, or taken from
/// the pinned keys. Nothing is sent to anyone else. An amount, currency, recipient or mandate that you do not pass is shown
/// but not compared: pass all of them before you deliver. A fetched key set is cached for as long as the issuer allows, and
/// fetched again when a token names a key that it does not contain. With --nonce-store, the nonce is recorded before the
/// result is printed. If the result cannot be printed (exit code 3), the verdict counts as used, so that no verdict is ever
/// accepted twice.
///
/// With --tokens, many tokens are verified at once, on all cores. Each input line is a token, or an object with `token`
/// and, each optional, `id`, `amount`, `currency`, `recipient` and `mandate`, which override the options. Each output line
/// is an object with `line`, `id`, `valid` and `claims` or `error`, in the order of the input. --json=FIELDS and --jq apply
/// to each line. The exit code is that of the first line that is not valid.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[command(after_help = VERIFY_HELP)]
pub(crate) struct Verify {
    /// The token, `@FILE` to read it from a file, or `-` for standard input
    #[arg(value_name = "TOKEN|@FILE|-", required_unless_present = "tokens", conflicts_with = "tokens")]
    pub(crate) token: Option<String>,

    /// Verify many tokens, one per line; the output is NDJSON
    #[arg(long, value_name = "FILE|-", value_parser = source)]
    pub(crate) tokens: Option<Source>,

    /// Verify an event (the body of a webhook request) instead of a verdict
    #[arg(long, conflicts_with_all = ["amount", "currency", "recipient", "mandate"])]
    pub(crate) event: bool,

    /// The issuer that the token must name [env: MANDATE_ISSUER; default: from the profile]
    #[arg(long, value_name = "URL")]
    pub(crate) issuer: Option<String>,

    /// The issuer's key set [default: {issuer}/.well-known/jwks.json] [env: MANDATE_JWKS]
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) jwks: Option<String>,

    /// Trust only the keys that `mandate jwks pin` has stored for the issuer
    #[arg(long, conflicts_with = "jwks")]
    pub(crate) pinned: bool,

    /// Accept sandbox keys, which sign verdicts about no real money
    #[arg(long)]
    pub(crate) allow_sandbox: bool,

    /// The expected amount
    #[arg(long, value_name = "AMOUNT", value_parser = Amount::parse, allow_negative_numbers = true)]
    pub(crate) amount: Option<Amount>,

    /// The expected currency
    #[arg(long, value_name = "CODE", value_parser = Currency::parse)]
    pub(crate) currency: Option<Currency>,

    /// The expected recipient, `vendor:<name>`
    #[arg(long, value_name = "VENDOR", value_parser = Recipient::parse)]
    pub(crate) recipient: Option<Recipient>,

    /// The expected mandate
    #[arg(long, value_name = "ID", value_parser = MandateId::parse)]
    pub(crate) mandate: Option<MandateId>,

    /// Record the nonce (for an event, its id) in this file, and refuse it if it is there already. Processes can share the
    /// file
    #[arg(long, value_name = "FILE")]
    pub(crate) nonce_store: Option<std::path::PathBuf>,

    /// Explain each check: what it is, which document defines it, and what was compared
    #[arg(long)]
    pub(crate) explain: bool,

    /// Verify as of this time: RFC 3339, or seconds since the epoch [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant, allow_negative_numbers = true)]
    pub(crate) at: Option<Timestamp>,

    /// The tolerated clock difference between issuer and verifier in seconds, 0 to 30
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = leeway, allow_negative_numbers = true)]
    pub(crate) leeway: Leeway,
}

const VERIFY_HELP: &str = "\
Examples:
  mandate verify \"$TOKEN\" --issuer https://verdicts.example.com \\
      --amount 40 --currency USD --recipient vendor:acme --nonce-store nonces.db
  mandate verify - --issuer https://verdicts.example.com --jwks jwks.json \\
      --json < token.txt
  mandate verify @token.txt --issuer https://verdicts.example.com --pinned \\
      --explain
  mandate verify --tokens orders.ndjson --issuer https://verdicts.example.com \\
      > answers.ndjson
  mandate verify --tokens - --issuer https://verdicts.example.com \\
      --jq 'select(.valid | not).line' < tokens.txt
  mandate verify --event @body.jwt --issuer https://verdicts.example.com \\
      --nonce-store events.db

Exit codes:
  0 valid    10 malformed    11 signature or key    12 expired    13 not yet valid    14 issuer
  15 not a verdict    16 not `allow`    17 amount, currency, recipient or mandate differ
  18 replayed    19 no key set    22 of a sandbox    2 usage    3 file cannot be read or written";

pub(crate) fn run(args: &Verify, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
    if let Some(source) = &args.tokens {
        return many::run(args, source, global, output);
    }
    match one(args, global) {
        Ok(report) => {
            let used_up = report.claimed().filter(|_| report.is_valid());
            let used_up = used_up.map(|nonce| format!("{nonce}: ask for a new verdict"));
            if let Some(used_up) = &used_up {
                output.note_if_lost("used up", used_up);
            }
            if output.is_json() {
                output.json(&report).map_err(|failure| match used_up {
                    Some(used_up) => failure.note("used up", used_up),
                    None => failure,
                })?;
            } else {
                report.print(output);
            }
            Ok(report.exit())
        }
        // The token could not be checked. JSON readers still get `valid: false`.
        Err(failure) => {
            if output.is_json() {
                let refusal = Refusal::new(None, failure.message().to_owned(), failure.exit);
                output.json(&Report::failed(refusal))?;
            }
            Err(failure)
        }
    }
}

fn issuer(args: &Verify, global: &Global) -> Result<Issuer, Failure> {
    let reads_tokens = args.tokens == Some(Source::Stdin) || args.token.as_deref() == Some("-");
    if reads_tokens && args.jwks.as_deref() == Some("-") {
        return Err(super::both_from_standard_input("the key set", "what is verified"));
    }
    if args.pinned {
        Issuer::pinned(args.issuer.as_deref(), global)
    } else {
        Issuer::find(args.issuer.as_deref(), args.jwks.as_deref(), global)
    }
}

/// Makes all checks of one token, up to the first that fails.
fn one(args: &Verify, global: &Global) -> Result<Report, Failure> {
    let issuer = issuer(args, global)?;
    let token = super::token(args.token.as_deref().unwrap_or_default())?;
    let nonces =
        args.nonce_store.as_deref().map(|path| FileNonces::open(path, environment::now())).transpose()?;
    let keys = issuer.keys_for(&token)?;
    // Fetching takes a while. What counts is the time at which the verdict is used.
    let now = args.at.unwrap_or_else(environment::now);
    let verifier = Verifier { args, issuer: &issuer.name };
    let wanted = Wanted::of(args);
    let (mut report, passed) = verifier.check(&token, &keys, &wanted, now);
    if let Some(passed) = passed {
        claim(&mut report, &passed, nonces.as_ref(), now)?;
    }
    if args.explain {
        report.explain(&issuer.name, args, &wanted, now);
    }
    Ok(report)
}
