//! How the operator's commands talk: tables and JSON out, a question before what cannot be undone, and secrets handed
//! out before they count.

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
/// What a table shows where there is nothing.
const NOTHING: &str = "-";

/// Runs `script` in one transaction of the database.
///
/// # Errors
/// It was refused, or the database does not answer.
pub fn run<T>(
    database: &str,
    script: impl FnOnce(&mut Tx<'_>) -> Result<T, ScriptError>,
) -> Result<T, Failure> {
    settled(store::run_once(database, script))
}

/// Runs a script that makes secrets: once to see that it will be accepted, without effect; then the secrets are written
/// to standard output; and only when they have arrived there it runs for its effect. So what has an effect was handed out,
/// and the database is not held while a terminal or a pipe is slow. The script must make the same secrets both times.
///
/// # Errors
/// It was refused; standard output cannot be written, and nothing was changed; or the database has failed, and it is not
/// known whether what was written is in force.
pub fn hand_out<T>(
    database: &str,
    script: impl Fn(&mut Tx<'_>) -> Result<T, ScriptError>,
    show: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
) -> Result<T, Failure> {
    let made = settled(store::rehearse(database, &script))?;
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

/// Writes `value` to standard output: as one line of JSON, or as `tell` writes it for a person.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(
    as_json: bool,
    value: &impl Serialize,
    tell: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = if as_json { json(&mut out, value) } else { tell(&mut out) };
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

/// Writes rows of cells below each other, the first being the heads of the columns.
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

/// The instant as a cell: to the second, or nothing.
#[must_use]
pub fn instant(at: Option<Timestamp>) -> String {
    let text = at.map(|at| at.to_string()).unwrap_or_default();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// Says something about what was done, beside the output.
pub fn note(text: &str) {
    // A closed standard error wants no output.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Asks before what cannot be undone, unless `--yes` has answered.
///
/// # Errors
/// The answer is not yes, or there is no terminal to ask at.
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
