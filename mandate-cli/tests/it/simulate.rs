//! `mandate simulate` and `mandate report`: recorded requests under other mandates, and what was only observed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::audit::decision;
use crate::export::{Plan, lines, sealed, terms};
use crate::harness::{Ran, mandate, run, run_with_stdin};

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn export(folder: &Path, plan: &Plan) -> PathBuf {
    file(folder, "export.ndjson", &(lines(plan).join("\n") + "\n"))
}

fn simulate(export: &Path, args: &[&str]) -> Ran {
    run(&[&["simulate", "--decisions", export.to_str().unwrap()], args].concat())
}

fn summary(ran: &Ran) -> Value {
    let last = ran.out.lines().last().unwrap();
    serde_json::from_str::<Value>(last).unwrap()["summary"].take()
}

/// The verdicts of an agent's requests, approvals apart, as an export has them.
fn verdicts(lines: &[String], agent: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in lines.iter().filter(|line| line.starts_with(r#"{"decision""#)) {
        let line: Value = serde_json::from_str(line).unwrap();
        let decision = &line["decision"];
        if decision["request"]["agent"] == agent && decision["supersedes"].is_null() {
            *counts.entry(decision["verdict"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn recorded_mandates_give_the_recorded_verdicts(seed in 0_u64..1_000_000, rows in 1_usize..600, approve_every in 0_u64..4) {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan { approve_every, ..Plan::new(rows, seed) };
        let export = export(folder.path(), &plan);
        let ran = simulate(&export, &["--fail-on", "any", "--json"]);
        prop_assert_eq!(ran.code, Some(0), "{:?}", ran);
        let summary = summary(&ran);
        prop_assert_eq!(&summary["requests"], rows);
        prop_assert_eq!(&summary["changed"], 0);
    }

    /// What the service would have decided under the candidate is what the simulation says.
    #[test]
    fn a_candidate_gives_what_it_would_have_given(seed in 0_u64..1_000_000, limit in 50_u32..500, month in 100_u32..5000) {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan { approve_every: 0, changes: false, ..Plan::new(400, seed) };
        let candidate = format!(
            r#"{{"principal":"role:cfo","agent":"agt_1","limits":{{"per_transaction":{limit},"per_month":{month},"currency":"USD"}},"categories":["software","travel"],"review_above":{},"expires":"2026-02-10"}}"#,
            limit / 2
        );
        let mut under = plan.clone();
        under.terms.insert(1, candidate.clone());
        let export = export(folder.path(), &plan);
        let candidate = file(folder.path(), "candidate.json", &candidate);
        let ran = simulate(&export, &["--mandate", candidate.to_str().unwrap(), "--json"]);
        prop_assert_eq!(ran.code, Some(0), "{:?}", ran);
        let mut simulated = BTreeMap::<String, u64>::new();
        for count in summary(&ran)["verdicts"].as_array().unwrap() {
            let verdict = count["simulated"].as_str().unwrap().to_owned();
            *simulated.entry(verdict).or_default() += count["count"].as_u64().unwrap();
        }
        prop_assert_eq!(simulated, verdicts(&lines(&under), "agt_1"));
    }
}

#[test]
fn a_candidate_against_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let export = export(folder.path(), &Plan::new(600, 5));
    let candidate = terms(4).replace("400", "250").replace(r#""review_above":200,"#, "");
    let candidate = file(folder.path(), "candidate.json", &candidate);
    let candidate = candidate.to_str().unwrap();
    let text = simulate(&export, &["--mandate", candidate]).code(0);
    insta::assert_snapshot!(text.out);
    let all = simulate(&export, &["--mandate", candidate, "--all", "--json"]).code(0);
    let summary = summary(&all);
    assert_eq!(json!(all.out.lines().count() - 1), summary["changed"]);
    let first: Value = serde_json::from_str(all.out.lines().next().unwrap()).unwrap();
    assert_eq!(first["change"], summary["first"]);

    for (what, code) in [
        ("any", 24),
        ("more-denials", 24),
        ("more-allows", 24),
        ("more-reviews", 0),
        ("more-reviews,any", 24),
    ] {
        assert_eq!(
            simulate(&export, &["--mandate", candidate, "--fail-on", what]).code,
            Some(code),
            "{what}"
        );
    }
    let other = simulate(&export, &["--mandate", candidate, "--agent", "agt_0", "--json"]).code(0);
    assert_eq!(self::summary(&other)["requests"], 0);
}

#[test]
fn what_becomes_of_reviews() {
    let folder = tempfile::tempdir().unwrap();
    let export = export(folder.path(), &Plan { changes: false, ..Plan::new(600, 5) });
    let candidate = file(folder.path(), "candidate.json", &terms(4).replace("200", "0"));
    let candidate = candidate.to_str().unwrap();
    let run = |reviews: &str| {
        summary(&simulate(&export, &["--mandate", candidate, "--reviews", reviews, "--json"]).code(0))
    };
    let (approve, deny, recorded) = (run("approve"), run("deny"), run("as-recorded"));
    // Under a threshold of 0 nothing is allowed without a person.
    assert!(approve["waiting"] == 0 && approve["approvals"].as_u64().unwrap() > 0, "{approve}");
    assert!(deny["approvals"] == 0 && deny["waiting"].as_u64().unwrap() > 0, "{deny}");
    assert_eq!(deny["money"][0]["simulated"], 0);
    let spent = |summary: &Value| summary["money"][0]["simulated"].as_f64().unwrap();
    assert!(spent(&deny) < spent(&recorded) && spent(&recorded) < spent(&approve));
    // Without a threshold no recorded approval is needed.
    let candidate = file(folder.path(), "free.json", &terms(4).replace(r#""review_above":200,"#, ""));
    let free = summary(&simulate(&export, &["--mandate", candidate.to_str().unwrap(), "--json"]).code(0));
    assert!(free["approvals"] == 0 && free["without_approval"].as_u64().unwrap() > 0, "{free}");
}

#[test]
fn a_window_begins_with_what_was_spent_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let whole = lines(&Plan::new(600, 5));
    let mut window: Vec<_> = whole.iter().take(7).cloned().collect();
    window.extend(whole.iter().skip(400).cloned());
    let export = file(folder.path(), "window.ndjson", &sealed(&window));
    simulate(&export, &["--fail-on", "any"]).code(0).shows("NO VERDICT CHANGES");
}

/// The export's decisions, each changed.
fn changed(lines: &[String], change: impl Fn(&mut Value)) -> Vec<String> {
    let change = |line: &String| match serde_json::from_str::<Value>(line).unwrap() {
        mut line if line["decision"].is_object() => {
            change(&mut line["decision"]);
            line.to_string()
        }
        _ => line.clone(),
    };
    lines.iter().map(change).collect()
}

#[test]
fn the_state_is_rebuilt_and_the_record_of_it_checked() {
    let folder = tempfile::tempdir().unwrap();
    let whole = lines(&Plan::new(600, 5));
    let simulated = |lines: &[String]| {
        let export = file(folder.path(), "export.ndjson", &sealed(lines));
        let ran = simulate(&export, &["--json"]).code(0);
        (summary(&ran), ran)
    };
    let (recorded, ran) = simulated(&whole);
    assert!(recorded["inconsistent"].is_null() && ran.err.is_empty(), "{ran:?}");
    let denied =
        |code: &str| recorded["verdicts"].as_array().unwrap().iter().any(|pair| pair["recorded"] == code);
    assert!(denied("deny_velocity") && denied("deny_limit"), "{recorded}");

    // A record that forgets what came before changes no verdict.
    let (forgetful, ran) = simulated(&changed(&whole, |decision| {
        decision["basis"] = json!({"spent": 0, "recent_requests": 0});
    }));
    assert_eq!((&forgetful["verdicts"], &forgetful["changed"]), (&recorded["verdicts"], &json!(0)));
    assert!(forgetful["inconsistent"]["decisions"].as_u64().unwrap() > 100, "{forgetful}");
    assert!(ran.says("do not follow from those before them").err.contains("mandate audit"));

    // A gap is reported where it is.
    let gap = whole.iter().skip(300).position(|line| line.contains(r#""verdict":"allow""#)).unwrap() + 300;
    let mut less = whole.clone();
    let lost = decision(&less.remove(gap));
    let (gapped, simulated) = simulated(&less);
    let agent = &lost["request"]["agent"];
    let next = less.iter().skip(gap).position(|line| decision(line)["request"]["agent"] == *agent).unwrap();
    let (line, sequence) = (gap + next + 1, lost["sequence"].as_u64().unwrap() + 1);
    let first = json!({"first_line": line, "agent": agent, "sequence": sequence});
    let mut said = gapped["inconsistent"].clone();
    said.as_object_mut().unwrap().remove("decisions");
    assert_eq!(said, first);
    let says = format!(", the first on line {line}, sequence {sequence} of {}: ", agent.as_str().unwrap());
    let export = file(folder.path(), "less.ndjson", &sealed(&less));
    let reported = run(&["report", export.to_str().unwrap()]).code(0);
    for ran in [simulated, reported] {
        assert!(ran.err.contains(&says), "{ran:?}");
    }
}

#[test]
fn a_revocation_in_the_wrong_place_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let whole = lines(&Plan { mode: "observe", ..Plan::new(600, 5) });
    let is_denied = |line: &&String| line.contains(r#""verdict":"deny_revoked""#);
    let denied = decision(whole.iter().find(is_denied).unwrap());
    let by_place = |revoked_after: u64| {
        let line = |line: &String| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            if line["mandate"]["id"] == denied["mandate"] {
                line["mandate"]["revoked_after"] = json!(revoked_after);
            }
            line.to_string()
        };
        let lines: Vec<String> = whole.iter().map(line).collect();
        let export = file(folder.path(), "export.ndjson", &sealed(&lines));
        let reported = run(&["report", export.to_str().unwrap(), "--json"]).code(0);
        (summary(&simulate(&export, &["--json"]).code(0)), reported)
    };
    let first = denied["sequence"].as_u64().unwrap();
    let (simulated, reported) = by_place(first - 1);
    assert!(simulated["inconsistent"].is_null() && reported.err.is_empty(), "{simulated} {reported:?}");
    // Denied as revoked, but not revoked then; and revoked, but not denied.
    for (revoked_after, sequence) in [(first, Some(first)), (1_000_000, Some(first)), (0, None)] {
        let (simulated, reported) = by_place(revoked_after);
        let odd = &simulated["inconsistent"];
        assert_eq!(odd["agent"], denied["request"]["agent"], "{revoked_after}: {simulated}");
        assert!(sequence.is_none_or(|sequence| odd["sequence"] == sequence), "{revoked_after}: {simulated}");
        reported.says("do not follow from those before them");
    }
    // A denial that the export does not explain is reported by its code, not as a review.
    let rules = |reported: &Ran| {
        let rows = reported.json()["rows"].take();
        let its = rows.as_array().unwrap().iter().filter(|row| row["agent"] == denied["request"]["agent"]);
        its.map(|row| row["rule"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (before, after) = (by_place(first - 1).1, by_place(1_000_000).1);
    assert!(rules(&before).iter().any(|rule| rule == "revoked"), "{before:?}");
    assert!(rules(&after).iter().any(|rule| rule == "deny_revoked"), "{after:?}");
    let reviews = |reported: &Ran| rules(reported).iter().filter(|rule| *rule == "review").count();
    assert_eq!(reviews(&after), reviews(&before));
}

#[test]
fn any_order_is_put_into_that_of_time_when_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let whole = lines(&Plan::new(600, 5));
    let candidate = file(folder.path(), "candidate.json", &terms(4).replace("400", "250"));
    let args = ["--mandate", candidate.to_str().unwrap(), "--json"];
    let sorted = [&args[..], &["--sort"]].concat();
    let written = file(folder.path(), "export.ndjson", &(whole.join("\n") + "\n"));
    let expected = summary(&simulate(&written, &args).code(0));
    assert_eq!(summary(&simulate(&written, &sorted).code(0)), expected);

    let backwards: Vec<String> = whole.iter().rev().cloned().collect();
    let reversed = backwards.join("\r\n") + "\r\n";
    let path = file(folder.path(), "reversed.ndjson", &reversed);
    simulate(&path, &args).code(23);
    let from_file = simulate(&path, &sorted).code(0);
    let from_stdin = run_with_stdin(
        &mut mandate(&[&["simulate", "--decisions", "-"], &sorted[..]].concat()),
        reversed.as_bytes(),
    );
    for ran in [from_file, from_stdin.code(0)] {
        let mut found = summary(&ran);
        // Lines are numbered as in the file.
        let line = usize::try_from(found["first"]["line"].as_u64().unwrap()).unwrap();
        assert!(backwards[line - 1].contains(found["first"]["decision"].as_str().unwrap()), "{found}");
        found["first"]["line"] = expected["first"]["line"].clone();
        assert_eq!(found, expected);
        assert!(ran.err.is_empty(), "{ran:?}");
    }
    let twice = file(folder.path(), "twice.ndjson", &[backwards.clone(), backwards].concat().join("\n"));
    simulate(&twice, &sorted).code(23);
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let whole = lines(&Plan::new(50, 5));
    let export = file(folder.path(), "export.ndjson", &(whole.join("\n") + "\n"));
    let bad = file(folder.path(), "bad.json", &terms(4).replace("USD", "usd"));
    simulate(&export, &["--mandate", bad.to_str().unwrap()]).code(30).says("limits.currency must be");
    let good = file(folder.path(), "good.json", &terms(4));
    let good = good.to_str().unwrap();
    simulate(&export, &["--mandate", good, "--mandate", good]).code(2).says("two candidates for agt_4");
    let mut newest_first = whole.clone();
    let last = whole.len() - 1;
    newest_first[last - 43..last].reverse();
    let reversed = file(folder.path(), "reversed.ndjson", &sealed(&newest_first));
    simulate(&reversed, &[]).code(23).says("not in the order of their ids").says("--sort");
    let mut twice = whole.clone();
    twice.insert(last - 30, whole[last - 31].clone());
    let twice = file(folder.path(), "twice.ndjson", &sealed(&twice));
    simulate(&twice, &[]).code(23).says(&format!("line {}", last - 29)).says("appears twice");
    let filtered = whole.join("\n").replacen(r#""created_at""#, r#""verdict":"allow","created_at""#, 1);
    let filtered = file(folder.path(), "filtered.ndjson", &filtered);
    simulate(&filtered, &[]).code(2).says("one verdict only");
    let cut = file(folder.path(), "cut.ndjson", &whole[..last - 10].join("\n"));
    simulate(&cut, &[]).code(0).says("no trailer");
    let empty = file(folder.path(), "empty.ndjson", "");
    for sort in [&[][..], &["--sort"]] {
        simulate(&empty, &[sort, &["--fail-on", "any"]].concat()).code(23).says("it is empty");
    }
    run(&["report", empty.to_str().unwrap()]).code(23).says("it is empty");
}

#[test]
fn the_report_names_what_would_have_been_blocked() {
    let folder = tempfile::tempdir().unwrap();
    let export = export(folder.path(), &Plan { mode: "observe", ..Plan::new(400, 5) });
    let path = export.to_str().unwrap();
    insta::assert_snapshot!(run(&["report", path]).code(0).out);
    let json = run(&["report", path, "--json"]).code(0).json();
    let totals = &json["totals"];
    let count = |name: &str| totals[name].as_u64().unwrap();
    assert_eq!(count("observed"), 400);
    assert_eq!(count("allowed") + count("approved") + count("blocked"), 400);
    let rows: u64 =
        json["rows"].as_array().unwrap().iter().map(|row| row["requests"].as_u64().unwrap()).sum();
    assert_eq!(rows, count("approved") + count("blocked"));
    let enforced = self::export(folder.path(), &Plan::new(50, 5));
    run(&["report", enforced.to_str().unwrap()]).code(0).shows("NOTHING would have been blocked\n");
}

#[test]
fn an_approval_is_reported_by_what_came_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let whole = lines(&Plan { mode: "observe", ..Plan::new(400, 5) });
    let totals = |lines: &[String]| {
        let export = file(folder.path(), "export.ndjson", &sealed(lines));
        run(&["report", export.to_str().unwrap(), "--json"]).code(0).json()
    };
    let is_fresh = |line: &String| line.contains(r#""supersedes""#);
    let fresh = |verdict: &str| {
        let verdict = format!(r#""verdict":"{verdict}""#);
        whole.iter().filter(|line| is_fresh(line) && line.contains(&verdict)).count()
    };
    let all = whole.iter().filter(|line| is_fresh(line)).count();
    assert!(fresh("allow") < all, "one is denied after all");
    let report = totals(&whole);
    assert_eq!(report["totals"]["approved"], fresh("allow"));
    assert_eq!(report["totals"]["outside"], 0);
    let denied = report["rows"].as_array().unwrap().iter();
    let denied = denied.filter(|row| row["rule"].as_str().unwrap().starts_with("review (approved), "));
    assert_eq!(
        denied.map(|row| row["requests"].as_u64().unwrap()).sum::<u64>(),
        (all - fresh("allow")) as u64
    );

    // Whatever the mode in which it was approved.
    let switched: Vec<String> = whole
        .iter()
        .map(|line| if is_fresh(line) { line.replace("observe", "enforce") } else { line.clone() })
        .collect();
    assert_eq!(totals(&switched), report);

    // Of what the export does not hold nothing is said.
    let cut: Vec<String> = whole.iter().filter(|line| !is_fresh(line)).cloned().collect();
    let cut = totals(&cut);
    assert_eq!((&cut["totals"]["approved"], &cut["totals"]["outside"]), (&json!(0), &json!(all)));
    assert_eq!(cut["totals"]["observed"], report["totals"]["observed"]);
}

#[test]
fn the_report_fits_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let export = export(folder.path(), &Plan { mode: "observe", ..Plan::new(400, 5) });
    for width in [40_usize, 60, 80] {
        let mut command = mandate(&["report", export.to_str().unwrap()]);
        let ran = Ran::from(command.env("COLUMNS", width.to_string()).output().unwrap()).code(0);
        let table = ran.out.split("\n\n").nth(1).unwrap();
        assert!(table.starts_with("AGENT ") && table.lines().count() > 10, "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= width), "{width}: {table}");
    }
}
