//! One line of NDJSON. Some readers end a line at more characters than the line feed (UAX #14), so these are escaped.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter};

/// Next line, line separator and paragraph separator.
const LINE_ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Writes compact JSON whose texts hold no line ends.
struct OneLine;

impl Formatter for OneLine {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        for part in fragment.split_inclusive(LINE_ENDS) {
            let end = part.chars().next_back().filter(|end| LINE_ENDS.contains(end));
            let text = end.and_then(|end| part.strip_suffix(end)).unwrap_or(part);
            CompactFormatter.write_string_fragment(out, text)?;
            if let Some(end) = end {
                write!(out, "\\u{:04x}", u32::from(end))?;
            }
        }
        Ok(())
    }
}

/// Writes `value` as one line of JSON, with its line feed.
///
/// # Errors
/// `value` cannot be written as JSON, or `out` cannot be written.
pub(super) fn write(mut out: impl Write, value: &impl Serialize) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut out, OneLine))?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_for_every_reader_and_means_the_same() {
        for (text, written) in [
            ("plain", r#""plain""#),
            ("a\u{2028}b\u{2029}\u{85}", r#""a\u2028b\u2029\u0085""#),
            ("\u{2028}", r#""\u2028""#),
            ("\u{85}\u{85}x", r#""\u0085\u0085x""#),
            ("a\nb\u{b}\u{c}\r\"\u{e9}", "\"a\\nb\\u000b\\f\\r\\\"\u{e9}\""),
        ] {
            let mut line = Vec::new();
            write(&mut line, &text).unwrap();
            assert_eq!(String::from_utf8(line.clone()).unwrap(), format!("{written}\n"));
            assert_eq!(serde_json::from_slice::<String>(&line).unwrap(), text);
        }
        let mut line = Vec::new();
        write(&mut line, &std::collections::BTreeMap::from([("k\u{2028}", 1)])).unwrap();
        assert_eq!(line, b"{\"k\\u2028\":1}\n");
    }
}
