//! What a command says: results on standard output, everything else on standard error.
//!
//! Styles are dropped for pipes and under `NO_COLOR`. A reader that closes the pipe early is no error: the rest is
//! dropped, and the command ends with the code that it would have ended with.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::exit::{Exit, Failure};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const CAUTION: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Columns of a line's label.
const LABEL_WIDTH: usize = 13;

/// Standard output and error of one run.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    closed: bool,
    failure: Option<io::Error>,
    notes: Vec<(&'static str, String)>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, closed: false, failure: None, notes: Vec::new() }
    }

    /// Whether JSON was asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// A fact that helps when standard output cannot be written; otherwise it is not mentioned.
    pub(crate) fn note_if_lost(&mut self, label: &'static str, value: impl fmt::Display) {
        self.notes.push((label, value.to_string()));
    }

    /// Whether something could not be written.
    pub(crate) fn is_lost(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether nobody will read what is written from now on.
    pub(crate) fn is_over(&self) -> bool {
        self.closed || self.failure.is_some()
    }

    /// A labelled line. The value may carry styles but no control characters of foreign origin.
    pub(crate) fn line(&mut self, label: &str, value: impl fmt::Display) {
        self.text(&format!("{label:<LABEL_WIDTH$}{value}\n"));
    }

    /// A value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => self.text(&(text + "\n")),
            Err(e) => self.failure = Some(e.into()),
        }
    }

    /// The service's answer as it came, with a line break behind it.
    pub(crate) fn body(&mut self, body: &str) {
        self.text(body);
        if !body.ends_with('\n') {
            self.text("\n");
        }
    }

    /// Text as it is, for standard output.
    pub(crate) fn text(&mut self, text: &str) {
        if self.closed || self.failure.is_some() {
            return;
        }
        let mut out = anstream::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => self.closed = true,
            Err(e) => self.failure = Some(e),
        }
    }

    /// Tells of a failure, to those who asked for JSON with the service's answer on standard output as well.
    pub(crate) fn failure(&mut self, failure: &Failure) -> Exit {
        if let Some(answer) = failure.answer().filter(|_| self.json) {
            self.body(answer);
        }
        say(&failure.render());
        failure.exit
    }

    /// The end of the run: output that was lost is told of, and makes a success a failure.
    pub(crate) fn finish(self, exit: Exit) -> Exit {
        let Some(e) = self.failure else { return exit };
        let failure = Failure::new(Exit::Io, format!("standard output cannot be written: {e}"));
        let notes = self.notes.into_iter();
        say(&notes.fold(failure, |failure, (label, value)| failure.note(label, value)).render());
        if exit == Exit::Success { Exit::Io } else { exit }
    }
}

/// Something the person should know, on standard error.
pub(crate) fn warn(message: impl fmt::Display) {
    say(&format!("{CAUTION}warning:{CAUTION:#} {message}\n"));
}

/// Text for standard error. There is nobody to tell when that fails.
pub(crate) fn say(text: &str) {
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// `text` with everything escaped that could steer a terminal or reorder what it shows.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_deceptive) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        let _ = if is_deceptive(c) { write!(shown, "{}", c.escape_unicode()) } else { shown.write_char(c) };
        shown
    }))
}

/// Control characters, and the invisible ones that change direction or hide text.
pub(crate) fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_shown_not_obeyed() {
        assert_eq!(printable("a\u{1b}[2Jb\u{9b}c\u{202e}d"), "a\\u{1b}[2Jb\\u{9b}c\\u{202e}d");
        assert!(matches!(printable("vendor:acme ü 💶"), Cow::Borrowed(_)));
    }
}
