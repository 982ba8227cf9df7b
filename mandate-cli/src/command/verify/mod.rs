//! `mandate verify`: verifies signed verdicts and webhook events, for counterparties.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod check;
mod explain;
mod many;
mod order;
mod proof;
mod report;

use mandate_core::verify::Leeway;
use mandate_core::{Amount, Currency, MandateId, Recipient, Timestamp};

use self::check::{Verifier, claim};
use self::order::Wanted;
pub(crate) use self::report::SANDBOX;
use self::report::{Refusal, Report};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::input::Source;
use crate::key_set::Issuer;
use crate::nonce_store::FileNonces;
use crate::output::Output;
use crate::public_log::trust::TrustArgs;
use crate::value::{instant, leeway, source};

/// Verify a signed verdict: signature, issuer, time, verdict and payment
///
/// The exit code is 0 only when all that a delivery needs was checked: the amount, the currency and the recipient were
/// compared, with --order or with --amount, --currency and --recipient; and the nonce was claimed with --nonce-store, or
/// --nonce-elsewhere says that you claim it yourself. Otherwise a genuine verdict ends with exit code 26, and the last line
/// says what was not compared. --signature-only is for reading a verdict: it ends with 0 and compares nothing.
///
/// No account is needed. The issuer's key set is fetched from the issuer or another URL, read from a file, or taken from
/// the pinned keys. Nothing is sent to anyone else. A fetched key set is cached for as long as the issuer allows, at most
/// five minutes, and fetched again when a token names a key that it does not contain. When it cannot be fetched, the cached
/// one is used until these five minutes are over; then every token is refused (19). The nonce is claimed last, after every
/// other check, and recorded before the result is printed. If the result cannot be printed (exit code 3), the verdict
/// counts as used, so that no verdict is ever accepted twice.
///
/// With --proof, the verdict must also be in the issuer's public log, under the key of --log-key or the one that `mandate log
/// key pin` has stored, and with the cosignatures that --policy asks for. A checkpoint from before the token's entry shows
/// nothing yet: that is exit code 50.
///
/// With --tokens, many tokens are verified at once, on all cores. Each input line is a token, or an object with `token`
/// and, each optional, `id`, `amount`, `currency`, `recipient` and `mandate`, which override the options. Each output line
/// is an object with `line`, `id`, `valid`, `claims`, `error`, and what was `compared` and `not_compared`, in the order of
/// the input. --json=FIELDS and --jq apply to each line. The exit code is that of the first line that is not valid.
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
    #[arg(long, conflicts_with_all = ["order", "amount", "currency", "recipient", "mandate", "nonce_elsewhere", "signature_only"])]
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

    /// The expected payment: a JSON object with amount, currency, recipient and, if you like, mandate and id
    #[arg(long, value_name = "FILE|-", value_parser = source, conflicts_with_all = ["amount", "currency", "recipient", "mandate"])]
    pub(crate) order: Option<Source>,

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

    /// Do not ask for --nonce-store: you accept each nonce once yourself
    #[arg(long, conflicts_with = "nonce_store")]
    pub(crate) nonce_elsewhere: bool,

    /// End with 0 although nothing is compared: for reading a verdict, never for delivering
    #[arg(long, conflicts_with_all = ["order", "amount", "currency", "recipient", "mandate", "nonce_store", "nonce_elsewhere"])]
    pub(crate) signature_only: bool,

    /// Explain each check: what it is, which document defines it, and what was compared
    #[arg(long)]
    pub(crate) explain: bool,

    /// Verify as of this time: RFC 3339, or seconds since the epoch [default: now]
    #[arg(long, value_name = "TIME", value_parser = instant, allow_negative_numbers = true)]
    pub(crate) at: Option<Timestamp>,

    /// The tolerated clock difference between issuer and verifier in seconds, 0 to 30
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = leeway, allow_negative_numbers = true)]
    pub(crate) leeway: Leeway,

    /// The proof that the decision is in the public log, as `mandate log proof` fetches it; `-` for standard input
    #[arg(
        long,
        value_name = "FILE|-",
        value_parser = source,
        conflicts_with_all = ["tokens", "event"],
        help_heading = "Public log"
    )]
    pub(crate) proof: Option<Source>,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

const VERIFY_HELP: &str = "\
Examples:
  mandate verify \"$TOKEN\" --issuer https://verdicts.example.com \\
      --amount 40 --currency USD --recipient vendor:acme --nonce-store nonces.db
  mandate verify - --issuer https://verdicts.example.com --jwks jwks.json \\
      --order order.json --nonce-elsewhere --json < token.txt
  mandate verify @token.txt --issuer https://verdicts.example.com --pinned \\
      --signature-only --explain
  mandate verify \"$TOKEN\" --issuer https://verdicts.example.com \\
      --order order.json --nonce-store nonces.db \\
      --proof order-7.tlog-proof --log-key @log.key --policy witnesses.policy
  mandate verify --tokens orders.ndjson --issuer https://verdicts.example.com \\
      --nonce-store nonces.db > answers.ndjson
  mandate verify --tokens - --issuer https://verdicts.example.com \\
      --signature-only --jq 'select(.valid | not).line' < tokens.txt
  mandate verify --event @body.jwt --issuer https://verdicts.example.com \\
      --nonce-store events.db

Exit codes:
  0 valid    10 malformed    11 signature or key    12 expired    13 not yet valid    14 issuer
  15 not a verdict    16 not `allow`    17 amount, currency, recipient or mandate differ
  18 replayed    19 no key set    22 of a sandbox    50 not in the log yet    51 the proof does not hold
  26 signature valid, but amount, currency, recipient or nonce not compared
  2 usage    3 file cannot be read or written";

/// The members of the report, or of each line of many.
pub(super) fn members(args: &Verify) -> &'static [&'static str] {
    if args.tokens.is_some() { &report::OF_MANY } else { &report::OF_ONE }
}

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
    let readers = [
        ("the key set", args.jwks.as_deref() == Some("-")),
        ("the order", args.order == Some(Source::Stdin)),
        ("what is verified", args.tokens == Some(Source::Stdin) || args.token.as_deref() == Some("-")),
    ];
    let mut readers = readers.into_iter().filter(|(_, reads)| *reads).map(|(name, _)| name);
    if let (Some(one), Some(other)) = (readers.next(), readers.next()) {
        return Err(super::both_from_standard_input(one, other));
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
    let wanted = Wanted::of(args)?;
    let token = super::token(args.token.as_deref().unwrap_or_default())?;
    let nonces =
        args.nonce_store.as_deref().map(|path| FileNonces::open(path, environment::now())).transpose()?;
    let keys = issuer.keys_for(&token)?;
    // Fetching takes a while. What counts is the time at which the verdict is used.
    let now = args.at.unwrap_or_else(environment::now);
    let verifier = Verifier { args, issuer: &issuer.name };
    let (mut report, passed) = verifier.check(&token, &keys, &wanted, now);
    if passed.is_some() {
        proof::check(&mut report, args, &token, &issuer.name)?;
    }
    // A token that is not in the log yet is not used up.
    if let Some(passed) = passed.filter(|_| report.is_valid()) {
        claim(&mut report, &passed, args, nonces.as_ref(), now)?;
    }
    if args.explain {
        report.explain(&issuer.name, args, &wanted, now);
    }
    Ok(report)
}
