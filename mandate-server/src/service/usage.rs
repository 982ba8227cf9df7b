//! The metering: requests, decisions and spending of a month, from counters that are written with each
//! decision.

use mandate_core::cursor::Scope;
use mandate_core::{AgentId, Amount, Currency, MandateStatus, Month, Timestamp, Total, Verdict};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::listing::Cursors;
use crate::error::Refusal;
use crate::model::call::{Answer, Call, Scripted};
use crate::store::sql;
use crate::store::sql::usage::Metered;
use crate::store::tx::Tx;

/// The name of the list, in cursors.
const LIST: &str = "usage";

/// Which metering is requested.
#[derive(Debug, Clone)]
pub struct Query {
    /// The calendar month, UTC. None: the current month.
    pub month: Option<Month>,
    /// The agent. None: all that the caller may see.
    pub agent: Option<AgentId>,
    /// How many rows at most, 1 to 100. An agent has one for each currency.
    pub limit: u32,
    /// The `next_cursor` of the previous answer.
    pub cursor: Option<String>,
}

#[derive(Serialize)]
struct Page {
    month: Month,
    data: Vec<View>,
    has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize)]
struct View {
    agent: AgentId,
    currency: Currency,
    requests: i64,
    verdicts: Verdicts,
    spent: Total,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_month: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<Total>,
}

/// A count for each verdict, zeros included.
struct Verdicts([i64; 8]);

impl Serialize for Verdicts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (verdict, count) in Verdict::ALL.iter().zip(self.0) {
            map.serialize_entry(verdict.as_str(), &count)?;
        }
        map.end()
    }
}

impl View {
    /// The row as it is at `now`. The remaining amount is shown for the current month only: the cap is
    /// today's.
    fn of(metered: Metered, month: Month, now: Timestamp) -> Self {
        let Metered { agent, currency, usage, mandate } = metered;
        let governs = mandate.filter(|m| month == now.month() && m.status(now) == MandateStatus::Active);
        let limits = governs.map(|m| m.terms.limits).filter(|limits| limits.currency == currency);
        let per_month = limits.and_then(|limits| limits.per_month);
        Self {
            agent,
            currency,
            requests: usage.requests,
            verdicts: Verdicts(usage.verdicts),
            spent: usage.spent,
            per_month,
            remaining: per_month.map(|cap| usage.spent.remaining(cap)),
        }
    }
}

/// The metering of a month, in the order of agents and currencies; under an agent key, the agent's own.
///
/// # Errors
/// The cursor does not open.
pub fn list(tx: &mut Tx<'_>, call: &Call, query: &Query, cursors: &Cursors) -> Scripted {
    let (caller, now) = (&call.caller, cursors.now);
    let month = query.month.unwrap_or_else(|| now.month());
    let filters = match &query.agent {
        Some(agent) => format!("month={month}&agent={agent}"),
        None => format!("month={month}"),
    };
    let who = match &caller.agent {
        Some(own) => format!("{} {own}", caller.environment.id),
        None => caller.environment.id.to_string(),
    };
    let scope = Scope { list: LIST, filters: &filters, class: caller.class(), caller: &who };
    let position = match &query.cursor {
        None => String::new(),
        Some(cursor) => cursors.key.open(cursor, &scope, now).map_err(|e| Refusal::invalid(e.to_string()))?,
    };
    let hidden = caller.agent.is_some() && query.agent.is_some() && caller.agent != query.agent;
    let mut rows = if hidden {
        Vec::new()
    } else {
        let agent = caller.agent.as_ref().or(query.agent.as_ref());
        let after = position.split_once(' ').unwrap_or_default();
        // One more than the page holds shows whether there are more.
        sql::usage::page(tx, caller.environment.id, month, agent, after, i64::from(query.limit) + 1)?
    };
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().filter(|_| has_more).map(|row| format!("{} {}", row.agent, row.currency));
    let next_cursor = last.map(|position| cursors.key.issue(&scope, &position, now));
    let data = rows.into_iter().map(|row| View::of(row, month, now)).collect();
    Ok(Answer::new(200, &Page { month, data, has_more, next_cursor })?)
}
