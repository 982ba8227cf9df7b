//! How a command ends: the exit codes, and the failure that says why.

use std::fmt::{self, Write as _};
use std::process::ExitCode;

use crate::style::{BOLD, ERROR, printable};
use crate::wrap::{hanging, message_width};

/// The exit code of the process. The numbers are part of the interface: `docs/cli.md` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The verdict is valid, or the service did what was asked.
    Success = 0,
    /// The arguments cannot be used. Nothing was done.
    Usage = 2,
    /// A file or a standard stream could not be read or written.
    Io = 3,
    /// The change was not confirmed. Nothing was done.
    Declined = 4,

    /// The token is not a well-formed verdict token.
    MalformedToken = 10,
    /// The signature does not verify, or the key set lacks the key that the token names.
    Signature = 11,
    /// The verdict has expired.
    Expired = 12,
    /// The verdict was issued in the future.
    NotYetValid = 13,
    /// Another issuer than the one expected.
    Issuer = 14,
    /// A signed token of another kind, such as an event.
    WrongKind = 15,
    /// The verdict is another than `allow`.
    NotAllowed = 16,
    /// Amount, currency, recipient or mandate differ from what was expected.
    Mismatch = 17,
    /// The nonce was presented before.
    Replayed = 18,
    /// The key set cannot be fetched or is not one.
    KeySet = 19,

    /// The service decided `deny_*`.
    Denied = 20,
    /// The service decided `review`: a person has to resolve it.
    Review = 21,

    /// The key that signed is one of the sandbox, and `--allow-sandbox` was not given.
    Sandbox = 22,
    /// The audit found something, keys are other than those pinned, or a receiver refused what was replayed.
    Findings = 23,
    /// The simulation changes what `--fail-on` names.
    Changed = 24,
    /// A check of `mandate doctor` failed.
    Unhealthy = 25,

    /// The verdict is genuine and valid, but amount, currency, recipient or nonce was not compared; or not all was compared
    /// with the log.
    NotCompared = 26,
    /// What governs is not what the directory of mandates has.
    Drift = 27,

    /// The request is not acceptable: found before it was sent, or answered 400.
    InvalidRequest = 30,
    /// The API key is missing, mistyped, or not accepted (401).
    Unauthorized = 31,
    /// The API key is of the wrong class (403).
    Forbidden = 32,
    /// There is no such object (404).
    NotFound = 33,
    /// The request is in conflict with an earlier one (409): the idempotency key or the name is taken.
    Conflict = 34,
    /// Too many requests (429).
    RateLimited = 35,
    /// The service failed (5xx).
    ServerError = 36,
    /// The service could not be reached.
    Unreachable = 37,
    /// The answer is not one that the contract knows.
    UnknownAnswer = 38,

    /// What was compared differs.
    Differs = 40,

    /// The public log does not have the token's decision, or not yet.
    NotLogged = 50,
    /// A proof, checkpoint, tile or entry of the public log does not hold.
    NotProved = 51,
    /// The log has signed two states, neither of which is the beginning of the other.
    Fork = 52,
    /// The log shows fewer entries than it had.
    Rollback = 53,
    /// The log goes on under another origin and key.
    NewOrigin = 54,
    /// The log lacks what it must have had for a day.
    LateLog = 55,

    /// A person pressed Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed: a sentence, facts that help to find the cause, and what to do next.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The kind.
    pub(crate) exit: Exit,
    message: String,
    notes: Vec<(&'static str, String)>,
    /// Lines of a file that show the place, ready to print.
    excerpt: Option<String>,
    answer: Option<String>,
}

/// Columns of a note's label.
const LABEL_WIDTH: usize = 16;

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), notes: Vec::new(), excerpt: None, answer: None }
    }

    /// A person has ended the command: nothing more is printed.
    pub(crate) fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted")
    }

    /// The same failure with another exit code.
    pub(crate) fn of_kind(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// The same failure with the lines of a file that show the place. They must be fit to print.
    pub(crate) fn excerpt(self, lines: String) -> Self {
        Self { excerpt: Some(lines), ..self }
    }

    /// The same failure with one more fact. Advice comes after all of them.
    pub(crate) fn note(mut self, label: &'static str, value: impl fmt::Display) -> Self {
        let advice = self.notes.iter().position(|(existing, _)| *existing == "next" && label != "next");
        self.notes.insert(advice.unwrap_or(self.notes.len()), (label, value.to_string()));
        self
    }

    /// The same failure with advice.
    pub(crate) fn next(self, advice: impl fmt::Display) -> Self {
        self.note("next", advice)
    }

    /// The same failure with this advice in the place of any other, and without an idempotency key: for a command that
    /// sends several requests, none of which can be repeated alone.
    pub(crate) fn only_next(self, advice: impl fmt::Display) -> Self {
        self.unadvised().next(advice)
    }

    /// The same failure without advice, and without an idempotency key.
    pub(crate) fn unadvised(mut self) -> Self {
        self.notes.retain(|(label, _)| !matches!(*label, "next" | "idempotency key"));
        self
    }

    /// Whether the same request may do better a moment later.
    pub(crate) fn can_pass(&self) -> bool {
        matches!(self.exit, Exit::Unreachable | Exit::ServerError | Exit::RateLimited)
    }

    /// The message alone.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What to do next, if that is known.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.notes.iter().rev().find(|(label, _)| *label == "next").map(|(_, advice)| advice.as_str())
    }

    /// The same failure, for which JSON output shows `body`: the service's answer, for example.
    pub(crate) fn with_answer(mut self, body: &str) -> Self {
        self.answer = Some(body.to_owned());
        self
    }

    /// The body that JSON output shows.
    pub(crate) fn answer(&self) -> Option<&str> {
        self.answer.as_deref()
    }

    /// Text for standard error, with styles, wrapped between words on a terminal.
    pub(crate) fn render(&self) -> String {
        self.rendered(message_width())
    }

    fn rendered(&self, width: Option<u16>) -> String {
        let mut text = hanging(&format!("{ERROR}error:{ERROR:#} "), &printable(&self.message), width) + "\n";
        text.extend(self.excerpt.as_deref());
        for (label, value) in &self.notes {
            let label = format!("  {BOLD}{label:<LABEL_WIDTH$}{BOLD:#}");
            let _ = writeln!(text, "{}", hanging(&label, &printable(value), width));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_breaks_between_words_and_keeps_its_command() {
        let failure = Failure::new(Exit::Usage, "there is no profile of this name, and no other one either")
            .next("there are live; mandate login NAME makes another");
        let text = anstream::adapter::strip_str(&failure.rendered(Some(40))).to_string();
        assert_eq!(
            text,
            "error: there is no profile of this name,\n       and no other one either\n  next            there are live;\n                  mandate login NAME\n                  makes another\n"
        );
    }
}
