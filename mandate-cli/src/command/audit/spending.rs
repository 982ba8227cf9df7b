//! Checks the basis of each decision against the earlier decisions: the month's spending, and the recent
//! requests.

use std::collections::HashMap;

use mandate_core::{AgentId, Currency, Month, Total, Verdict};

use super::Step;
use crate::export::{Header, Recent};

/// The agents so far.
#[derive(Debug, Default)]
pub(super) struct Spending {
    months: HashMap<(AgentId, Currency), Spent>,
    recent: Recent,
}

/// What an agent has spent in a currency.
#[derive(Debug)]
struct Spent {
    month: Month,
    /// The sum of the decisions. None while the spending before the export is unknown.
    sum: Option<Total>,
    /// The sum that the last disagreeing basis implies. If the next basis agrees with it, a decision is
    /// missing, which is reported once.
    other: Option<Total>,
}

impl Spending {
    /// Checks the next decision.
    pub(super) fn take(&mut self, step: &mut Step<'_>) {
        if step.header.is_none_or(|h| h.is_complete() || h.verdict == Some(Verdict::Allow)) {
            self.spent(step);
        }
        if step.header.is_none_or(Header::is_complete) {
            self.requests(step);
        }
    }

    fn spent(&mut self, step: &mut Step<'_>) {
        let (decision, header) = (step.decision, step.header);
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
                step.found("spent", said, format!("{sum}, the sum of the month's decisions"));
                spent.other = Some(said);
            }
        }
        if decision.claims.verdict == Verdict::Allow {
            spent.sum = spent.sum.map(|sum| sum.plus(request.amount));
            spent.other = spent.other.map(|sum| sum.plus(request.amount));
        }
    }

    fn requests(&mut self, step: &mut Step<'_>) {
        let counts = self.recent.take(step.decision, step.header.and_then(|header| header.since));
        let said = step.decision.basis.recent_requests;
        if !counts.contains(&said) {
            let (least, most) = (counts.start(), counts.end());
            let expected = if least == most { least.to_string() } else { format!("{least} to {most}") };
            step.found("recent_requests", said, format!("{expected}, by the agent's requests before"));
        }
    }
}
