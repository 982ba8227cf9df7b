//! Tables for people: as wide as the terminal, or plain text in pipes.

use std::io::{IsTerminal as _, stdout};

use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Row, Table, Width, presets};
use mandate_core::{EnvironmentKind, Timestamp};

use crate::environment::variable;
use crate::fields;
use crate::style::{CAUTION, ERROR, GOOD, LIVE, LIVE_MARK, printable, style_of};

/// The text of an absent value.
const ABSENT: &str = "-";
/// The text of an absent cap or threshold, which means that there is none.
pub(crate) const NO_LIMIT: &str = "no limit";
pub(crate) const NONE: &str = "none";
/// The narrowest column of running text, unless its content is narrower. Otherwise the last columns are left
/// out.
const MIN_WIDTH: u16 = 12;
/// The space between two columns.
const GAP: u16 = 2;

/// A column of a table, or a line of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    /// Its label.
    pub(crate) label: &'static str,
    /// Where its value is: a path of names; or several, separated by spaces, which are shown side by side.
    /// Without a value at the first, the others are not shown.
    pub(crate) path: &'static str,
    /// The kind of text.
    pub(crate) kind: Kind,
    /// The text if it is absent.
    absent: Option<&'static str>,
}

/// The kind of text of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It may be shortened.
    Text,
    /// It is useless when shortened, such as an id.
    Whole,
    /// Seconds since the epoch.
    Seconds,
    /// A state.
    State,
    /// A kind of environment. Production gets a mark.
    Environment,
}

/// A field that may be shortened.
pub(crate) const fn text(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Text, absent: None }
}

/// A field that is shown whole.
pub(crate) const fn whole(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Whole, absent: None }
}

/// A time in seconds.
pub(crate) const fn seconds(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Seconds, absent: None }
}

/// A state.
pub(crate) const fn state(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::State, absent: None }
}

/// A kind of environment.
pub(crate) const fn environment(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Environment, absent: None }
}

impl Field {
    /// The same, with a text for an absent value.
    pub(crate) const fn or(self, absent: &'static str) -> Self {
        Self { absent: Some(absent), ..self }
    }

    /// Whether it is a word with a colour.
    pub(crate) fn is_state(&self) -> bool {
        matches!(self.kind, Kind::State | Kind::Environment)
    }

    /// The value in `json`, escaped for a terminal. None if it is absent and there is no text for that.
    pub(crate) fn value(&self, json: &str) -> Option<String> {
        let mut paths = self.path.split(' ').map(|path| fields::text(json, path));
        let Some(first) = paths.next().flatten() else { return self.absent.map(str::to_owned) };
        let value = paths.flatten().fold(first, |value, next| value + " " + &next);
        let value = match self.kind {
            Kind::Seconds => value.parse().map_or(value, |at| Timestamp::from_seconds(at).to_string()),
            Kind::Environment if value == EnvironmentKind::Production.as_str() => LIVE_MARK.to_owned(),
            _ => value,
        };
        Some(printable(&value).into_owned())
    }

    fn cell(&self, json: &str) -> Cell {
        let value = self.value(json).unwrap_or_else(|| ABSENT.to_owned());
        let colour = if self.is_state() { colour(&value) } else { None };
        colour.into_iter().fold(Cell::new(value), Cell::fg)
    }
}

/// The colour of a state.
fn colour(state: &str) -> Option<Color> {
    [(GOOD, Color::Green), (CAUTION, Color::Yellow), (ERROR, Color::Red), (LIVE, Color::Red)]
        .into_iter()
        .find_map(|(style, colour)| (style_of(state) == style).then_some(colour))
}

/// A table that is printed page by page. The head is printed above the first page.
#[derive(Debug)]
pub(crate) struct Tabular {
    columns: &'static [Field],
    /// The column widths so far, so that the next pages align.
    widths: Vec<u16>,
}

impl Tabular {
    pub(crate) fn new(columns: &'static [Field]) -> Self {
        Self { columns, widths: Vec::new() }
    }

    /// The lines of a page.
    pub(crate) fn page<'a>(&mut self, rows: impl Iterator<Item = &'a str>) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).enforce_styling();
        if let Some(width) = width() {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        table.set_truncation_indicator("…");
        table.set_header(one_line(self.columns.iter().map(|column| Cell::new(column.label))));
        for json in rows {
            table.add_row(one_line(self.columns.iter().map(|column| column.cell(json))));
        }
        let is_first = self.widths.is_empty();
        let widths = table.column_max_content_widths();
        self.widths = widths
            .iter()
            .enumerate()
            .map(|(at, now)| self.widths.get(at).map_or(*now, |b| *b.max(now)))
            .collect();
        let mut left = width().unwrap_or(u16::MAX);
        for (at, (column, width)) in self.columns.iter().zip(&self.widths).enumerate() {
            let Some(shown) = table.column_mut(at) else { continue };
            shown.set_padding((0, GAP));
            let whole = width.saturating_add(GAP);
            let least = if column.kind == Kind::Text { whole.min(MIN_WIDTH) } else { whole };
            shown.set_constraint(match left.checked_sub(least) {
                None if at > 0 => ColumnConstraint::Hidden,
                _ if column.kind == Kind::Text => ColumnConstraint::LowerBoundary(Width::Fixed(least)),
                _ => ColumnConstraint::Absolute(Width::Fixed(whole)),
            });
            // After a column that is left out, no other follows.
            left = left.saturating_sub(least);
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        lines.into_iter().skip(usize::from(!is_first)).collect()
    }
}

/// A row of one line, however long its cells are.
fn one_line(cells: impl Iterator<Item = Cell>) -> Row {
    let mut row = Row::new();
    cells.for_each(|cell| {
        row.add_cell(cell);
    });
    row.max_height(1);
    row
}

/// The columns of the terminal. `COLUMNS` overrides them, also for pipes and files, where lines are otherwise
/// not shortened. None for a terminal of unknown size, which reports 0.
pub(crate) fn width() -> Option<u16> {
    let set = variable("COLUMNS").ok().flatten().and_then(|text| text.parse().ok());
    let seen = || {
        let size = stdout().is_terminal().then(ratatui::crossterm::terminal::size)?;
        size.ok().map(|(columns, _)| columns)
    };
    set.filter(|columns| *columns > 0).or_else(seen).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_first_part_a_value_is_absent() {
        let month = text("per month", "limits.per_month limits.currency");
        let (capped, free) =
            (r#"{"limits":{"per_month":20.50,"currency":"USD"}}"#, r#"{"limits":{"currency":"USD"}}"#);
        assert_eq!(month.value(capped).as_deref(), Some("20.50 USD"));
        assert_eq!(month.value(free), None);
        assert_eq!(month.or(NO_LIMIT).value(free).as_deref(), Some("no limit"));
    }
}
