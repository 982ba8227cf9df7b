//! Colours for terminals, and the escaping of text from elsewhere.

use std::borrow::Cow;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Color, Style};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const CAUTION: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();

/// The style that marks production, where real money moves.
pub(crate) const LIVE: Style =
    AnsiColor::White.on_default().bold().bg_color(Some(Color::Ansi(AnsiColor::Red)));

/// The word that marks production.
pub(crate) const LIVE_MARK: &str = "LIVE";

/// Green for success, yellow for what waits, red for refusals.
pub(crate) fn style_of(state: &str) -> Style {
    match state {
        "allow" | "active" | "approved" | "delivered" | "ready" | "released" | "settled" | "enforce" => GOOD,
        "review" | "pending" | "observe" | "opening" | "disputed" => CAUTION,
        "revoked" | "denied" | "expired" | "refused" | "failed" => ERROR,
        LIVE_MARK => LIVE,
        denial if denial.starts_with("deny_") => ERROR,
        _ => Style::new(),
    }
}

/// `text` with everything escaped that could control a terminal or reorder its output.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_deceptive) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        let _ = if is_deceptive(c) { write!(shown, "{}", c.escape_unicode()) } else { shown.write_char(c) };
        shown
    }))
}

/// Control characters, and invisible ones that change direction or hide text.
pub(crate) fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_escaped() {
        assert_eq!(printable("a\u{1b}[2Jb\u{9b}c\u{202e}d"), "a\\u{1b}[2Jb\\u{9b}c\\u{202e}d");
        assert!(matches!(printable("vendor:acme ü 💶"), Cow::Borrowed(_)));
    }
}
