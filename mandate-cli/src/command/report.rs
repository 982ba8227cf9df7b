//! `mandate report`: what enforce mode would have blocked, and who answered reviews.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod by_person;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use mandate_core::{DecisionId, Evaluation, Month, Reason, Request, ReviewStatus, Total, Verdict, evaluate};
use serde::Serialize;

use self::by_person::Answers;
use crate::csv_rows::{self, Column};
use crate::exit::{Exit, Failure};
use crate::export::{Decision, People, Prologue, Reader, Record, walk};
use crate::input::Source;
use crate::output::{Output, warn};
use crate::style::{BOLD, GOOD};
use crate::table::{Field, text, whole};
use crate::value::source;

/// The mode in which verdicts are recorded, but nothing is blocked.
const OBSERVE: &str = "observe";

/// Show what enforce mode would have blocked, by agent, category and rule
///
/// Reads an export and counts the decisions made in observe mode: those that a denial would have stopped, by the first rule
/// that denied them, and those that would have needed a review. A review that was approved counts as the fresh decision
/// after the approval: if that decision allows, it is counted separately; if it denies, it counts as stopped. Amounts are
/// summed by currency. The mandate that denied is the one that governed the decision's `sequence`.
///
/// With `--by person` it counts the answers to reviews instead, in either mode: by the person who gave them with a passkey,
/// or by the organization's API key, which names no person. Who answered is taken from the governing record of the answer,
/// where the export has it, and a person's name from that of their passkey; a warning says how many rows say otherwise.
///
/// The export is not verified: run `mandate audit` first. If decisions do not follow from those before them, a warning says
/// that decisions are missing or were changed, and names the first that does not follow.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate audit export.ndjson --issuer https://verdicts.example.com \\
      && mandate report export.ndjson
  mandate report export.ndjson --json
  mandate report export.ndjson --by month --format csv > blocked.csv
  mandate report export.ndjson --by person
  mandate report - < export.ndjson

Exit codes:
  0 reported    23 the export is refused    3 cannot be read")]
pub(crate) struct Report {
    /// The export, or `-` for standard input
    #[arg(value_name = "EXPORT|-", value_parser = source)]
    export: Source,

    /// Rows for each calendar month, by the time at which the request was decided; or for each person who answered reviews
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<By>,
}

impl Report {
    /// Whether answers to reviews are counted, rather than what would have been blocked.
    pub(super) fn is_by_person(&self) -> bool {
        matches!(self.by, Some(By::Person))
    }
}

/// What the rows are split by.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum By {
    /// The calendar month, UTC
    Month,
    /// The person, or the API key, that answered reviews
    Person,
}

/// Why a request would have been blocked, in the order in which it is shown.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Key {
    #[serde(skip_serializing_if = "Option::is_none")]
    month: Option<Month>,
    agent: String,
    category: String,
    rule: Cow<'static, str>,
    currency: String,
}

#[derive(Debug, Default, Serialize)]
struct Sum {
    requests: u64,
    amount: Total,
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    sum: Sum,
}

#[derive(Debug, Default, Serialize)]
struct Totals {
    /// Requests that were decided in observe mode.
    observed: u64,
    /// Those that would have been allowed.
    allowed: u64,
    /// Those that would have needed a review, and were allowed after an approval.
    approved: u64,
    /// Those that a person approved, if the resulting decision is not in the export.
    outside: u64,
    /// Those that would have been denied, or would wait.
    blocked: u64,
    /// The sums of their amounts, by currency.
    amounts: BTreeMap<String, Total>,
}

/// The report so far.
#[derive(Default)]
struct Observed {
    rows: BTreeMap<Key, Sum>,
    totals: Totals,
    /// Approved requests, by the decision that must follow. Each is removed when its decision is read.
    expected: HashMap<DecisionId, (Request, Month)>,
    /// Whether each month has rows of its own.
    by_month: bool,
}

/// The columns of the table, with the month before them.
const BY_MONTH: [Field; 6] = [
    whole("MONTH", "month"),
    text("AGENT", "agent"),
    text("CATEGORY", "category"),
    whole("RULE", "rule"),
    whole("REQUESTS", "requests"),
    whole("AMOUNT", "amount currency"),
];

/// The columns of CSV, after the month.
const CSV: [Column; 6] = [
    csv_rows::text("agent", "agent"),
    csv_rows::text("category", "category"),
    csv_rows::text("rule", "rule"),
    csv_rows::text("requests", "requests"),
    csv_rows::amount("amount", "amount"),
    csv_rows::text("currency", "currency"),
];

/// The columns of the table.
const COLUMNS: [Field; 5] = [
    text("AGENT", "agent"),
    text("CATEGORY", "category"),
    whole("RULE", "rule"),
    whole("REQUESTS", "requests"),
    whole("AMOUNT", "amount currency"),
];

pub(crate) fn run(args: &Report, output: &mut Output) -> Result<Exit, Failure> {
    let by_month = matches!(args.by, Some(By::Month));
    let (mut observed, mut answers) = (Observed { by_month, ..Observed::default() }, Answers::default());
    let mut record = Record::default();
    let people = OnceCell::new();
    walk(
        Reader::open(&args.export)?,
        &args.export,
        |prologue| {
            if !prologue.is_complete() {
                warn("the export holds decisions of one verdict only: so does the report");
            }
            Ok(())
        },
        |prologue, line, decision| {
            record.take(prologue, line, decision);
            let people = people.get_or_init(|| People::of_records(prologue.people.iter().cloned()));
            answers.take(decision, people);
            observed.take(prologue, line, decision)
        },
    )?;
    if let Some(odd) = &record.inconsistent {
        odd.warn();
    }
    if args.is_by_person() {
        answers.print(output)?;
        return Ok(Exit::Success);
    }
    let (rows, totals) = observed.end();
    if output.is_csv() {
        let month = by_month.then(|| csv_rows::text("month", "month"));
        output.begin_csv(month.into_iter().chain(CSV).collect())?;
        for row in texts(&rows)? {
            output.csv_row(&row)?;
        }
    } else if output.is_json() {
        output.json(&serde_json::json!({ "totals": totals, "rows": rows }))?;
    } else {
        print(by_month, &rows, &totals, output)?;
    }
    Ok(Exit::Success)
}

fn add(count: &mut u64) {
    *count = count.saturating_add(1);
}

impl Observed {
    fn take(&mut self, prologue: &Prologue, line: u64, decision: &Decision) -> Result<(), Failure> {
        // The result of an approval is not a request, in any mode.
        if decision.supersedes.is_some() {
            let Some((request, month)) = self.expected.remove(&decision.claims.jti) else { return Ok(()) };
            if decision.claims.verdict == Verdict::Allow {
                add(&mut self.totals.approved);
                self.row(&request, month, "review (approved)".into());
            } else {
                let rule = rule(prologue, line, decision, Evaluation::Approval)?;
                self.blocked(&request, month, format!("review (approved), {rule}").into());
            }
            return Ok(());
        }
        if decision.mode != OBSERVE {
            return Ok(());
        }
        add(&mut self.totals.observed);
        let (request, month) = (&decision.claims.request, decision.decided_at.month());
        let review = decision.review.as_ref().filter(|review| review.status == ReviewStatus::Approved);
        match (decision.claims.verdict, review) {
            (Verdict::Allow, _) => add(&mut self.totals.allowed),
            // What follows an approval is no review, so an export of one verdict never has both.
            (Verdict::Review, Some(review)) => match review.decision.filter(|_| prologue.is_complete()) {
                Some(fresh) => {
                    self.expected.insert(fresh, (request.clone(), month));
                }
                None => self.outside(request, month),
            },
            _ => self.blocked(request, month, rule(prologue, line, decision, Evaluation::Request)?.into()),
        }
        Ok(())
    }

    fn blocked(&mut self, request: &Request, month: Month, rule: Cow<'static, str>) {
        add(&mut self.totals.blocked);
        let amount = self.totals.amounts.entry(request.currency.as_str().to_owned()).or_default();
        *amount = amount.plus(request.amount);
        self.row(request, month, rule);
    }

    fn outside(&mut self, request: &Request, month: Month) {
        add(&mut self.totals.outside);
        self.row(request, month, "review (approved), outcome not in the export".into());
    }

    fn row(&mut self, request: &Request, month: Month, rule: Cow<'static, str>) {
        let key = Key {
            month: self.by_month.then_some(month),
            agent: request.agent.as_str().to_owned(),
            category: request.category.as_str().to_owned(),
            rule,
            currency: request.currency.as_str().to_owned(),
        };
        let sum = self.rows.entry(key).or_default();
        add(&mut sum.requests);
        sum.amount = sum.amount.plus(request.amount);
    }

    /// Ends the report. The outcome of approvals without a decision is unknown.
    fn end(mut self) -> (Vec<Row>, Totals) {
        for (request, month) in std::mem::take(&mut self.expected).into_values() {
            self.outside(&request, month);
        }
        (self.rows.into_iter().map(|(key, sum)| Row { key, sum }).collect(), self.totals)
    }
}

/// The rule that decided, more precise than the verdict's code. A review, and a denial that the export does not explain,
/// have the code alone.
fn rule(
    prologue: &Prologue,
    line: u64,
    decision: &Decision,
    evaluation: Evaluation,
) -> Result<&'static str, Failure> {
    let mandate = prologue.governing(line, decision)?;
    let request = &decision.claims.request;
    let outcome = evaluate(mandate.as_ref(), &decision.basis, request, decision.decided_at, evaluation);
    Ok(match outcome.reason {
        Some(Reason::NoMandate { .. }) => "no mandate",
        Some(Reason::Revoked { .. }) => "revoked",
        Some(Reason::Expired { .. }) => "expired",
        Some(Reason::OtherCurrency { .. }) => "currency",
        Some(Reason::PerTransaction { .. }) => "per_transaction",
        Some(Reason::PerMonth { .. }) => "per_month",
        Some(Reason::OtherCategory { .. }) => "category",
        Some(Reason::Velocity) => "velocity",
        None => decision.claims.verdict.as_str(),
    })
}

/// The rows as JSON.
fn texts(rows: &[impl Serialize]) -> Result<Vec<String>, Failure> {
    let rows: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    rows.map_err(|e| Failure::new(Exit::Io, format!("a row cannot be written: {e}")))
}

fn print(by_month: bool, rows: &[Row], totals: &Totals, output: &mut Output) -> Result<(), Failure> {
    output.line("observed", format_args!("{} requests in observe mode", totals.observed));
    output.line("allowed", totals.allowed);
    if totals.approved > 0 {
        output.line("approved", format_args!("{} by a person", totals.approved));
    }
    if totals.outside > 0 {
        let what = "approved, but the export does not contain the decision that followed";
        output.line("outside", format_args!("{} {what}", totals.outside));
    }
    if totals.blocked == 0 {
        output.text(&format!("{GOOD}NOTHING{GOOD:#} would have been blocked\n"));
    } else {
        let amounts: Vec<_> =
            totals.amounts.iter().map(|(currency, sum)| format!("{sum} {currency}")).collect();
        output.text(&format!(
            "{BOLD}{} BLOCKED{BOLD:#}, had it been enforced: {}\n",
            totals.blocked,
            amounts.join(", ")
        ));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let rows = texts(rows)?;
    output.text("\n");
    let columns = if by_month { &BY_MONTH[..] } else { &COLUMNS };
    output.table(columns, rows.iter().map(String::as_str));
    Ok(())
}

#[cfg(test)]
mod tests {
    use mandate_core::{MandateId, Nonce, ReviewId, Timestamp};

    use super::*;
    use crate::export::{Entry, Header};

    fn header(verdict: &str) -> Header {
        let line = format!(
            r#"{{"export":{{"id":"{}","environment":"sandbox"{verdict}}}}}"#,
            mandate_core::ExportId::new(Timestamp::from_seconds(0), 1)
        );
        match Entry::read(line.as_bytes()) {
            Ok(Entry::Export(header)) => header,
            other => panic!("{other:?}"),
        }
    }

    fn approved(number: u32) -> Decision {
        let at = Timestamp::from_seconds(1_781_524_800);
        let (id, fresh) =
            (DecisionId::new(at, number.into()), DecisionId::new(at.plus_seconds(60), number.into()));
        let (mandate, nonce, review) =
            (MandateId::new(at, 1), Nonce::new(at, 1), ReviewId::new(at, number.into()));
        let line = format!(
            r#"{{"decision":{{"iss":"https://verdicts.example","jti":"{id}","iat":1781524800,"exp":1781525100,
            "verdict":"review","mandate":"{mandate}","policy_version":"pol_2026-01-01.1","nonce":"{nonce}",
            "request":{{"agent":"agt_a","amount":300,"currency":"USD","recipient":"vendor:v","category":"c"}},
            "sequence":{number},"decided_at":"2026-06-15T12:00:00.000Z","mode":"observe",
            "basis":{{"spent":0,"recent_requests":0}},"verdict_token":"t",
            "review":{{"id":"{review}","status":"approved","decision":"{fresh}"}}}}}}"#
        );
        match Entry::read(line.as_bytes()) {
            Ok(Entry::Decision(decision)) => *decision,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn approvals_whose_outcome_is_in_no_row_are_not_kept() {
        for (verdict, expected) in [(r#","verdict":"review""#, 0), ("", 100)] {
            let prologue = Prologue { header: Some(header(verdict)), ..Prologue::default() };
            let mut observed = Observed::default();
            for number in 1..=100 {
                observed.take(&prologue, 1, &approved(number)).unwrap();
            }
            assert_eq!(observed.expected.len(), expected);
            let (rows, totals) = observed.end();
            assert_eq!((totals.observed, totals.outside, totals.blocked), (100, 100, 0));
            assert_eq!((rows.len(), rows[0].sum.requests), (1, 100));
        }
    }
}
