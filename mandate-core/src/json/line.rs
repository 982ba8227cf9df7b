//! JSON as one line.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Where some readers end a line besides the line feed (UAX #14): next line, line separator and paragraph separator.
const LINE_ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// The JSON `text` with each U+0085, U+2028 and U+2029 as an escape, since some readers of lines end one there. JSON
/// holds these characters only within strings, so the value is the same.
///
/// ```
/// use mandate_core::json::one_line;
/// assert_eq!(one_line("{\"note\":\"a\u{2028}b\"}"), r#"{"note":"a\u2028b"}"#);
/// assert_eq!(one_line("[1]"), "[1]");
/// ```
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.contains(LINE_ENDS) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len().saturating_add(16));
    for character in text.chars() {
        if LINE_ENDS.contains(&character) {
            // Writing into a String does not fail.
            let _ = write!(line, "\\u{:04x}", u32::from(character));
        } else {
            line.push(character);
        }
    }
    Cow::Owned(line)
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
            ("\\\u{2028}", r#""\\\u2028""#),
            ("a\nb\u{b}\u{c}\r\"\u{e9}", "\"a\\nb\\u000b\\f\\r\\\"\u{e9}\""),
        ] {
            let json = serde_json::to_string(text).unwrap();
            let line = one_line(&json);
            assert_eq!(line, written);
            assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
        }
        assert_eq!(one_line("{\"k\u{2028}\":1}"), r#"{"k\u2028":1}"#);
    }
}
