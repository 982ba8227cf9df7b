//! Input and output of the operator's commands: tables and JSON, a question before what cannot be undone, and
//! secrets that are shown before they take effect.

use std::io::{self, BufRead as _, IsTerminal as _, Write};

use mandate_core::Timestamp;
use serde::Serialize;
use tabwriter::TabWriter;

use super::Failure;
use crate::error::{Fault, Refusal};
use crate::model::call::ScriptError;
use crate::store;
use crate::store::tx::Tx;

/// Spaces between two columns of a table.
const GAP: usize = 3;
/// An empty cell of a table.
const NOTHING: &str = "-";

/// Runs `script` in one transaction of the database.
///
/// # Errors
/// The script refused, or the database does not answer.
pub fn run<T>(
    database: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError>,
) -> Result<T, Failure> {
    settled(store::run_once(database, script))
}

/// Runs a script that makes secrets, twice. The first run has no effect and shows that the script will be
/// accepted. Then the secrets are written to standard output. Only after that the second run takes effect. So
/// every secret in force was shown, and a slow terminal or pipe holds no lock. The script must make the same
/// secrets both times.
///
/// # Errors
/// The script refused; or standard output cannot be written, and nothing was changed; or the database has
/// failed, and it is unknown whether the secrets are in force.
pub fn hand_out<T>(
    database: &str,
    script: impl Fn(&mut Tx<'_>) -> Result<T, ScriptError>,
    show: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
) -> Result<T, Failure> {
    let made = settled(store::dry_run(database, &script))?;
    let mut out = io::stdout().lock();
    show(&made, &mut out).and_then(|()| out.flush()).map_err(|e| {
        Failure::failed(format!("the key cannot be written to standard output: {e}; nothing was changed"))
    })?;
    match store::run_once(database, script) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(refusal)) => Err(Failure::failed(format!(
            "nothing was changed, and the key just written is of no use: {}",
            refusal.message
        ))),
        // A COMMIT that fails may still have reached the log.
        Err(fault) => Err(Failure::failed(format!(
            "it is not known whether the key just written is in force: {fault}. Once the database is well again, look for its \
             id in `mandate-server key list`; if it is there, keep it, or revoke it with `mandate-server key revoke`"
        ))),
    }
}

fn settled<T>(ended: Result<Result<T, Refusal>, Fault>) -> Result<T, Failure> {
    ended.map_err(Failure::failed)?.map_err(|refusal| Failure::failed(refusal.message))
}

/// Writes `value` to standard output: as one line of JSON, or for a person, as `format` writes it.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(
    as_json: bool,
    value: &impl Serialize,
    format: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = if as_json { json(&mut out, value) } else { format(&mut out) };
    written.and_then(|()| out.flush()).map_err(unwritable)
}

/// Writes one line of JSON.
///
/// # Errors
/// `out` cannot be written.
pub fn json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

/// Writes rows as a table. The first row has the headings.
///
/// # Errors
/// `out` cannot be written.
pub fn table<const N: usize>(
    out: &mut dyn Write,
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> io::Result<()> {
    let mut table = TabWriter::new(out).padding(GAP);
    writeln!(table, "{}", heads.join("\t"))?;
    for row in rows {
        let cells = row.map(|cell| if cell.is_empty() { NOTHING.to_owned() } else { cell });
        writeln!(table, "{}", cells.join("\t"))?;
    }
    table.flush()
}

/// The instant as a cell, to the second; empty if there is none.
#[must_use]
pub fn instant(at: Option<Timestamp>) -> String {
    let text = at.map(|at| at.to_string()).unwrap_or_default();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// Writes a note to standard error, beside the output.
pub fn note(text: &str) {
    // If standard error is closed, no output is wanted.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Asks for confirmation of what cannot be undone, unless `--yes` was given.
///
/// # Errors
/// The answer is not yes, or there is no terminal.
pub fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Failure::failed(format!("{question}\nThere is no terminal to ask at: --yes says yes")));
    }
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{question}\nType yes to go on: ").and_then(|()| io::stderr().flush());
    asked.and_then(|()| io::stdin().lock().read_line(&mut answer)).map_err(Failure::failed)?;
    if answer.trim() == "yes" { Ok(()) } else { Err(Failure::failed("not confirmed; nothing was changed")) }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err brings")]
fn unwritable(error: io::Error) -> Failure {
    Failure::failed(format!("standard output cannot be written: {error}"))
}
