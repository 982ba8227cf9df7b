//! Nonces: each holds the instant of its decision, and none appears twice.

use std::collections::{HashMap, VecDeque};

use mandate_core::Nonce;

use super::Step;

/// How many nonces are remembered, the newest of the file. A nonce holds the instant of its decision, so that only decisions
/// of one millisecond can share one: an export places them near to each other.
const KEPT: usize = 65_536;

/// The newest nonces.
#[derive(Debug, Default)]
pub(super) struct Nonces {
    /// The lines that they are on.
    lines: HashMap<Nonce, u64>,
    /// The same, oldest first.
    order: VecDeque<Nonce>,
}

impl Nonces {
    /// Takes the nonce of the next decision.
    pub(super) fn take(&mut self, step: &mut Step<'_>) {
        let (nonce, decided_at) = (step.decision.claims.nonce, step.decision.decided_at);
        if nonce.created_at() != decided_at {
            step.found(
                "nonce",
                format!("{nonce}, of {}", nonce.created_at()),
                format!("one of {decided_at}"),
            );
            return;
        }
        if let Some(first) = self.lines.get(&nonce) {
            let found = format!("{nonce}, that of line {first}");
            step.found("nonce", found, "one that no other decision has");
            return;
        }
        self.lines.insert(nonce, step.line);
        self.order.push_back(nonce);
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.lines.remove(&oldest);
        }
    }
}
