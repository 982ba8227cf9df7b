//! Lines of a file or of standard input, each up to a limit, however many there are.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use crate::exit::{Exit, Failure};
use crate::input::Source;

/// The longest line that is kept, in bytes. A longer one is skipped and marked as too long.
pub(crate) const MAX_LINE_BYTES: usize = 256 * 1024;
/// How much is read at a time. A block is about as long: some hundred tokens, whose nonces are written to
/// disk together.
const BUFFER_BYTES: usize = 256 * 1024;

/// One line, without its line break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its number, from 1.
    pub(crate) number: u64,
    /// Its content. Empty if it is too long.
    pub(crate) bytes: Vec<u8>,
    /// Whether it is longer than [`MAX_LINE_BYTES`].
    pub(crate) too_long: bool,
}

/// A source that is read line by line.
pub(crate) struct Lines {
    reader: BufReader<Box<dyn io::Read + Send>>,
    number: u64,
}

impl Lines {
    /// The lines of `source`. `what` names it in messages.
    pub(crate) fn open(source: &Source, what: &str) -> Result<Self, Failure> {
        let reader: Box<dyn io::Read + Send> = match source {
            Source::Stdin => Box::new(io::stdin()),
            Source::File(path) => Box::new(File::open(path).map_err(|e| unreadable(what, source, &e))?),
        };
        Ok(Self::new(reader))
    }

    /// The lines of `reader`.
    pub(crate) fn new(reader: Box<dyn io::Read + Send>) -> Self {
        Self { reader: BufReader::with_capacity(BUFFER_BYTES, reader), number: 0 }
    }

    /// The next line. `see` gets every byte of it as it arrives, line break included.
    pub(crate) fn next(&mut self, mut see: impl FnMut(&[u8])) -> io::Result<Option<Line>> {
        let mut line = Line { number: self.number.saturating_add(1), bytes: Vec::new(), too_long: false };
        let mut any = false;
        loop {
            let buffer = match self.reader.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                buffer => buffer?,
            };
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(buffer.len(), |end| end.saturating_add(1));
            if taken == 0 {
                break;
            }
            any = true;
            let part = buffer.get(..taken).unwrap_or_default();
            see(part);
            line.take(part.strip_suffix(b"\n").unwrap_or(part));
            self.reader.consume(taken);
            if end.is_some() {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        if line.bytes.last() == Some(&b'\r') {
            line.bytes.pop();
        }
        self.number = line.number;
        Ok(Some(line))
    }

    /// The next lines: at least one, and as many more as have arrived. Empty at the end.
    pub(crate) fn block(&mut self) -> io::Result<Vec<Line>> {
        let mut block = Vec::new();
        while let Some(line) = self.next(|_| {})? {
            block.push(line);
            if !self.reader.buffer().contains(&b'\n') {
                break;
            }
        }
        Ok(block)
    }
}

impl Line {
    fn take(&mut self, part: &[u8]) {
        self.too_long |= self.bytes.len().saturating_add(part.len()) > MAX_LINE_BYTES;
        if self.too_long {
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(part);
        }
    }
}

/// The failure of a source that cannot be read.
pub(crate) fn unreadable(what: &str, source: &Source, error: &io::Error) -> Failure {
    Failure::new(Exit::Io, format!("{what} cannot be read from {source}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &'static [u8]) -> Vec<(u64, Vec<u8>, bool)> {
        let mut lines = Lines::new(Box::new(text));
        let mut seen = Vec::new();
        let mut found = Vec::new();
        while let Some(line) = lines.next(|part| seen.extend_from_slice(part)).unwrap() {
            found.push((line.number, line.bytes, line.too_long));
        }
        assert_eq!(seen, text, "every byte is shown");
        found
    }

    #[test]
    fn line_breaks_of_both_kinds_end_a_line() {
        let line = |n, text: &str| (n, text.as_bytes().to_vec(), false);
        assert_eq!(lines(b"a\r\nb\n\nc"), [line(1, "a"), line(2, "b"), line(3, ""), line(4, "c")]);
        assert_eq!(lines(b""), []);
    }

    #[test]
    fn a_line_beyond_the_bound_is_passed_over() {
        let text: &'static [u8] = [vec![b'a'; MAX_LINE_BYTES + 1], b"\nb\n".to_vec()].concat().leak();
        assert_eq!(lines(text), [(1, Vec::new(), true), (2, b"b".to_vec(), false)]);
        let text: &'static [u8] = vec![b'a'; MAX_LINE_BYTES].leak();
        assert_eq!(lines(text), [(1, text.to_vec(), false)]);
    }

    #[test]
    fn a_block_is_what_has_arrived() {
        use std::io::Write as _;
        let (mut writer, reader) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut lines = Lines::new(Box::new(reader));
        writer.write_all(b"1\n2\n3").unwrap();
        let texts = |block: Vec<Line>| block.into_iter().map(|l| l.bytes).collect::<Vec<_>>();
        assert_eq!(texts(lines.block().unwrap()), [b"1", b"2"]);
        drop(writer);
        assert_eq!(texts(lines.block().unwrap()), [b"3"]);
        assert!(lines.block().unwrap().is_empty());
    }
}
