//! The output of a command: results on standard output, everything else on standard error.
//!
//! Styles are dropped for pipes and under `NO_COLOR`. If a reader closes the pipe early, that is not an
//! error: the rest is dropped, and the exit code stays the same.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};

use anstyle::Style;
use mandate_core::json::one_line;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::csv_rows::{Column, header, row};
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::{Format, Global};
use crate::jq::Filter;
use crate::members::Printed;
use crate::pager::Pages;
use crate::style::{CAUTION, printable, style_of};
use crate::table::{Field, Look, Tabular, width};
use crate::wrap::{hanging, message_width};

/// Columns of a line's label.
const LABEL_WIDTH: usize = 13;

/// Standard output and error of one run.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    /// Whether `--format` was given.
    is_chosen: bool,
    /// The fields to print. Empty: all.
    fields: Vec<String>,
    /// What the command prints as JSON.
    printed: Printed,
    filter: Option<Filter>,
    /// The columns of CSV.
    columns: Vec<Column>,
    look: Look,
    pages: Pages,
    closed: bool,
    failure: Option<io::Error>,
    notes: Vec<(&'static str, String)>,
}

impl Output {
    /// The output that the flags ask for. Fields and a filter apply to JSON, and imply it.
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let json = global.json.is_some() || global.jq.is_some();
        let format = match global.format {
            Some(format @ (Format::Table | Format::Csv)) if json => {
                let name = if format == Format::Csv { "csv" } else { "table" };
                return Err(Failure::new(
                    Exit::Usage,
                    format!("--format {name} is not JSON; --json and --jq are"),
                )
                .next("leave one of them out"));
            }
            Some(format) => format,
            None if json => Format::Json,
            None => Format::Table,
        };
        let fields = global.json.iter().flatten().filter(|name| !name.is_empty()).cloned().collect();
        let filter = global.jq.as_deref().map(Filter::compile).transpose()?;
        let is_chosen = global.format.is_some();
        Ok(Self {
            format,
            is_chosen,
            fields,
            printed: Printed::Nothing,
            filter,
            columns: Vec::new(),
            look: Look::new(global.time),
            pages: Pages::Off,
            closed: false,
            failure: None,
            notes: Vec::new(),
        })
    }

    /// How results are printed.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// How tables are seen.
    pub(crate) fn look(&self) -> Look {
        self.look
    }

    /// What follows is a list. A table that is longer than the terminal goes to a pager.
    pub(crate) fn begin_pages(&mut self) {
        if self.format == Format::Table {
            self.pages = Pages::begin();
        }
    }

    /// The list has ended: waits until the pager was left.
    pub(crate) fn end_pages(&mut self) {
        let rest = self.pages.end();
        self.write(&rest);
    }

    /// What follows has no end: in a pipe, and with JSON, each object is printed on a line.
    pub(crate) fn stream(&mut self) {
        let is_seen = io::stdout().is_terminal() || self.is_chosen;
        if self.format == Format::Json || !is_seen {
            self.format = Format::Ndjson;
        }
    }

    /// What follows is lines of JSON. A table is refused.
    pub(crate) fn only_lines(&mut self) -> Result<(), Failure> {
        if self.is_chosen && self.format == Format::Table {
            return Err(Failure::new(
                Exit::Usage,
                "there is no table for this: the output is one line of JSON per object",
            )
            .next("leave --format out"));
        }
        self.format = Format::Ndjson;
        Ok(())
    }

    /// Whether JSON was asked for.
    pub(crate) fn is_json(&self) -> bool {
        !matches!(self.format, Format::Table | Format::Csv)
    }

    /// Whether CSV was asked for.
    pub(crate) fn is_csv(&self) -> bool {
        self.format == Format::Csv
    }

    /// Prints the header of these columns, if CSV was asked for. Rows of them follow.
    pub(crate) fn begin_csv(&mut self, columns: Vec<Column>) -> Result<(), Failure> {
        if self.is_csv() {
            self.text(&header(&columns)?);
            self.columns = columns;
        }
        Ok(())
    }

    /// Prints an object as a row of CSV.
    pub(crate) fn csv_row(&mut self, json: &str) -> Result<(), Failure> {
        let line = row(&self.columns, json)?;
        self.text(&line);
        Ok(())
    }

    /// Whether there is a jq expression.
    pub(crate) fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// A fact to report only if standard output cannot be written.
    pub(crate) fn note_if_lost(&mut self, label: &'static str, value: impl fmt::Display) {
        self.notes.push((label, value.to_string()));
    }

    /// Whether any output was lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether standard output is closed or has failed, so that further output is lost.
    pub(crate) fn is_over(&self) -> bool {
        self.closed || self.failure.is_some()
    }

    /// A labelled line, wrapped between words on a terminal. The value may have styles, but no control characters from
    /// elsewhere.
    pub(crate) fn line(&mut self, label: &str, value: impl fmt::Display) {
        self.hanging(&format!("{label:<LABEL_WIDTH$}"), &value.to_string());
    }

    /// A text behind `start`, wrapped between words on a terminal, as a labelled line is.
    pub(crate) fn hanging(&mut self, start: &str, text: &str) {
        self.text(&format!("{}\n", hanging(start, text, width())));
    }

    /// A sentence, wrapped between words on a terminal. It may have styles, but no control characters from elsewhere.
    pub(crate) fn sentence(&mut self, text: &str) {
        self.hanging("", text);
    }

    /// A labelled line with a value from elsewhere, in colour if it is a state.
    pub(crate) fn field(&mut self, label: &str, value: &str, is_state: bool) {
        let style = if is_state { style_of(value) } else { Style::new() };
        self.line(label, format_args!("{style}{}{style:#}", printable(value)));
    }

    /// A value as one line of JSON, after fields and expression were applied.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        match serde_json::to_string(value) {
            Ok(text) => {
                let is_known = |name: &String| self.printed.names().contains(&name.as_str());
                debug_assert!(
                    objects(&text).iter().all(|object| fields::names(object).iter().all(is_known)),
                    "a member is missing in command/printed.rs: {text}"
                );
                self.must_be_in(&text)?;
                self.document(&text)
            }
            Err(e) => {
                self.failure = Some(e.into());
                Ok(())
            }
        }
    }

    /// The service's answer unchanged, with a line break; or what was selected from it.
    pub(crate) fn body(&mut self, body: &str) -> Result<(), Failure> {
        if self.format == Format::Json {
            self.must_be_in(body)?;
        }
        self.document(body)
    }

    /// Refuses the name of a field below a member of the command's own object in `body`, or of those of an array, that is not
    /// there.
    fn must_be_in(&self, body: &str) -> Result<(), Failure> {
        let Printed::Own(_) = self.printed else { return Ok(()) };
        let objects = objects(body);
        match objects.first().zip(fields::unknown(&objects, &self.fields)) {
            None => Ok(()),
            Some((first, name)) => Err(fields::not_in(first, name)),
        }
    }

    /// What the command prints as JSON: the names of fields that are not among its members are refused, before anything is
    /// done.
    pub(crate) fn prints(&mut self, printed: Printed) -> Result<(), Failure> {
        match &printed {
            Printed::Known(names) => fields::must_be_among(&self.fields, names)?,
            Printed::Flat(names) => {
                if let Some(path) = self.fields.iter().find(|path| path.contains('.')) {
                    return Err(fields::no_field(path).note("fields", names.join(", ")));
                }
                fields::must_be_among(&self.fields, names)?;
            }
            Printed::Own(names) => {
                let first = |path: &String| path.split('.').next().unwrap_or_default().to_owned();
                fields::must_be_among(&self.fields.iter().map(first).collect::<Vec<_>>(), names)?;
            }
            Printed::Nothing => {}
        }
        self.printed = printed;
        Ok(())
    }

    fn document(&mut self, body: &str) -> Result<(), Failure> {
        let lines = self.rendered(body)?;
        self.text(&lines);
        Ok(())
    }

    /// The lines that are printed for `body`.
    pub(crate) fn rendered(&self, body: &str) -> Result<String, Failure> {
        let selected = self.selected(body);
        match &self.filter {
            Some(filter) => filter.apply(&selected),
            None => Ok(self.ended(&selected)),
        }
    }

    /// A document with its line feed. Where each line is a document, no reader may end it earlier.
    fn ended(&self, document: &str) -> String {
        let document = document.trim_end_matches('\n');
        let is_line = self.format == Format::Ndjson;
        format!("{}\n", if is_line { one_line(document) } else { Cow::Borrowed(document) })
    }

    /// The selected fields of `body`.
    pub(crate) fn selected<'a>(&self, body: &'a str) -> Cow<'a, str> {
        if self.fields.is_empty() { Cow::Borrowed(body) } else { fields::select(body, &self.fields).into() }
    }

    /// A whole table. Which columns are hidden is said beside it.
    pub(crate) fn table<'a>(&mut self, columns: &'static [Field], rows: impl Iterator<Item = &'a str>) {
        let mut table = Tabular::new(columns, self.look);
        self.text(&table.page(rows));
        if let Some(hidden) = table.hidden() {
            note(hidden);
        }
    }

    /// Text as it is, for standard output.
    pub(crate) fn text(&mut self, text: &str) {
        if self.is_over() {
            return;
        }
        match self.pages.take(text) {
            Ok(text) => self.write(&text),
            // The pager was left.
            Err(_) => self.closed = true,
        }
    }

    fn write(&mut self, text: &str) {
        if self.is_over() || text.is_empty() {
            return;
        }
        let mut out = anstream::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => self.closed = true,
            Err(e) => self.failure = Some(e),
        }
    }

    /// Reports a failure. With JSON output, the service's answer also goes to standard output.
    pub(crate) fn failure(&mut self, failure: &Failure) -> Exit {
        self.end_pages();
        if let Some(answer) = failure.answer().filter(|_| self.is_json()) {
            self.text(&self.ended(answer));
        }
        if failure.exit != Exit::Interrupted {
            say(&failure.render());
        }
        failure.exit
    }

    /// Ends the run. Lost output is reported, and turns a success into a failure.
    pub(crate) fn finish(mut self, exit: Exit) -> Exit {
        self.end_pages();
        let Some(e) = self.failure else { return exit };
        let failure = Failure::new(Exit::Io, format!("standard output cannot be written: {e}"));
        let notes = self.notes.into_iter();
        say(&notes.fold(failure, |failure, (label, value)| failure.note(label, value)).render());
        if exit == Exit::Success { Exit::Io } else { exit }
    }
}

/// The elements of an array, or the one object that `body` is.
fn objects(body: &str) -> Vec<&str> {
    let items: Option<Vec<&RawValue>> = serde_json::from_str(body).ok();
    items.map_or_else(|| vec![body], |items| items.into_iter().map(RawValue::get).collect())
}

/// A warning on standard error.
pub(crate) fn warn(message: impl fmt::Display) {
    beside(&format!("{CAUTION}warning:{CAUTION:#} "), &message.to_string());
}

/// Writes a note to standard error, wrapped between words on a terminal.
pub(crate) fn note(text: impl fmt::Display) {
    beside("note: ", &text.to_string());
}

/// Writes a text behind `start` to standard error, wrapped between words on a terminal.
pub(crate) fn beside(start: &str, text: &str) {
    say(&format!("{}\n", hanging(start, text, message_width())));
}

/// Writes to standard error. A failure to do so cannot be reported.
pub(crate) fn say(text: &str) {
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(global: &Global) -> Result<Output, Failure> {
        Output::new(global)
    }

    #[test]
    fn fields_and_expressions_ask_for_json() {
        let json = || Some(vec![String::new()]);
        let format = |global: Global| printed(&global).unwrap().format();
        assert_eq!(format(Global::default()), Format::Table);
        assert_eq!(format(Global { json: json(), ..Global::default() }), Format::Json);
        assert_eq!(format(Global { jq: Some(".".to_owned()), ..Global::default() }), Format::Json);
        let lines = Some(Format::Ndjson);
        assert_eq!(format(Global { json: json(), format: lines, ..Global::default() }), Format::Ndjson);
        let refused = printed(&Global { json: json(), format: Some(Format::Table), ..Global::default() });
        assert_eq!(refused.unwrap_err().exit, Exit::Usage);
    }
}
