//! Reviews are what the governing records of their environment say: which were answered, when, how and by whom.

use std::collections::HashMap;

use mandate_core::{DecisionId, ReviewId, ReviewStatus, Timestamp};
use serde::Deserialize;

use super::{Finding, Listener, MAX_FINDINGS};
use crate::model::people::Actor;
use crate::model::records::ReviewRecord;

/// The answers of an environment that its records have.
pub(super) struct Reviewed {
    environment: i64,
    answers: HashMap<ReviewId, Answer>,
    findings: i64,
}

/// How a review was answered. Of an approval the row does not have `after`: its fresh decision does.
#[derive(PartialEq, Eq)]
struct Answer {
    status: ReviewStatus,
    decision: DecisionId,
    at: Timestamp,
    fresh: Option<DecisionId>,
    reason: Option<String>,
    after: Option<i64>,
    by: Actor,
}

/// The members of the records that are compared here.
#[derive(Deserialize)]
struct Record {
    #[serde(rename = "type")]
    kind: String,
    at: String,
    review: String,
    decision: String,
    fresh: Option<String>,
    reason: Option<String>,
    resolved_after: i64,
    by: Actor,
}

impl Reviewed {
    pub(super) fn of(environment: i64) -> Self {
        Self { environment, answers: HashMap::new(), findings: 0 }
    }

    /// Takes the next record. One that cannot be read is not that of its entry.
    pub(super) fn take(&mut self, record: &str) {
        let Ok(record) = serde_json::from_str::<Record>(record) else { return };
        if let Some((review, answer)) = Answer::recorded(record) {
            self.answers.insert(review, answer);
        }
    }

    /// Compares a review with them.
    pub(super) fn compare(&mut self, review: &ReviewRecord, listener: &mut dyn Listener) {
        let (has, recorded) = (Answer::of(review), self.answers.get(&review.id));
        if has.as_ref() == recorded {
            return;
        }
        self.findings += 1;
        if self.findings > MAX_FINDINGS {
            return;
        }
        let told = |answer: Option<&Answer>| answer.map(Answer::to_string);
        let found = told(has.as_ref()).unwrap_or_else(|| review.status.to_string());
        let found = format!("{found}, unlike its record in the public log");
        let expected = told(recorded).unwrap_or_else(|| "no answer, as there is no record of one".to_owned());
        listener.finding(Finding::row("reviews", self.environment, review.id.to_string(), found, expected));
    }
}

impl Answer {
    fn recorded(record: Record) -> Option<(ReviewId, Self)> {
        let status = match record.kind.as_str() {
            "review.approved" => ReviewStatus::Approved,
            "review.denied" => ReviewStatus::Denied,
            _ => return None,
        };
        let fresh = record.fresh.map(|fresh| DecisionId::parse(&fresh)).transpose().ok()?;
        let answer = Self {
            status,
            decision: DecisionId::parse(&record.decision).ok()?,
            at: Timestamp::parse(&record.at).ok()?,
            fresh,
            reason: record.reason,
            after: (status == ReviewStatus::Denied).then_some(record.resolved_after),
            by: record.by,
        };
        Some((ReviewId::parse(&record.review).ok()?, answer))
    }

    /// What the row says. None if it was not answered.
    fn of(review: &ReviewRecord) -> Option<Self> {
        let is_answered = matches!(review.status, ReviewStatus::Approved | ReviewStatus::Denied);
        let (at, by) = (review.resolved_at?, review.resolved_by.clone()?);
        is_answered.then(|| Self {
            status: review.status,
            decision: review.decision,
            at,
            fresh: review.fresh,
            reason: review.reason.clone(),
            after: review.resolved_after,
            by,
        })
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { status, decision, at, fresh, reason, after, by } = self;
        write!(f, "{status} at {at} by {}, of {decision}", by.to_json())?;
        if let Some(fresh) = fresh {
            write!(f, ", fresh {fresh}")?;
        }
        if let Some(after) = after {
            write!(f, ", after sequence {after}")?;
        }
        reason.as_ref().map_or(Ok(()), |reason| write!(f, ", reason {reason:?}"))
    }
}
