//! `mandate verify`: the counterparty's check of a signed verdict.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use mandate_core::jwks::Kid;
use mandate_core::jwt::{TokenRefused, Unverified};
use mandate_core::verify::{Expected, Leeway, NotClaimed, TokenKind, VerifyError, verify_verdict};
use mandate_core::{Amount, Currency, MandateId, Recipient, Timestamp, VerdictClaims};
use serde::Serialize;

use crate::environment;
use crate::exit::{Exit, Failure};
use crate::key_set::Issuer;
use crate::nonce_store::FileNonces;
use crate::output::{CAUTION, ERROR, GOOD, Output, printable};
use crate::value::{instant, leeway};

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

/// What is said of a sandbox, wherever it is mentioned.
const SANDBOX: &str = "sandbox - not real money";

/// How one check ended.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Passed,
    /// Nothing to compare with was given.
    NotCompared,
    /// No check, but to be known.
    Noted,
    Failed,
}

#[derive(Serialize)]
struct Line {
    check: &'static str,
    status: Status,
    value: String,
}

/// What is said of a token: as lines of text, or as this, in JSON.
#[derive(Serialize)]
struct Report {
    valid: bool,
    checks: Vec<Line>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<VerdictClaims>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
}

#[derive(Serialize)]
struct Refusal {
    /// Absent when no check could be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<&'static str>,
    message: String,
    exit_code: u8,
    #[serde(skip)]
    exit: Exit,
}

pub(super) fn run(args: &Verify, output: &mut Output) -> Result<Exit, Failure> {
    match check(args) {
        Ok(report) => {
            if output.is_json() {
                output.json(&report)?;
            } else {
                report.tell(output);
            }
            Ok(report.error.map_or(Exit::Success, |refusal| refusal.exit))
        }
        // Nothing is known of the token. Who reads JSON hears that it is not valid, all the same.
        Err(failure) => {
            let error = Refusal::new(None, failure.message().to_owned(), failure.exit);
            let report = Report { valid: false, checks: Vec::new(), claims: None, error: Some(error) };
            let json = serde_json::to_string(&report).unwrap_or_default();
            Err(failure.with_answer(&json))
        }
    }
}

/// Makes all checks, up to the first that fails.
fn check(args: &Verify) -> Result<Report, Failure> {
    let issuer = Issuer::find(args.issuer.as_deref(), args.jwks.as_deref())?;
    let token = super::token(&args.token)?;
    let nonces =
        args.nonce_store.as_deref().map(|path| FileNonces::open(path, environment::now())).transpose()?;
    let keys = issuer.load()?;
    // Fetching takes a while; what counts is the time at which the verdict is used.
    let now = args.at.unwrap_or_else(environment::now);
    let expected = Expected {
        leeway: args.leeway,
        amount: args.amount,
        currency: args.currency.clone(),
        recipient: args.recipient.clone(),
        mandate: args.mandate,
        ..Expected::new(&issuer.name, now)
    };
    let verdict = match verify_verdict(&token, &keys, &expected) {
        Ok(verdict) => verdict,
        Err(e) => return Ok(refused(&token, &expected, &e)),
    };
    let mut report = Report {
        valid: true,
        checks: lines(verdict.kid(), Some(verdict.claims()), &expected),
        claims: Some(verdict.claims().clone()),
        error: None,
    };
    let nonce = verdict.claims().nonce;
    let Some(nonces) = nonces else {
        report.line("replay", Status::NotCompared, nonce.to_string());
        return Ok(report);
    };
    match verdict.claim_nonce(&nonces, now) {
        Ok(()) => report.line("replay", Status::Passed, format!("{nonce}, seen for the first time")),
        Err(NotClaimed::Store(e)) => return Err(e.into()),
        Err(e @ NotClaimed::Expired) => report.refuse(e.name(), e.to_string(), Exit::Expired),
        Err(e @ NotClaimed::Replayed { .. }) => report.refuse(e.name(), e.to_string(), Exit::Replayed),
    }
    Ok(report)
}

/// The report of a token that failed `error`: the checks before it, and it.
fn refused(token: &str, expected: &Expected<'_>, error: &VerifyError) -> Report {
    let mut report = Report { valid: false, checks: Vec::new(), claims: None, error: None };
    if let Ok(unverified) = Unverified::parse(token) {
        // What the claims say is shown for checks that come after the signature's, hence as signed.
        let claims = VerdictClaims::read(unverified.unverified_claims()).ok();
        report.checks = lines(unverified.kid(), claims.as_ref(), expected);
        let stop = match error {
            VerifyError::Token(_) => "signature",
            VerifyError::Claims(_) => "kind",
            other => other.name(),
        };
        let passed = report.checks.iter().position(|line| line.check == stop);
        report.checks.truncate(passed.unwrap_or(report.checks.len()));
    }
    report.refuse(error.name(), error.to_string(), exit_of(error));
    report
}

/// All checks that have a value to show, in the order in which they are made, as if they had passed.
fn lines(kid: &Kid, claims: Option<&VerdictClaims>, expected: &Expected<'_>) -> Vec<Line> {
    let line = |check, status, value: String| Line { check, status, value };
    let compared = |is_expected| if is_expected { Status::Passed } else { Status::NotCompared };
    let environment = if kid.is_sandbox() { SANDBOX } else { "production" };
    let mut lines = vec![
        line("algorithm", Status::Passed, "ES256".to_owned()),
        line("signature", Status::Passed, kid.to_string()),
        line("environment", Status::Noted, environment.to_owned()),
        line("kind", Status::Passed, TokenKind::Verdict.to_string()),
    ];
    let Some(claims) = claims else { return lines };
    let instant = |seconds| mandate_core::Timestamp::from_seconds(seconds).to_string();
    let request = &claims.request;
    let mandate = claims.mandate.map_or_else(|| "none".to_owned(), |id| id.to_string());
    lines.extend([
        line("issuer", Status::Passed, claims.iss.clone()),
        line("issued_at", Status::Passed, instant(claims.iat)),
        line("expiry", Status::Passed, instant(claims.exp)),
        line("verdict", Status::Passed, claims.verdict.to_string()),
        line("amount", compared(expected.amount.is_some()), request.amount.to_string()),
        line("currency", compared(expected.currency.is_some()), request.currency.to_string()),
        line("recipient", compared(expected.recipient.is_some()), request.recipient.to_string()),
        line("mandate", compared(expected.mandate.is_some()), mandate),
    ]);
    lines
}

fn exit_of(error: &VerifyError) -> Exit {
    match error {
        VerifyError::Token(TokenRefused::UnknownKey { .. } | TokenRefused::Signature { .. }) => {
            Exit::Signature
        }
        VerifyError::Token(_) | VerifyError::Claims(_) => Exit::MalformedToken,
        VerifyError::Kind { .. } => Exit::WrongKind,
        VerifyError::Issuer { .. } => Exit::Issuer,
        VerifyError::IssuedAt { .. } => Exit::NotYetValid,
        VerifyError::Expiry { .. } => Exit::Expired,
        VerifyError::Verdict { .. } => Exit::NotAllowed,
        VerifyError::Environment { .. }
        | VerifyError::Amount { .. }
        | VerifyError::Currency { .. }
        | VerifyError::Recipient { .. }
        | VerifyError::Mandate { .. } => Exit::Mismatch,
    }
}

/// What it means that `check` failed with `exit`, and what to do.
fn advice(check: &str, exit: Exit) -> &'static str {
    match (check, exit) {
        ("claims", _) => "the claims are not those of a verdict; tell the issuer",
        ("unknown_key", _) => "the issuer's keys do not have the one that signed; fetch its key set again",
        (_, Exit::MalformedToken) => {
            "the token is not whole, or was changed; ask for it again as it was issued"
        }
        (_, Exit::Signature) => "the token was changed, or the issuer did not sign it; ask for a genuine one",
        (_, Exit::Expired) => "the token is too old; ask for a new verdict",
        (_, Exit::NotYetValid) => "the two clocks disagree; check this machine's, or allow some --leeway",
        (_, Exit::Issuer) => {
            "the token comes from another issuer; check --issuer, or ask for one of that issuer"
        }
        (_, Exit::WrongKind) => "the token is genuine, but no verdict; ask for the token of a verdict",
        (_, Exit::NotAllowed) => "the payment was not allowed; ask for a token whose verdict is allow",
        (_, Exit::Mismatch) => "the token is for another payment; ask for one for what is to be settled",
        (_, Exit::Replayed) => "the token was used before; ask for a new verdict",
        _ => "see the line above",
    }
}

impl Refusal {
    fn new(check: Option<&'static str>, message: String, exit: Exit) -> Self {
        Self { check, message, exit_code: exit as u8, exit }
    }
}

impl Report {
    fn line(&mut self, check: &'static str, status: Status, value: String) {
        self.checks.push(Line { check, status, value });
    }

    fn refuse(&mut self, check: &'static str, message: String, exit: Exit) {
        self.line(check, Status::Failed, message.clone());
        self.valid = false;
        self.claims = None;
        self.error = Some(Refusal::new(Some(check), message, exit));
    }

    /// The lines, and the last one.
    fn tell(&self, output: &mut Output) {
        for line in &self.checks {
            let value = printable(&line.value);
            match line.status {
                Status::Noted if line.value == SANDBOX => {
                    output.line(line.check, format_args!("{CAUTION}{value}{CAUTION:#}"));
                }
                Status::Passed | Status::Noted => output.line(line.check, value),
                Status::NotCompared => {
                    output.line(line.check, format_args!("{value} {CAUTION}(not compared){CAUTION:#}"));
                }
                Status::Failed => output.line(line.check, format_args!("{ERROR}{value}{ERROR:#}")),
            }
        }
        let sandbox = self.checks.iter().any(|line| line.value == SANDBOX);
        output.text(&match (&self.error, sandbox) {
            (Some(refusal), _) => {
                let check = refusal.check.unwrap_or_default();
                let advice = advice(check, refusal.exit);
                format!("{ERROR}NOT VALID{ERROR:#} ({check}): {advice}; do not deliver\n")
            }
            (None, true) => format!("{GOOD}VALID{GOOD:#}, {CAUTION}{SANDBOX}{CAUTION:#}\n"),
            (None, false) => format!("{GOOD}VALID{GOOD:#}\n"),
        });
    }
}
