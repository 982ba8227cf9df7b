//! One review, with what a person needs to answer it.

use std::collections::BTreeMap;

use mandate_core::{Amount, Currency, Mandate, Recipient, ReviewId, ReviewStatus, Timestamp, Total, Verdict};

use super::super::decisions::Filter;
use crate::error::Fault;
use crate::model::records::{Direction, Mode, Slice};
use crate::store::sql;
use crate::store::sql::decisions::Whole;
use crate::store::tx::Tx;

/// How many of the agent's last decisions the history counts.
pub const HISTORY: i64 = 200;
/// How many of them are listed.
const LISTED: usize = 10;
/// How many denials are shown with their reasons.
const REASONS: usize = 5;

/// A review with what is known around it.
#[derive(Debug)]
pub struct Detail {
    /// The decision that waits, and its review.
    pub whole: Whole,
    /// The mandate that governed the decision.
    pub mandate: Option<Mandate>,
    /// The mandate that governs the agent now, if that is another one.
    pub newer: Option<Mandate>,
    /// What the agent has spent this month in the currency of the request.
    pub spent: Total,
    /// The month's limit of the mandate that governs now.
    pub per_month: Option<Amount>,
    /// What else the agent did.
    pub history: History,
    /// The decision that an approval has made.
    pub fresh: Option<Whole>,
    /// The mode in force now.
    pub mode: Mode,
}

/// What an agent did among its last [`HISTORY`] decisions, without the one that waits and the one of its approval.
#[derive(Debug, Default)]
pub struct History {
    /// How many there are.
    pub decisions: usize,
    /// How many of them followed the request.
    pub later: usize,
    /// By recipient: the one of the review first, then the most frequent one.
    pub vendors: Vec<Vendor>,
    /// The newest for the recipient of the review.
    pub same: Vec<Whole>,
    /// The newest that a person has denied with a reason.
    pub denied: Vec<Whole>,
}

/// The decisions of one recipient.
#[derive(Debug, PartialEq, Eq)]
pub struct Vendor {
    /// The recipient.
    pub recipient: Recipient,
    /// It is the recipient of the review.
    pub is_same: bool,
    /// How many were allowed, and how much that is in each currency.
    pub allowed: usize,
    /// The sums of what was allowed.
    pub sums: Vec<(Currency, Total)>,
    /// How many waited for a person.
    pub waited: usize,
    /// How many were denied.
    pub denied: usize,
}

/// The review with this id. None if the environment has none.
///
/// # Errors
/// The database fails.
pub fn detail(
    tx: &mut Tx<'_>,
    environment: i64,
    id: ReviewId,
    now: Timestamp,
) -> Result<Option<Detail>, Fault> {
    let Some(decision) = sql::reviews::decision(tx, environment, id)? else { return Ok(None) };
    let lost = || Fault::corrupt("database: a review's decision is not there");
    let whole = sql::decisions::find(tx, environment, decision)?.ok_or_else(lost)?;
    let request = &whole.decision.request;
    let mandate = whole.decision.mandate;
    let mandate = mandate.map(|id| sql::mandates::find(tx, environment, id)).transpose()?.flatten();
    let governing = sql::agents::find(tx, environment, &request.agent)?.and_then(|agent| agent.governing);
    let governing = governing.map(|id| sql::mandates::find(tx, environment, id)).transpose()?.flatten();
    let (spent, per_month) = spending(tx, environment, &whole, governing.as_ref(), now)?;
    let history = history(tx, environment, &whole, now)?;
    let fresh = whole.review.as_ref().and_then(|review| review.fresh);
    let fresh = fresh.map(|id| sql::decisions::find(tx, environment, id)).transpose()?.flatten();
    let (mode, _) = sql::environments::mode(tx, environment)?;
    let newer = governing.filter(|governing| Some(governing.id) != whole.decision.mandate);
    Ok(Some(Detail { whole, mandate, newer, spent, per_month, history, fresh, mode }))
}

/// What the agent has spent this month in the currency of the request, and the limit.
fn spending(
    tx: &mut Tx<'_>,
    environment: i64,
    whole: &Whole,
    governing: Option<&Mandate>,
    now: Timestamp,
) -> Result<(Total, Option<Amount>), Fault> {
    let (agent, currency) = (&whole.decision.request.agent, &whole.decision.request.currency);
    let limits = governing.map(|mandate| &mandate.terms.limits).filter(|limits| limits.currency == *currency);
    let page = sql::usage::page(tx, environment, now.month(), Some(agent), ("", ""), i64::MAX)?;
    let metered = page.into_iter().find(|metered| metered.currency == *currency);
    let spent = metered.map_or(Total::ZERO, |metered| metered.usage.spent);
    Ok((spent, limits.and_then(|limits| limits.per_month)))
}

impl Detail {
    /// Whether a decision of the agent followed the request.
    #[must_use]
    pub fn is_later(&self, other: &Whole) -> bool {
        follows(other, &self.whole)
    }
}

/// By their numbers: no clock decides it.
fn follows(other: &Whole, whole: &Whole) -> bool {
    other.decision.sequence > whole.decision.sequence
}

/// The agent's newest decisions beside this one.
fn history(tx: &mut Tx<'_>, environment: i64, whole: &Whole, now: Timestamp) -> Result<History, Fault> {
    let request = &whole.decision.request;
    let others = others(tx, environment, whole, now)?;
    let mut vendors = BTreeMap::<Recipient, Vendor>::new();
    for other in &others {
        let recipient = other.decision.request.recipient.clone();
        let new = || Vendor::of(recipient.clone(), recipient == request.recipient);
        vendors.entry(recipient.clone()).or_insert_with(new).count(other);
    }
    let mut vendors: Vec<_> = vendors.into_values().collect();
    vendors.sort_by_key(|vendor| (!vendor.is_same, std::cmp::Reverse(vendor.total())));
    let is_same = |other: &&Whole| other.decision.request.recipient == request.recipient;
    let is_denied = |other: &&Whole| {
        let review = other.review.as_ref();
        review.is_some_and(|review| review.status == ReviewStatus::Denied && review.reason.is_some())
    };
    Ok(History {
        decisions: others.len(),
        later: others.iter().filter(|other| follows(other, whole)).count(),
        vendors,
        same: others.iter().filter(is_same).take(LISTED).cloned().collect(),
        denied: others.iter().filter(is_denied).take(REASONS).cloned().collect(),
    })
}

/// The agent's newest decisions, newest first, without the one that waits and the one of its approval.
fn others(tx: &mut Tx<'_>, environment: i64, whole: &Whole, now: Timestamp) -> Result<Vec<Whole>, Fault> {
    let filter = Filter { agent: Some(whole.decision.request.agent.clone()), ..Filter::default() };
    let limit = HISTORY + 2;
    let slice = Slice { direction: Direction::Older, from: [0xff; 16], limit };
    let found = sql::decisions::search(tx, environment, &filter, &slice, now, limit)?;
    let Some(oldest) = found.ids.last() else { return Ok(Vec::new()) };
    let after = u128::from_be_bytes(oldest.to_bytes()).saturating_sub(1).to_be_bytes();
    let mut rows = sql::decisions::onward(tx, environment, &filter, after, limit)?;
    let fresh = whole.review.as_ref().and_then(|review| review.fresh);
    rows.retain(|other| other.decision.id != whole.decision.id && Some(other.decision.id) != fresh);
    rows.reverse();
    rows.truncate(usize::try_from(HISTORY).unwrap_or(usize::MAX));
    Ok(rows)
}

impl Vendor {
    fn of(recipient: Recipient, is_same: bool) -> Self {
        Self { recipient, is_same, allowed: 0, sums: Vec::new(), waited: 0, denied: 0 }
    }

    fn count(&mut self, past: &Whole) {
        let request = &past.decision.request;
        match past.decision.verdict {
            Verdict::Allow => {
                self.allowed += 1;
                match self.sums.iter_mut().find(|(currency, _)| *currency == request.currency) {
                    Some((_, sum)) => *sum = sum.plus(request.amount),
                    None => self.sums.push((request.currency.clone(), request.amount.into())),
                }
            }
            Verdict::Review => self.waited += 1,
            _ => self.denied += 1,
        }
    }

    fn total(&self) -> usize {
        self.allowed + self.waited + self.denied
    }
}
