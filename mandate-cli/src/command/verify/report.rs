//! The report on a token: lines of text, or one JSON object.

use mandate_core::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Verify;
use super::check::NONCE;
use super::explain::{Explained, explained};
use super::order::Wanted;
use crate::exit::Exit;
use crate::output::{Output, beside};
use crate::style::{BOLD, CAUTION, DIM, ERROR, GOOD, printable};

/// The note on every verdict of a sandbox.
pub(crate) const SANDBOX: &str = "sandbox - not real money";

/// The checks that compare the token with what is to be settled.
const COMPARED: [&str; 5] = ["amount", "currency", "recipient", "mandate", "replay"];

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Passed,
    /// There was nothing to compare with.
    NotCompared,
    /// The caller says that it is compared in another place.
    Elsewhere,
    /// Not a check, but worth knowing.
    Noted,
    Failed,
}

#[derive(Serialize)]
pub(super) struct Line {
    pub(super) check: &'static str,
    status: Status,
    value: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    explained: Option<Explained>,
}

/// The report on a token.
/// Which parts of a verified verdict were compared.
#[derive(Serialize)]
struct Comparison {
    compared: Vec<&'static str>,
    /// Those of amount, currency, recipient and nonce that were not. The nonce is neither if it is kept elsewhere.
    not_compared: Vec<&'static str>,
}

/// The names of what a report on one token has.
pub(super) const OF_ONE: [&str; 6] = ["valid", "compared", "not_compared", "checks", "claims", "error"];
/// The names of what each line has on one of many tokens.
pub(super) const OF_MANY: [&str; 8] =
    ["line", "id", "valid", "compared", "not_compared", "claims", "error", "checks"];

#[derive(Serialize)]
pub(super) struct Report {
    valid: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    comparison: Option<Comparison>,
    checks: Vec<Line>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
    #[serde(skip)]
    claimed: Option<String>,
}

/// A line of the output for many tokens.
#[derive(Serialize)]
pub(super) struct Brief<'a> {
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    valid: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Refusal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<&'a [Line]>,
}

#[derive(Serialize)]
pub(super) struct Refusal {
    /// Absent if no check could be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<&'static str>,
    message: String,
    exit_code: u8,
    #[serde(skip)]
    exit: Exit,
}

impl Line {
    pub(super) fn new(check: &'static str, status: Status, value: String) -> Self {
        Self { check, status, value, explained: None }
    }
}

impl Refusal {
    pub(super) fn new(check: Option<&'static str>, message: String, exit: Exit) -> Self {
        Self { check, message, exit_code: exit as u8, exit }
    }
}

impl Report {
    /// A report that these checks have passed.
    pub(super) fn passed(checks: Vec<Line>, claims: Option<Box<RawValue>>) -> Self {
        Self { valid: true, comparison: None, checks, claims, error: None, claimed: None }
    }

    /// A report that no check could be made.
    pub(super) fn failed(refusal: Refusal) -> Self {
        Self { error: Some(refusal), valid: false, ..Self::passed(Vec::new(), None) }
    }

    pub(super) fn line(&mut self, check: &'static str, status: Status, value: String) {
        self.checks.push(Line::new(check, status, value));
    }

    pub(super) fn refuse(&mut self, check: &'static str, message: String, exit: Exit) {
        self.line(check, Status::Failed, message.clone());
        self.valid = false;
        self.claims = None;
        self.error = Some(Refusal::new(Some(check), message, exit));
    }

    /// Notes what was compared, and that `missing` was not, without which the verdict is good for its signature only. The
    /// claims are genuine in any case, and stay.
    pub(super) fn not_compared(&mut self, missing: Vec<&'static str>, signature_only: bool) {
        let name = |line: &Line| match line.check {
            "replay" => "nonce",
            check => check,
        };
        let compared = self.checks.iter().filter(|line| COMPARED.contains(&line.check));
        let compared = compared.filter(|line| line.status == Status::Passed).map(name).collect();
        if !missing.is_empty() && !signature_only {
            self.valid = false;
            let message =
                format!("the signature is valid; not compared with anything: {}", missing.join(", "));
            self.error = Some(Refusal::new(Some("not_compared"), message, Exit::NotCompared));
        }
        self.comparison = Some(Comparison { compared, not_compared: missing });
    }

    /// Notes which nonce was claimed.
    pub(super) fn note_claim(&mut self, id: String) {
        self.claimed = Some(id);
    }

    /// The nonce, or the event's id, that was claimed.
    pub(super) fn claimed(&self) -> Option<&str> {
        self.claimed.as_deref()
    }

    pub(super) fn is_valid(&self) -> bool {
        self.valid
    }

    pub(super) fn exit(&self) -> Exit {
        self.error.as_ref().map_or(Exit::Success, |refusal| refusal.exit)
    }

    /// Adds the explanation of each check.
    pub(super) fn explain(&mut self, issuer: &str, args: &Verify, wanted: &Wanted, now: Timestamp) {
        for line in &mut self.checks {
            line.explained = Some(explained(line.check, issuer, args, wanted, now));
        }
    }

    /// The report as one line among many.
    pub(super) fn brief<'a>(&'a self, line: u64, id: Option<&'a str>, with_checks: bool) -> Brief<'a> {
        Brief {
            line,
            id,
            valid: self.valid,
            comparison: self.comparison.as_ref(),
            claims: self.claims.as_deref(),
            error: self.error.as_ref(),
            checks: with_checks.then_some(&self.checks),
        }
    }

    /// Prints the lines, and the conclusion.
    pub(super) fn print(&self, output: &mut Output) {
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
                Status::Elsewhere => output.line(line.check, format_args!("{value} (kept elsewhere)")),
                Status::Failed => output.line(line.check, format_args!("{ERROR}{value}{ERROR:#}")),
            }
            if let Some(Explained { what, source, compared }) = &line.explained {
                output.line("", format_args!("{DIM}{what} ({source}){DIM:#}"));
                if let Some(compared) = compared {
                    output.line("", format_args!("{DIM}compared: {}{DIM:#}", printable(compared)));
                }
            }
        }
        if self.exit() == Exit::NotCompared {
            beside(&format!("{BOLD}next:{BOLD:#} "), &self.what_is_missing());
        }
        output.sentence(&self.conclusion());
    }

    /// What to do where something was not compared.
    fn what_is_missing(&self) -> String {
        let missing = self.comparison.as_ref().map_or(&[][..], |comparison| &comparison.not_compared);
        let order = missing.iter().any(|name| *name != NONCE);
        let nonce = missing.contains(&NONCE);
        let order = order.then_some("--order FILE, or --amount, --currency and --recipient");
        let nonce = nonce.then_some("--nonce-store FILE, or --nonce-elsewhere if you keep nonces yourself");
        let options: Vec<&str> = order.into_iter().chain(nonce).collect();
        format!("do not deliver yet: pass {}. --signature-only is for reading alone", options.join("; and "))
    }

    fn conclusion(&self) -> String {
        let is_sandbox = self.checks.iter().any(|line| line.value == SANDBOX);
        let sandbox =
            |sign| if is_sandbox { format!("{sign} {CAUTION}{SANDBOX}{CAUTION:#}") } else { String::new() };
        let missing = self.comparison.as_ref().map_or(&[][..], |comparison| &comparison.not_compared);
        match &self.error {
            Some(refusal) if refusal.exit != Exit::NotCompared => {
                let check = refusal.check.unwrap_or_default();
                let advice = advice(check, refusal.exit);
                format!("{ERROR}NOT VALID{ERROR:#} ({check}): {advice}; do not deliver")
            }
            _ if missing.is_empty() => format!("{GOOD}VALID{GOOD:#}{}", sandbox(',')),
            _ => format!(
                "SIGNATURE VALID; {CAUTION}NOT COMPARED{CAUTION:#}: {}{}",
                missing.join(", "),
                sandbox(';')
            ),
        }
    }
}

/// What it means that `check` failed with `exit`, and what to do.
fn advice(check: &str, exit: Exit) -> &'static str {
    match (check, exit) {
        ("claims", _) => "the claims are not those of a verdict or event; inform the issuer",
        ("unknown_key", _) => {
            "the issuer's key set does not contain the key that signed; fetch the key set again"
        }
        (_, Exit::MalformedToken) => "the token is incomplete or was changed; ask for the original token",
        (_, Exit::Signature) => "the token was changed, or the issuer did not sign it; ask for a genuine one",
        (_, Exit::Sandbox) => {
            "the token is from a sandbox, where no money is real; ask for a production token, or test with --allow-sandbox"
        }
        (_, Exit::Expired) => "the token is too old; ask for a new verdict",
        (_, Exit::NotYetValid) => {
            "the clocks of issuer and verifier differ; check this machine's clock, or allow some --leeway"
        }
        (_, Exit::Issuer) => {
            "the token comes from another issuer; check --issuer, or ask for a token of the expected issuer"
        }
        (_, Exit::WrongKind) => {
            "the token is genuine, but of another kind; events are verified with --event, verdicts without"
        }
        (_, Exit::NotAllowed) => "the payment was not allowed; ask for a token whose verdict is allow",
        (_, Exit::Mismatch) => "the token is for another payment; ask for a token for this payment",
        (_, Exit::NotLogged) => {
            "the log does not show the decision yet; fetch the proof again in a few seconds"
        }
        (_, Exit::NotProved) => {
            "the proof does not show that the decision is in the log; fetch it again, and report it"
        }
        (_, Exit::Replayed) => "the token was used before; ask for a new verdict",
        _ => "see the line above",
    }
}
