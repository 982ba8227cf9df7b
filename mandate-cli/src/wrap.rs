//! Text that is wrapped between words, as wide as a terminal. Commands to copy stay on one line.

use std::io::{IsTerminal as _, stderr};

use anstream::adapter::strip_str;
use ratatui::crossterm::terminal::size;

/// The fewest characters of a line of text behind its indentation.
const MIN_TEXT: usize = 20;
/// What a command begins with.
const PROGRAMS: [&str; 3] = ["mandate", "chmod", "yq"];
/// What is behind `mandate` in a command, rather than in a sentence about a mandate.
pub(crate) const SUBCOMMANDS: &str = "\
    agent api apply approve audit auth authorize checkpoint completions contract create decision delete deny \
    diff doctor download drift enforcement escrow event evidence export get help inspect jwks key lint list \
    listen log login logout man mandate mcp monitor open pin ping plan profile proof replay report review \
    revoke set show simulate status stop switch tail template transition trigger unpin usage verify version \
    watch webhook whoami witness";
/// What the line begins with that says how a command is used.
const USAGE: &str = "Usage:";
/// What ends a part of a sentence.
const ENDS: [char; 6] = [',', ';', ':', '.', ')', '?'];

/// The columns of the terminal that messages go to. None if standard error is none.
pub(crate) fn message_width() -> Option<u16> {
    let columns = stderr().is_terminal().then(size)?.ok()?.0;
    Some(columns).filter(|columns| *columns > 0)
}

/// A text behind `start`, whose further lines begin below it. Without a width it is one line. Styles take no columns.
pub(crate) fn hanging(start: &str, text: &str, width: Option<u16>) -> String {
    filled(start, text, width, parts)
}

/// The same of what `parts` makes of the text for a number of columns.
fn filled(start: &str, text: &str, width: Option<u16>, parts: fn(&str, usize) -> Vec<String>) -> String {
    let words = text.trim_start_matches(' ');
    let start = format!("{start}{}", text.strip_suffix(words).unwrap_or_default());
    let Some(width) = width.map(usize::from) else { return start + words };
    let indent = " ".repeat(columns(&start));
    let width = width.max(indent.len() + MIN_TEXT);
    let (mut lines, mut used) = (start, indent.len());
    for part in parts(words, width - indent.len()) {
        let length = columns(&part);
        if used > indent.len() && used + 1 + length > width {
            lines.extend(["\n", &indent]);
            used = indent.len();
        } else if used > indent.len() {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(&part);
        used += length;
    }
    lines
}

/// Each line of a text, wrapped below its first word. A usage is no command to copy.
pub(crate) fn each_line(text: &str, width: Option<u16>) -> String {
    let wrapped = |line: &str| {
        if strip_str(line).to_string().starts_with(USAGE) {
            filled("", line, width, |line, _| line.split(' ').map(str::to_owned).collect())
        } else {
            hanging("", line, width)
        }
    };
    text.split('\n').map(wrapped).collect::<Vec<_>>().join("\n")
}

fn columns(text: &str) -> usize {
    strip_str(text).to_string().chars().count()
}

/// What a line may break between: words, and what is copied as a whole. What is in backticks is that if it fits in `room`
/// columns.
fn parts(text: &str, room: usize) -> Vec<String> {
    let words: Vec<&str> = text.split(' ').collect();
    let plain: Vec<String> = words.iter().map(|word| strip_str(word).to_string()).collect();
    let (mut parts, mut at) = (Vec::new(), 0);
    while let (Some(rest), Some(seen)) = (words.get(at..), plain.get(at..)) {
        let count = copied(seen, room);
        let Some(part) = rest.get(..count).filter(|part| !part.is_empty()) else { break };
        parts.push(part.join(" "));
        at += count;
    }
    parts
}

/// How many of the first words are copied as a whole. At least one, if there is any.
fn copied(words: &[String], room: usize) -> usize {
    let Some(first) = words.first() else { return 0 };
    let quoted = first.matches('`').count() % 2 == 1;
    let end = words.iter().skip(1).position(|word| word.contains('`')).filter(|_| quoted);
    if let Some(end) = end {
        let count = end + 2;
        let length: usize = words.iter().take(count).map(|word| word.chars().count() + 1).sum();
        return if length <= room { count } else { 1 };
    }
    let is_option = |word: &str| word.starts_with('-') && !word.contains('=') && !word.ends_with(ENDS);
    if PROGRAMS.contains(&first.as_str()) {
        let mut count = 1;
        for pair in words.windows(2) {
            let [before, word] = pair else { break };
            let is_last = word.ends_with(ENDS) || count + 1 == words.len();
            let bare = word.trim_end_matches(ENDS);
            let is_part =
                SUBCOMMANDS.split(' ').any(|name| name == bare) || is_argument(word) || is_option(before);
            // A plain word is an argument where the command ends with it.
            let is_command = is_part || (count > 1 && is_last);
            if before.ends_with(ENDS) || !is_command {
                break;
            }
            count += 1;
        }
        return count;
    }
    if is_option(first) && words.len() > 1 { 2 } else { 1 }
}

/// Whether a word is not one of a sentence.
fn is_argument(word: &str) -> bool {
    let inner = word.trim_end_matches(ENDS);
    word.starts_with('-')
        || inner
            .contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase() || "_./=\"<>|$@*".contains(c))
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
        assert_eq!(each_line("a b\n\n  c d", None), "a b\n\n  c d");
        assert_eq!(
            each_line("Usage: mandate agent create <NAME>", Some(21)),
            "Usage: mandate agent\ncreate <NAME>"
        );
    }

    #[test]
    fn what_is_copied_stays_on_one_line() {
        for (text, whole) in [
            ("first mandate logout sandbox", "mandate logout sandbox"),
            ("then repeat mandate login; or set MANDATE_AGENT_KEY", "mandate login;"),
            ("see what mandate profile list shows of yours", "mandate profile list"),
            ("go on: mandate plan DIR --out plan.json, and then", "mandate plan DIR --out plan.json,"),
            ("the mandate is refused", "mandate"),
            ("see mandate mandate lint shows every problem at once", "mandate mandate lint"),
            ("it says chmod 600 /a/b; if others", "chmod 600 /a/b;"),
            ("now pass --issuer URL, or set", "--issuer URL,"),
            ("repeat it with --idempotency-key \"k\": it gives", "--idempotency-key \"k\":"),
            ("there is `a b c` here", "`a b c`"),
        ] {
            assert!(parts(text, 30).iter().any(|part| part == whole), "{whole}: {:?}", parts(text, 30));
        }
        assert_eq!(parts("a `b c d` e", 5), ["a", "`b", "c", "d`", "e"]);
        let command = "mandate mandate show mnd_01hf7yat000000000000000007 --profile sandbox";
        assert_eq!(hanging("  ", &format!("try {command}"), Some(30)), format!("  try\n  {command}"));
    }
}
