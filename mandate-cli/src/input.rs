//! Files and standard input, each read up to a limit.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::exit::{Exit, Failure};

/// Where to read: a file, or `-` for standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Standard input.
    Stdin,
    /// A file.
    File(PathBuf),
}

impl From<&str> for Source {
    fn from(text: &str) -> Self {
        if text == "-" { Self::Stdin } else { Self::File(text.into()) }
    }
}

impl Source {
    /// Reads UTF-8 text of at most `most` bytes. `what` names it in messages. `unfit` is the exit code for
    /// text that is too long or not UTF-8.
    pub(crate) fn read(&self, what: &str, most: usize, unfit: Exit) -> Result<String, Failure> {
        let mut text = String::new();
        self.read_into(&mut text, what, most, unfit)?;
        Ok(text)
    }

    /// The same for a secret, which leaves nothing behind in memory.
    pub(crate) fn read_secret(
        &self,
        what: &str,
        most: usize,
        unfit: Exit,
    ) -> Result<Zeroizing<String>, Failure> {
        // All the room is allocated at once: a buffer that grows would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(most.saturating_add(1)));
        self.read_into(&mut text, what, most, unfit)?;
        Ok(text)
    }

    fn read_into(&self, text: &mut String, what: &str, most: usize, unfit: Exit) -> Result<(), Failure> {
        let read = match self {
            Self::Stdin => bounded(io::stdin().lock(), text, most),
            Self::File(path) => File::open(path).and_then(|file| bounded(file, text, most)),
        };
        read.map_err(|e| {
            let exit = match e.kind() {
                io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidData => unfit,
                _ => Exit::Io,
            };
            Failure::new(exit, format!("{what} cannot be read from {self}: {e}"))
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdin => f.write_str("standard input"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The text without one line break at its end, as files, variables and `echo` may add.
pub(crate) fn without_line_break(text: &str) -> &str {
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text)
}

fn bounded(source: impl Read, text: &mut String, most: usize) -> io::Result<()> {
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    source.take(limit).read_to_string(text)?;
    if text.len() > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_line_break_is_taken_off() {
        for (text, left) in [
            ("a", "a"),
            ("a\n", "a"),
            ("a\r\n", "a"),
            ("a\n\n", "a\n"),
            ("a\r", "a\r"),
            ("a ", "a "),
            ("\n", ""),
        ] {
            assert_eq!(without_line_break(text), left, "{text:?}");
        }
    }

    #[test]
    fn reading_stops_at_the_bound() {
        let mut text = String::new();
        bounded(&b"abc"[..], &mut text, 3).unwrap();
        assert_eq!(text, "abc");
        let longer = bounded(io::repeat(b'a'), &mut String::new(), 3);
        assert_eq!(longer.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
