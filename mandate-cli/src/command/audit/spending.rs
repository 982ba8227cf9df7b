//! The basis of each decision, from the decisions before it: the month's spending, and the recent requests.

use std::collections::{HashMap, VecDeque};

use mandate_core::{
    AgentId, Currency, Month, Timestamp, Total, VELOCITY_REQUESTS, VELOCITY_WINDOW_SECONDS, Verdict,
};

use super::Finding;
use crate::export::{Decision, Header};

/// The agents so far.
#[derive(Debug, Default)]
pub(super) struct Spending {
    months: HashMap<(AgentId, Currency), Spent>,
    recent: HashMap<AgentId, VecDeque<Span>>,
}

/// What an agent has spent in a currency.
#[derive(Debug)]
struct Spent {
    month: Month,
    /// What the decisions add up to; nothing while it is not known what was before the export.
    sum: Option<Total>,
    /// What the last basis that disagreed would add up to. If the next one agrees with it, a decision is missing, and is
    /// told of once.
    other: Option<Total>,
}

/// When a request was decided: some time from `from` to `to`. The claim has the second, the id is never earlier.
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

impl Spending {
    /// Takes the next decision.
    pub(super) fn take(
        &mut self,
        line: u64,
        decision: &Decision,
        header: Option<&Header>,
        findings: &mut Vec<Finding>,
    ) {
        if header.is_none_or(|h| h.is_complete() || h.verdict == Some(Verdict::Allow)) {
            self.spent(line, decision, header, findings);
        }
        if header.is_none_or(Header::is_complete) {
            self.requests(line, decision, header, findings);
        }
    }

    fn spent(
        &mut self,
        line: u64,
        decision: &Decision,
        header: Option<&Header>,
        findings: &mut Vec<Finding>,
    ) {
        let request = &decision.claims.request;
        let month = decision.at().month();
        let begins = || {
            // The month began within the export: nothing can have been spent before.
            let whole = header.is_none_or(|h| h.since.is_none_or(|since| since.month() < month));
            Spent { month, sum: whole.then_some(Total::ZERO), other: None }
        };
        let key = (request.agent.clone(), request.currency.clone());
        let spent = self.months.entry(key).or_insert_with(begins);
        if spent.month != month {
            *spent = begins();
        }
        let said = decision.basis.spent;
        match spent.sum {
            None => spent.sum = Some(said),
            Some(sum) if sum == said => spent.other = None,
            Some(_) if spent.other == Some(said) => {
                spent.sum = Some(said);
                spent.other = None;
            }
            Some(sum) => {
                findings.push(Finding::new(
                    line,
                    Some(&decision.claims.jti),
                    "spent",
                    said,
                    format!("{sum}, the sum of the month's decisions"),
                ));
                spent.other = Some(said);
            }
        }
        if decision.claims.verdict == Verdict::Allow {
            spent.sum = spent.sum.map(|sum| sum.plus(request.amount));
            spent.other = spent.other.map(|sum| sum.plus(request.amount));
        }
    }

    fn requests(
        &mut self,
        line: u64,
        decision: &Decision,
        header: Option<&Header>,
        findings: &mut Vec<Finding>,
    ) {
        const WINDOW_MILLIS: i64 = VELOCITY_WINDOW_SECONDS * 1000;
        let agent = &decision.claims.request.agent;
        let recent = self.recent.entry(agent.clone()).or_default();
        let now = Span::of(decision);
        let surely = |at: &&Span| now.to.millis_since(at.from) < WINDOW_MILLIS;
        let perhaps = |at: &&Span| now.from.millis_since(at.to) < WINDOW_MILLIS;
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let least = count(recent.iter().filter(surely).count());
        let begun =
            header.and_then(|h| h.since).is_none_or(|since| now.from.millis_since(since) >= WINDOW_MILLIS);
        let most = if begun { count(recent.iter().filter(perhaps).count()) } else { VELOCITY_REQUESTS };
        let said = decision.basis.recent_requests;
        if !(least..=most).contains(&said) {
            let expected = if least == most { least.to_string() } else { format!("{least} to {most}") };
            let expected = format!("{expected}, by the agent's requests before");
            findings.push(Finding::new(line, Some(&decision.claims.jti), "recent_requests", said, expected));
        }
        if decision.supersedes.is_none() {
            if recent.len() >= usize::try_from(VELOCITY_REQUESTS).unwrap_or(usize::MAX) {
                recent.pop_front();
            }
            recent.push_back(now);
        }
    }
}
