//! Mistakes in JSON that a person has written: where they are, and what was probably meant.

use std::collections::BTreeMap;

use mandate_core::Invalid;
use mandate_core::api_key::masked;
use ratatui::text::Span;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::exit::{Exit, Failure};
use crate::fields;
use crate::input::Source;
use crate::style::printable;
use crate::wrap::message_width;

/// The most characters of a line that are shown.
const SHOWN_CHARS: usize = 100;
/// The columns before a line, beside those of its number.
const MARGIN: usize = 5;
/// How many edits a misspelt name may be away from the one that was meant.
const MAX_EDITS: usize = 2;
/// How the refusal of an absent member ends.
const REQUIRED: &str = " is required";
/// What comes before the names that are known, in the refusal of one that is not.
const KNOWN: &str = "known are ";
const EMPTY: &str = "name a file that holds JSON, or pipe it in";
const CONVERT: &str = "write {\"name\": value, …}; most YAML tools convert, for example: yq -o json FILE";

/// The failure for `text`, read from `source`, which was refused because of `why`. `what` names it.
pub(crate) fn refused(what: &str, source: &Source, text: &str, why: &Invalid, exit: Exit) -> Failure {
    let Located { message, excerpt, meant, next } = located(source, text, why);
    let failure = Failure::new(exit, format!("{what} is refused: {message}"));
    let failure = match (excerpt, next) {
        (Some(excerpt), _) => failure.excerpt(excerpt),
        (None, Some(next)) => return failure.next(next),
        (None, None) => failure.note("read from", source),
    };
    match meant {
        Some(name) => failure.note("did you mean", format_args!("{name}?")),
        None => failure,
    }
}

/// Where a mistake is, and what was probably meant.
pub(crate) struct Located {
    /// What is wrong. For a text without any JSON, what it seems to be.
    pub(crate) message: String,
    /// The line, with its place before it and a caret below it.
    pub(crate) excerpt: Option<String>,
    /// The name that was meant.
    pub(crate) meant: Option<String>,
    /// What to do about a text without any JSON.
    pub(crate) next: Option<&'static str>,
}

impl Located {
    /// A text that is no JSON at all.
    fn nowhere(message: String, next: &'static str) -> Self {
        Self { message, excerpt: None, meant: None, next: Some(next) }
    }
}

/// Finds the mistake because of which `text`, read from `source`, was refused.
pub(crate) fn located(source: &Source, text: &str, why: &Invalid) -> Located {
    if text.trim().is_empty() {
        return Located::nowhere(format!("{source} is empty"), EMPTY);
    }
    let syntax = serde_json::from_str::<IgnoredAny>(text).err();
    if syntax.is_some() && is_yaml(text) {
        return Located::nowhere(format!("{source} looks like YAML, and must be JSON"), CONVERT);
    }
    let misspelt = misspelt(text, why);
    let place = match (&syntax, &misspelt) {
        (Some(error), _) => Some((error.line(), characters(text, error.line(), error.column()))),
        (None, Some(path)) => position(text, path).map(|at| line_and_column(text, at)),
        (None, None) => position(text, why.field()).map(|at| line_and_column(text, at)),
    };
    let excerpt = place.map(|at| excerpt(source, text, at, message_width()));
    let required = |path: &str| why.field().split('.').nth(path.matches('.').count()).map(str::to_owned);
    let meant = misspelt.as_deref().and_then(required).or_else(|| meant(why));
    Located { message: why.to_string(), excerpt, meant, next: None }
}

/// The column of a byte of a line, in characters. Both count from 1.
fn characters(text: &str, line: usize, byte: usize) -> usize {
    let line = text.split('\n').nth(line.saturating_sub(1)).unwrap_or_default();
    let before = line.get(..line.floor_char_boundary(byte.saturating_sub(1))).unwrap_or_default();
    before.chars().count().saturating_add(1)
}

/// Whether the first line that says anything is one of YAML.
fn is_yaml(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(first) = lines.next() else { return false };
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    first == "---"
        || first
            .split_once(':')
            .is_some_and(|(name, rest)| is_name(name) && (rest.is_empty() || rest.starts_with(' ')))
}

/// Where the member or element at `path` begins, in bytes: a member at its name.
fn position(text: &str, path: &str) -> Option<usize> {
    let mut at = text;
    let mut found = None;
    for part in path.split(['.', '[']) {
        let offset = |inner: &str| (inner.as_ptr() as usize).checked_sub(text.as_ptr() as usize);
        if let Some(index) = part.strip_suffix(']') {
            let elements: Vec<&RawValue> = serde_json::from_str(at).ok()?;
            at = elements.get(index.parse::<usize>().ok()?)?.get();
            found = offset(at);
        } else {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(at).ok()?;
            at = members.get(part)?.get();
            let value = offset(at)?;
            let name = text.get(..value)?.rfind(&format!("\"{part}\""));
            found = Some(name.unwrap_or(value));
        }
    }
    found
}

/// The line and the column of a byte, both from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |end| end.saturating_add(1));
    let column = before.get(start..).unwrap_or_default().chars().count();
    (before.matches('\n').count().saturating_add(1), column.saturating_add(1))
}

/// The line, with its place before it and a caret below it, as wide as the terminal.
fn excerpt(source: &Source, text: &str, (line, column): (usize, usize), width: Option<u16>) -> String {
    let whole = masked(text.lines().nth(line.saturating_sub(1)).unwrap_or_default());
    let before = column.saturating_sub(1);
    let number = line.to_string();
    let taken = number.len().saturating_add(MARGIN);
    let room = width.map_or(SHOWN_CHARS, |width| usize::from(width).saturating_sub(taken).min(SHOWN_CHARS));
    // A long line is shown from a little before the place.
    let skipped = if before < room { 0 } else { before.saturating_sub(room / 2) };
    let shown: String = whole.chars().skip(skipped).take(room).collect();
    // Some characters take two columns.
    let ahead: String = shown.chars().take(before.saturating_sub(skipped)).collect();
    let (margin, gap) = (" ".repeat(number.len()), " ".repeat(Span::raw(ahead).width()));
    let place = format!("{source}:{line}:{column}");
    format!(
        "  --> {}\n  {number} | {}\n  {margin} | {gap}^\n",
        printable(&place),
        printable(&shown.replace('\t', " "))
    )
}

/// The path of a member that is there in the place of a required one, and is spelt almost like it.
fn misspelt(text: &str, why: &Invalid) -> Option<String> {
    if !why.to_string().ends_with(REQUIRED) {
        return None;
    }
    let (mut object, mut path) = (text, String::new());
    for required in why.field().split('.') {
        if let Some(inner) = fields::at(object, required) {
            (object, path) = (inner, format!("{path}{required}."));
            continue;
        }
        let edits = |name: &String| strsim::damerau_levenshtein(&name.to_lowercase(), required);
        let nearest = fields::names(object).into_iter().min_by_key(edits)?;
        let is_near = (1..=MAX_EDITS).contains(&edits(&nearest)) || nearest.to_lowercase() == required;
        return is_near.then(|| format!("{path}{nearest}"));
    }
    None
}

/// The known name that a misspelt one is nearest to.
fn meant(why: &Invalid) -> Option<String> {
    let said = why.to_string();
    let (_, known) = said.split_once(KNOWN)?;
    let misspelt = why.field().rsplit('.').next()?.to_lowercase();
    nearest(&misspelt, known.split(", ")).map(str::to_owned)
}

/// The one of these names that a misspelt one is nearest to.
pub(crate) fn nearest<'a>(misspelt: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let edits = |name: &str| strsim::damerau_levenshtein(misspelt, name);
    names.min_by_key(|name| edits(name)).filter(|name| edits(name) <= MAX_EDITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_that_of_the_name() {
        let text = "{\n  \"a\": {\"b\": 1, \"ä\": [1,\n 22]},\n\t\"c\": \"b\"}";
        for (path, place) in
            [("a", (2, 3)), ("a.b", (2, 9)), ("a.ä", (2, 17)), ("a.ä[1]", (3, 2)), ("c", (4, 2))]
        {
            assert_eq!(position(text, path).map(|at| line_and_column(text, at)), Some(place), "{path}");
        }
        for path in ["", "d", "a.d", "a.ä[2]", "c.d", "body"] {
            assert_eq!(position(text, path), None, "{path}");
        }
    }

    #[test]
    fn yaml_is_told_from_json_that_is_broken() {
        for text in ["agent: agt_a", "---\nagent: a", "# a mandate\n\nlimits:\n  currency: USD"] {
            assert!(is_yaml(text), "{text}");
        }
        for text in ["{\"agent\": 1", "agent", "\"agent\": 1", "https://a.example", "[1: 2]", ""] {
            assert!(!is_yaml(text), "{text}");
        }
    }

    #[test]
    fn places_count_characters_and_carets_count_columns() {
        let text = "{\"a\": \"ümläutß 日本語\", \"b\": 1 \"c\": 2}";
        let why = Invalid::new("mandate", "must be JSON");
        let shown = located(&Source::Stdin, text, &why).excerpt.unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "  --> standard input:1:29");
        let (before, _) = lines[1].split_once("\"c\"").unwrap();
        assert_eq!(Span::raw(lines[2]).width(), Span::raw(before).width() + 1, "{shown}");
    }

    #[test]
    fn an_excerpt_is_no_wider_than_its_terminal() {
        let text = format!("{{\"a\": \"{}\", \"b\": 1 \"c\": 2}}", "x".repeat(60));
        let column = text.find("\"c\"").unwrap() + 1;
        let shown = excerpt(&Source::Stdin, &text, (1, column), Some(60));
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 60), "{shown}");
        assert_eq!(lines[2].find('^'), lines[1].find("\"c\""), "{shown}");
    }

    #[test]
    fn a_misspelt_parent_is_found() {
        let missing = |field: &'static str| Invalid::new(field, "is required");
        for (text, field, at, name) in [
            ("{\"Limits\": {}}", "limits.currency", "1:2", "limits"),
            ("{\"limits\": {\"curency\": 1}}", "limits.currency", "1:13", "currency"),
        ] {
            let found = located(&Source::Stdin, text, &missing(field));
            assert_eq!(found.meant.as_deref(), Some(name));
            assert!(found.excerpt.unwrap().contains(&format!("input:{at}\n")));
        }
        assert_eq!(located(&Source::Stdin, "{\"other\": 1}", &missing("limits.currency")).meant, None);
    }

    #[test]
    fn a_text_without_json_is_named() {
        let why = Invalid::new("mandate", "must be JSON");
        assert_eq!(located(&Source::Stdin, " \n", &why).message, "standard input is empty");
        assert!(located(&Source::Stdin, "agent: agt_a", &why).message.contains("looks like YAML"));
    }

    #[test]
    fn a_long_line_is_shown_around_its_place() {
        let text = format!("{{\"a\": \"{}\", \"b\": 1}}", "x".repeat(500));
        let at = position(&text, "b").unwrap();
        let shown = excerpt(&Source::Stdin, &text, (1, at + 1), None);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "  --> standard input:1:511");
        let caret = lines[2].find('^').unwrap();
        assert!(lines[1][caret..].starts_with("\"b\": 1}") && lines[1].len() < 120, "{shown}");
    }
}
