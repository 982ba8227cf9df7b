//! Errors as results that a model can act on: what is wrong, and what to do next.

use serde::Serialize;

use crate::exit::{Exit, Failure};

/// What a call is for. Advice differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Asks for a decision under the purchase's idempotency key.
    Decide,
    /// Reads.
    Read,
}

/// Why a call has no answer.
#[derive(Debug, Serialize)]
pub(super) struct Trouble {
    /// A word for the kind.
    code: &'static str,
    message: String,
    /// What to do next.
    next: String,
}

impl Trouble {
    /// Arguments that cannot be used. Nothing was sent.
    pub(super) fn arguments(message: impl std::fmt::Display) -> Self {
        Self {
            code: "invalid_arguments",
            message: message.to_string(),
            next: "Nothing was asked. Correct what the message names and call again.".to_owned(),
        }
    }

    /// An answer that is not understood. It is never taken for an allow.
    pub(super) fn unknown(why: &str) -> Self {
        let trouble = Self::of(&super::super::unknown(why), None, Purpose::Read);
        Self { next: format!("Do not pay. {}", trouble.next), ..trouble }
    }

    /// A failed request. `wait` is the number of seconds that the service asks to wait.
    pub(super) fn of(failure: &Failure, wait: Option<&str>, purpose: Purpose) -> Self {
        let is_asked = purpose == Purpose::Decide;
        let again = if is_asked {
            "It is not known whether the purchase was decided: do not pay. Call again with the same purchase and the \
             same arguments; it is decided once."
        } else {
            "Call again with the same arguments."
        };
        let (code, next) = match failure.exit {
            Exit::InvalidRequest if is_asked => (
                "invalid_request",
                "Do not pay. Correct what the message names, and ask under another purchase id.".to_owned(),
            ),
            Exit::InvalidRequest => ("invalid_request", "Correct what the message names.".to_owned()),
            Exit::Unauthorized | Exit::Forbidden => {
                ("key_refused", "Do not pay. A person has to give this tool a valid agent key.".to_owned())
            }
            Exit::NotFound if is_asked => (
                "not_found",
                "Do not pay. A person has to correct the address that this tool has been given.".to_owned(),
            ),
            Exit::NotFound => {
                ("not_found", "Check the id: this agent sees its own decisions only.".to_owned())
            }
            Exit::Conflict => (
                "other_arguments",
                "Do not pay. This purchase id was used before with other arguments, which is a mistake: repeat the \
                 first arguments to get their decision. Another purchase id is another purchase, and counts again."
                    .to_owned(),
            ),
            Exit::RateLimited => {
                let wait = wait.map_or_else(|| "Wait.".to_owned(), |wait| format!("Wait {wait} seconds."));
                ("rate_limited", format!("{wait} {again}"))
            }
            Exit::Io => ("not_written", again.to_owned()),
            _ => ("unavailable", again.to_owned()),
        };
        Self { code, message: failure.message().to_owned(), next }
    }

    /// The JSON text of the error.
    pub(super) fn text(&self) -> String {
        serde_json::json!({ "error": self }).to_string()
    }
}
