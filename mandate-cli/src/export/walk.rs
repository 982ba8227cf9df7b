//! Every decision of an export in order: parsed on all cores, handled one after another.

use std::cmp::Ordering;
use std::io;
use std::ops::ControlFlow;

use mandate_core::{DecisionId, Invalid, Mandate, Timestamp, Verdict};

use super::{Decision, Entry, Prologue, Raw, Reader};
use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::lines::unreadable;
use crate::output::warn;
use crate::parallel;

/// Passes each decision to `take`, with its line and the export's header, oldest first.
pub(crate) fn walk(
    mut reader: Reader,
    source: &Source,
    begin: impl FnOnce(&Prologue) -> Result<(), Failure>,
    mut take: impl FnMut(&Prologue, u64, &Decision) -> Result<(), Failure>,
) -> Result<Prologue, Failure> {
    let prologue = reader.prologue(source)?;
    begin(&prologue)?;
    let progress = reader.progress();
    let (mut ended, mut last, mut sealed) = (Ok(()), None, false);
    let read = |raw: &Raw| (raw.line.number, Entry::read(&raw.line.bytes));
    let work = |block: io::Result<Vec<Raw>>| block.map(|rows| rows.iter().map(read).collect::<Vec<_>>());
    parallel::ordered(reader.blocks(), work, |block| {
        let each = || {
            for (line, entry) in block.map_err(|e| unreadable("the export", source, &e))? {
                match entry {
                    Ok(Entry::Decision(decision)) => {
                        match last.map(|last: DecisionId| last.cmp(&decision.claims.jti)) {
                            Some(Ordering::Equal) => {
                                return Err(not_as_written(line, "this decision appears twice"));
                            }
                            Some(Ordering::Greater) => return Err(not_in_order(line)),
                            _ => {}
                        }
                        last = Some(decision.claims.jti);
                        take(&prologue, line, &decision)?;
                    }
                    Ok(Entry::Trailer(_)) => sealed = true,
                    Ok(_) => return Err(not_as_written(line, "it is between decisions")),
                    Err(e) => return Err(refused(line, &e)),
                }
            }
            Ok(())
        };
        match each() {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                ended = Err(failure);
                ControlFlow::Break(())
            }
        }
    });
    progress.finish_and_clear();
    ended?;
    if !sealed {
        warn("the export has no trailer: it may have been cut off");
    }
    Ok(prologue)
}

fn refused(line: u64, error: &Invalid) -> Failure {
    not_as_written(line, &error.to_string())
}

fn not_in_order(line: u64) -> Failure {
    let what = format!("line {line} of the export is refused: the decisions are not in the order of time");
    Failure::new(Exit::Findings, what)
        .next("the service writes exports oldest first; mandate simulate takes others with --sort")
}

fn not_as_written(line: u64, why: &str) -> Failure {
    Failure::new(Exit::Findings, format!("line {line} of the export is refused: {why}"))
        .next("the service writes exports oldest first; `mandate audit` says what is wrong with this one")
}

impl Prologue {
    /// The mandate that governed a decision, revoked if the decision says so.
    pub(crate) fn governing(&self, line: u64, decision: &Decision) -> Result<Option<Mandate>, Failure> {
        let Some(id) = decision.claims.mandate else { return Ok(None) };
        let mandate = self.mandates.get(&id);
        let mandate =
            mandate.ok_or_else(|| not_as_written(line, &format!("its mandate {id} is not there")))?;
        let was_revoked = decision.denials.iter().any(|denial| denial == Verdict::DenyRevoked);
        let revoked_at = was_revoked.then(|| mandate.revoked_at.unwrap_or(Timestamp::from_seconds(0)));
        Ok(Some(Mandate { revoked_at, ..mandate.clone() }))
    }
}
