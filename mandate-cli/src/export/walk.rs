//! Every decision of an export in order: parsed on all cores, handled one after another.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;

use mandate_core::{AgentId, DecisionId, Invalid, Mandate};

use super::{Decision, Entry, Header, Prologue, Raw, Reader, with_revocation};
use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::lines::unreadable;
use crate::output::warn;
use crate::parallel;

/// Passes each decision to `take`, with its line and the export's header, in the order of ids, which is each
/// agent's order of sequence.
pub(crate) fn walk(
    mut reader: Reader,
    source: &Source,
    begin: impl FnOnce(&Prologue) -> Result<(), Failure>,
    mut take: impl FnMut(&Prologue, u64, &Decision) -> Result<(), Failure>,
) -> Result<Prologue, Failure> {
    let prologue = reader.prologue(source)?;
    begin(&prologue)?;
    let progress = reader.progress();
    let (mut ended, mut order, mut sealed) = (Ok(()), Ascending::default(), false);
    let read = |raw: &Raw| (raw.line.number, Entry::read(&raw.line.bytes));
    let work = |block: io::Result<Vec<Raw>>| block.map(|rows| rows.iter().map(read).collect::<Vec<_>>());
    parallel::ordered(reader.blocks(), work, |block| {
        let each = || {
            for (line, entry) in block.map_err(|e| unreadable("the export", source, &e))? {
                match entry {
                    Ok(Entry::Decision(decision)) => {
                        order.take(line, &decision)?;
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

/// The order so far.
#[derive(Default)]
struct Ascending {
    last: Option<DecisionId>,
    /// The last sequence of each agent.
    sequences: HashMap<AgentId, u64>,
}

impl Ascending {
    fn take(&mut self, line: u64, decision: &Decision) -> Result<(), Failure> {
        let id = decision.claims.jti;
        match self.last.replace(id).map(|last| last.cmp(&id)) {
            Some(Ordering::Equal) => return Err(not_as_written(line, "this decision appears twice")),
            Some(Ordering::Greater) => return Err(not_in_order(line)),
            _ => {}
        }
        let (agent, sequence) = (&decision.claims.request.agent, decision.sequence);
        match self.sequences.get_mut(agent) {
            Some(last) if *last >= sequence => {
                let why = format!("its sequence of {agent} is {sequence}, after {last} under a smaller id");
                return Err(not_as_written(line, &why));
            }
            Some(last) => *last = sequence,
            None => {
                self.sequences.insert(agent.clone(), sequence);
            }
        }
        Ok(())
    }
}

fn refused(line: u64, error: &Invalid) -> Failure {
    not_as_written(line, &error.to_string())
}

fn not_in_order(line: u64) -> Failure {
    let what =
        format!("line {line} of the export is refused: the decisions are not in the order of their ids");
    Failure::new(Exit::Findings, what)
        .next("the service writes exports in that order; mandate simulate takes others with --sort")
}

fn not_as_written(line: u64, why: &str) -> Failure {
    Failure::new(Exit::Findings, format!("line {line} of the export is refused: {why}"))
        .next("the service does not write such exports; `mandate audit` says what is wrong with this one")
}

impl Prologue {
    /// Whether the export has every decision of its agents and its period, as far as it says.
    pub(crate) fn is_complete(&self) -> bool {
        self.header.as_ref().is_none_or(Header::is_complete)
    }

    /// The mandate that governed a decision's sequence, revoked if it was revoked by then.
    pub(crate) fn governing(&self, line: u64, decision: &Decision) -> Result<Option<Mandate>, Failure> {
        if let Some(id) = decision.claims.mandate.filter(|id| self.mandates.get(id).is_none()) {
            return Err(not_as_written(line, &format!("its mandate {id} is not there")));
        }
        let sequence = decision.sequence;
        let governing = self.mandates.governing(&decision.claims.request.agent, sequence);
        Ok(governing.map(|mandate| with_revocation(mandate, mandate.is_revoked_for(sequence))))
    }
}
