//! The load command, for a second.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Ran, TestServer, binary};

fn load(server: &TestServer, args: &[&str]) -> Ran {
    let mut command = Command::new(binary("load"));
    command.env_clear().env("MANDATE_ORGANIZATION_KEY", server.ready("organization_key")).args(args);
    command.output().unwrap().into()
}

#[test]
fn every_answer_is_checked_and_counted() {
    let server = TestServer::start();
    let common =
        ["--base-url", server.ready("base_url"), "--agents", "20", "--connections", "8", "--seconds", "1"];
    let ran = load(&server, &[&common[..], &["--idempotent", "50", "--json"]].concat()).code(0);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let requests = report["requests"].as_u64().unwrap();
    let verdicts = report["verdicts"].as_object().unwrap();
    let count = |verdict: &str| verdicts.get(verdict).and_then(Value::as_u64).unwrap_or(0);
    assert_eq!(verdicts.keys().map(|verdict| count(verdict)).sum::<u64>(), requests);
    // Ten requests of each agent, at most, come before the velocity rule.
    assert!(
        (1..=200).contains(&(count("allow") + count("review"))) && count("deny_velocity") > 0,
        "{report}"
    );
    assert!(requests > 100 && report["tokens_verified"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["errors"], 0);

    let bounded =
        load(&server, &[&common[..], &["--requests", "40", "--mix", "deny_limit=1"]].concat()).code(0);
    let verdict = bounded.out.lines().find(|line| line.starts_with("deny_limit")).unwrap();
    assert_eq!(verdict.split_whitespace().collect::<Vec<_>>(), ["deny_limit", "40"]);
    let decisions = server.hold(&server.demo().client, &[server.issuer()]);
    assert!(decisions as u64 >= 40 + 100, "{decisions}");
}

#[test]
fn a_pace_is_kept_and_agents_are_known_by_their_keys() {
    let server = TestServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    let agents = ["one", "two"].map(|name| server.demo().client.post("/agents", &json!({ "name": name })));
    std::fs::write(&file, agents.map(|agent| agent.text("/agent_key")).join("\n")).unwrap();
    let (api, keys) = (server.ready("base_url"), file.to_str().unwrap());
    let args = ["--base-url", api, "--keys", keys, "--rate", "10", "--seconds", "1", "--json"];
    // They have no mandate, so that no request of theirs is answered as it was asked.
    let report: Value = serde_json::from_str(&load(&server, &args).code(1).out).unwrap();
    assert_eq!(
        (&report["agents"], &report["errors"], &report["requests"]),
        (&json!(2), &json!(10), &json!(10))
    );
    assert!(report["seconds"].as_f64().unwrap() >= 0.9, "{report}");
}

#[test]
fn no_other_machine_is_a_target() {
    let server = TestServer::start();
    for url in [
        "http://10.0.0.1/v1",
        "http://192.168.1.1:8080/v1",
        "http://[2001:db8::1]/v1",
        "https://127.0.0.1/v1",
    ] {
        let refused = load(&server, &["--base-url", url]).code(2);
        assert!(refused.err.contains("invalid value") && refused.out.is_empty(), "{refused:?}");
    }
}
