//! The pages of mandates, and of what was spent under them.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use mandate_core::{MandateId, MandateStatus, Month, Timestamp, Verdict};

use super::Console;
use super::frame::{Frame, MANDATES, USAGE, html};
use super::session::Visit;
use super::words::{Written, parameter, tone};
use crate::error::Refusal;
use crate::http::respond::Failure;
use crate::service::console::mandates::{self, Metered};
use crate::service::people::May;

/// How many months can be chosen.
const MONTHS: usize = 13;
/// More than a month, in seconds.
const LATER: i64 = 32 * 24 * 60 * 60;

#[derive(Debug, Template)]
#[template(path = "console/mandates.html")]
struct Mandates<'a> {
    frame: Frame<'a>,
    rows: Vec<Written>,
    older: Option<String>,
}

#[derive(Debug, Template)]
#[template(path = "console/mandate.html")]
struct MandatePage<'a> {
    frame: Frame<'a>,
    mandate: Written,
    may_stop: bool,
    history: Vec<Written>,
}

#[derive(Debug, Template)]
#[template(path = "console/usage.html")]
struct Usage<'a> {
    frame: Frame<'a>,
    month: String,
    months: Vec<(String, String)>,
    rows: Vec<SpentRow>,
    verdicts: Vec<Counted>,
    denials: Vec<Denied>,
    has_more: bool,
}

/// What an agent has spent in a currency.
#[derive(Debug)]
struct SpentRow {
    agent: String,
    currency: String,
    spent: String,
    limit: Limit,
}

/// A limit of a month.
#[derive(Debug)]
enum Limit {
    Amount(String),
    None,
    /// Of another month: the mandate of today says nothing of it.
    Unknown,
}

/// How often a verdict was given.
#[derive(Debug)]
struct Counted {
    name: &'static str,
    tone: &'static str,
    count: i64,
    most: i64,
}

/// How often a rule has denied an agent.
#[derive(Debug)]
struct Denied {
    agent: String,
    verdict: &'static str,
    count: i64,
}

/// All mandates.
pub(super) async fn list(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let before = parameter(&visit.query, "before");
    let before = if before.is_empty() { None } else { Some(MandateId::parse(&before)?) };
    let environment = visit.viewer.environment.id;
    let (rows, older) = console.read(move |tx| mandates::list(tx, environment, None, before)).await?;
    html(&Mandates {
        frame: Frame::of(&visit, MANDATES),
        rows: rows.iter().map(|mandate| Written::of(mandate, visit.at)).collect(),
        older: older.map(|id| id.to_string()),
    })
}

/// One mandate, with *Stop this agent* for a person who may.
pub(super) async fn one(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let id = MandateId::parse(&visit.place.id).map_err(|_| Refusal::not_found())?;
    let environment = visit.viewer.environment.id;
    let found = console.read(move |tx| mandates::one(tx, environment, id)).await?;
    let (mandate, history) = found.ok_or_else(Refusal::not_found)?;
    let person = &visit.viewer.person;
    let is_governing = matches!(mandate.status(visit.at), MandateStatus::Active | MandateStatus::Expired);
    let may = person.may == May::Review && person.roles.contains(&mandate.terms.principal);
    html(&MandatePage {
        frame: Frame::of(&visit, MANDATES),
        may_stop: is_governing && may,
        history: history.iter().rev().map(|mandate| Written::of(mandate, visit.at)).collect(),
        mandate: Written::of(&mandate, visit.at),
    })
}

/// What was spent and denied in a month.
pub(super) async fn usage(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let asked = parameter(&visit.query, "month");
    let month = if asked.is_empty() { visit.at.month() } else { Month::parse(&asked)? };
    let environment = visit.viewer.environment.id;
    let (metered, has_more) = console.read(move |tx| mandates::month(tx, environment, month)).await?;
    let is_current = month == visit.at.month();
    html(&Usage {
        frame: Frame::of(&visit, USAGE),
        month: month.to_string(),
        months: months(visit.at),
        rows: metered.iter().map(|metered| SpentRow::of(metered, is_current)).collect(),
        verdicts: counted(&metered),
        denials: denials(&metered),
        has_more,
    })
}

/// The months that can be chosen, newest first.
fn months(now: Timestamp) -> Vec<(String, String)> {
    let mut months: Vec<String> = Vec::new();
    let mut at = now;
    while months.len() < MONTHS {
        let month = at.month().to_string();
        if months.last() != Some(&month) {
            months.push(month);
        }
        at = at.plus_seconds(-LATER / 4);
    }
    months.into_iter().map(|month| (month.clone(), month)).collect()
}

impl SpentRow {
    fn of(metered: &Metered, is_current: bool) -> Self {
        let limits = metered.mandate.as_ref().map(|mandate| &mandate.terms.limits);
        let limits = limits.filter(|limits| limits.currency == metered.currency);
        let limit = match limits.and_then(|limits| limits.per_month) {
            _ if !is_current => Limit::Unknown,
            Some(limit) => Limit::Amount(limit.to_string()),
            None => Limit::None,
        };
        Self {
            agent: metered.agent.to_string(),
            currency: metered.currency.to_string(),
            spent: metered.usage.spent.to_string(),
            limit,
        }
    }
}

fn counted(metered: &[Metered]) -> Vec<Counted> {
    let of = |place: usize| metered.iter().filter_map(|row| row.usage.verdicts.get(place)).sum();
    let counts: Vec<i64> = (0..Verdict::ALL.len()).map(of).collect();
    let most = counts.iter().copied().max().unwrap_or_default().max(1);
    let rows = Verdict::ALL.into_iter().zip(counts);
    rows.map(|(verdict, count)| Counted { name: verdict.as_str(), tone: tone(verdict), count, most })
        .collect()
}

fn denials(metered: &[Metered]) -> Vec<Denied> {
    let mut denials = Vec::new();
    for row in metered {
        for (verdict, count) in Verdict::ALL.into_iter().zip(row.usage.verdicts) {
            if verdict.is_denial() && count > 0 {
                let (agent, verdict) = (row.agent.to_string(), verdict.as_str());
                denials.push(Denied { agent, verdict, count });
            }
        }
    }
    denials.sort_by_key(|denied| std::cmp::Reverse(denied.count));
    denials
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_year_of_months_can_be_chosen() {
        let months = months(Timestamp::parse("2026-03-31T12:00:00Z").unwrap());
        let months: Vec<_> = months.iter().map(|(month, _)| month.as_str()).collect();
        assert_eq!(months.len(), MONTHS);
        assert_eq!(months[..4], ["2026-03", "2026-02", "2026-01", "2025-12"]);
        assert_eq!(months.last(), Some(&"2025-03"));
    }
}
