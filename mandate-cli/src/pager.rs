//! The pager: what is longer than the terminal is shown in it, as `gh` and `git` do.

use std::io::{self, IsTerminal as _, Write, stdout};
use std::process::{Child, ChildStdin, Command, Stdio};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};

use crate::environment::{is_set, variable};

/// The pager where `PAGER` names none.
const USUAL: &str = "less";
/// What `less` gets unless `LESS` is set: end at once if all fits one screen, show colours, leave the text there.
const LESS: &str = "FRX";
/// It only passes text on: no pager is meant.
const NONE: &str = "cat";

/// Text for a terminal, which goes to a pager once it is longer than the screen.
#[derive(Debug, Default)]
pub(crate) enum Pages {
    /// Text is written as it comes.
    #[default]
    Off,
    /// Text is kept until it is clear whether it fits a screen of so many lines.
    Kept { text: String, left: usize },
    /// The pager shows it.
    On(Pager),
}

/// A pager that runs.
#[derive(Debug)]
pub(crate) struct Pager {
    child: Child,
    input: ChildStdin,
    /// Whether the terminal shall have no colours.
    is_plain: bool,
}

impl Pages {
    /// What a list on this terminal needs. Elsewhere, and without a pager, text is written as it comes.
    pub(crate) fn begin() -> Self {
        let rows = || ratatui::crossterm::terminal::size().ok().map(|(_, rows)| usize::from(rows));
        match stdout().is_terminal().then(rows).flatten().filter(|rows| *rows > 0 && command().is_some()) {
            // The prompt of the shell has the last line.
            Some(rows) => Self::Kept { text: String::new(), left: rows.saturating_sub(1) },
            None => Self::Off,
        }
    }

    /// Takes the text, and returns what has to be written to the terminal now.
    pub(crate) fn take(&mut self, text: &str) -> io::Result<String> {
        match self {
            Self::Off => Ok(text.to_owned()),
            Self::On(pager) => pager.write(text).map(|()| String::new()),
            Self::Kept { text: kept, left } => {
                kept.push_str(text);
                let lines = text.matches('\n').count();
                if lines <= *left {
                    *left = left.saturating_sub(lines);
                    return Ok(String::new());
                }
                let kept = std::mem::take(kept);
                if let Some(mut pager) = Pager::start() {
                    let written = pager.write(&kept);
                    *self = Self::On(pager);
                    written.map(|()| String::new())
                } else {
                    *self = Self::Off;
                    Ok(kept)
                }
            }
        }
    }

    /// Waits until the pager was left. Returns what still has to be written to the terminal.
    pub(crate) fn end(&mut self) -> String {
        match std::mem::take(self) {
            Self::Off => String::new(),
            Self::Kept { text, .. } => text,
            Self::On(pager) => {
                pager.wait();
                String::new()
            }
        }
    }
}

impl Pager {
    /// None if it cannot be started.
    fn start() -> Option<Self> {
        let command = command()?;
        let mut words = command.split_ascii_whitespace();
        let mut child = Command::new(words.next()?);
        child.args(words).stdin(Stdio::piped());
        for (name, value) in [("LESS", LESS), ("LV", "-c")] {
            if !is_set(name) {
                child.env(name, value);
            }
        }
        let mut child = child.spawn().ok()?;
        // Ctrl-C is for the pager, which reads the terminal: this process waits until it ends. If there is a handler
        // already, the signal is handled.
        let _ = ctrlc::set_handler(|| {});
        let input = child.stdin.take()?;
        Some(Self { child, input, is_plain: AutoStream::choice(&stdout()) == ColorChoice::Never })
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let text = if self.is_plain { strip_str(text).to_string() } else { text.to_owned() };
        self.input.write_all(text.as_bytes()).and_then(|()| self.input.flush())
    }

    fn wait(self) {
        let Self { mut child, input, .. } = self;
        drop(input);
        let _ = child.wait();
    }
}

/// The pager's command. None if the user wants no pager.
fn command() -> Option<String> {
    let named = variable("PAGER").ok().flatten().map(|name| name.to_string());
    if named.is_none() && is_set("PAGER") {
        return None;
    }
    Some(named.unwrap_or_else(|| USUAL.to_owned())).filter(|name| name != NONE)
}
