//! Questions to a person at a terminal. Without a terminal nothing is asked.

use std::fs::File;
use std::io::{IsTerminal as _, stderr, stdin};

use inquire::{Confirm, InquireError, Password, PasswordDisplayMode, Select, Text};
use zeroize::Zeroizing;

use crate::exit::{Exit, Failure};

/// The process's own terminal, whatever its standard streams are. A process that was not started from a
/// terminal has none.
const TERMINAL: &str = "/dev/tty";

/// Whether standard error is a terminal.
pub(crate) fn is_seen() -> bool {
    stderr().is_terminal()
}

/// Whether a person can answer: at standard input or, if that is a pipe or a file, at the terminal that the
/// process was started from.
pub(crate) fn can_ask() -> bool {
    is_seen() && (stdin().is_terminal() || File::options().read(true).write(true).open(TERMINAL).is_ok())
}

/// Asks for yes or no. An empty answer means no.
pub(crate) fn confirm(question: &str) -> Result<bool, Failure> {
    Confirm::new(question).with_default(false).prompt().map_err(|e| unanswered(&e))
}

/// Asks for a text. An empty answer means `default`.
pub(crate) fn text(question: &str, default: Option<&str>) -> Result<String, Failure> {
    let prompt = Text::new(question);
    let prompt = default.into_iter().fold(prompt, Text::with_default);
    prompt.prompt().map_err(|e| unanswered(&e))
}

/// Asks for one of these lines, which typing narrows. Returns its number, from 0.
pub(crate) fn choose(question: &str, lines: Vec<String>) -> Result<usize, Failure> {
    let chosen = Select::new(question, lines).raw_prompt().map_err(|e| unanswered(&e))?;
    Ok(chosen.index)
}

/// Asks for a text that is not shown.
pub(crate) fn secret(question: &str) -> Result<Zeroizing<String>, Failure> {
    let prompt =
        Password::new(question).without_confirmation().with_display_mode(PasswordDisplayMode::Masked);
    prompt.prompt().map(Zeroizing::new).map_err(|e| unanswered(&e))
}

fn unanswered(why: &InquireError) -> Failure {
    match why {
        InquireError::OperationInterrupted => Failure::interrupted(),
        InquireError::OperationCanceled => Failure::new(Exit::Declined, "cancelled; nothing was done"),
        other => Failure::new(Exit::Io, format!("the question cannot be asked: {other}")),
    }
}
