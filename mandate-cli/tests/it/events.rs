//! `mandate verify --event`: the body of a webhook's request.

use serde_json::{Value, json};

use crate::harness::{Ran, mandate, run_with_stdin};
use crate::issuer::{IAT, ISSUER, jwks_file, key, token};
use mandate_core::{EnvironmentKind, jwt};

fn event() -> String {
    let claims = json!({"iss": ISSUER, "jti": "evt_00000000000000000000000001", "iat": IAT, "type": "ping",
        "data": {"webhook": "whk_00000000000000000000000002"}});
    jwt::sign(&*key(EnvironmentKind::Production), &claims.to_string()).unwrap()
}

#[test]
fn an_event_passes_once_and_shows_type_and_data() {
    let folder = tempfile::tempdir().unwrap();
    let (jwks, path) = (jwks_file(folder.path()), folder.path().join("body.jwt"));
    std::fs::write(&path, event() + "\n").unwrap();
    let at = (IAT + 60).to_string();
    let body = format!("@{}", path.display());
    let mut command =
        mandate(&["verify", "--event", &body, "--issuer", ISSUER, "--jwks", &jwks, "--at", &at]);
    command.arg("--nonce-store").arg(folder.path().join("events.db"));
    let first = Ran::from(command.output().unwrap()).code(0);
    insta::assert_snapshot!(first.out, @r#"
    algorithm    ES256
    signature    _dW8A-GLXVqbPP-vIvMJwYatEeWuGKu-mPxI1ZmIkTs
    kind         an event
    issuer       https://verdicts.example
    environment  production
    issued_at    2026-03-01T12:00:00.000Z
    type         ping
    data         {"webhook":"whk_00000000000000000000000002"}
    replay       evt_00000000000000000000000001, seen for the first time
    VALID
    "#);
    let again = Ran::from(command.arg("--json").output().unwrap()).code(18);
    assert_eq!(again.json()["error"]["check"], "replay");
    let late = (IAT + 26 * 60 * 60).to_string();
    let mut late = mandate(&["verify", "--event", &body, "--issuer", ISSUER, "--jwks", &jwks, "--at", &late]);
    Ran::from(late.arg("--nonce-store").arg(folder.path().join("fresh.db")).output().unwrap()).code(12);
}

#[test]
fn neither_kind_passes_for_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let at = IAT.to_string();
    let verify = |args: &[&str]| -> Ran {
        mandate(&["verify", "--issuer", ISSUER, "--jwks", &jwks, "--at", &at])
            .args(args)
            .output()
            .unwrap()
            .into()
    };
    verify(&["--event", &token(json!({})), "--allow-sandbox"]).code(15).shows("must be an event");
    verify(&[&event()]).code(15).shows("must be a verdict");
    verify(&["--event", &event(), "--amount", "40"]).code(2).says("cannot be used with");
}

#[test]
fn published_vectors() {
    let text = include_str!("../../../mandate-core/vectors/events.json");
    let document: Value = serde_json::from_str(text).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let jwks = folder.path().join("jwks.json");
    std::fs::write(&jwks, document["jwks"].to_string()).unwrap();
    let mut checked = 0;
    for vector in document["vectors"].as_array().unwrap() {
        let issuer = vector["issuer"].as_str().or(document["issuer"].as_str()).unwrap();
        let mut command = mandate(&["verify", "-", "--event", "--json", "--issuer", issuer]);
        command.arg("--jwks").arg(&jwks).args(["--at", vector["now"].as_str().unwrap()]);
        command.args(["--leeway", &vector["leeway_seconds"].to_string()]);
        command.args((vector["environment"] == "sandbox").then_some("--allow-sandbox"));
        let token = format!("{}\n", vector["token"].as_str().unwrap());
        let said = run_with_stdin(&mut command, token.as_bytes()).json();
        assert_eq!(said["error"]["check"], vector["check"], "{}: {said}", vector["name"]);
        checked += 1;
    }
    assert!(checked > 15, "{checked}");
}
