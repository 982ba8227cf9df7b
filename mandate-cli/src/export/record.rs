//! Whether each decision of an export follows from those before it, for commands that do not verify the export.

use mandate_core::AgentId;
use serde::Serialize;

use super::{Decision, Follows, History, Prologue};
use crate::output::warn;

/// The decisions so far.
#[derive(Debug, Default)]
pub(crate) struct Record {
    history: Option<History>,
    pub(crate) inconsistent: Option<Inconsistent>,
}

/// Decisions whose record does not follow from the earlier decisions.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Inconsistent {
    decisions: u64,
    first_line: u64,
    /// The agent of the first one, and which of its decisions it is.
    agent: AgentId,
    sequence: u64,
}

impl Record {
    /// Takes the next decision.
    pub(crate) fn take(&mut self, prologue: &Prologue, line: u64, decision: &Decision) -> Follows {
        let history = self.history.get_or_insert_with(|| History::new(prologue.header.as_ref()));
        let follows = history.take(decision);
        let (agent, sequence) = (&decision.claims.request.agent, decision.sequence);
        let governing = prologue.mandates.governing(agent, sequence);
        let is_its_mandate = governing.map(|mandate| mandate.id) == decision.claims.mandate;
        let is_revoked = governing.is_some_and(|mandate| mandate.is_revoked_for(sequence));
        if !follows.holds(decision) || !is_its_mandate || is_revoked != decision.is_denied_as_revoked() {
            let first = || Inconsistent { decisions: 0, first_line: line, agent: agent.clone(), sequence };
            let odd = self.inconsistent.get_or_insert_with(first);
            odd.decisions = odd.decisions.saturating_add(1);
        }
        follows
    }
}

impl Inconsistent {
    /// Warns of them.
    pub(crate) fn warn(&self) {
        let Self { decisions, first_line, agent, sequence } = self;
        warn(format_args!(
            "{decisions} decisions do not follow from those before them, the first on line {first_line}, sequence {sequence} of {agent}: mandate audit says what is wrong with this export"
        ));
    }
}
