//! Mistakes that people make, and what is said of each.

use serde_json::json;

use crate::harness::{Ran, Service, mandate, organization_key, private_file, run_with_stdin};
use crate::issuer::{ISSUER, jwks_file, token, verify};

const MANDATE: &str = r#"{
  "principal": "role:finance_lead",
  "agent": "agt_buyer",
  "limits": {"per_transaction": 500, "currency": "USD"},
  "categories": ["software"],
  "expires": "2099-12-31"
}
"#;

fn ran(args: &[&str]) -> Ran {
    mandate(args).output().unwrap().into()
}

#[test]
fn a_mistake_in_a_file_is_shown_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mandate.json");
    let name = file.to_str().unwrap();
    let create = |text: String| {
        std::fs::write(&file, text).unwrap();
        ran(&["mandate", "create", "-f", name]).code(30)
    };
    let broken = create(MANDATE.replace("500,", "500"));
    assert!(broken.err.contains(&format!("  --> {name}:4:37\n")), "{broken:?}");
    let currency = create(MANDATE.replace("USD", "usd"));
    let shown = format!(
        "  --> {name}:4:38\n  4 |   \"limits\": {{\"per_transaction\": 500, \"currency\": \"usd\"}},\n    | {}^\n",
        " ".repeat(37)
    );
    assert!(currency.err.contains(&shown), "{currency:?}");
    let element = create(MANDATE.replace("\"software\"", "\"software\", \"Two words\""));
    assert!(element.err.contains(&format!("{name}:5:30\n")), "{element:?}");
    let misspelt = create(MANDATE.replace("per_transaction", "per_transacton"));
    misspelt
        .says("per_transaction is required")
        .says("did you mean    per_transaction?")
        .says(&format!("{name}:4:14"));
    create(MANDATE.replace("\"categories\"", "\"review_abov\": 20,\n  \"categories\""))
        .says("is not a known field")
        .says("did you mean    review_above?")
        .says(&format!("{name}:5:3"));
    create(MANDATE.replace("\"agent\"", "\"Agent\"")).says("did you mean    agent?");
    assert!(!create(MANDATE.replace("\"agent\"", "\"buyer\"")).err.contains("did you mean"));
    create("principal: role:finance_lead\nagent: agt_buyer\n".to_owned())
        .says("looks like YAML, and must be JSON");
    create(" \n".to_owned()).says(&format!("{name} is empty"));
    // A candidate, an order and a side of a comparison are shown in the same way.
    std::fs::write(&file, "{\n\"agent\" 1}").unwrap();
    let export = folder.path().join("export");
    std::fs::write(&export, "").unwrap();
    let candidate = ran(&["simulate", "--mandate", name, "--decisions", export.to_str().unwrap()]);
    candidate.code(30).says(&format!("{name}:2:9"));
    ran(&["mandate", "diff", name, name]).code(30).says(&format!("{name}:2:9"));
    for args in [&["apply", name][..], &["api", "post", "/mandates", "--input", name]] {
        let mut command = mandate(args);
        command.env("MANDATE_BASE_URL", "http://127.0.0.1:9/v1");
        command.env("MANDATE_ORGANIZATION_KEY", organization_key());
        Ran::from(command.output().unwrap()).code(30).says(&format!("{name}:2:9"));
    }
    let jwks = jwks_file(folder.path());
    let order: Ran = verify(&token(json!({})), &jwks).args(["--order", name]).output().unwrap().into();
    order.code(2).says(&format!("{name}:2:9"));
}

#[test]
fn empty_standard_input_is_named() {
    run_with_stdin(&mut mandate(&["mandate", "create", "-f", "-"]), b"")
        .code(30)
        .says("standard input is empty");
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    run_with_stdin(verify(&token(json!({})), &jwks).args(["--order", "-"]), b"")
        .code(2)
        .says("standard input is empty");
}

#[test]
fn a_token_that_is_none_is_told_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let said = |token: &str| Ran::from(verify(token, &jwks).output().unwrap());
    said("").code(10).says("the token is empty").says("is the variable that holds it set?");
    for scheme in ["Bearer ", "bearer "] {
        said(&format!("{scheme}{}", token(json!({})))).code(10).says("`Bearer `");
    }
    let json = Ran::from(verify("", &jwks).arg("--json").output().unwrap()).code(10).json();
    assert_eq!((&json["valid"], &json["error"]["exit_code"]), (&json!(false), &json!(10)));
}

/// No token names one, and every command that takes an issuer says so.
#[test]
fn an_issuer_with_a_slash_at_its_end_is_refused() {
    let with_slash = format!("{ISSUER}/");
    for args in [
        &["verify", "x.y.z", "--signature-only"][..],
        &["audit", "export.ndjson"],
        &["listen", "--forward-to", "http://127.0.0.1:9"],
        &["escrow", "contract", &"a".repeat(64)],
        &["doctor"],
        &["jwks", "pin"],
    ] {
        let issuer: &[&str] = if args[0] == "jwks" { &[&with_slash] } else { &["--issuer", &with_slash] };
        let refused = Ran::from(mandate(&[args, issuer].concat()).output().unwrap()).code(2);
        assert!(refused.err.contains("ends with a slash"), "{args:?}: {refused:?}");
        assert!(refused.err.contains(ISSUER), "{args:?}: {refused:?}");
    }
    let by_variable = mandate(&["doctor"]).env("MANDATE_ISSUER", &with_slash).output().unwrap();
    Ran::from(by_variable).code(2).says("ends with a slash");
}

#[test]
fn a_period_that_nothing_can_be_in_is_refused() {
    for command in [&["decision", "list"][..], &["decision", "tail"], &["export", "create"]] {
        for (since, until) in [("2026-07-01", "2026-06-01"), ("2026-06-01", "2026-06-01"), ("1h", "24h")] {
            let mut command = mandate(&[command, &["--since", since, "--until", until]].concat());
            command.env("MANDATE_BASE_URL", "http://127.0.0.1:9/v1");
            command.env("MANDATE_ORGANIZATION_KEY", organization_key());
            Ran::from(command.output().unwrap()).code(2).says("is not before --until");
        }
    }
}

#[test]
fn a_recording_that_is_empty_is_named() {
    let replay = ["replay", "-", "--forward-to", "http://127.0.0.1:9"];
    run_with_stdin(&mut mandate(&replay), b"").code(0).says("standard input is empty: nothing was sent");
}

#[test]
fn a_profile_without_an_issuer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |args: &[&str]| {
        let mut command = mandate(args);
        command.env("MANDATE_CONFIG_DIR", folder.path());
        command
    };
    let key = folder.path().join("organization.key");
    private_file(&key, &organization_key());
    // The service says where its key set is by a redirect; this one does not.
    let service = Service::new(&[("200 OK", r#"{"mode":"enforce"}"#), ("404 Not Found", "")]);
    let login = ["login", "old", "--base-url", &service.base_url(), "--key-file", key.to_str().unwrap()];
    let logged_in = Ran::from(in_folder(&login).output().unwrap()).code(0);
    logged_in.says("the service names no issuer: verify, listen and audit need --issuer URL");
    assert_eq!(service.requests().len(), 2);
    let verify = in_folder(&["verify", "x.y.z", "--signature-only"]).output().unwrap();
    Ran::from(verify).code(2).says("old knows no issuer; mandate login old asks").says("pass --issuer URL");
}
