//! Exports of clocks that step: `mandate audit` finds nothing in them, `mandate simulate` changes nothing, and each row or
//! mandate that is not as it was is found.

use std::path::Path;

use mandate_core::{DecisionId, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::audit::{check, decision, find, resigned, run};
use crate::export::{ISSUER, Plan, jwks, lines, sealed};
use crate::harness::{Ran, mandate, run_with_stdin};

pub(crate) fn is_decision(line: &str) -> bool {
    line.starts_with(r#"{"decision""#)
}

fn stepping() -> Vec<String> {
    lines(&Plan::stepping(700, 11))
}

/// The places of the decisions.
pub(crate) fn places(lines: &[String]) -> std::ops::Range<usize> {
    let first = lines.iter().position(|line| is_decision(line)).unwrap();
    first..lines.len() - 1
}

/// The instant within a decision's id.
pub(crate) fn placed_at(line: &str) -> Timestamp {
    DecisionId::parse(decision(line)["jti"].as_str().unwrap()).unwrap().created_at()
}

/// The export that begins at an instant.
pub(crate) fn window(lines: &[String], since: Timestamp) -> Vec<String> {
    let begins = format!(r#""since":"{since}","created_at""#);
    let is_in = |line: &&String| !is_decision(line) || placed_at(line) >= since;
    let mut window: Vec<String> = lines.iter().filter(is_in).cloned().collect();
    window[0] = window[0].replacen(r#""created_at""#, &begins, 1);
    window
}

/// The line, its decision or mandate changed, and a decision signed again.
pub(crate) fn changed(line: &str, mut change: impl FnMut(&mut Value)) -> String {
    let mut line: Value = serde_json::from_str(line).unwrap();
    let name = if line["decision"].is_object() { "decision" } else { "mandate" };
    change(&mut line[name]);
    if name == "decision" { resigned(&line.to_string(), &json!({})) } else { line.to_string() }
}

/// Checks what is found when one line is changed.
#[track_caller]
fn spoilt(lines: &[String], at: usize, change: impl Fn(&mut Value), expected: &[(&str, u64)]) -> Vec<Value> {
    let mut lines = lines.to_vec();
    lines[at] = changed(&lines[at], change);
    check(&sealed(&lines), expected)
}

fn audited(lines: &[String]) -> Value {
    let mut json = run(&sealed(lines), &["--json"]).code(0).json();
    json["summary"].take()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn an_export_of_clocks_that_step_has_no_finding(seed in 0_u64..1_000_000, rows in 1_usize..300, approve_every in 0_u64..4, cut in 0_usize..300) {
        let whole = lines(&Plan { approve_every, ..Plan::stepping(rows, seed) });
        prop_assert_eq!(&audited(&whole)["openings"], 0);
        let mut command = mandate(&["simulate", "--decisions", "-", "--fail-on", "any", "--json"]);
        let ran = run_with_stdin(&mut command, sealed(&whole).as_bytes());
        prop_assert_eq!(ran.code, Some(0), "{:?}", ran);
        prop_assert_eq!(&ran.err, "");
        let json: Value = serde_json::from_str(&ran.out).unwrap();
        prop_assert!(json["summary"]["changed"] == 0 && json["summary"]["inconsistent"].is_null(), "{}", json);

        // The same from some instant on, which the export says.
        let from = places(&whole);
        let since = placed_at(&whole[from.start + cut % from.len()]);
        let part = window(&whole, since);
        let rest = u64::try_from(places(&part).len()).unwrap();
        prop_assert!(audited(&part)["openings"].as_u64().unwrap() <= rest);
        let mut command = mandate(&["simulate", "--decisions", "-", "--fail-on", "any"]);
        let ran = run_with_stdin(&mut command, sealed(&part).as_bytes());
        prop_assert!(ran.code == Some(0) && ran.err.is_empty(), "{:?}", ran);
    }

    /// Any row that is not as it was is found; so is one that is gone, unless it is its agent's last.
    #[test]
    fn a_single_change_is_found(seed in 0_u64..1_000_000, place in 0_usize..250, kind in 0..9, other in 0_usize..250) {
        let mut lines = lines(&Plan::stepping(250, seed));
        let all = places(&lines);
        let at = all.start + place % (all.len() - 1);
        let row = decision(&lines[at]);
        let mandates: Vec<Value> = lines[1..all.start].iter().filter(|line| line.starts_with(r#"{"mandate""#)).map(|line| serde_json::from_str::<Value>(line).unwrap()["mandate"].take()).collect();
        let by = u64::try_from(other).unwrap() + 1;
        match kind {
            0 => lines.swap(at, at + 1),
            1 => {
                let is_its = |line: &String| decision(line)["request"]["agent"] == row["request"]["agent"];
                prop_assume!(lines[at + 1..all.end].iter().any(is_its));
                lines.remove(at);
            }
            2 => lines.insert(at + 1 + other % (all.end - at), lines[at].clone()),
            3 => lines[at] = changed(&lines[at], |d| d["sequence"] = json!(d["sequence"].as_u64().unwrap() + by)),
            4 => {
                let decided_at = Timestamp::parse(row["decided_at"].as_str().unwrap()).unwrap();
                let later = Timestamp::from_millis(decided_at.millis() + i64::try_from(by).unwrap());
                lines[at] = changed(&lines[at], |d| d["decided_at"] = json!(later.to_string()));
            }
            5 => {
                let mandate = &mandates[other % mandates.len()]["id"];
                prop_assume!(*mandate != row["mandate"]);
                lines[at] = changed(&lines[at], |d| d["mandate"] = mandate.clone());
            }
            6 => {
                prop_assume!(!row["mandate"].is_null());
                lines[at] = changed(&lines[at], |d| { d.as_object_mut().unwrap().remove("mandate"); });
            }
            7 => lines[at] = changed(&lines[at], |d| d["basis"]["spent"] = json!(d["basis"]["spent"].as_f64().unwrap() + 0.5)),
            _ => lines[at] = changed(&lines[at], |d| d["basis"]["recent_requests"] = json!((d["basis"]["recent_requests"].as_u64().unwrap() + by % 10 + 1) % 11)),
        }
        let ran = run(&sealed(&lines), &[]);
        prop_assert_eq!(ran.code, Some(23), "{}: {:?}", kind, ran);
    }
}

#[test]
fn exports_of_clocks_that_step_have_all_that_can_go_wrong() {
    let lines = stepping();
    let all: Vec<Value> = lines[places(&lines)].iter().map(|line| decision(line)).collect();
    for verdict in ["allow", "review", "deny_no_mandate", "deny_revoked", "deny_limit", "deny_velocity"] {
        assert!(all.iter().any(|d| d["verdict"] == verdict), "{verdict}");
    }
    let years: std::collections::BTreeSet<_> =
        all.iter().map(|d| &d["decided_at"].as_str().unwrap()[..4]).collect();
    assert!(years.len() > 1, "{years:?}");
    let of = |agent: &str| all.iter().filter(|d| d["request"]["agent"] == agent).collect::<Vec<_>>();
    let falls =
        |agent: &str| of(agent).windows(2).any(|d| d[0]["decided_at"].as_str() > d[1]["decided_at"].as_str());
    assert!(["agt_0", "agt_1", "agt_2", "agt_3", "agt_4"].into_iter().all(falls));
    for name in ["revoked_after", "governed_until"] {
        assert!(lines.iter().any(|line| line.contains(name)), "{name}");
    }
}

#[test]
fn numbers_that_are_missing_repeated_or_in_another_order() {
    let lines = stepping();
    let of = |agent: &str| -> Vec<usize> {
        places(&lines).filter(|at| decision(&lines[*at])["request"]["agent"] == agent).collect()
    };
    let agent = of("agt_0");
    let without = |at: usize| [&lines[..at], &lines[at + 1..]].concat();

    // The first of an agent is number 1, unless the export begins later.
    let found = run(&sealed(&without(agent[0])), &[]).code(23);
    found.shows("agt_0 sequence 2  sequence: found 2; expected 1, the next of the agent");
    // A repetition under ids that ascend.
    let number = |at: usize| decision(&lines[at])["sequence"].as_u64().unwrap();
    let last = *agent.last().unwrap();
    let found = spoilt(&lines, last, |d| d["sequence"] = json!(number(last) - 1), &[("sequence", 1)]);
    assert_eq!(found[0]["found"], json!(format!("{0} after {0}, under a greater id", number(last) - 1)));
    // Ids that descend while the sequence ascends.
    let [a, b] = [last, agent[agent.len() - 2]];
    let mut swapped = lines.clone();
    let fresh =
        |at: usize, with: usize| changed(&lines[at], |d| d["jti"] = decision(&lines[with])["jti"].clone());
    (swapped[a], swapped[b]) = (fresh(a, b), fresh(b, a));
    run(&sealed(&swapped), &[])
        .code(23)
        .shows("under a smaller id than that before it; expected ids that ascend");
    // A filter on the verdict leaves gaps.
    let allowed = |line: &&String| !is_decision(line) || decision(line)["verdict"] == "allow";
    let mut some: Vec<String> = lines.iter().filter(allowed).cloned().collect();
    some[0] = some[0].replacen(r#""created_at""#, r#""verdict":"allow","created_at""#, 1);
    assert_eq!(audited(&some)["openings"], 0);
}

#[test]
fn an_instant_is_the_one_that_is_signed() {
    let lines = stepping();
    let at = find(&lines, |d| d["verdict"] == "allow" && !d["decided_at"].as_str().unwrap().contains(".999"));
    let moved = |millis: i64| {
        move |d: &mut Value| {
            let at = Timestamp::parse(d["decided_at"].as_str().unwrap()).unwrap();
            d["decided_at"] = json!(Timestamp::from_millis(at.millis() + millis).to_string());
        }
    };
    spoilt(&lines, at, moved(1), &[("nonce", 1)]);
    let mut later = lines.clone();
    later[at] = changed(&lines[at], moved(1_000));
    run(&sealed(&later), &[]).code(23).shows("decided_at: found ");
}

#[test]
fn a_mandate_governs_its_own_sequences_only() {
    let lines = stepping();
    let mandates: Vec<(usize, Value)> = (1..places(&lines).start)
        .map(|at| (at, serde_json::from_str::<Value>(&lines[at]).unwrap()["mandate"].take()))
        .collect();
    let of = |wanted: &dyn Fn(&Value) -> bool| mandates.iter().find(|(_, m)| wanted(m)).unwrap();
    let named = |id: &Value| places(&lines).find(|at| decision(&lines[*at])["mandate"] == *id).unwrap();
    // A decision under a mandate that was already replaced, and under one not yet written.
    let (_, old) = of(&|m| m["governed_until"].as_u64() >= Some(2) && m["revoked_after"].is_null());
    let new =
        of(&|m| m["agent"] == old["agent"] && m["governs_from"].as_u64() > old["governed_until"].as_u64());
    for (row, id, says) in [
        (named(&new.1["id"]), &old["id"], "which governed until "),
        (named(&old["id"]), &new.1["id"], "which governs from "),
    ] {
        let mut lines = lines.clone();
        lines[row] = changed(&lines[row], |d| d["mandate"] = id.clone());
        let ran = run(&sealed(&lines), &[]).code(23).shows("mandate: found ");
        ran.shows(says);
    }
    // A decision without one, where one governs.
    let row = find(&lines, |d| d["verdict"] == "deny_category" && d["supersedes"].is_null());
    let without = |d: &mut Value| {
        let reason = format!("agent {} has no mandate", d["request"]["agent"].as_str().unwrap());
        d.as_object_mut().unwrap().remove("mandate");
        d["verdict"] = json!("deny_no_mandate");
        (d["reason"], d["denials"]) = (json!(reason), json!(["deny_no_mandate"]));
        if d["basis"]["recent_requests"] == 10 {
            d["denials"] = json!(["deny_no_mandate", "deny_velocity"]);
        }
    };
    let found = spoilt(&lines, row, without, &[("mandate", 1)]);
    assert_eq!(found[0]["found"], "none");
    // Two that govern at once.
    let at = mandates.iter().find(|(_, m)| m["id"] == old["id"]).unwrap().0;
    let open = |m: &mut Value| {
        m.as_object_mut().unwrap().remove("governed_until");
    };
    let found = spoilt(&lines, at, open, &[("mandate", 1), ("mandate_record", 1)]);
    assert_eq!((&found[0]["agent"], found[0]["line"].is_u64()), (&old["agent"], true));
    assert!(found[0]["found"].as_str().unwrap().contains("governs it too"), "{found:?}");
}

#[test]
fn a_revocation_is_where_it_is_recorded() {
    let lines = stepping();
    let mandates = 1..places(&lines).start;
    let mandate = |at: usize| serde_json::from_str::<Value>(&lines[at]).unwrap()["mandate"].take();
    let rows = |m: &Value, denied: bool| {
        let is = |at: &usize| {
            let d = decision(&lines[*at]);
            d["mandate"] == m["id"] && (d["verdict"] == "deny_revoked") == denied
        };
        places(&lines).filter(is).count()
    };
    let at =
        mandates.clone().find(|at| rows(&mandate(*at), true) > 0 && rows(&mandate(*at), false) > 0).unwrap();
    let after = mandate(at)["revoked_after"].as_u64().unwrap();
    // One earlier: a decision that should deny. One later: one that should not.
    let both = [("mandate_record", 1), ("revocation", 1)];
    let found = spoilt(&lines, at, |m| m["revoked_after"] = json!(after - 1), &both);
    assert_eq!((&found[1]["sequence"], &found[1]["found"]), (&json!(after), &json!("no deny_revoked")));
    let found = spoilt(&lines, at, |m| m["revoked_after"] = json!(after + 1), &both);
    assert_eq!((&found[1]["sequence"], &found[1]["found"]), (&json!(after + 1), &json!("deny_revoked")));
    // What a mandate says of itself.
    let plain = mandates
        .clone()
        .find(|at| mandate(*at)["governed_until"].is_null() && mandate(*at)["revoked_after"].is_null())
        .unwrap();
    let from = mandate(plain)["governs_from"].as_u64().unwrap();
    let revoked = |m: &mut Value| m["revoked_at"] = json!("2026-12-31T00:00:00Z");
    let both = [("mandate", 1), ("mandate_record", 1)];
    assert_eq!(spoilt(&lines, plain, revoked, &both)[0]["found"], "revoked_at without revoked_after");
    let last = decision(
        &lines[places(&lines).rfind(|at| decision(&lines[*at])["mandate"] == mandate(plain)["id"]).unwrap()],
    );
    let behind = last["sequence"].as_u64().unwrap();
    let after = |m: &mut Value| m["revoked_after"] = json!(behind);
    assert_eq!(spoilt(&lines, plain, after, &both)[0]["found"], "revoked_after without revoked_at");
    let replaced = mandates.clone().find(|at| mandate(*at)["governed_until"].is_u64()).unwrap();
    let until = mandate(replaced)["governed_until"].as_u64().unwrap();
    let late = |m: &mut Value| {
        m["revoked_at"] = json!("2026-12-31T00:00:00Z");
        m["revoked_after"] = json!(until + 1);
    };
    let mut changed_lines = lines.clone();
    changed_lines[replaced] = changed(&lines[replaced], late);
    run(&sealed(&changed_lines), &[]).code(23).shows(&format!("revoked_after {}; expected", until + 1));
    let mut changed_lines = lines.clone();
    let later = mandates.clone().find(|at| mandate(*at)["governs_from"].as_u64() > Some(5)).unwrap();
    changed_lines[later] = changed(&lines[later], |m| m["governed_until"] = json!(2));
    run(&sealed(&changed_lines), &[]).code(23).shows("governed_until 2; expected");
    if from > 2 {
        let early = |m: &mut Value| {
            (m["revoked_at"], m["revoked_after"]) = (json!("2026-12-31T00:00:00Z"), json!(from - 2));
        };
        let mut lines = lines.clone();
        lines[plain] = changed(&lines[plain], early);
        run(&sealed(&lines), &[]).code(23).shows(&format!("revoked_after {}; expected", from - 2));
    }
}

#[test]
fn a_denial_says_which_of_its_agents_decisions_was_the_last() {
    let lines = lines(&Plan::new(300, 5));
    let with = |status: &'static str| find(&lines, |d| d["review"]["status"] == status);
    let (denied, approved) = (with("denied"), with("approved"));
    let sequence = decision(&lines[denied])["sequence"].as_u64().unwrap();
    let says = |after: u64| move |d: &mut Value| d["review"]["resolved_after"] = json!(after);
    spoilt(&lines, denied, says(sequence - 1), &[("answer_record", 1), ("review", 1)]);
    spoilt(&lines, denied, says(1_000_000), &[("answer_record", 1), ("review", 1)]);
    spoilt(&lines, approved, says(1_000_000), &[("answer_record", 1), ("review", 1)]);
    let nothing = |d: &mut Value| drop(d["review"].as_object_mut().unwrap().remove("resolved_after"));
    spoilt(&lines, denied, nothing, &[("answer_record", 1), ("review", 1)]);
    // An export with an end does not hold what came after.
    let mut early = window_until(&lines, placed_at(&lines[places(&lines).end - 1]));
    early[denied] = changed(&early[denied], says(1_000_000));
    let review = decision(&early[denied])["review"]["id"].to_string();
    let is_its = |line: &&mut String| line.starts_with(r#"{"governing""#) && line.contains(&review);
    let record = early.iter_mut().find(is_its).unwrap();
    *record = record.replacen(&format!(r#""resolved_after":{sequence}"#), r#""resolved_after":1000000"#, 1);
    run(&sealed(&early), &[]).code(0);
}

#[test]
fn fields_of_another_type_are_refused_by_name() {
    let lines = stepping();
    let at = places(&lines).start;
    let refused = |at: usize, change: &dyn Fn(&mut Value), says: &str| {
        let mut lines = lines.clone();
        lines[at] = changed(&lines[at], change);
        run(&sealed(&lines), &[]).code(23).shows(&format!("line: found {says}"));
    };
    for (value, says) in [
        (json!("1"), "decision.sequence must be a number; got a string"),
        (json!(0), "decision.sequence must be 1 or greater; got `0`"),
        (json!(1.5), "decision.sequence must be an integer"),
    ] {
        refused(at, &|d| d["sequence"] = value.clone(), says);
    }
    refused(at, &|d| d["decided_at"] = json!(7), "decision.decided_at must be a string; got a number");
    refused(at, &|d| d["decided_at"] = json!("now"), "decision.decided_at must be an RFC 3339 instant");
    let without = |name: &'static str| move |d: &mut Value| drop(d.as_object_mut().unwrap().remove(name));
    refused(at, &without("sequence"), "decision.sequence is required");
    refused(at, &without("decided_at"), "decision.decided_at is required");
    refused(1, &without("governs_from"), "mandate.governs_from is required");
    refused(1, &|m| m["governed_until"] = json!(-1), "mandate.governed_until must be 0 or greater; got `-1`");
}

#[test]
fn what_rests_on_openings_is_counted_and_said() {
    let lines = lines(&Plan::new(600, 5));
    let middle = places(&lines).start + 300;
    let part = window(&lines, placed_at(&lines[middle]));
    let text = run(&sealed(&part), &[]).code(0);
    let openings = audited(&part)["openings"].as_u64().unwrap();
    assert!((5..40).contains(&openings), "{openings}");
    text.shows(&format!("openings     {openings} decisions rest on what was before the export\n"));
    // From there on what was spent adds up again.
    let allowed = |at: &usize| decision(&part[*at])["verdict"] == "allow";
    let last = places(&part).rfind(allowed).unwrap();
    let spent = |d: &mut Value| d["basis"]["spent"] = json!(1.25);
    let found = spoilt(&part, last, spent, &[("spent", 1)]);
    assert_eq!(found[0]["found"], "1.25");
}

/// The decisions before `until`.
pub(crate) fn window_until(lines: &[String], until: Timestamp) -> Vec<String> {
    let ends = format!(r#""until":"{until}","created_at""#);
    let is_in = |line: &&String| !is_decision(line) || placed_at(line) < until;
    let mut part: Vec<_> = lines.iter().filter(is_in).cloned().collect();
    part[0] = part[0].replace(r#""created_at""#, &ends);
    part
}

#[test]
fn exports_that_adjoin_are_one() {
    let lines = lines(&Plan::new(600, 5));
    let middle = places(&lines).start + 300;
    let at = placed_at(&lines[middle]);
    let (mut earlier, later) = (window_until(&lines, at), window(&lines, at));
    let folder = tempfile::tempdir().unwrap();
    let [one, other, keys] = ["one", "other", "keys"].map(|name| folder.path().join(name));
    std::fs::write(&keys, jwks()).unwrap();
    std::fs::write(&other, sealed(&later)).unwrap();
    let audits = |files: [&Path; 2], earlier: &[String]| {
        std::fs::write(&one, sealed(earlier)).unwrap();
        let mut command = mandate(&["audit", "--issuer", ISSUER, "--json", "--jwks"]);
        Ran::from(command.arg(&keys).args(files).output().unwrap())
    };
    let whole = audits([&one, &other], &earlier).code(0).json();
    let decisions = whole["summary"]["decisions"].as_u64().unwrap();
    assert_eq!(
        (decisions, &whole["summary"]["openings"]),
        (audited(&lines)["decisions"].as_u64().unwrap(), &json!(0))
    );
    // The last decision of the agent that the later one begins with.
    let first = decision(&later[places(&later).start]);
    let agent = &first["request"]["agent"];
    let lost = places(&earlier).rfind(|at| decision(&earlier[*at])["request"]["agent"] == *agent).unwrap();
    earlier.remove(lost);
    let printed = audits([&one, &other], &earlier).code(23).out;
    let found = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["finding"].take());
    let gap = found.into_iter().find(|finding| finding["check"] == "sequence").unwrap();
    assert_eq!((&gap["agent"], &gap["sequence"]), (agent, &first["sequence"]), "{printed}");
    assert_eq!(gap["export"], other.to_str().unwrap());
    let refused = audits([&other, &one], &earlier).code(2);
    assert!(refused.err.contains("does not go on where"), "{refused:?}");
}

/// Those that other auditors go by, too.
#[test]
fn the_vectors_of_whole_exports_have_the_findings_that_they_name() {
    let file: Value =
        serde_json::from_str(include_str!("../../../mandate-core/vectors/exports.json")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    std::fs::write(&keys, file["jwks"].to_string()).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    for vector in vectors {
        let lines = vector["lines"].as_array().unwrap().iter();
        let text: String = lines.map(|line| line.as_str().unwrap().to_owned() + "\n").collect();
        let mut command = mandate(&["audit", "-", "--json", "--issuer", file["issuer"].as_str().unwrap()]);
        let wanted = vector["findings"].as_array().unwrap();
        let ran = run_with_stdin(command.arg("--jwks").arg(&keys), text.as_bytes());
        let ran = ran.code(if wanted.is_empty() { 0 } else { 23 });
        let said = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["finding"].take());
        let found: Vec<_> = said
            .filter(Value::is_object)
            .map(|found| json!({"check": found["check"], "agent": found["agent"], "sequence": found["sequence"]}))
            .collect();
        assert_eq!(found, *wanted, "{}: {}", vector["name"], ran.out);
    }
    assert_eq!(vectors.iter().filter(|vector| vector["findings"] == json!([])).count(), 1);
    assert_eq!(vectors.len(), 5);
}
