//! The mandates of exports of adjoining periods: each counts once, and is known in all of them.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::audit::decision;
use crate::export::{ISSUER, Plan, governing, jwks, lines, sealed, terms};
use crate::harness::{Ran, mandate};
use crate::order::{changed, is_decision, placed_at, places, window, window_until};

/// Two exports of adjoining periods.
struct Halves {
    whole: Vec<String>,
    earlier: Vec<String>,
    later: Vec<String>,
}

fn halves() -> Halves {
    let whole = lines(&Plan::new(600, 5));
    let at = placed_at(&whole[places(&whole).start + 300]);
    let mut earlier = window_until(&whole, at);
    // An export has no mandates but those that its decisions name.
    let named: HashSet<Value> = earlier
        .iter()
        .filter(|line| is_decision(line))
        .map(|line| decision(line)["mandate"].clone())
        .collect();
    let is_named = |line: &String| {
        let id = serde_json::from_str::<Value>(line).unwrap()["mandate"]["id"].take();
        named.contains(&id)
    };
    earlier.retain(|line| !is_mandate(line) || is_named(line));
    Halves { earlier, later: window(&whole, at), whole }
}

/// Audits exports as one. Gives the findings about mandates, and the summary.
fn audited(parts: &[&[String]]) -> (Vec<Value>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, jwks()).unwrap();
    let mut command = mandate(&["audit", "--issuer", ISSUER, "--json", "--jwks"]);
    command.arg(&keys);
    for (number, part) in parts.iter().enumerate() {
        let file = folder.path().join(format!("part-{number}"));
        std::fs::write(&file, sealed(part)).unwrap();
        command.arg(&file);
    }
    let ran = Ran::from(command.output().unwrap());
    let mut said: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = said.pop().unwrap()["summary"].take();
    assert_eq!(
        summary["by_check"].as_object().unwrap().keys().filter(|check| !check.starts_with("mandate")).count(),
        0,
        "{ran:?}"
    );
    (said.iter_mut().map(|line| line["finding"].take()).collect(), summary)
}

/// Whether it is a governing record of what became of a mandate. There are no others behind the first one.
fn is_change(line: &str) -> bool {
    let record = serde_json::from_str::<Value>(line).unwrap()["governing"].take();
    record["type"] == "mandate.revoked"
        || record["type"] == "mandate.created" && record["governs_from"] != json!(1)
}

fn is_mandate(line: &str) -> bool {
    line.starts_with(r#"{"mandate""#)
}

#[test]
fn a_mandate_of_several_exports_counts_once() {
    let Halves { whole, earlier, later } = halves();
    let mandates = whole.iter().filter(|line| is_mandate(line)).count();
    assert_eq!(audited(&[&earlier, &later]).1["mandates"], mandates);
}

#[test]
fn what_an_earlier_export_has_of_a_mandate_holds_in_a_later_one() {
    let Halves { earlier, later, .. } = halves();
    let is_shared = |line: &String| is_mandate(line) && earlier.contains(line);
    let at = later.iter().position(is_shared).unwrap();
    let known = 1 + earlier.iter().position(|line| *line == later[at]).unwrap();
    let mut other = later.clone();
    other[at] = changed(&later[at], |mandate| mandate["created_at"] = json!("2026-01-01T00:00:00Z"));
    let (found, _) = audited(&[&earlier, &other]);
    let [only, record] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (&record["check"], &record["found"]),
        (&json!("mandate_record"), &json!("created_at 2026-01-01T00:00:00.000Z"))
    );
    assert_eq!((&only["check"], &only["found"]), (&json!("mandate"), &json!("another created_at")));
    let expected = only["expected"].as_str().unwrap();
    assert!(
        expected.starts_with(&format!("that of line {known} of ")) && expected.ends_with("part-0"),
        "{only}"
    );
    assert!(only["export"].as_str().unwrap().ends_with("part-1"), "{only}");

    // A decision without a mandate, though an earlier export has one that governs.
    let mut without: Vec<String> = later.iter().filter(|line| !is_shared(line)).cloned().collect();
    let is_its = |line: &String| is_decision(line) && decision(line)["verdict"] == "deny_category";
    let row = without.iter().position(is_its).unwrap();
    without[row] = changed(&without[row], |decision| {
        let reason = format!("agent {} has no mandate", decision["request"]["agent"].as_str().unwrap());
        decision.as_object_mut().unwrap().remove("mandate");
        (decision["verdict"], decision["reason"]) = (json!("deny_no_mandate"), json!(reason));
        decision["denials"] = json!(["deny_no_mandate"]);
    });
    let (found, _) = audited(&[&earlier, &without]);
    let [only] = &found[..] else { panic!("{found:?}") };
    let sequence = &decision(&without[row])["sequence"];
    assert_eq!((&only["found"], &only["sequence"]), (&json!("none"), sequence));
}

#[test]
fn an_export_may_be_from_before_a_mandate_was_replaced_or_revoked() {
    let Halves { mut earlier, later, .. } = halves();
    let mut changes = 0;
    for line in earlier.iter_mut().filter(|line| is_mandate(line)) {
        *line = changed(line, |mandate| {
            for name in ["governed_until", "replaced_by", "revoked_at", "revoked_after"] {
                changes += usize::from(mandate.as_object_mut().unwrap().remove(name).is_some());
            }
        });
    }
    assert!(changes > 0);
    let first = earlier.iter().position(|line| is_change(line)).unwrap();
    let decisions = places(&earlier).start;
    earlier.drain(first..decisions);
    assert_eq!(audited(&[&earlier, &later]).0, Vec::<Value>::new());
    // A mandate that the later export lacks ended where the next one begins.
    let is_ended = |line: &&String| !is_mandate(line) || !line.contains("governed_until");
    let later: Vec<String> = later.iter().filter(is_ended).cloned().collect();
    assert_eq!(audited(&[&earlier, &later]).0, Vec::<Value>::new());
}

#[test]
fn a_mandate_names_no_sequence_that_its_agent_has_not_reached() {
    let Halves { whole, earlier, later } = halves();
    let is_open = |line: &&String| {
        is_mandate(line) && !line.contains("governed_until") && !line.contains("revoked_after")
    };
    let open = earlier.iter().find(is_open).unwrap();
    let beyond = |lines: &[String], field: &str| -> Vec<String> {
        let change = |mandate: &mut Value| {
            mandate[field] = json!(1_000_000);
            if field == "revoked_after" {
                mandate["revoked_at"] = json!("2026-12-31T00:00:00Z");
            }
        };
        let mut lines: Vec<_> = lines
            .iter()
            .map(|line| if line == open { changed(line, change) } else { line.clone() })
            .collect();
        let first = places(&lines).start;
        let number = lines[..first].iter().filter(|line| line.starts_with(r#"{"governing""#)).count() + 1;
        let mut record = serde_json::from_str::<Value>(open).unwrap()["mandate"].take();
        let mandate = record["id"].clone();
        record = if field == "revoked_after" {
            json!({"type": "mandate.revoked", "at": "2026-12-31T00:00:00Z", "agent": record["agent"], "mandate": mandate,
                "revoked_after": 1_000_000, "by": {"kind": "key", "id": "key_abababababab"}})
        } else {
            json!({"type": "mandate.created", "at": "2026-12-31T00:00:00Z", "agent": record["agent"],
                "mandate": "mnd_01kfsrc0000000000000000009", "governs_from": 1_000_001,
                "terms": serde_json::from_str::<Value>(&terms(1)).unwrap()})
        };
        lines.insert(first, governing(&record, number.try_into().unwrap()));
        lines
    };
    for field in ["revoked_after", "governed_until"] {
        let (whole, late) = (beyond(&whole, field), beyond(&later, field));
        for parts in [&[&whole[..]][..], &[&earlier, &late]] {
            let (found, _) = audited(parts);
            let [only] = &found[..] else { panic!("{found:?}") };
            assert_eq!(only["found"], format!("{field} 1000000"), "{only}");
        }
        // An export with an end may be from after the later one was written.
        let early = beyond(&earlier, field);
        for parts in [&[&early[..]][..], &[&early, &later]] {
            assert_eq!(audited(parts).0, Vec::<Value>::new());
        }
    }
}
