//! `mandate mandate diff`: what one mandate allows, denies or has reviewed that another does not.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use mandate_core::json::Object;
use mandate_core::{MandateId, Terms, Total};
use serde::Serialize;

use super::MAX_BODY_BYTES;
use crate::args::Global;
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::input::Source;
use crate::output::{BOLD, Output, printable};
use crate::service::Service;

/// The fields that are written; what the service adds to a mandate is left out.
const WRITTEN: [&str; 7] =
    ["principal", "agent", "limits", "categories", "review_above", "expires", "escrow"];

/// Show what a new mandate changes: what becomes allowed, denied or reviewed
///
/// Each side is a file, `-` for standard input, or the id of a mandate, which is then read from the service.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate mandate diff old.json new.json
  mandate mandate diff mnd_01hf7yat000000000000000007 new.json

Exit codes: 0 no difference    40 they differ")]
pub(crate) struct Diff {
    /// The mandate as it is
    #[arg(value_name = "FILE|-|ID")]
    before: String,
    /// The mandate as it is to be
    #[arg(value_name = "FILE|-|ID")]
    after: String,
    #[command(flatten)]
    service: Service,
}

/// One field that differs.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Difference {
    field: &'static str,
    before: String,
    after: String,
    effect: String,
}

impl Diff {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        if self.before == "-" && self.after == "-" {
            return Err(Failure::new(Exit::Usage, "both mandates cannot come from standard input"));
        }
        let (before, after) = (self.read(&self.before, global)?, self.read(&self.after, global)?);
        let differences = compare(&before, &after);
        if output.is_json() {
            output.json(&differences)?;
        } else {
            for Difference { field, before, after, effect } in &differences {
                let (before, after) = (printable(before), printable(after));
                output.text(&format!("{BOLD}{field}{BOLD:#}: {before} -> {after}\n  {effect}\n"));
            }
            if differences.is_empty() {
                output.text("no difference\n");
            }
        }
        Ok(if differences.is_empty() { Exit::Success } else { Exit::Differs })
    }

    fn read(&self, side: &str, global: &Global) -> Result<Terms, Failure> {
        let text = match MandateId::parse(side) {
            Ok(id) => Client::new(&self.service, global, None)?.get(&format!("/mandates/{id}"), &[])?,
            Err(_) => {
                Source::from(side).read("the mandate", MAX_BODY_BYTES, Exit::InvalidRequest)?.to_string()
            }
        };
        // What `mandate show --json` prints is a mandate, too.
        let is_recorded = fields::at(&text, "id").is_some();
        let text = if is_recorded { written(&text) } else { text };
        Object::parse(text.as_bytes()).and_then(Terms::read).map_err(|e| {
            Failure::new(Exit::InvalidRequest, format!("{side} is no mandate: {e}"))
                .next("mandate mandate lint tells of every problem at once")
        })
    }
}

/// A recorded mandate as it was written.
fn written(recorded: &str) -> String {
    let members: Vec<String> = WRITTEN
        .iter()
        .filter_map(|name| Some(format!("\"{name}\":{}", fields::at(recorded, name)?)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Every field that differs, and what comes of it.
fn compare(before: &Terms, after: &Terms) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut differ = |field, before: String, after: String, effect: String| {
        if before != after {
            differences.push(Difference { field, before, after, effect });
        }
    };
    let (was, is) = (&before.limits, &after.limits);
    let text = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    differ(
        "agent",
        before.agent.to_string(),
        after.agent.to_string(),
        "it is another agent that may spend".to_owned(),
    );
    differ(
        "principal",
        before.principal.to_string(),
        after.principal.to_string(),
        "reviews wait for another party".to_owned(),
    );
    differ(
        "limits.currency",
        was.currency.to_string(),
        is.currency.to_string(),
        format!("denied: everything in {}; the limits now count in {}", was.currency, is.currency),
    );
    let (low, high) = ordered(was.per_transaction, is.per_transaction);
    let becomes = if is.per_transaction > was.per_transaction { "no longer denied" } else { "denied" };
    differ(
        "limits.per_transaction",
        was.per_transaction.to_string(),
        is.per_transaction.to_string(),
        format!("{becomes}: payments above {low}, up to {high}"),
    );
    differ(
        "limits.per_month",
        text(was.per_month.map(|amount| amount.to_string())),
        text(is.per_month.map(|amount| amount.to_string())),
        match (was.per_month, is.per_month) {
            (_, None) => "no longer denied: anything for the month's sum".to_owned(),
            (None, Some(now)) => format!("denied: what takes a month's sum above {now}"),
            (Some(then), Some(now)) if now > then => {
                format!("no longer denied: what takes a month's sum above {then}, up to {now}")
            }
            (Some(then), Some(now)) => format!("denied: what takes a month's sum above {now}, up to {then}"),
        },
    );
    let [then, now] = [before, after].map(threshold);
    let (low, high) = ordered(then, now);
    let becomes = if now > then { "allowed without a review" } else { "reviewed" };
    differ(
        "review_above",
        text(before.review_above.map(|amount| amount.to_string())),
        text(after.review_above.map(|amount| amount.to_string())),
        if then == now {
            "nothing comes of it".to_owned()
        } else {
            format!("{becomes}: payments above {low}, up to {high}")
        },
    );
    let names = |terms: &Terms| terms.categories.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (were, are) = (names(before), names(after));
    let beyond = |all: &[String], others: &[String]| {
        all.iter().filter(|name| !others.contains(name)).cloned().collect::<Vec<_>>().join(", ")
    };
    let effects: Vec<String> = [("no longer denied", beyond(&are, &were)), ("denied", beyond(&were, &are))]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(becomes, names)| format!("{becomes}: {names}"))
        .collect();
    let effect = if effects.is_empty() { "nothing comes of it".to_owned() } else { effects.join("; ") };
    differ("categories", were.join(", "), are.join(", "), effect);
    let days = ordered(before.expires, after.expires);
    let becomes = if after.expires > before.expires { "no longer denied" } else { "denied" };
    differ(
        "expires",
        before.expires.to_string(),
        after.expires.to_string(),
        format!("{becomes}: everything after {}, up to {}", days.0, days.1),
    );
    let required =
        |terms: &Terms| text(terms.escrow.as_ref().map(|escrow| escrow.required_above.to_string()));
    differ("escrow.required_above", required(before), required(after), "no verdict changes".to_owned());
    differences
}

/// Above which amount a person is asked: where nothing is said, above what is denied anyway.
fn threshold(terms: &Terms) -> Total {
    terms.review_above.unwrap_or(Total::from(terms.limits.per_transaction))
}

fn ordered<T: PartialOrd>(a: T, b: T) -> (T, T) {
    if a <= b { (a, b) } else { (b, a) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = r#"{"principal":"role:a","agent":"agt_a","limits":{"per_transaction":500,"per_month":2000,"currency":"USD"},"categories":["a","b"],"review_above":200,"expires":"2027-01-01"}"#;

    fn terms(text: &str) -> Terms {
        Terms::read(Object::parse(text.as_bytes()).unwrap()).unwrap()
    }

    fn effects(after: &str) -> Vec<(&'static str, String)> {
        let differences = compare(&terms(BEFORE), &terms(after));
        differences.into_iter().map(|difference| (difference.field, difference.effect)).collect()
    }

    #[test]
    fn each_field_says_what_becomes_of_it() {
        assert_eq!(effects(BEFORE), []);
        for (from, to, field, effect) in [
            ("500", "800", "limits.per_transaction", "no longer denied: payments above 500, up to 800"),
            ("500", "300", "limits.per_transaction", "denied: payments above 300, up to 500"),
            ("2000", "900", "limits.per_month", "denied: what takes a month's sum above 900, up to 2000"),
            ("\"per_month\":2000,", "", "limits.per_month", "no longer denied: anything for the month's sum"),
            (":200,", ":0,", "review_above", "reviewed: payments above 0, up to 200"),
            (
                "\"review_above\":200,",
                "",
                "review_above",
                "allowed without a review: payments above 200, up to 500",
            ),
            (r#"["a","b"]"#, r#"["b","c"]"#, "categories", "no longer denied: c; denied: a"),
            ("2027-01-01", "2026-12-01", "expires", "denied: everything after 2026-12-01, up to 2027-01-01"),
            ("USD", "EUR", "limits.currency", "denied: everything in USD; the limits now count in EUR"),
        ] {
            assert_eq!(effects(&BEFORE.replace(from, to)), [(field, effect.to_owned())], "{from} -> {to}");
        }
    }

    #[test]
    fn a_recorded_mandate_is_compared_as_it_was_written() {
        let recorded = BEFORE.replace(
            "{\"principal\"",
            "{\"id\":\"mnd_1\",\"status\":\"active\",\"created_at\":\"x\",\"principal\"",
        );
        assert_eq!(compare(&terms(BEFORE), &terms(&written(&recorded))), []);
    }
}
