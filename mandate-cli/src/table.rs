//! Tables for people: as wide as the terminal, or plain text in pipes.

mod arranged;

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, stdout};

use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Row, Table, Width, presets};
use mandate_core::{EnvironmentKind, Timestamp};

use crate::environment::{now, variable};
use crate::fields;
use crate::global::Times;
use crate::style::{CAUTION, ERROR, GOOD, LIVE, LIVE_MARK, printable, style_of};
use crate::when::relative;

/// The text of an absent value.
const ABSENT: &str = "-";
/// The text of an absent cap or threshold, which means that there is none.
pub(crate) const NO_LIMIT: &str = "no limit";
pub(crate) const NONE: &str = "none";
/// The narrowest column of running text, unless its content is narrower. Otherwise columns are hidden.
const MIN_WIDTH: u16 = 8;
/// The narrowest column of those who pay or are paid. What can be spared is hidden before a name is cut at all.
const NAME_WIDTH: u16 = 5;
/// The narrowest column of verdicts, which still tells a denial from a payment: `deny_l…`.
pub(crate) const VERDICT_WIDTH: u16 = 7;
/// What comes before the name of an agent and of a recipient.
const KINDS: [&str; 2] = ["agt_", "vendor:"];
/// The fewest characters of an id's first part: its prefix, and its millisecond.
const SHORT_ID: usize = 14;
/// The columns of a terminal that does not say.
const USUAL_WIDTH: u16 = 80;
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
    /// Where not all columns fit, those with the greatest number are hidden first, and those with 0 last.
    spare: u8,
    /// The narrowest it is shown, if its content is wider and may be shortened.
    least: u16,
}

/// The kind of text of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It may be shortened.
    Text,
    /// It is useless when shortened, such as an amount.
    Whole,
    /// An id. In tables for people, only its first characters are shown.
    Id,
    /// An agent's id, or a recipient. In tables for people, only the name is shown, which may be shortened.
    Name,
    /// Seconds since the epoch.
    Seconds,
    /// An instant, RFC 3339.
    Time,
    /// A state.
    State,
    /// A kind of environment. Production gets a mark.
    Environment,
}

/// A field that may be shortened.
pub(crate) const fn text(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Text, absent: None, spare: 0, least: MIN_WIDTH }
}

/// A field that is shown whole.
pub(crate) const fn whole(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Whole, absent: None, spare: 0, least: MIN_WIDTH }
}

/// An id.
pub(crate) const fn id(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Id, absent: None, spare: 0, least: MIN_WIDTH }
}

/// An agent.
pub(crate) const fn agent(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Name, absent: None, spare: 0, least: NAME_WIDTH }
}

/// A recipient.
pub(crate) const fn recipient(label: &'static str, path: &'static str) -> Field {
    agent(label, path)
}

/// An instant.
pub(crate) const fn time(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Time, absent: None, spare: 0, least: MIN_WIDTH }
}

/// A time in seconds.
pub(crate) const fn seconds(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Seconds, absent: None, spare: 0, least: MIN_WIDTH }
}

/// A state.
pub(crate) const fn state(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::State, absent: None, spare: 0, least: MIN_WIDTH }
}

/// A kind of environment.
pub(crate) const fn environment(label: &'static str, path: &'static str) -> Field {
    Field { label, path, kind: Kind::Environment, absent: None, spare: 0, least: MIN_WIDTH }
}

impl Field {
    /// The same, with a text for an absent value.
    pub(crate) const fn or(self, absent: &'static str) -> Self {
        Self { absent: Some(absent), ..self }
    }

    /// The same, hidden before the columns with a lesser number where not all fit.
    pub(crate) const fn spare(self, spare: u8) -> Self {
        Self { spare, ..self }
    }

    /// The same, never shown narrower than this.
    pub(crate) const fn least(self, least: u16) -> Self {
        Self { least, ..self }
    }

    /// Whether it may be shortened: texts, and states that say how far.
    fn is_text(&self) -> bool {
        matches!(self.kind, Kind::Text | Kind::Name) || (self.kind == Kind::State && self.least < MIN_WIDTH)
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

    /// The value as a person sees it in a table.
    fn seen(&self, json: &str, look: Look) -> String {
        let at = |read: fn(&str) -> Option<Timestamp>| {
            Some(relative(read(&fields::text(json, self.path)?)?, look.now?))
        };
        let told = match self.kind {
            Kind::Seconds => at(|text| text.parse().ok().map(Timestamp::from_seconds)),
            Kind::Time => at(|text| Timestamp::parse(text).ok()),
            _ => None,
        };
        let value = if look.width.is_some() { self.name(json) } else { self.value(json) };
        told.or(value).unwrap_or_else(|| ABSENT.to_owned())
    }

    /// The value; of an agent and of a recipient only the name, without its kind.
    pub(crate) fn name(&self, json: &str) -> Option<String> {
        let value = self.value(json)?;
        let name = KINDS.iter().find_map(|kind| value.strip_prefix(kind)).filter(|_| self.kind == Kind::Name);
        Some(name.map_or_else(|| value.clone(), str::to_owned))
    }
}

/// How a table is seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Look {
    /// The columns of the terminal. None: nothing is shortened or hidden.
    width: Option<u16>,
    /// The time that others are relative to. None: they are shown in full.
    now: Option<Timestamp>,
}

impl Look {
    /// As the options and the terminal say.
    pub(crate) fn new(times: Option<Times>) -> Self {
        let width = width();
        let is_relative = times.map_or(width.is_some(), |times| times == Times::Relative);
        Self { width, now: is_relative.then(now) }
    }

    /// On a terminal of so many columns.
    #[cfg(test)]
    pub(crate) fn of_width(width: u16) -> Self {
        Self { width: Some(width), now: Some(now()) }
    }

    /// On the terminal of a question that takes `mark` columns itself.
    pub(crate) fn of_question(mark: u16) -> Self {
        let columns = ratatui::crossterm::terminal::size().map_or(0, |(columns, _)| columns);
        let width = Some(columns).filter(|columns| *columns > 0).unwrap_or(USUAL_WIDTH);
        Self { width: Some(width.saturating_sub(mark)), now: Some(now()) }
    }
}

/// The first characters of each id, as many as tell them apart.
fn shortened(ids: &mut [String]) {
    let cut = |id: &str, length: usize| id.get(..length).unwrap_or(id).to_owned();
    let is_enough = |length: usize| {
        let distinct: BTreeSet<&String> = ids.iter().collect();
        ids.iter().map(|id| cut(id, length)).collect::<BTreeSet<_>>().len() == distinct.len()
    };
    let longest = ids.iter().map(String::len).max().unwrap_or(0);
    let length = (SHORT_ID..longest).find(|length| is_enough(*length)).unwrap_or(longest);
    for id in ids {
        *id = cut(id, length);
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
    look: Look,
    /// The column widths so far, so that the next pages align.
    widths: Vec<u16>,
    /// Whether each column is shown. Decided on the first page.
    shown: Vec<bool>,
}

impl Tabular {
    pub(crate) fn new(columns: &'static [Field], look: Look) -> Self {
        Self { columns, look, widths: Vec::new(), shown: Vec::new() }
    }

    /// The lines of a page.
    pub(crate) fn page<'a>(&mut self, rows: impl Iterator<Item = &'a str>) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).enforce_styling();
        if let Some(width) = self.look.width {
            // The space behind the last column is not printed.
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.saturating_add(GAP));
        }
        table.set_truncation_indicator("…");
        table.set_header(one_line(self.columns.iter().map(|column| Cell::new(column.label))));
        for row in self.cells(rows) {
            table.add_row(one_line(row.into_iter()));
        }
        let is_first = self.widths.is_empty();
        let widths = table.column_max_content_widths();
        self.widths = widths
            .iter()
            .enumerate()
            .map(|(at, now)| self.widths.get(at).map_or(*now, |b| *b.max(now)))
            .collect();
        if is_first {
            self.shown = self.fitting();
        }
        for (at, width) in self.arranged().into_iter().enumerate() {
            let Some(column) = table.column_mut(at) else { continue };
            column.set_padding((0, GAP));
            column.set_constraint(match width {
                Some(width) => ColumnConstraint::Absolute(Width::Fixed(width.saturating_add(GAP))),
                None => ColumnConstraint::Hidden,
            });
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
        lines.into_iter().skip(usize::from(!is_first)).collect()
    }

    /// The cells of each row.
    fn cells<'a>(&self, rows: impl Iterator<Item = &'a str>) -> Vec<Vec<Cell>> {
        let rows: Vec<&str> = rows.collect();
        let mut cells: Vec<Vec<Cell>> = rows.iter().map(|_| Vec::new()).collect();
        for column in self.columns {
            let mut values: Vec<String> = rows.iter().map(|json| column.seen(json, self.look)).collect();
            if column.kind == Kind::Id && self.look.width.is_some() {
                shortened(&mut values);
            }
            for (row, value) in cells.iter_mut().zip(values) {
                let colour = if column.is_state() { colour(&value) } else { None };
                row.push(colour.into_iter().fold(Cell::new(value), Cell::fg));
            }
        }
        cells
    }

    /// What a person has to know who sees not all columns.
    pub(crate) fn hidden(&self) -> Option<String> {
        let hidden = self.columns.iter().zip(&self.shown).filter(|(_, shown)| !**shown);
        let hidden: Vec<&str> = hidden.map(|(column, _)| column.label).collect();
        let width = self.look.width.filter(|_| !hidden.is_empty())?;
        Some(format!("hidden at {width} columns: {}; --json has all", hidden.join(", ")))
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

    #[test]
    fn ids_are_cut_where_they_differ() {
        let mut ids = ["dec_01hf7yat000000000000000007", "dec_01hf7yat010000000000000007"].map(str::to_owned);
        shortened(&mut ids);
        assert_eq!(ids, ["dec_01hf7yat00", "dec_01hf7yat01"]);
        // In one millisecond, and the same id twice.
        let (one, two) = ("dec_01hf7yat000a00000000000007", "dec_01hf7yat000b00000000000007");
        let mut ids = [one, two, one].map(str::to_owned);
        shortened(&mut ids);
        assert_eq!(ids, ["dec_01hf7yat000a", "dec_01hf7yat000b", "dec_01hf7yat000a"]);
        let mut absent = ["-", "-"].map(str::to_owned);
        shortened(&mut absent);
        assert_eq!(absent, ["-", "-"]);
    }

    #[test]
    fn what_can_be_spared_is_hidden_first_and_named() {
        const COLUMNS: [Field; 3] =
            [id("ID", "id").spare(2), whole("AMOUNT", "amount"), text("TO", "to").spare(1)];
        let row =
            r#"{"id":"dec_01hf7yat000000000000000007","amount":"1234567 USD","to":"vendor:a-long-name"}"#;
        let page = |width| {
            let mut table = Tabular::new(&COLUMNS, Look { width: Some(width), now: None });
            let lines = table.page(std::iter::once(row));
            assert!(lines.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}: {lines}");
            (lines.lines().next().map(str::to_owned).unwrap(), table.hidden())
        };
        assert_eq!(page(60), ("ID              AMOUNT       TO".to_owned(), None));
        assert_eq!(page(37).0, "ID              AMOUNT       TO");
        for (width, head, hidden) in [(36, "AMOUNT       TO", "ID"), (12, "AMOUNT", "ID, TO")] {
            let (found, said) = page(width);
            assert!(found.starts_with(head), "{width}: {found}");
            assert!(said.unwrap().contains(&format!("hidden at {width} columns: {hidden};")), "{width}");
        }
        let terminal = Look { width: Some(80), now: Some(Timestamp::from_seconds(120)) };
        let seen = |field: Field, json: &str| field.seen(json, terminal);
        assert_eq!(seen(agent("AGENT", "a"), r#"{"a":"agt_buyer"}"#), "buyer");
        assert_eq!(agent("AGENT", "a").seen(r#"{"a":"agt_buyer"}"#, Look::default()), "agt_buyer");
        assert_eq!(seen(recipient("TO", "a"), r#"{"a":"vendor:acme"}"#), "acme");
        assert_eq!(recipient("TO", "a").value(r#"{"a":"vendor:acme"}"#).as_deref(), Some("vendor:acme"));
        assert_eq!(seen(seconds("AT", "at"), r#"{"at":0}"#), "2 min ago");
        assert_eq!(seen(time("AT", "at"), r#"{"at":"1970-01-01T00:03:00.000Z"}"#), "in 1 min");
        let mut whole = Tabular::new(&COLUMNS, Look::default());
        assert!(
            whole
                .page(std::iter::once(row))
                .contains("dec_01hf7yat000000000000000007  1234567 USD  vendor:a-long-name")
        );
        assert_eq!(whole.hidden(), None);
    }
}
