//! The pages of reviews: the queue, and one review with what is needed to answer it.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use mandate_core::{Currency, Mandate, ReviewId, ReviewStatus, Timestamp, Total, Verdict};

use super::Console;
use super::frame::{Frame, REVIEWS, html};
use super::session::Visit;
use super::words::{Row, Written, left};
use crate::error::{Fault, Refusal};
use crate::http::pages::Time;
use crate::http::respond::Failure;
use crate::model::records::{Mode, ReviewRecord};
use crate::service::console::queue::{self, Queue, Waiting};
use crate::service::console::review::{self, Detail, Vendor};
use crate::service::people::May;

#[derive(Debug, Template)]
#[template(path = "console/reviews.html")]
struct Reviews<'a> {
    frame: Frame<'a>,
    count: String,
    rows: Vec<QueueRow>,
}

/// A row of the queue.
#[derive(Debug)]
struct QueueRow {
    review: String,
    amount: String,
    currency: String,
    agent: String,
    recipient: String,
    category: String,
    waits_for: String,
    expires: Time,
    left: String,
    /// It was asked in observe mode.
    is_observed: bool,
}

#[derive(Debug, Template)]
#[template(path = "console/review.html")]
struct ReviewPage<'a> {
    frame: Frame<'a>,
    review: String,
    decision: String,
    asked: Row,
    waits_for: String,
    state: Standing,
    fresh: Option<Row>,
    fresh_reason: Option<String>,
    asked_in: AskedIn,
    may_answer: bool,
    why_not: Option<String>,
    mandate: Option<Written>,
    newer: Option<String>,
    /// How the mandate that governs now ended, if it did.
    ended: Option<String>,
    asking: String,
    month: Option<Month>,
    spent: String,
    decisions: usize,
    later: usize,
    vendors: Vec<Known>,
    is_unpaid: bool,
    same: Vec<Other>,
    denied: Vec<Denied>,
}

/// The mode in which a review was asked, where it needs a word.
#[derive(Debug)]
enum AskedIn {
    /// In observe mode.
    Observe,
    /// In enforce mode, and the environment observes now.
    EnforceBefore,
    /// In enforce mode, which is in force.
    Enforce,
}

/// Whether a review waits, or how it ended.
#[derive(Debug)]
enum Standing {
    Waits {
        left: String,
        expires: Time,
    },
    Ended {
        status: &'static str,
        tone: &'static str,
        by: Option<String>,
        at: Option<Time>,
        reason: Option<String>,
    },
}

/// The month's limit, and what is left of it.
#[derive(Debug)]
struct Month {
    spent: String,
    limit: String,
    left: String,
    /// The payment is not among what was spent: it waits.
    is_ahead: bool,
    /// What the bar shows: what was spent, with the payment while it waits.
    bar: String,
    /// With the payment the limit would be exceeded.
    is_over: bool,
}

/// What the agent did for one recipient.
#[derive(Debug)]
struct Known {
    recipient: String,
    is_same: bool,
    allowed: usize,
    sums: Vec<String>,
    waited: usize,
    denied: usize,
}

/// Another decision of the agent.
#[derive(Debug)]
struct Other {
    row: Row,
    /// It followed the request.
    is_later: bool,
}

/// A denial by a person, and why.
#[derive(Debug)]
struct Denied {
    other: Other,
    reason: String,
}

/// The queue.
pub(super) async fn queue(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let (environment, now) = (visit.viewer.environment.id, visit.at);
    let found = console.read(move |tx| queue::queue(tx, environment, now)).await?;
    let shown = found.shown_to(&visit.viewer.person.roles);
    let count = count(&found, shown.len());
    let rows = shown.into_iter().map(|waiting| QueueRow::of(waiting, now)).collect();
    html(&Reviews { frame: Frame::of(&visit, REVIEWS), count, rows })
}

/// As the script says it.
fn count(queue: &Queue, shown: usize) -> String {
    match queue.total {
        0 => "Nothing waits for an answer.".to_owned(),
        1 => "1 review waits for an answer.".to_owned(),
        total if total == shown => format!("{total} reviews wait for an answer."),
        total => {
            let more = if queue.is_cut { " or more" } else { "" };
            format!("{total}{more} reviews wait for an answer. {shown} are shown, yours first.")
        }
    }
}

impl QueueRow {
    fn of(waiting: &Waiting, now: Timestamp) -> Self {
        Self {
            review: waiting.review.to_string(),
            amount: waiting.amount.to_string(),
            currency: waiting.currency.to_string(),
            agent: waiting.agent.to_string(),
            recipient: waiting.recipient.to_string(),
            category: waiting.category.to_string(),
            waits_for: waiting.waits_for.to_string(),
            expires: waiting.expires_at.into(),
            left: left(waiting.expires_at, now),
            is_observed: waiting.mode == Mode::Observe,
        }
    }
}

/// One review.
pub(super) async fn one(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let id = ReviewId::parse(&visit.place.id).map_err(|_| Refusal::not_found())?;
    let (environment, now) = (visit.viewer.environment.id, visit.at);
    let detail = console.read(move |tx| review::detail(tx, environment, id, now)).await?;
    let detail = detail.ok_or_else(Refusal::not_found)?;
    let record = detail.whole.review.as_ref();
    let record = record.ok_or_else(|| Fault::corrupt("database: a review's decision has none"))?;
    html(&shown(&visit, &detail, record))
}

fn shown<'a>(visit: &'a Visit, detail: &Detail, record: &ReviewRecord) -> ReviewPage<'a> {
    let now = visit.at;
    let is_pending = record.status.at(record.expires_at, now) == ReviewStatus::Pending;
    let why_not = if is_pending { why_not(visit, record) } else { None };
    let history = &detail.history;
    let other = |whole: &_| Other { row: Row::of(whole, now), is_later: detail.is_later(whole) };
    let governing = detail.newer.as_ref().or(detail.mandate.as_ref());
    ReviewPage {
        frame: Frame::of(visit, REVIEWS),
        review: record.id.to_string(),
        decision: detail.whole.decision.id.to_string(),
        asked: Row::of(&detail.whole, now),
        waits_for: record.waits_for.to_string(),
        state: Standing::of(record, detail, now),
        fresh: detail.fresh.as_ref().map(|fresh| Row::of(fresh, now)),
        fresh_reason: detail.fresh.as_ref().and_then(|fresh| fresh.decision.reason.clone()),
        asked_in: match (detail.whole.decision.mode, detail.mode) {
            (Mode::Observe, _) => AskedIn::Observe,
            (Mode::Enforce, Mode::Observe) => AskedIn::EnforceBefore,
            (Mode::Enforce, Mode::Enforce) => AskedIn::Enforce,
        },
        may_answer: is_pending && why_not.is_none(),
        why_not,
        mandate: detail.mandate.as_ref().map(|mandate| Written::of(mandate, now)),
        newer: detail.newer.as_ref().map(|mandate| mandate.id.to_string()),
        ended: governing.and_then(|governing| Written::of(governing, now).end),
        asking: asking(detail),
        month: governing.and_then(|governing| Month::of(detail, governing, is_pending)),
        spent: detail.spent.to_string(),
        decisions: history.decisions,
        later: history.later,
        vendors: history.vendors.iter().map(Known::of).collect(),
        is_unpaid: !history.vendors.iter().any(|vendor| vendor.is_same && vendor.allowed > 0),
        same: history.same.iter().map(other).collect(),
        denied: history
            .denied
            .iter()
            .filter_map(|whole| {
                let reason = whole.review.as_ref()?.reason.clone()?;
                Some(Denied { other: other(whole), reason })
            })
            .collect(),
    }
}

/// Why the person cannot answer, if so.
fn why_not(visit: &Visit, record: &ReviewRecord) -> Option<String> {
    let person = &visit.viewer.person;
    if person.may != May::Review {
        return Some("You may read, not review. The operator says who may review.".to_owned());
    }
    let has_role = person.roles.contains(&record.waits_for);
    (!has_role).then(|| format!("Only a person with the role {} may answer.", record.waits_for))
}

/// The rule that had a person asked.
fn asking(detail: &Detail) -> String {
    let request = &detail.whole.decision.request;
    let above = detail.mandate.as_ref().and_then(|mandate| mandate.terms.review_above);
    above.map_or_else(String::new, |above| {
        format!("{} {} is above {above} {}", request.amount, request.currency, request.currency)
    })
}

impl Standing {
    fn of(record: &ReviewRecord, detail: &Detail, now: Timestamp) -> Self {
        let status = record.status.at(record.expires_at, now);
        if status == ReviewStatus::Pending {
            return Self::Waits { left: left(record.expires_at, now), expires: record.expires_at.into() };
        }
        let is_allowed = detail.fresh.as_ref().is_some_and(|fresh| fresh.decision.verdict == Verdict::Allow);
        let (status, tone) = match status {
            ReviewStatus::Approved if is_allowed => ("Approved", "good"),
            ReviewStatus::Approved => ("Approved, and denied by the mandate", "bad"),
            ReviewStatus::Denied => ("Denied", "bad"),
            ReviewStatus::Expired | ReviewStatus::Pending => ("Expired without an answer", "care"),
        };
        Self::Ended {
            status,
            tone,
            by: record.resolved_by.as_ref().map(ToString::to_string),
            at: record.resolved_at.map(Time::from),
            reason: record.reason.clone(),
        }
    }
}

impl Month {
    /// `is_ahead`: the review waits. What became of a payment that was approved is among what was spent.
    fn of(detail: &Detail, governing: &Mandate, is_ahead: bool) -> Option<Self> {
        let (limit, amount) = (detail.per_month?, detail.whole.decision.request.amount);
        let is_same = governing.terms.limits.currency == detail.whole.decision.request.currency;
        let bar = if is_ahead { detail.spent.plus(amount) } else { detail.spent };
        is_same.then(|| Self {
            spent: detail.spent.to_string(),
            limit: limit.to_string(),
            left: detail.spent.remaining(limit).to_string(),
            is_ahead,
            bar: bar.to_string(),
            is_over: is_ahead && bar.exceeds(limit),
        })
    }
}

impl Known {
    fn of(vendor: &Vendor) -> Self {
        let sum = |(currency, sum): &(Currency, Total)| format!("{sum} {currency}");
        Self {
            recipient: vendor.recipient.to_string(),
            is_same: vendor.is_same,
            allowed: vendor.allowed,
            sums: vendor.sums.iter().map(sum).collect(),
            waited: vendor.waited,
            denied: vendor.denied,
        }
    }
}
