//! How many requests each agent made in the last minute, rebuilt from the decisions.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;

use mandate_core::{AgentId, Timestamp, VELOCITY_REQUESTS, VELOCITY_WINDOW_SECONDS};

use super::Decision;

const WINDOW_MILLIS: i64 = VELOCITY_WINDOW_SECONDS * 1000;

/// The last requests of each agent.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    agents: HashMap<AgentId, VecDeque<Span>>,
}

/// When a request was decided: between `from` and `to`. The claim has only seconds, and the id is never
/// earlier.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: Timestamp,
    to: Timestamp,
}

impl Span {
    fn of(decision: &Decision) -> Self {
        let from = decision.at();
        let end_of_second = Timestamp::from_millis(from.millis().saturating_add(999));
        Self { from, to: end_of_second.min(decision.drawn_at()).max(from) }
    }
}

impl Recent {
    /// Adds the next decision. Returns how many requests of its agent the engine may have counted in the 60
    /// seconds before it. It is one number, unless a request is so near the edge of the window that the
    /// claims' seconds leave it open. `since` is when the export begins: earlier requests are unknown.
    pub(crate) fn take(&mut self, decision: &Decision, since: Option<Timestamp>) -> RangeInclusive<u32> {
        let recent = self.agents.entry(decision.claims.request.agent.clone()).or_default();
        let now = Span::of(decision);
        let surely = |at: &&Span| now.to.millis_since(at.from) < WINDOW_MILLIS;
        let perhaps = |at: &&Span| now.from.millis_since(at.to) < WINDOW_MILLIS;
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let least = count(recent.iter().filter(surely).count());
        let begun = since.is_none_or(|since| now.from.millis_since(since) >= WINDOW_MILLIS);
        let most = if begun { count(recent.iter().filter(perhaps).count()) } else { VELOCITY_REQUESTS };
        // The result of an approval is not a request.
        if decision.supersedes.is_none() {
            if recent.len() >= usize::try_from(VELOCITY_REQUESTS).unwrap_or(usize::MAX) {
                recent.pop_front();
            }
            recent.push_back(now);
        }
        least..=most
    }
}
