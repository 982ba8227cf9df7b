//! `mandate report --by person`: who answered reviews, and over how much.

use std::collections::BTreeMap;

use mandate_core::ReviewStatus;
use serde::Serialize;

use super::{Sum, texts};
use crate::csv_rows::{self, Column};
use crate::exit::Failure;
use crate::export::{Actor, Decision, People};
use crate::output::{Output, warn};
use crate::style::GOOD;
use crate::table::{Field, id, text, whole};

/// Who answered what, in the order in which it is shown.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Key {
    /// `person`, `key`, or `unknown` in exports of earlier versions.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    answer: &'static str,
    currency: String,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    key: &'a Key,
    #[serde(flatten)]
    sum: &'a Sum,
}

/// The answers so far.
#[derive(Debug, Default)]
pub(super) struct Answers {
    rows: BTreeMap<Key, Sum>,
    /// Rows that name another than the governing record of the answer, or a person otherwise than their passkey's.
    otherwise: u64,
}

const COLUMNS: [Field; 6] = [
    whole("KIND", "kind"),
    text("NAME", "name").or("-"),
    id("ID", "id").or("-"),
    whole("ANSWER", "answer"),
    whole("REQUESTS", "requests"),
    whole("AMOUNT", "amount currency"),
];

const CSV: [Column; 7] = [
    csv_rows::text("kind", "kind"),
    csv_rows::text("name", "name"),
    csv_rows::text("id", "id"),
    csv_rows::text("answer", "answer"),
    csv_rows::text("requests", "requests"),
    csv_rows::amount("amount", "amount"),
    csv_rows::text("currency", "currency"),
];

impl Answers {
    /// Counts a decision whose review was answered, by the governing record of the answer if the export has it. A person's
    /// name is that of the records of their passkeys.
    pub(super) fn take(&mut self, decision: &Decision, people: &People) {
        let Some(review) = &decision.review else { return };
        if !matches!(review.status, ReviewStatus::Approved | ReviewStatus::Denied) {
            return;
        }
        let by = people.answered_by(review, u64::MAX);
        let is_enrolled = |by: &Actor| match by {
            Actor::Person { id, name } => people.name(*id) == Some(name),
            Actor::Key { .. } => true,
        };
        if by != review.resolved_by.as_ref() || by.is_some_and(|by| !is_enrolled(by)) {
            self.otherwise = self.otherwise.saturating_add(1);
        }
        let (kind, id, name) = match by {
            Some(Actor::Person { id, .. }) => {
                ("person", Some(id.to_string()), people.name(*id).map(ToOwned::to_owned))
            }
            Some(Actor::Key { id, name }) => ("key", Some(id.clone()), name.clone()),
            None => ("unknown", None, None),
        };
        let request = &decision.claims.request;
        let currency = request.currency.as_str().to_owned();
        let sum =
            self.rows.entry(Key { kind, id, name, answer: review.status.as_str(), currency }).or_default();
        sum.requests = sum.requests.saturating_add(1);
        sum.amount = sum.amount.plus(request.amount);
    }

    pub(super) fn print(&self, output: &mut Output) -> Result<(), Failure> {
        if self.otherwise > 0 {
            warn(format_args!(
                "{} rows name another than the governing record of the answer, or a person by another name than their \
                 passkey has: mandate audit says what is wrong with this export",
                self.otherwise
            ));
        }
        let rows: Vec<_> = self.rows.iter().map(|(key, sum)| Row { key, sum }).collect();
        if output.is_json() {
            return output.json(&serde_json::json!({ "rows": rows }));
        }
        let rows = texts(&rows)?;
        if output.is_csv() {
            output.begin_csv(CSV.to_vec())?;
            return rows.iter().try_for_each(|row| output.csv_row(row));
        }
        if rows.is_empty() {
            output.text(&format!("{GOOD}NO REVIEW{GOOD:#} was answered\n"));
        } else {
            output.table(&COLUMNS, rows.iter().map(String::as_str));
        }
        Ok(())
    }
}
