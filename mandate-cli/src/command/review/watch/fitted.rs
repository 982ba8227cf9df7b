//! Text within a width, in columns. What does not fit is wrapped, or ends with a sign.

use ratatui::text::Span;

use super::details::LABEL_WIDTH;

/// What ends a text that does not fit.
pub(super) const CUT: char = '…';

/// The text in lines of at most `width` columns.
pub(super) fn broken(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut columns) = (vec![String::new()], 0_usize);
    for c in text.chars() {
        let wide = Span::raw(c.to_string()).width();
        if columns.saturating_add(wide) > width {
            lines.push(String::new());
            columns = 0;
        }
        columns = columns.saturating_add(wide);
        if let Some(line) = lines.last_mut() {
            line.push(c);
        }
    }
    lines
}

/// A labelled line in lines of at most `width` columns: a value of several words breaks between them, below itself.
pub(super) fn wrapped(line: &str, width: usize) -> Vec<String> {
    let is_words = line.get(LABEL_WIDTH..).is_some_and(|value| value.contains(' '));
    if !is_words || width <= LABEL_WIDTH {
        return hanging(line, width);
    }
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let Some(last) = lines.last_mut() else { break };
        let columns = Span::raw(last.as_str()).width().saturating_add(Span::raw(word.trim_end()).width());
        if columns > width && last.len() > LABEL_WIDTH {
            lines.push(format!("{:LABEL_WIDTH$}{word}", ""));
        } else {
            last.push_str(word);
        }
    }
    lines.iter().flat_map(|line| hanging(line.trim_end(), width)).collect()
}

/// A labelled line of which one word is too long: it goes on below itself.
fn hanging(line: &str, width: usize) -> Vec<String> {
    let mut lines = broken(line, width);
    if lines.len() > 1 && width > LABEL_WIDTH {
        let rest = lines.drain(1..).collect::<String>();
        let rest = broken(&rest, width.saturating_sub(LABEL_WIDTH));
        lines.extend(rest.iter().map(|part| format!("{:LABEL_WIDTH$}{part}", "")));
    }
    lines
}

/// The text in one line of at most `width` columns, with a sign if it is cut.
pub(super) fn fit(text: &str, width: usize) -> String {
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else { return String::new() };
    let mut first = broken(text, room.max(1)).into_iter().next().unwrap_or_default();
    if room == 0 {
        first.clear();
    }
    first.push(CUT);
    first
}

/// Two names in `width` columns together. If both do not fit, the longer one is cut, or each to its half.
pub(super) fn fit_both(one: &str, other: &str, width: usize) -> (String, String) {
    let room = width.saturating_sub(Span::raw(other).width()).max(width / 2);
    let one = fit(one, room);
    let left = width.saturating_sub(Span::raw(one.as_str()).width());
    (one, fit(other, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_breaks_at_the_edge_of_the_terminal() {
        assert_eq!(broken("abcde", 2), ["ab", "cd", "e"]);
        assert_eq!(broken("\u{4e00}\u{4e00}a", 3), ["\u{4e00}", "\u{4e00}a"]);
        assert_eq!(broken("", 3), [""]);
    }

    #[test]
    fn a_value_breaks_between_its_words() {
        assert_eq!(wrapped("month      540 of 2,000 USD", 20), ["month      540 of", "           2,000 USD"]);
        assert_eq!(wrapped("review     rev_0123456789", 20), ["review     rev_01234", "           56789"]);
        assert_eq!(
            wrapped("for        abcdefghijkl mn", 20),
            ["for        abcdefghi", "           jkl", "           mn"]
        );
    }

    #[test]
    fn what_is_cut_has_a_sign() {
        assert_eq!((fit("abc", 3), fit("abcd", 3)), ("abc".to_owned(), "ab…".to_owned()));
        assert_eq!(
            (fit("abcd", 1), fit("abcd", 0), fit("", 0)),
            ("…".to_owned(), String::new(), String::new())
        );
        assert_eq!(fit("\u{4e00}\u{4e00}\u{4e00}", 4), "\u{4e00}…");
    }
}
