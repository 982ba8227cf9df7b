//! `mandate audit`: a good export, and what is found of ones that are not.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::export::{ISSUER, Plan, export_id, jwks, key, lines, sealed, trailer};
use crate::harness::{Ran, mandate, run_with_stdin};
use mandate_core::es256::SecretKey;
use mandate_core::jwks::{KeySet, Kid, MAX_KEY_SET_BYTES, VerificationKey};
use mandate_core::{EnvironmentKind, jwt};

fn audit(folder: &Path) -> Command {
    let path = folder.join("jwks.json");
    std::fs::write(&path, jwks()).unwrap();
    let mut command = mandate(&["audit", "-", "--issuer", ISSUER]);
    command.arg("--jwks").arg(path);
    command
}

pub(crate) fn run(text: &str, args: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    run_with_stdin(audit(folder.path()).args(args), text.as_bytes())
}

fn export() -> Vec<String> {
    lines(&Plan::new(1200, 3))
}

pub(crate) fn decision(line: &str) -> Value {
    let mut line: Value = serde_json::from_str(line).unwrap();
    line["decision"].take()
}

/// The line of the first decision that is as wanted, not too near the beginning.
#[track_caller]
pub(crate) fn find(lines: &[String], wanted: impl Fn(&Value) -> bool) -> usize {
    let fits = |line: &&String| line.starts_with(r#"{"decision""#) && wanted(&decision(line));
    let skipped = 200 + lines.iter().position(|line| line.starts_with(r#"{"decision""#)).unwrap();
    skipped + lines.iter().skip(skipped).position(|line| fits(&line)).unwrap()
}

pub(crate) fn allowed(d: &Value) -> bool {
    d["verdict"] == "allow" && d["supersedes"].is_null() && d["request"]["agent"] == "agt_4"
}

/// Signs the decision of a line anew, with changes to its claims.
pub(crate) fn resigned(line: &str, changes: &Value) -> String {
    let mut decision = decision(line);
    for (name, value) in changes.as_object().unwrap() {
        decision[name] = value.clone();
    }
    let names = ["iss", "jti", "iat", "exp", "verdict", "mandate", "policy_version", "nonce", "request"];
    let claims: Value = names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), decision.get(name)?.clone())))
        .collect::<serde_json::Map<_, _>>()
        .into();
    decision["verdict_token"] = json!(jwt::sign(&*key(), &claims.to_string()).unwrap());
    json!({ "decision": decision }).to_string()
}

/// Checks that exactly these checks find something, each as often as it says.
#[track_caller]
pub(crate) fn check(text: &str, expected: &[(&str, u64)]) -> Vec<Value> {
    let ran = run(text, &["--json"]).code(23);
    let mut said: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = said.pop().unwrap();
    let by_check: BTreeMap<String, u64> =
        serde_json::from_value(summary["summary"]["by_check"].clone()).unwrap();
    let expected: BTreeMap<String, u64> = expected.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
    assert_eq!(by_check, expected, "{said:#?}");
    said.into_iter().map(|mut line| line["finding"].take()).collect()
}

#[test]
fn a_whole_export_has_no_findings() {
    let export = export();
    for name in ["allow", "review", "deny_category", "deny_limit", "deny_revoked", "deny_velocity"] {
        find(&export, |d| d["verdict"] == name);
    }
    find(&export, |d| d["supersedes"].is_string());
    let text = export.join("\n") + "\n";
    let decisions = export.iter().filter(|line| line.starts_with(r#"{"decision""#)).count();
    let ran = run(&text, &[]).code(0);
    assert_eq!(
        (ran.out.as_str(), ran.err.as_str()),
        (
            format!(
                "environment  sandbox - not real money\ndecisions    {decisions}\nmandates     6\n\
                 NOTHING FOUND: every signature and every verdict holds\n"
            )
            .as_str(),
            ""
        )
    );
    let json = run(&text, &["--json"]).code(0).json();
    assert_eq!(
        json,
        json!({"summary": {
            "environment": "sandbox", "decisions": decisions, "mandates": 6, "outside": 0, "openings": 0,
            "findings": 0, "by_check": {},
        }})
    );
}

#[test]
fn a_row_that_says_other_than_its_token() {
    let mut lines = export();
    let at = find(&lines, allowed);
    let id = decision(&lines[at])["jti"].clone();
    lines[at] = lines[at].replace("vendor:acme", "vendor:evil");
    let sequence = decision(&lines[at])["sequence"].clone();
    let found = check(&sealed(&lines), &[("claims", 1)]);
    assert_eq!(
        found,
        [
            json!({"line": at + 1, "id": id, "agent": "agt_4", "sequence": sequence, "check": "claims", "found": "recipient vendor:evil",
            "expected": "vendor:acme, as it is signed"})
        ]
    );
    let text = run(&sealed(&lines), &[]).code(23);
    let id = id.as_str().unwrap();
    text.shows(&format!(
        "line {}  {id}  agt_4 sequence {sequence}  claims: found recipient vendor:evil; expected vendor:acme, as it is signed\n",
        at + 1
    ))
    .shows("\n1 FINDINGS: claims 1\n");
}

#[test]
fn a_signature_that_is_not_the_issuers() {
    let mut lines = export();
    let at = find(&lines, allowed);
    let token = decision(&lines[at])["verdict_token"].as_str().unwrap().to_owned();
    let other = decision(&lines[find(&lines, |d| d["verdict"] == "review")])["verdict_token"]
        .as_str()
        .unwrap()
        .to_owned();
    let (input, _) = token.rsplit_once('.').unwrap();
    let (_, signature) = other.rsplit_once('.').unwrap();
    lines[at] = lines[at].replace(&token, &format!("{input}.{signature}"));
    check(&sealed(&lines), &[("signature", 1)]);
}

#[test]
fn a_basis_that_the_decisions_before_do_not_give() {
    let lines = export();
    let at = find(&lines, |d| allowed(d) && d["basis"]["recent_requests"] == 0);
    let change = |name: &str, value: f64| {
        let mut lines = lines.clone();
        let mut decision = decision(&lines[at]);
        decision["basis"][name] = json!(value);
        if name == "recent_requests" {
            decision["basis"][name] = json!(5);
        }
        lines[at] = json!({ "decision": decision }).to_string();
        sealed(&lines)
    };
    let found = check(&change("spent", 1.5), &[("spent", 1)]);
    assert_eq!(found[0]["found"], "1.5");
    let found = check(&change("recent_requests", 5.0), &[("recent_requests", 1)]);
    assert_eq!((&found[0]["line"], &found[0]["found"]), (&json!(at + 1), &json!("5")));
}

#[test]
fn a_verdict_that_the_engine_does_not_give() {
    let mut lines = export();
    let at = find(&lines, |d| d["verdict"] == "deny_category" && d["request"]["agent"] == "agt_4");
    let signed = resigned(&lines[at], &json!({"verdict": "allow"}));
    lines[at] = signed;
    // What it allowed was not spent, either.
    let found = check(&sealed(&lines), &[("spent", 1), ("verdict", 1)]);
    assert_eq!((&found[0]["found"], &found[0]["expected"]), (&json!("allow"), &json!("deny_category")));
}

#[test]
fn reasons_and_denials_are_computed_again() {
    let mut lines = export();
    let at = find(&lines, |d| d["verdict"] == "deny_limit" && d["denials"].as_array().unwrap().len() == 1);
    let mut spoilt = decision(&lines[at]);
    spoilt["reason"] = json!("because");
    lines[at] = json!({ "decision": spoilt }).to_string();
    check(&sealed(&lines), &[("reason", 1)]);
    spoilt["denials"] = json!(["deny_limit", "deny_velocity"]);
    lines[at] = json!({ "decision": spoilt }).to_string();
    check(&sealed(&lines), &[("denials", 1), ("reason", 1)]);
}

#[test]
fn a_mandate_that_was_changed_afterwards() {
    let mut lines = export();
    let at = lines.iter().position(|line| line.contains(r#""agent":"agt_4""#)).unwrap();
    assert!(lines[at].starts_with(r#"{"mandate""#));
    lines[at] = lines[at].replace(r#"["software","cloud"]"#, r#"["software","cloud","travel"]"#);
    let text = sealed(&lines);
    let summary = run(&text, &["--json"]).code(23);
    assert!(summary.out.contains(r#""check":"verdict","found":"deny_category","expected":"allow""#));
    lines.remove(at);
    run(&sealed(&lines), &[]).code(23).shows("which is not in the export; expected one that is");
}

#[test]
fn a_revocation_that_is_hidden() {
    let mut lines = export();
    let at = lines.iter().position(|line| line.contains("revoked_at")).unwrap();
    let mut line: Value = serde_json::from_str(&lines[at]).unwrap();
    for name in ["revoked_at", "revoked_after"] {
        line["mandate"].as_object_mut().unwrap().remove(name);
    }
    lines[at] = line.to_string();
    let ran = run(&sealed(&lines), &[]).code(23).shows("revocation: found deny_revoked; expected ");
    assert!(!ran.out.contains("spent"), "{}", ran.out);
}

#[test]
fn order_and_duplicates() {
    let lines = export();
    let is = |n: usize, agent: &str| decision(&lines[n])["request"]["agent"] == agent;
    let at = (200..lines.len()).find(|n| is(*n, "agt_4") && is(n + 1, "agt_0")).unwrap();
    let mut swapped = lines.clone();
    swapped.swap(at, at + 1);
    check(&sealed(&swapped), &[("order", 1)]);

    let denied = find(&lines, |d| d["verdict"] == "deny_category" && d["basis"]["recent_requests"] == 0);
    let mut twice = lines.clone();
    twice.insert(denied + 1, lines[denied].clone());
    let found = check(&sealed(&twice), &[("order", 1)]);
    assert_eq!(found[0]["found"], "the decision before, again");
}

#[test]
fn a_repeated_nonce_is_found() {
    let mut lines = export();
    // What comes of an approval is decided in the millisecond of the next request.
    let first = find(&lines, |d| d["supersedes"].is_string());
    let (at, good) = (first + 1, lines[first + 1].clone());
    let [before, twin] = [first, at].map(|n| decision(&lines[n]));
    assert_eq!(before["decided_at"], twin["decided_at"]);
    lines[at] = resigned(&good, &json!({ "nonce": before["nonce"] }));
    let found = check(&sealed(&lines), &[("nonce", 1)]);
    assert!(found[0]["found"].as_str().unwrap().ends_with(&format!(", that of line {at}")), "{found:?}");
    let other = decision(&lines[at - 150])["nonce"].clone();
    lines[at] = resigned(&good, &json!({ "nonce": other }));
    let found = check(&sealed(&lines), &[("nonce", 1)]);
    assert!(found[0]["found"].as_str().unwrap().contains(", of 2026-01-20T"), "{found:?}");
}

#[test]
fn the_chain_of_approvals() {
    let lines = export();
    let at = find(&lines, |d| d["supersedes"].is_string());
    let original = decision(&lines[at])["supersedes"].as_str().unwrap().to_owned();
    // It names another decision.
    let other = decision(&lines[at - 1])["jti"].as_str().unwrap().to_owned();
    let mut spoilt = lines.clone();
    spoilt[at] = lines[at].replace(&original, &other);
    check(&sealed(&spoilt), &[("supersedes", 1)]);
    // The review does not name it.
    let of = lines.iter().position(|line| line.contains(&format!(r#""jti":"{original}""#))).unwrap();
    let mut spoilt = lines.clone();
    let mut decision = decision(&lines[of]);
    let after = &decision["sequence"];
    decision["review"] = json!({"id": decision["review"]["id"], "status": "denied", "resolved_after": after});
    spoilt[of] = json!({ "decision": decision }).to_string();
    // It has neither who answered nor what became of it.
    let found = check(&sealed(&spoilt), &[("answer_record", 4), ("supersedes", 1)]);
    let found: Vec<_> = found.iter().filter(|found| found["check"] == "supersedes").collect();
    assert_eq!(found[0]["found"], json!(original));
    // What was approved has not come.
    let mut spoilt = lines.clone();
    spoilt.remove(at);
    let found = run(&sealed(&spoilt), &["--json"]).code(23);
    assert!(found.out.contains(r#""check":"supersedes","found":"an approval""#), "{}", found.out);
}

#[test]
fn a_missing_row_is_reported_once() {
    let mut lines = export();
    let at = find(&lines, |d| allowed(d) && d["basis"]["recent_requests"] == 0);
    let missing = decision(&lines[at])["sequence"].as_u64().unwrap();
    let seal = lines.last().unwrap().clone();
    lines.remove(at);
    let found = check(&sealed(&lines), &[("sequence", 1)]);
    assert_eq!((&found[0]["agent"], &found[0]["sequence"]), (&json!("agt_4"), &json!(missing + 1)));
    assert_eq!(found[0]["expected"], format!("{missing}, the next of the agent"));
    // Under its first trailer the file says so itself.
    *lines.last_mut().unwrap() = seal;
    let text = lines.join("\n") + "\n";
    let found = run(&text, &["--json"]).code(23);
    assert!(found.out.contains(r#""check":"rows""#) && found.out.contains(r#""check":"sha256""#));
}

#[test]
fn the_trailer() {
    let lines = export();
    let whole = lines.join("\n") + "\n";
    let (last, before) = lines.split_last().unwrap();
    let before = before.join("\n") + "\n";
    let rows = lines.iter().filter(|line| line.starts_with(r#"{"decision""#)).count();
    check(&before, &[("trailer", 1)]);
    check(&format!("{whole}{last}\n"), &[("trailer", 1), ("sha256", 1)]);
    check(&format!("{before}{}\n", trailer(export_id(), rows, &[0; 32])), &[("sha256", 1)]);
    check(&format!("{before}{{\"trailer\":\"a.b.c\"}}\n"), &[("trailer", 1)]);
    let of_another = mandate_core::ExportId::new(mandate_core::Timestamp::from_seconds(0), 9);
    check(&format!("{before}{}\n", trailer(of_another, rows, &[0; 32])), &[("sha256", 1), ("trailer", 1)]);
    check(
        &whole.replacen("agt_", "agt_x", 1),
        &[("sha256", 1), ("mandate", mandates_of(&lines)), ("mandate_record", 1)],
    );
    check(&format!("{before}nonsense\n{last}\n"), &[("line", 1), ("sha256", 1)]);
}

/// How many decisions were made under the first mandate.
fn mandates_of(lines: &[String]) -> u64 {
    let first: Value = serde_json::from_str(&lines[1]).unwrap();
    let id = first["mandate"]["id"].clone();
    let under = |line: &&String| line.starts_with(r#"{"decision""#) && decision(line)["mandate"] == id;
    u64::try_from(lines.iter().filter(under).count()).unwrap()
}

#[test]
fn an_archive_may_hold_any_number_of_keys() {
    let verification_key = |n: u32| {
        let mut secret = [1; 32];
        secret[..4].copy_from_slice(&n.to_be_bytes());
        let public = *SecretKey::from_bytes(secret).unwrap().public_key();
        VerificationKey::new(Kid::for_key(&public, EnvironmentKind::Sandbox), public).unwrap()
    };
    let own = KeySet::parse(jwks().as_bytes()).unwrap();
    let keys = own.iter().cloned().chain((0..400).map(verification_key)).collect();
    let archive = KeySet::archive(keys).unwrap().to_json();
    assert!(archive.len() > MAX_KEY_SET_BYTES);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("archive.json");
    std::fs::write(&path, archive).unwrap();
    let mut command = mandate(&["audit", "-", "--issuer", ISSUER, "--jwks"]);
    let text = export().join("\n") + "\n";
    run_with_stdin(command.arg(&path), text.as_bytes()).code(0);
}

#[test]
fn other_keys_other_issuers_and_what_is_no_export() {
    let text = export().join("\n") + "\n";
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.json");
    std::fs::write(&empty, r#"{"keys":[]}"#).unwrap();
    let retired = folder.path().join("retired.json");
    std::fs::write(&retired, jwks()).unwrap();
    let mut command = mandate(&["audit", "-", "--issuer", ISSUER, "--jwks"]);
    run_with_stdin(command.arg(&empty), text.as_bytes()).code(23).shows("the key set has no key");
    // The key sets of all times together.
    run_with_stdin(command.arg("--jwks").arg(&retired), text.as_bytes()).code(0);
    let mut other = mandate(&["audit", "-", "--issuer", "https://other.example", "--jwks"]);
    run_with_stdin(other.arg(&retired), text.as_bytes()).code(23).shows("the issuer must be");
    run_with_stdin(other.args(["--issuer", ISSUER]), text.as_bytes()).code(0);
    run("decision,iat\n", &[]).code(23).says("is no export");
    run("", &[]).code(23).says("it is empty");
    mandate(&["audit", "/nowhere", "--issuer", ISSUER, "--jwks", retired.to_str().unwrap()])
        .output()
        .map(Ran::from)
        .unwrap()
        .code(3);
}
