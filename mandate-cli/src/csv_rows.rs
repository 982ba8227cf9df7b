//! CSV for spreadsheets and databases: ISO dates, amounts with a full stop, and no cell that a spreadsheet runs.

use mandate_core::Timestamp;

use crate::exit::{Exit, Failure};
use crate::fields;

/// A column.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    name: &'static str,
    cell: Cell,
}

/// Where a cell's value comes from, and how it is written.
#[derive(Debug, Clone)]
enum Cell {
    /// The text at a path.
    Text(&'static str),
    /// The texts of the array at a path, separated by spaces.
    Words(&'static str),
    /// The amount at a path.
    Amount(&'static str),
    /// Seconds since the epoch at a path.
    Seconds(&'static str),
    /// The same in each row.
    Fixed(String),
}

pub(crate) const fn text(name: &'static str, path: &'static str) -> Column {
    Column { name, cell: Cell::Text(path) }
}

pub(crate) const fn words(name: &'static str, path: &'static str) -> Column {
    Column { name, cell: Cell::Words(path) }
}

pub(crate) const fn amount(name: &'static str, path: &'static str) -> Column {
    Column { name, cell: Cell::Amount(path) }
}

pub(crate) const fn seconds(name: &'static str, path: &'static str) -> Column {
    Column { name, cell: Cell::Seconds(path) }
}

pub(crate) fn fixed(name: &'static str, value: String) -> Column {
    Column { name, cell: Cell::Fixed(value) }
}

impl Column {
    fn value(&self, json: &str) -> String {
        let at = |path| fields::text(json, path).unwrap_or_default();
        harmless(match &self.cell {
            Cell::Text(path) => at(path),
            Cell::Words(path) => at(path).replace(", ", " "),
            Cell::Amount(path) => decimal(at(path)),
            Cell::Seconds(path) => match at(path).parse() {
                Ok(seconds) => Timestamp::from_seconds(seconds).to_string(),
                Err(_) => String::new(),
            },
            Cell::Fixed(value) => value.clone(),
        })
    }
}

/// The line with the names of the columns.
pub(crate) fn header(columns: &[Column]) -> Result<String, Failure> {
    line(columns.iter().map(|column| column.name.to_owned()))
}

/// The line of an object.
pub(crate) fn row(columns: &[Column], json: &str) -> Result<String, Failure> {
    line(columns.iter().map(|column| column.value(json)))
}

/// A line by RFC 4180.
fn line(cells: impl Iterator<Item = String>) -> Result<String, Failure> {
    let unwritable = |e: String| Failure::new(Exit::Io, format!("the row cannot be written: {e}"));
    let mut out = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    out.write_record(cells).map_err(|e| unwritable(e.to_string()))?;
    let bytes = out.into_inner().map_err(|e| unwritable(e.to_string()))?;
    String::from_utf8(bytes).map_err(|e| unwritable(e.to_string()))
}

/// An amount that no reader takes for a whole number, a date or a text: `40.0`.
fn decimal(amount: String) -> String {
    if amount.is_empty() || amount.contains('.') { amount } else { format!("{amount}.0") }
}

/// Makes sure that a spreadsheet reads the cell as text, and never as a formula.
fn harmless(cell: String) -> String {
    if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{cell}") } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_what_readers_take_them_for() {
        let columns = [
            text("id", "id"),
            amount("amount", "request.amount"),
            amount("spent", "spent"),
            amount("absent", "nothing"),
            seconds("iat", "iat"),
            text("reason", "reason"),
            words("denials", "denials"),
            fixed("month", "2026-06".to_owned()),
        ];
        assert_eq!(header(&columns).unwrap(), "id,amount,spent,absent,iat,reason,denials,month\r\n");
        let json = r#"{"id":"dec_1","request":{"amount":40},"spent":0.5,"iat":1781524800,"reason":"=1+1, \"he\" said","denials":["a","b"]}"#;
        let expected = "dec_1,40.0,0.5,,2026-06-15T12:00:00.000Z,\"'=1+1, \"\"he\"\" said\",a b,2026-06\r\n";
        assert_eq!(row(&columns, json).unwrap(), expected);
    }
}
