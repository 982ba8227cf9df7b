//! What is reported to JavaScript: each check as a line, as the command has it, and the refusal.

use mandate_core::Invalid;
use mandate_core::jwt::TokenRefused;
use mandate_core::verify::VerifyError;
use serde::Serialize;
use serde_json::value::RawValue;

/// The report on a token.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) checks: Vec<Line>,
    /// What was not compared, of all that an order has.
    pub(crate) not_compared: Vec<&'static str>,
    pub(crate) is_sandbox: bool,
    /// The claims as they were signed. Absent where a check failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claims: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nonce: Option<Nonce>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Refusal>,
}

/// The verdict's nonce, or the event's id, and until when a store must keep it, in milliseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Nonce {
    pub(crate) id: String,
    pub(crate) until: i64,
}

/// One check.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) check: &'static str,
    pub(crate) status: Status,
    pub(crate) value: String,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Passed,
    /// There was nothing to compare with.
    NotCompared,
    /// Not a check, but worth knowing.
    Noted,
    Failed,
}

/// Why something is refused.
#[derive(Debug, Serialize)]
pub(crate) struct Refusal {
    /// The check that failed. Absent if the options cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<&'static str>,
    pub(crate) message: String,
    /// The name of the command's exit code.
    pub(crate) exit: &'static str,
}

/// A value or a refusal, as one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer<'a, T> {
    Value(&'a T),
    Error(&'a Refusal),
}

pub(crate) fn json<T: Serialize>(result: &Result<T, Refusal>) -> String {
    let answer = result.as_ref().map_or_else(Answer::Error, Answer::Value);
    serde_json::to_string(&answer).unwrap_or_default()
}

impl Line {
    pub(crate) fn new(check: &'static str, status: Status, value: &impl ToString) -> Self {
        Self { check, status, value: value.to_string() }
    }
}

impl Refusal {
    /// A refusal of the options: nothing was checked.
    pub(crate) fn usage(refused: &Invalid) -> Self {
        Self { check: None, message: refused.to_string(), exit: "Usage" }
    }

    pub(crate) fn of(error: &VerifyError) -> Self {
        Self { check: Some(error.name()), message: error.to_string(), exit: exit_of(error) }
    }
}

impl Report {
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self { error: Some(refusal), ..Self::default() }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn exit_of(error: &VerifyError) -> &'static str {
    match error {
        VerifyError::Token(TokenRefused::UnknownKey { .. } | TokenRefused::Signature { .. }) => "Signature",
        VerifyError::Token(_) | VerifyError::Claims(_) => "MalformedToken",
        VerifyError::Kind { .. } => "WrongKind",
        VerifyError::Issuer { .. } => "Issuer",
        VerifyError::Environment { .. } => "Sandbox",
        VerifyError::IssuedAt { .. } => "NotYetValid",
        VerifyError::Expiry { .. } => "Expired",
        VerifyError::Verdict { .. } => "NotAllowed",
        VerifyError::Amount { .. }
        | VerifyError::Currency { .. }
        | VerifyError::Recipient { .. }
        | VerifyError::Mandate { .. } => "Mismatch",
        VerifyError::NotCompared { .. } => "NotCompared",
    }
}
