//! `mandate mandate template`, `lint` and `diff` of files.

use serde_json::{Value, json};

use crate::harness::{Ran, mandate, run, run_with_stdin};

#[test]
fn a_template_is_a_mandate_that_the_service_would_take() {
    let text = run(&["mandate", "template", "--agent", "worker", "--currency", "EUR"]).code(0).out;
    let template: Value = serde_json::from_str(&text).unwrap();
    let expires = template["expires"].as_str().unwrap();
    let expected = format!(
        r#"{{
  "principal": "role:finance_lead",
  "agent": "agt_worker",
  "limits": {{"per_transaction": 500, "per_month": 2000, "currency": "EUR"}},
  "categories": ["software", "cloud.compute"],
  "review_above": 200,
  "expires": "{expires}"
}}
"#
    );
    assert_eq!(text, expected);
    let linted = run_with_stdin(&mut mandate(&["mandate", "lint", "--strict", "-"]), text.as_bytes());
    assert_eq!(linted.code(0).out, "ok\n");
    let by_id = run(&["mandate", "template", "--agent", "agt_worker", "--json", "--currency", "EUR"]).code(0);
    assert_eq!(by_id.json(), template);
    let field = run(&["mandate", "template", "--json=agent,limits.currency"]).code(0);
    assert_eq!(field.json(), json!({"agent": "agt_buyer", "limits.currency": "USD"}));
    run(&["mandate", "template", "--agent", "mnd_01hf7yat000000000000000007"]).code(2);
}

#[test]
fn a_template_is_explained() {
    let text = run(&["mandate", "template", "--explain"]).code(0).out;
    insta::assert_snapshot!(text);
    let explained = run(&["mandate", "template", "--explain", "--json"]).code(0).json();
    let shown: Vec<String> = explained
        .as_array()
        .unwrap()
        .iter()
        .map(|line| format!("{:<24}{}\n", line["field"].as_str().unwrap(), line["meaning"].as_str().unwrap()))
        .collect();
    assert_eq!(shown.concat(), text);
}

const FREE: &str = r#"{"principal":"role:a","agent":"agt_a","limits":{"per_transaction":500,"currency":"USD"},"categories":["a"],"expires":"2999-01-01"}"#;

#[test]
fn warnings_count_when_that_is_asked_for() {
    let lint = |args: &[&str]| -> Ran {
        run_with_stdin(&mut mandate(&[&["mandate", "lint"], args, &["-"]].concat()), FREE.as_bytes())
    };
    assert!(lint(&[]).code(0).out.ends_with("\nok, with warnings\n"));
    let strict = lint(&["--strict"]).code(30);
    assert!(
        strict
            .out
            .ends_with("\nnot ok: the service would take it, but --strict counts warnings as problems\n"),
        "{strict:?}"
    );
    for (args, passes) in
        [(&["--json=valid,passes"][..], true), (&["--json=valid,passes", "--strict"], false)]
    {
        assert_eq!(lint(args).json(), json!({"valid": true, "passes": passes}));
    }
}

#[test]
fn a_mandate_that_grants_nothing_differs_from_what_is_to_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let recorded = |status: &str| {
        let added = format!(r#"{{"id":"mnd_1","status":"{status}","created_at":"x","#);
        FREE.replacen('{', &added, 1)
    };
    let new = path("new.json", FREE);
    for (status, word) in [("revoked", "spend again"), ("replaced", "govern agt_a again")] {
        let old = path("old.json", &recorded(status));
        let ran =
            run(&["mandate", "diff", &old, &new]).code(40).shows(&format!("status: {status} -> active\n"));
        assert!(ran.out.contains(word), "{ran:?}");
        let json = run(&["mandate", "diff", &old, &new, "--json"]).code(40).json();
        assert_eq!(
            (&json[0]["field"], &json[0]["before"], &json[1]),
            (&json!("status"), &json!(status), &Value::Null)
        );
        run(&["mandate", "diff", &old, &old]).code(0).shows("no difference\n");
    }
    let expired = path("expired.json", &FREE.replace("2999", "2020"));
    run(&["mandate", "diff", &expired, &new]).code(40).shows("status: expired -> active\n");
    let active = path("active.json", &recorded("active"));
    run(&["mandate", "diff", &active, &new]).code(0).shows("no difference\n");
}
