//! `mandate mandate lint`: finds all problems of a mandate at once, offline.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::collections::BTreeMap;

use mandate_core::json::Object;
use mandate_core::{Invalid, MAX_CATEGORIES, Terms, Timestamp, Total};
use serde::Serialize;
use serde_json::value::RawValue;

use super::MAX_BODY_BYTES;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::governed::WRITTEN;
use crate::input::Source;
use crate::mistake::{self, Located};
use crate::output::Output;
use crate::style::{CAUTION, ERROR, GOOD, printable};
use crate::value::source;

/// At most this many problems are looked for.
const MAX_PROBLEMS: usize = 200;
/// A mandate that expires within this many days gets a warning.
const SOON_DAYS: i64 = 7;
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Check a mandate file offline, and show each problem with its field and a suggestion
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate mandate lint mandate.json
  mandate mandate lint --strict - < mandate.json

Exit codes: 0 the service would accept it    30 it would not, or there are warnings and --strict    3 no such file
In JSON, `valid` says whether the service would accept it, and `passes` whether the exit code is 0.")]
pub(crate) struct Lint {
    /// The mandate as JSON, or `-` to read it from standard input
    #[arg(value_name = "FILE|-", value_parser = source)]
    file: Source,
    /// Count warnings as problems
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Error,
    Warning,
}

#[derive(Serialize)]
struct Finding {
    level: Level,
    field: String,
    message: String,
    suggestion: &'static str,
    /// Where it is, for people.
    #[serde(skip)]
    located: Option<Located>,
}

#[derive(Serialize)]
struct Report {
    /// Whether the service would accept it.
    valid: bool,
    /// Whether it passes. With `--strict`, warnings count too.
    passes: bool,
    findings: Vec<Finding>,
}

impl Lint {
    pub(super) fn run(&self, output: &mut Output) -> Result<Exit, Failure> {
        let text = self.file.read("the mandate", MAX_BODY_BYTES, Exit::InvalidRequest)?;
        let findings = examine(&self.file, &text, environment::now());
        let valid = findings.iter().all(|f| f.level == Level::Warning);
        let passes = valid && (findings.is_empty() || !self.strict);
        let report = Report { valid, passes, findings };
        if output.is_json() {
            output.json(&report)?;
        } else {
            report.print(output);
        }
        Ok(if passes { Exit::Success } else { Exit::InvalidRequest })
    }
}

impl Report {
    fn print(&self, output: &mut Output) {
        for finding in &self.findings {
            let (style, level) = match finding.level {
                Level::Error => (ERROR, "error"),
                Level::Warning => (CAUTION, "warning"),
            };
            let (message, suggestion) = (printable(&finding.message), finding.suggestion);
            let located = finding.located.as_ref();
            let excerpt = located.and_then(|located| located.excerpt.as_deref()).unwrap_or_default();
            let meant = located.and_then(|located| located.meant.as_deref());
            let meant = meant.map(|name| format!("did you mean {name}? ")).unwrap_or_default();
            output.hanging(&format!("{style}{level:<9}{style:#}"), &message);
            output.text(excerpt);
            output.hanging(&" ".repeat(9), &format!("{meant}{suggestion}"));
        }
        output.sentence(&match (self.valid, self.passes, self.findings.len()) {
            (true, true, 0) => format!("{GOOD}ok{GOOD:#}"),
            (true, true, _) => format!("{GOOD}ok{GOOD:#}, with warnings"),
            (true, false, _) => {
                format!("{ERROR}not ok{ERROR:#}: the service would take it, but --strict counts warnings as problems")
            }
            (false, ..) => format!("{ERROR}refused{ERROR:#}"),
        });
    }
}

/// Every problem and oddity of a mandate.
fn examine(source: &Source, text: &str, now: Timestamp) -> Vec<Finding> {
    let (terms, mut findings) = problems(source, text, now);
    if findings.is_empty() {
        findings.extend(terms.iter().flat_map(|terms| oddities(terms, now)));
    }
    findings
}

/// The service's rules stop at the first problem. So each is noted and corrected in a copy, which is read
/// again.
fn problems(source: &Source, text: &str, now: Timestamp) -> (Option<Terms>, Vec<Finding>) {
    let mut findings = Vec::new();
    let mut copy = text.to_owned();
    while findings.len() < MAX_PROBLEMS {
        let read = Object::parse(copy.as_bytes())
            .and_then(Terms::read)
            .and_then(|terms| terms.must_hold_at(now).map(|()| terms));
        let problem = match read {
            Ok(terms) => return (Some(terms), findings),
            Err(problem) => problem,
        };
        let corrected = correct(&copy, &problem);
        let is_repeated = findings.last().is_some_and(|last: &Finding| last.message == problem.to_string());
        if is_repeated {
            break;
        }
        let located = mistake::located(source, text, &problem);
        findings.push(Finding {
            level: Level::Error,
            field: problem.field().to_owned(),
            message: located.message.clone(),
            suggestion: located.next.unwrap_or_else(|| suggestion(problem.field())),
            located: Some(located),
        });
        match corrected.filter(|corrected| *corrected != copy) {
            Some(corrected) => copy = corrected,
            None => break,
        }
    }
    (None, findings)
}

type Members = BTreeMap<String, Box<RawValue>>;

/// `text` with a harmless value in place of the one that `problem` names. None if that is impossible.
fn correct(text: &str, problem: &Invalid) -> Option<String> {
    let mut members: Members = serde_json::from_str(text).ok()?;
    let path = problem.field();
    let (name, rest) = path.split_once(['.', '[']).unwrap_or((path, ""));
    if let Some(unknown) = unknown(&members, "", path) {
        members.remove(&unknown);
    } else if path == WHOLE {
        // One of the members cannot be parsed.
        let unreadable = members.iter().find(|(name, value)| read_alone(name, value).is_err());
        let name = unreadable.map(|(name, _)| name.clone())?;
        put(&mut members, &name, harmless(&name))?;
    } else if rest.is_empty() {
        let kept = first_elements(members.get(name).map(AsRef::as_ref));
        put(&mut members, name, kept.as_deref().or(harmless(name)))?;
    } else if let Some(index) = rest.split(']').next().and_then(|index| index.parse::<usize>().ok()) {
        let mut elements: Vec<Box<RawValue>> = serde_json::from_str(members.get(name)?.get()).ok()?;
        // The other members keep their places.
        let mut fresh = (0_usize..).map(|n| format!("\"lint-{n}\""));
        let fresh = fresh.find(|name| !elements.iter().any(|element| element.get() == name))?;
        *elements.get_mut(index)? = RawValue::from_string(fresh).ok()?;
        put(&mut members, name, Some(&serde_json::to_string(&elements).ok()?))?;
    } else {
        let mut inner: Members =
            serde_json::from_str(members.get(name).map_or("{}", |value| value.get())).ok()?;
        match unknown(&inner, name, path) {
            Some(unknown) => {
                inner.remove(&unknown);
            }
            None => put(&mut inner, rest, harmless(path))?,
        }
        let inner = serde_json::to_string(&inner).ok()?;
        put(&mut members, name, Some(&inner))?;
    }
    serde_json::to_string(&members).ok()
}

/// The name of the whole document in messages.
const WHOLE: &str = "body";

/// The unknown member of the object `parent` that messages call `path`. Messages shorten and escape names.
fn unknown(members: &Members, parent: &str, path: &str) -> Option<String> {
    let unknown = members.keys().filter(|name| !known(parent).contains(&name.as_str()));
    let called = |name: &String| {
        let alone = format!("{{{}:0}}", serde_json::Value::from(name.as_str()));
        let called = Object::parse(alone.as_bytes()).and_then(Object::finish).err()?.field().to_owned();
        Some(if parent.is_empty() { called } else { format!("{parent}.{called}") })
    };
    unknown.into_iter().find(|name| called(name).as_deref() == Some(path)).cloned()
}

/// The members that an object of a mandate may have.
fn known(parent: &str) -> &'static [&'static str] {
    match parent {
        "limits" => &["per_transaction", "per_month", "currency"],
        "escrow" => &["required_above"],
        _ => &WRITTEN,
    }
}

fn read_alone(name: &str, value: &RawValue) -> Result<(), Invalid> {
    let alone = format!("{{{}:{}}}", serde_json::Value::from(name), value.get());
    Object::parse(alone.as_bytes()).map(|_| ())
}

/// The first elements of an array, as many as there may be categories.
fn first_elements(value: Option<&RawValue>) -> Option<String> {
    let elements: Vec<Box<RawValue>> = serde_json::from_str(value?.get()).ok()?;
    let kept = elements.get(..MAX_CATEGORIES).filter(|kept| kept.len() < elements.len())?;
    serde_json::to_string(kept).ok()
}

/// Sets the member, or removes it if there is no value.
fn put(members: &mut Members, name: &str, value: Option<&str>) -> Option<()> {
    match value {
        Some(value) => members.insert(name.to_owned(), RawValue::from_string(value.to_owned()).ok()?),
        None => members.remove(name),
    };
    Some(())
}

/// A value that every rule accepts, for a required member.
fn harmless(path: &str) -> Option<&'static str> {
    Some(match path {
        "principal" => r#""role:a""#,
        "agent" => r#""agt_a""#,
        // So large that no threshold is above it.
        "limits" => r#"{"per_transaction":999999999999999,"currency":"USD"}"#,
        "limits.currency" => r#""USD""#,
        "limits.per_transaction" => "999999999999999",
        "escrow.required_above" => "0",
        "categories" => r#"["a"]"#,
        "expires" => r#""9999-12-31""#,
        _ => return None,
    })
}

fn suggestion(path: &str) -> &'static str {
    match path.split_once('[').map_or(path, |(name, _)| name) {
        "principal" => "the accountable party, for example \"role:finance_lead\"",
        "agent" => "the agent's id, for example \"agt_buyer\"; mandate agent list shows all",
        "limits" => "for example {\"per_transaction\": 500, \"per_month\": 2000, \"currency\": \"USD\"}",
        "limits.currency" => "for example \"USD\"",
        "limits.per_transaction" => "the limit per payment, a number without quotes, for example 500",
        "limits.per_month" => "the limit per calendar month, a number without quotes; or leave it out",
        "categories" => {
            "what the money may be spent on, for example [\"software\", \"cloud.compute\"], each once"
        }
        "review_above" => {
            "a number from 0 to limits.per_transaction, above which a payment needs a review; or leave it out"
        }
        "expires" => "the last day on which the mandate holds, for example \"2027-12-31\"",
        "escrow" | "escrow.required_above" => "for example {\"required_above\": 1000}; or leave it out",
        "body" => "mandate mandate template prints one to start from",
        _ => "remove it, or correct its name; mandate mandate template shows every field",
    }
}

/// What is valid, but may be unintended.
fn oddities(terms: &Terms, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut warn = |field: &str, message: String, suggestion| {
        let message = format!("{field} {message}");
        findings.push(Finding {
            level: Level::Warning,
            field: field.to_owned(),
            message,
            suggestion,
            located: None,
        });
    };
    let soon = now.plus_seconds(SOON_DAYS * DAY_SECONDS);
    if terms.must_hold_at(soon).is_err() {
        warn(
            "expires",
            format!("is {}, less than {SOON_DAYS} days away", terms.expires),
            "choose a later day, if the agent should keep working",
        );
    }
    let most = Total::from(terms.limits.per_transaction);
    match terms.limits.per_month {
        None => warn(
            "limits.per_month",
            "is absent: a month has no limit".to_owned(),
            "add one, so that many small payments cannot add up",
        ),
        Some(month) if month < terms.limits.per_transaction => warn(
            "limits.per_month",
            format!("is {month}, less than one payment may be ({most})"),
            "raise it, or lower limits.per_transaction",
        ),
        Some(_) => {}
    }
    match terms.review_above {
        None => warn(
            "review_above",
            "is absent: no payment needs a review".to_owned(),
            "add the amount above which a payment needs a review",
        ),
        Some(above) if above == Total::ZERO => warn(
            "review_above",
            "is 0: every payment needs a review".to_owned(),
            "raise it, if small payments should pass without a review",
        ),
        Some(above) if above >= most => warn(
            "review_above",
            format!("is {above}, the most that a payment may be: none needs a review"),
            "lower it below limits.per_transaction",
        ),
        Some(_) => {}
    }
    if terms.escrow.is_some() {
        warn("escrow.required_above", "is kept, but changes no verdict".to_owned(), "don't rely on it");
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lint(text: &str) -> Vec<String> {
        let now = Timestamp::parse("2026-06-01T12:00:00Z").unwrap();
        examine(&Source::Stdin, text, now).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let lines = lint(
            r#"{"principal": "finance", "agent": "buyer", "limits": {"per_transaction": "500", "per_week": 9},
               "categories": ["A", "b", "b"], "review_above": -1, "expires": "2026-05-31", "extra": null}"#,
        );
        for field in [
            "principal",
            "agent",
            "limits.currency",
            "limits.per_transaction",
            "limits.per_week",
            "categories[0]",
            "review_above",
            "expires",
            "extra",
        ] {
            assert!(lines.iter().any(|line| line.starts_with(&format!("{field} "))), "{field}: {lines:#?}");
        }
        assert_eq!(lines.iter().filter(|line| line.starts_with("categories")).count(), 2, "{lines:#?}");
    }

    #[test]
    fn each_problem_is_reported_once_with_its_path() {
        let mandate = |rest: &str| {
            format!(
                r#"{{"principal":"role:a","agent":"agt_a","limits":{{"per_transaction":500,"currency":"USD"}},"categories":["a"],"expires":"2027-01-01"{rest}}}"#
            )
        };
        let fields = |text: &str| -> Vec<String> {
            let now = Timestamp::parse("2026-06-01T12:00:00Z").unwrap();
            let problems = problems(&Source::Stdin, text, now).1;
            let mut fields: Vec<_> = problems.into_iter().map(|finding| finding.field).collect();
            fields.sort_unstable();
            fields
        };
        assert_eq!(
            fields(&mandate(r#","escrow":{"required_above":"x","y":1},"review_above":-1"#)),
            ["escrow.required_above", "escrow.y", "review_above"]
        );
        assert_eq!(fields(&mandate(r#","escrow":7"#)), ["escrow"]);
        let listed = mandate("").replace(r#"["a"]"#, r#"["A","b","b",7,"C"]"#);
        assert_eq!(fields(&listed), ["categories[0]", "categories[2]", "categories[3]", "categories[4]"]);
        // Names that look like paths, and a name that messages shorten.
        let odd = format!(r#","a.b":1,"limits[0]":1,"{}":1,"body":1,"escrow":{{}}"#, "n".repeat(90));
        assert_eq!(fields(&mandate(&odd)).len(), 5);
        // Without limits, no threshold is too high.
        let unlimited = mandate(r#","review_above":200"#)
            .replace(r#""limits":{"per_transaction":500,"currency":"USD"},"#, "");
        assert_eq!(fields(&unlimited), ["limits.currency", "limits.per_transaction"]);
        let deep = format!(r#","deep":{}1{},"x":1"#, "[".repeat(40), "]".repeat(40));
        assert_eq!(fields(&mandate(&deep)), ["body", "x"]);
        let many = (0..70).map(|n| format!("\"c{n}\"")).collect::<Vec<_>>().join(",");
        let many = mandate("").replace(r#"["a"]"#, &format!(r#"["A",{many}]"#));
        assert_eq!(fields(&many), ["categories", "categories[0]"]);
    }

    #[test]
    fn nothing_that_is_there_is_lost_on_the_way() {
        let exact = r#"{"principal":"x","agent":"agt_a","limits":{"per_transaction":100.00000000000000000001,"currency":"USD"},"categories":["a"],"expires":"2027-01-01"}"#;
        assert!(
            lint(exact).iter().any(|line| line.starts_with("limits.per_transaction ")),
            "{:?}",
            lint(exact)
        );
        assert_eq!(lint("[]").len(), 1);
        assert_eq!(lint("{").len(), 1);
    }

    #[test]
    fn what_may_not_be_meant_is_a_warning() {
        let mandate = |rest: &str, day: &str| {
            format!(
                r#"{{"principal":"role:a","agent":"agt_a","limits":{{"per_transaction":500,"currency":"USD"{rest}}},"categories":["a"],"expires":"{day}"}}"#
            )
        };
        let lint_text = |text: &str| lint(text).join("\n");
        let bare = lint_text(&mandate("", "2026-06-03"));
        for part in ["expires is 2026-06-03, less than 7", "per_month is absent", "review_above is absent"] {
            assert!(bare.contains(part), "{bare}");
        }
        assert!(lint_text(&mandate(r#","per_month":400"#, "2027-01-01")).contains("less than one payment"));
        let reviewed = mandate(r#","per_month":900"#, "2027-01-01")
            .replace("\"expires\"", "\"review_above\":0,\"expires\"");
        assert_eq!(lint(&reviewed), ["review_above is 0: every payment needs a review"]);
        assert!(lint(&reviewed.replace(":0,", ":200,")).is_empty());
    }
}
