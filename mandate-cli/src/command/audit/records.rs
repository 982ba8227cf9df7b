//! Compares the reviews of an export with the governing records of their answers, in both directions.

use std::collections::HashSet;

use mandate_core::{ReviewId, ReviewStatus};
use serde::Serialize;

use super::Finding;
use super::auditor::Auditor;
use crate::export::{Actor, Conflict, Decision, Header, People, Resolution, Review};
use crate::output::Output;
use crate::style::printable;

/// What was not compared, since an export does not hold the other side.
#[derive(Debug, Default, Serialize)]
pub(super) struct NotCompared {
    /// Answers in rows of exports that have no governing records of them.
    #[serde(skip_serializing_if = "is_none")]
    unrecorded: u64,
    /// Governing records of answers about decisions that the exports do not hold.
    #[serde(skip_serializing_if = "is_none")]
    outside_records: u64,
}

/// Which answers were found in rows.
#[derive(Debug, Default)]
pub(super) struct Answered {
    reviews: HashSet<ReviewId>,
    /// The number of the newest governing record that all exports have.
    known: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// The governing record of the answer to a decision's review, and what differs from it.
pub(super) fn of_review<'a>(
    decision: &Decision,
    auditor: &Auditor<'a>,
    found: &mut impl FnMut(&'static str, &dyn ToString, &dyn ToString),
) -> Option<&'a Resolution> {
    let review = decision.review.as_ref()?;
    let recorded = review.id.and_then(|id| auditor.people.resolution(id, auditor.newest));
    match recorded {
        Some(recorded) => {
            for (name, row, record) in differences(decision, review, recorded) {
                let expected = format!("{record}, as governing record {} has it", recorded.number);
                found("answer_record", &format!("{name} {row}"), &expected);
            }
        }
        None if is_answered(review) && auditor.header.is_none_or(Header::has_all_records) => {
            let said = format!("{} without a governing record", review.status);
            found("answer_record", &said, &"the record of the review's answer");
        }
        None => {}
    }
    recorded
}

/// Whether a row says that its review was answered.
fn is_answered(review: &Review) -> bool {
    let by_status = matches!(review.status, ReviewStatus::Approved | ReviewStatus::Denied);
    by_status || review.resolved_by.is_some() || review.answer.is_some()
}

/// What a row says of an answer other than its governing record: the name, and both values.
fn differences(
    decision: &Decision,
    review: &Review,
    recorded: &Resolution,
) -> impl Iterator<Item = (&'static str, String, String)> {
    fn shown(value: Option<&dyn ToString>) -> String {
        value.map_or_else(|| "none".to_owned(), ToString::to_string)
    }
    let quoted = |reason: Option<&String>| reason.map(|reason| format!("`{}`", printable(reason)));
    let by = |actor: &Actor| match actor {
        Actor::Person { id, name } => format!("person {id} `{}`", printable(name)),
        Actor::Key { id, name } => {
            format!("key {id} {}", shown(quoted(name.as_ref()).as_ref().map(|n| n as _)))
        }
    };
    let hash = review.answer.as_ref().map(|answer| answer.hash());
    let after = review.resolved_after.or((review.status != ReviewStatus::Denied).then_some(recorded.after));
    let (reason, recorded_reason) = (quoted(review.reason.as_ref()), quoted(recorded.reason.as_ref()));
    let pairs = [
        ("decision", decision.claims.jti.to_string(), recorded.decision.to_string()),
        ("status", review.status.to_string(), recorded.status.to_string()),
        (
            "resolved_by",
            shown(review.resolved_by.as_ref().map(by).as_ref().map(|by| by as _)),
            by(&recorded.by),
        ),
        ("answer", shown(hash.as_ref().map(|h| h as _)), shown(recorded.hash.as_ref().map(|h| h as _))),
        ("resolved_at", shown(review.resolved_at.as_ref().map(|at| at as _)), recorded.at.to_string()),
        ("resolved_after", shown(after.as_ref().map(|after| after as _)), recorded.after.to_string()),
        (
            "fresh decision",
            shown(review.decision.as_ref().map(|id| id as _)),
            shown(recorded.fresh.as_ref().map(|id| id as _)),
        ),
        (
            "reason",
            shown(reason.as_ref().map(|reason| reason as _)),
            shown(recorded_reason.as_ref().map(|reason| reason as _)),
        ),
    ];
    pairs.into_iter().filter(|(_, row, record)| row != record)
}

impl Answered {
    /// Goes on with an export, whose newest governing record has this number.
    pub(super) fn begin(&mut self, newest: u64) {
        self.known = Some(self.known.map_or(newest, |known| known.min(newest)));
    }

    /// Takes a row.
    pub(super) fn take(&mut self, decision: &Decision, header: Option<&Header>, not: &mut NotCompared) {
        let Some(review) = decision.review.as_ref() else { return };
        self.reviews.extend(review.id);
        if is_answered(review) && !header.is_none_or(Header::has_all_records) {
            not.unrecorded = not.unrecorded.saturating_add(1);
        }
    }

    /// At the end: the records whose decisions should be there and are not.
    pub(super) fn end(
        &self,
        people: &People,
        header: Option<&Header>,
        not: &mut NotCompared,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        let Some(header) = header else { return findings };
        let mut missing: Vec<_> =
            people.resolutions().filter(|recorded| !self.reviews.contains(&recorded.review)).collect();
        missing.sort_unstable_by_key(|recorded| recorded.number);
        for recorded in missing {
            let is_known = self.known.is_some_and(|known| recorded.number <= known);
            if header.has_all_records() && is_known && header.covers(recorded.decision.created_at()) {
                let found =
                    format!("none, though governing record {} has answered its review", recorded.number);
                findings.push(Finding::new(
                    1,
                    Some(&recorded.decision),
                    "answer_record",
                    found,
                    "the decision",
                ));
            } else {
                not.outside_records = not.outside_records.saturating_add(1);
            }
        }
        findings
    }
}

/// What contradicts itself among the governing records.
pub(super) fn contradictions(people: &People) -> Vec<Finding> {
    let finding = |conflict: &Conflict| {
        let Conflict { number, check, found } = conflict;
        let expected = match *check {
            "mandate_record" => "one record of each mandate, and one of its revocation behind it",
            "answer_withdrawn" => {
                "one that a record before has enrolled for this person, and none has withdrawn"
            }
            _ => "one record of each answer",
        };
        Finding::new(1, None, conflict.check, format!("governing record {number}: {found}"), expected)
    };
    people.conflicts.iter().map(finding).collect()
}

impl NotCompared {
    /// A line for each kind.
    pub(super) fn print(&self, output: &mut Output) {
        let Self { unrecorded, outside_records } = self;
        if *unrecorded > 0 {
            let why = "an export of one agent or verdict has no governing records of them";
            output.line("unrecorded", format_args!("{unrecorded} answers were not compared: {why}"));
        }
        if *outside_records > 0 {
            let why = "the export does not hold their decisions";
            output.line(
                "outside",
                format_args!("{outside_records} records of answers were not compared: {why}"),
            );
        }
    }
}
