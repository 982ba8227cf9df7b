//! `mandate report`: what enforcing would have blocked, while it was only observed.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::collections::BTreeMap;

use mandate_core::{Evaluation, Reason, ReviewStatus, Total, Verdict, evaluate};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::export::{Decision, Prologue, Reader, walk};
use crate::input::Source;
use crate::output::{BOLD, GOOD, Output};
use crate::value::source;

/// The mode in which verdicts are recorded and nothing blocks.
const OBSERVE: &str = "observe";

/// Say what enforcing would have blocked, by agent, category and rule
///
/// Reads an export, and counts the decisions that were made in observe mode: those that a denial would have stopped, by
/// the rule that the engine names first, and those that would have waited for a person. A review that a person approved
/// would have gone through, and is counted apart. Amounts are summed by currency.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate report export.ndjson
  mandate report export.ndjson --json
  mandate report - < export.ndjson

Exit codes:
  0 reported    23 the export is refused    3 cannot be read")]
pub(crate) struct Report {
    /// The export, or `-` for standard input
    #[arg(value_name = "EXPORT|-", value_parser = source)]
    export: Source,
}

/// What a request ran into. In the order in which they are shown.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Key {
    agent: String,
    category: String,
    rule: &'static str,
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
    /// Those that would have gone through.
    allowed: u64,
    /// Those that would have waited for a person, who has approved them.
    approved: u64,
    /// Those that would have been stopped, or would wait.
    blocked: u64,
    /// What those come to, by currency.
    amounts: BTreeMap<String, Total>,
}

pub(crate) fn run(args: &Report, output: &mut Output) -> Result<Exit, Failure> {
    let (mut rows, mut totals) = (BTreeMap::<Key, Sum>::new(), Totals::default());
    walk(
        Reader::open(&args.export)?,
        &args.export,
        |_| Ok(()),
        |prologue, line, decision| {
            // What came of an approval is no request.
            if decision.mode == OBSERVE && decision.supersedes.is_none() {
                take(prologue, line, decision, &mut rows, &mut totals)?;
            }
            Ok(())
        },
    )?;
    let rows: Vec<_> = rows.into_iter().map(|(key, sum)| Row { key, sum }).collect();
    if output.is_json() {
        output.json(&serde_json::json!({ "totals": totals, "rows": rows }))?;
    } else {
        tell(&rows, &totals, output);
    }
    Ok(Exit::Success)
}

fn take(
    prologue: &Prologue,
    line: u64,
    decision: &Decision,
    rows: &mut BTreeMap<Key, Sum>,
    totals: &mut Totals,
) -> Result<(), Failure> {
    let request = &decision.claims.request;
    let add = |count: &mut u64| *count = count.saturating_add(1);
    add(&mut totals.observed);
    let approved = decision.review.as_ref().is_some_and(|review| review.status == ReviewStatus::Approved);
    match decision.claims.verdict {
        Verdict::Allow => {
            add(&mut totals.allowed);
            return Ok(());
        }
        Verdict::Review if approved => add(&mut totals.approved),
        _ => {
            add(&mut totals.blocked);
            let amount = totals.amounts.entry(request.currency.as_str().to_owned()).or_default();
            *amount = amount.plus(request.amount);
        }
    }
    let key = Key {
        agent: request.agent.as_str().to_owned(),
        category: request.category.as_str().to_owned(),
        rule: if approved { "review (approved)" } else { rule(prologue, line, decision)? },
        currency: request.currency.as_str().to_owned(),
    };
    let sum = rows.entry(key).or_default();
    add(&mut sum.requests);
    sum.amount = sum.amount.plus(request.amount);
    Ok(())
}

/// The rule that decided, more closely than the verdict's code names it.
fn rule(prologue: &Prologue, line: u64, decision: &Decision) -> Result<&'static str, Failure> {
    let mandate = prologue.governing(line, decision)?;
    let request = &decision.claims.request;
    let outcome = evaluate(mandate.as_ref(), &decision.basis, request, decision.at(), Evaluation::Request);
    Ok(match outcome.reason {
        Some(Reason::NoMandate { .. }) => "no mandate",
        Some(Reason::Revoked { .. }) => "revoked",
        Some(Reason::Expired { .. }) => "expired",
        Some(Reason::OtherCurrency { .. }) => "currency",
        Some(Reason::PerTransaction { .. }) => "per_transaction",
        Some(Reason::PerMonth { .. }) => "per_month",
        Some(Reason::OtherCategory { .. }) => "category",
        Some(Reason::Velocity) => "velocity",
        None => "review",
    })
}

fn tell(rows: &[Row], totals: &Totals, output: &mut Output) {
    output.line("observed", format_args!("{} requests in observe mode", totals.observed));
    output.line("allowed", totals.allowed);
    if totals.approved > 0 {
        output.line("approved", format_args!("{} by a person", totals.approved));
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
        return;
    }
    let width = |of: fn(&Row) -> usize, least: usize| rows.iter().map(of).max().unwrap_or(0).max(least);
    let agents = width(|row| row.key.agent.len(), 5);
    let categories = width(|row| row.key.category.len(), 8);
    let rules = width(|row| row.key.rule.len(), 4);
    output.text(&format!(
        "\n{BOLD}{:<agents$}  {:<categories$}  {:<rules$}  {:>8}  AMOUNT{BOLD:#}\n",
        "AGENT", "CATEGORY", "RULE", "REQUESTS"
    ));
    for Row { key: Key { agent, category, rule, currency }, sum: Sum { requests, amount } } in rows {
        output.text(&format!(
            "{agent:<agents$}  {category:<categories$}  {rule:<rules$}  {requests:>8}  {amount} {currency}\n"
        ));
    }
}
