//! `mandate mandate diff`: what two mandates decide differently.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod bands;

use clap_complete::engine::{ArgValueCompleter, PathCompleter, ValueCompleter as _};
use mandate_core::json::Object;
use mandate_core::{MandateId, MandateStatus, Terms, Timestamp};
use serde::Serialize;

use self::bands::{Band, bands, openings};

use super::MAX_BODY_BYTES;
use crate::client::Client;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::governed::written;
use crate::input::Source;
use crate::mistake;
use crate::named::{completed_beside, given, to_read};
use crate::output::Output;
use crate::service::Service;
use crate::style::{BOLD, printable};

/// Compare two mandates: which payments become allowed, denied or reviewed
///
/// Each side is a file, `-` for standard input, or the id of a mandate, which is fetched from the service. Changes are
/// shown as ranges of amounts that are allowed, denied or reviewed otherwise than before. A mandate that is revoked,
/// replaced or expired grants nothing, and is shown as such.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate mandate diff old.json new.json
  mandate mandate diff mnd_01hf7yat000000000000000007 new.json

Exit codes: 0 no difference    40 they differ")]
pub(crate) struct Diff {
    /// The old mandate
    #[arg(value_name = "FILE|-|ID", add = sides())]
    before: String,
    /// The new mandate
    #[arg(value_name = "FILE|-|ID", add = sides())]
    after: String,
    #[command(flatten)]
    service: Service,
}

/// What a shell offers for a side: files, and mandates.
fn sides() -> ArgValueCompleter {
    completed_beside::<MandateId>(|word| PathCompleter::file().complete(word))
}

/// A field that differs.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(in crate::command) struct Difference {
    pub(in crate::command) field: &'static str,
    pub(in crate::command) before: String,
    pub(in crate::command) after: String,
    pub(in crate::command) effect: String,
}

/// A mandate, and whether it is in force.
pub(in crate::command) struct Side {
    terms: Terms,
    status: MandateStatus,
}

const NOTHING: &str = "no effect";

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
                output.hanging(&format!("{BOLD}{field}{BOLD:#}: "), &format!("{before} -> {after}"));
                output.hanging("  ", effect);
            }
            if differences.is_empty() {
                output.text("no difference\n");
            }
        }
        Ok(if differences.is_empty() { Exit::Success } else { Exit::Differs })
    }

    fn read(&self, side: &str, global: &Global) -> Result<Side, Failure> {
        let text = match given::<MandateId>(side) {
            Ok(named) => {
                let client = Client::new(&self.service, global, None)?;
                client.get(&format!("/mandates/{}", to_read(Some(&named), &client)?), &[])?
            }
            Err(_) => Source::from(side).read("the mandate", MAX_BODY_BYTES, Exit::InvalidRequest)?,
        };
        Side::read(&text, environment::now()).map_err(|e| {
            mistake::refused("the mandate", &Source::from(side), &text, &e, Exit::InvalidRequest)
                .next("mandate mandate lint shows every problem at once")
        })
    }
}

impl Side {
    /// The mandate of a file, which is in force.
    pub(in crate::command) fn active(terms: Terms) -> Self {
        Self { terms, status: MandateStatus::Active }
    }

    pub(in crate::command) fn read(text: &str, now: Timestamp) -> Result<Self, mandate_core::Invalid> {
        // The output of `mandate show --json` is a mandate, too.
        let recorded = fields::at(text, "id").is_some();
        let terms = if recorded { written(text) } else { text.to_owned() };
        let terms = Terms::read(Object::parse(terms.as_bytes())?)?;
        let recorded_status = fields::text(text, "status").filter(|_| recorded);
        let status = match recorded_status.as_deref() {
            Some("revoked") => MandateStatus::Revoked,
            Some("replaced") => MandateStatus::Replaced,
            // One that was active when it was saved may have expired since.
            _ if !terms.expires.contains_or_follows(now) => MandateStatus::Expired,
            _ => MandateStatus::Active,
        };
        Ok(Self { terms, status })
    }
}

/// Every field that differs, and its effect.
pub(in crate::command) fn compare(before: &Side, after: &Side) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut differ = |field, before: String, after: String, effect: String| {
        if before != after {
            differences.push(Difference { field, before, after, effect });
        }
    };
    differ("status", before.status.to_string(), after.status.to_string(), becomes_of(before, after));
    let (before, after) = (&before.terms, &after.terms);
    differ("agent", before.agent.to_string(), after.agent.to_string(), "another agent may spend".to_owned());
    differ(
        "principal",
        before.principal.to_string(),
        after.principal.to_string(),
        "reviews wait for another party".to_owned(),
    );
    let (was, is) = (&before.limits, &after.limits);
    differ(
        "limits.currency",
        was.currency.to_string(),
        is.currency.to_string(),
        other_currency(before, after),
    );
    let text = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    let amounts = Amounts::of(before, after);
    differ(
        "limits.per_transaction",
        was.per_transaction.to_string(),
        is.per_transaction.to_string(),
        amounts.per_transaction,
    );
    differ(
        "limits.per_month",
        text(was.per_month.map(|amount| amount.to_string())),
        text(is.per_month.map(|amount| amount.to_string())),
        amounts.per_month,
    );
    differ(
        "review_above",
        text(before.review_above.map(|amount| amount.to_string())),
        text(after.review_above.map(|amount| amount.to_string())),
        amounts.review_above,
    );
    let names = |terms: &Terms| terms.categories.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (were, are) = (names(before), names(after));
    differ("categories", were.join(", "), are.join(", "), other_categories(&were, &are));
    let later = after.expires > before.expires;
    let (first, last) = if later { (before.expires, after.expires) } else { (after.expires, before.expires) };
    let becomes = if later { "no longer denied" } else { "denied" };
    differ(
        "expires",
        before.expires.to_string(),
        after.expires.to_string(),
        format!("{becomes}: everything after {first}, up to {last}"),
    );
    let required =
        |terms: &Terms| text(terms.escrow.as_ref().map(|escrow| escrow.required_above.to_string()));
    differ("escrow.required_above", required(before), required(after), "no verdict changes".to_owned());
    differences
}

/// The effect when one of the two grants nothing.
fn becomes_of(before: &Side, after: &Side) -> String {
    let agent = &after.terms.agent;
    match (before.status, after.status) {
        (_, MandateStatus::Revoked) => "denied: everything, since it is revoked".to_owned(),
        (_, MandateStatus::Expired) => {
            "denied: everything, since its last day has passed; the service would not take it".to_owned()
        }
        (_, MandateStatus::Replaced) => format!("nothing: a newer mandate governs {agent}"),
        (MandateStatus::Replaced, MandateStatus::Active) => {
            format!("writing it makes it govern {agent} again, instead of the newer mandate")
        }
        (_, MandateStatus::Active) => format!("no longer denied: writing it lets {agent} spend again"),
    }
}

/// The effect of another currency: nothing that was allowed is still allowed, and all that is allowed is new.
fn other_currency(before: &Terms, after: &Terms) -> String {
    let (was, is) = (&before.limits.currency, &after.limits.currency);
    let mut effects = vec![format!("denied from now on: every payment in {was}")];
    effects.extend(openings(after).iter().map(|band| band.text(&format!(" {is}"))));
    if let Some(month) = after.limits.per_month {
        effects.push(format!("denied: what takes a month's sum above {month} {is}"));
    }
    effects.join("; ")
}

/// The effects of other amounts, for each field that has one.
struct Amounts {
    per_transaction: String,
    per_month: String,
    review_above: String,
}

impl Amounts {
    fn of(before: &Terms, after: &Terms) -> Self {
        let (was, is) = (&before.limits, &after.limits);
        if was.currency != is.currency {
            let elsewhere = format!("counts in {}: see limits.currency", is.currency);
            return Self {
                per_transaction: elsewhere.clone(),
                per_month: elsewhere.clone(),
                review_above: elsewhere,
            };
        }
        let (asked, capped): (Vec<Band>, Vec<Band>) =
            bands(before, after).into_iter().partition(Band::is_about_reviews);
        let texts = |bands: &[Band]| bands.iter().map(|band| band.text("")).collect::<Vec<_>>();
        let or_nothing = |effects: Vec<String>| {
            if effects.is_empty() { NOTHING.to_owned() } else { effects.join("; ") }
        };
        // The limit of one payment follows from both limits. If the payment limit is unchanged, the month's
        // line shows it.
        let by_month = was.per_transaction == is.per_transaction;
        let mut month = vec![match (was.per_month, is.per_month) {
            (_, None) => "no longer denied: anything for the month's sum".to_owned(),
            (None, Some(now)) => format!("denied: what takes a month's sum above {now}"),
            (Some(then), Some(now)) if now > then => {
                format!("no longer denied: what takes a month's sum above {then}, up to {now}")
            }
            (Some(then), Some(now)) => format!("denied: what takes a month's sum above {now}, up to {then}"),
        }];
        if by_month {
            month.extend(texts(&capped));
        }
        let review = match texts(&asked) {
            // Payments that were denied and are reviewed now are shown with the limit that denied them.
            effects if effects.is_empty() && !capped.is_empty() => "no other effect".to_owned(),
            effects => or_nothing(effects),
        };
        Self {
            per_transaction: or_nothing(texts(&capped)),
            per_month: month.join("; "),
            review_above: review,
        }
    }
}

fn other_categories(were: &[String], are: &[String]) -> String {
    let beyond = |all: &[String], others: &[String]| {
        all.iter().filter(|name| !others.contains(name)).cloned().collect::<Vec<_>>().join(", ")
    };
    let effects: Vec<String> = [("no longer denied", beyond(are, were)), ("denied", beyond(were, are))]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(becomes, names)| format!("{becomes}: {names}"))
        .collect();
    if effects.is_empty() { NOTHING.to_owned() } else { effects.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = r#"{"principal":"role:a","agent":"agt_a","limits":{"per_transaction":500,"per_month":2000,"currency":"USD"},"categories":["a","b"],"review_above":200,"expires":"2027-01-01"}"#;

    fn side(text: &str) -> Side {
        Side::read(text, Timestamp::parse("2026-06-01T12:00:00Z").unwrap()).unwrap()
    }

    fn effects(before: &str, after: &str) -> Vec<(&'static str, String)> {
        let differences = compare(&side(before), &side(after));
        differences.into_iter().map(|difference| (difference.field, difference.effect)).collect()
    }

    #[test]
    fn each_field_says_what_becomes_of_it() {
        assert_eq!(effects(BEFORE, BEFORE), []);
        for (from, to, field, effect) in [
            (
                "500",
                "800",
                "limits.per_transaction",
                "reviewed, no longer denied: payments above 500, up to 800",
            ),
            (
                "500",
                "300",
                "limits.per_transaction",
                "denied, no longer reviewed: payments above 300, up to 500",
            ),
            ("2000", "900", "limits.per_month", "denied: what takes a month's sum above 900, up to 2000"),
            (
                "2000",
                "400",
                "limits.per_month",
                "denied: what takes a month's sum above 400, up to 2000; denied, no longer reviewed: payments above 400, up to 500",
            ),
            ("\"per_month\":2000,", "", "limits.per_month", "no longer denied: anything for the month's sum"),
            (":200,", ":0,", "review_above", "reviewed: payments up to 200"),
            (
                "\"review_above\":200,",
                "",
                "review_above",
                "allowed without a review: payments above 200, up to 500",
            ),
            (r#"["a","b"]"#, r#"["b","c"]"#, "categories", "no longer denied: c; denied: a"),
            (r#"["a","b"]"#, r#"["b","a"]"#, "categories", "no effect"),
            ("2027-01-01", "2026-12-01", "expires", "denied: everything after 2026-12-01, up to 2027-01-01"),
            (
                "USD",
                "EUR",
                "limits.currency",
                "denied from now on: every payment in USD; no longer denied: payments up to 200 EUR; reviewed, no longer denied: payments above 200 EUR, up to 500 EUR; denied: what takes a month's sum above 2000 EUR",
            ),
        ] {
            let after = BEFORE.replace(from, to);
            assert_eq!(effects(BEFORE, &after), [(field, effect.to_owned())], "{from} -> {to}");
        }
    }

    #[test]
    fn limit_and_threshold_together_say_what_becomes_of_each_payment() {
        let mandate = |limit: &str, review: &str, currency: &str| {
            let text =
                BEFORE.replace("500", limit).replace("\"per_month\":2000,", "").replace("USD", currency);
            text.replace("\"review_above\":200,", review)
        };
        let (limit, review) = ("limits.per_transaction", "review_above");
        let compared = |before: String, after: String| effects(&before, &after);
        assert_eq!(
            compared(mandate("500", "\"review_above\":200,", "USD"), mandate("100", "", "USD")),
            [
                (
                    limit,
                    "denied: payments above 100, up to 200; denied, no longer reviewed: payments above 200, up to 500"
                        .to_owned()
                ),
                (review, "no other effect".to_owned()),
            ]
        );
        assert_eq!(
            compared(mandate("500", "", "USD"), mandate("100", "\"review_above\":50,", "USD")),
            [
                (limit, "denied: payments above 100, up to 500".to_owned()),
                (review, "reviewed: payments above 50, up to 100".to_owned()),
            ]
        );
        assert_eq!(
            compared(mandate("500", "", "USD"), mandate("800", "\"review_above\":500,", "USD")),
            [
                (limit, "reviewed, no longer denied: payments above 500, up to 800".to_owned()),
                (review, "no other effect".to_owned()),
            ]
        );
        assert_eq!(
            compared(mandate("500", "", "USD"), mandate("50000", "", "JPY")),
            [
                (
                    "limits.currency",
                    "denied from now on: every payment in USD; no longer denied: payments up to 50000 JPY"
                        .to_owned()
                ),
                (limit, "counts in JPY: see limits.currency".to_owned()),
            ]
        );
    }

    #[test]
    fn a_recorded_mandate_is_compared_as_it_was_written() {
        let recorded = |status: &str| {
            let added = format!(r#"{{"id":"mnd_1","status":"{status}","created_at":"x","principal""#);
            BEFORE.replace("{\"principal\"", &added)
        };
        assert_eq!(effects(&recorded("active"), BEFORE), []);
        assert_eq!(effects(BEFORE, &recorded("active")), []);
        assert_eq!(effects(&recorded("revoked"), &recorded("revoked")), []);
        let status = |effect: &str| [("status", effect.to_owned())];
        let again = "no longer denied: writing it lets agt_a spend again";
        assert_eq!(effects(&recorded("revoked"), BEFORE), status(again));
        assert_eq!(
            effects(&recorded("replaced"), BEFORE),
            status("writing it makes it govern agt_a again, instead of the newer mandate")
        );
        assert_eq!(effects(BEFORE, &recorded("revoked")), status("denied: everything, since it is revoked"));
        // Saved while it was active, and expired since.
        let expired = recorded("active").replace("2027-01-01", "2026-05-31");
        let [status, day] = &effects(&expired, BEFORE)[..] else { panic!("{:?}", effects(&expired, BEFORE)) };
        assert_eq!((status.0, status.1.as_str(), day.0), ("status", again, "expires"));
    }
}
