//! Text that is wrapped between words, as wide as a terminal.

use anstream::adapter::strip_str;

/// The fewest characters of a line of text behind its indentation.
const MIN_TEXT: usize = 20;

/// A text behind `start`, whose further lines begin below it. Without a width it is one line. Styles take no columns.
pub(crate) fn hanging(start: &str, text: &str, width: Option<u16>) -> String {
    let columns = |text: &str| strip_str(text).to_string().chars().count();
    let words = text.trim_start_matches(' ');
    let start = format!("{start}{}", text.strip_suffix(words).unwrap_or_default());
    let indent = " ".repeat(columns(&start));
    let width = width.map_or(usize::MAX, usize::from).max(indent.len() + MIN_TEXT);
    let (mut lines, mut used) = (start, indent.len());
    for word in words.split(' ') {
        let length = columns(word);
        if used > indent.len() && used + 1 + length > width {
            lines.extend(["\n", &indent]);
            used = indent.len();
        } else if used > indent.len() {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_s_further_lines_begin_below_its_text() {
        let text = "one two three four five six seven";
        assert_eq!(hanging("  a  ", text, Some(26)), "  a  one two three four\n     five six seven");
        assert_eq!(hanging("  a  ", text, None), format!("  a  {text}"));
        let word = "x".repeat(40);
        assert_eq!(hanging("a ", &format!("{word} b"), Some(10)), format!("a {word}\n  b"));
        assert_eq!(hanging("a ", "  two words", Some(1)), "a   two words");
        let red = "\u{1b}[31mone\u{1b}[0m two three four five six";
        assert_eq!(
            hanging("  a  ", red, Some(26)),
            "  a  \u{1b}[31mone\u{1b}[0m two three four\n     five six"
        );
    }
}
