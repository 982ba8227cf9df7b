//! `mandate verify`: every check, every exit code, every place that a key set comes from.

use mandate_core::{EnvironmentKind, jwt};
use serde_json::{Value, json};

use crate::harness::{Ran, Service, mandate, run_with_stdin};
use crate::issuer::{
    IAT, ISSUER, MANDATE, NONCE, PAYMENT, claims, jwks, jwks_file, key, token, verify, verify_at,
};

fn ran(command: &mut std::process::Command) -> Ran {
    command.output().unwrap().into()
}

#[test]
fn a_valid_verdict_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let nonces = folder.path().join("nonces");
    let mut command = verify(&token(json!({})), &jwks);
    command.args([
        "--amount",
        "40.00",
        "--currency",
        "USD",
        "--recipient",
        "vendor:acme",
        "--mandate",
        MANDATE,
    ]);
    command.arg("--nonce-store").arg(&nonces);
    let kid = key(EnvironmentKind::Sandbox).kid().to_string();
    let all = format!(
        "\
algorithm    ES256
signature    {kid}
kind         a verdict
issuer       {ISSUER}
environment  sandbox - not real money
issued_at    2026-03-01T12:00:00.000Z
expiry       2026-03-01T12:05:00.000Z
verdict      allow
amount       40
currency     USD
recipient    vendor:acme
mandate      {MANDATE}
replay       {NONCE}, seen for the first time
VALID, sandbox - not real money
"
    );
    let first = ran(&mut command).code(0);
    assert_eq!((first.out, first.err.as_str()), (all.clone(), ""));
    let again = ran(&mut command).code(18);
    let start = all.split_once("replay").unwrap().0;
    let end = format!(
        "replay       this is a replay: `{NONCE}` was seen before\nNOT VALID (replay): the token was used before; ask for a new verdict; do not deliver\n"
    );
    assert_eq!(again.out, format!("{start}{end}"));
}

#[test]
fn what_is_not_compared_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let production = jwt::sign(&*key(EnvironmentKind::Production), &claims(json!({})).to_string()).unwrap();
    let not_compared = "amount, currency, recipient, nonce";
    let end = format!(
        "\
verdict      allow
amount       40 (not compared)
currency     USD (not compared)
recipient    vendor:acme (not compared)
mandate      {MANDATE} (not compared)
replay       {NONCE} (not compared)
SIGNATURE VALID; NOT COMPARED: {not_compared}
"
    );
    let refused = ran(&mut verify(&production, &jwks)).code(26).says("--nonce-store FILE");
    assert!(refused.out.ends_with(&end), "{refused:?}");
    assert!(
        refused.out.contains("environment  production\n") && !refused.out.contains("sandbox"),
        "{refused:?}"
    );
    // For reading alone the same is enough.
    let read = ran(verify(&production, &jwks).arg("--signature-only")).code(0);
    assert_eq!((read.out, read.err.as_str()), (refused.out, ""));
}

/// What of the payment was compared, and where the nonce is kept, decides between 0 and 26.
#[test]
fn only_a_verdict_that_was_compared_in_full_ends_with_0() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let token = token(json!({}));
    let json = |args: &[&str], code| ran(verify(&token, &jwks).args(args).arg("--json")).code(code).json();
    let elsewhere = ["--nonce-elsewhere"];
    for parts in 0..8_usize {
        let given: Vec<usize> = (0..3).filter(|part| parts & (1 << part) != 0).collect();
        let args: Vec<&str> =
            given.iter().flat_map(|part| &PAYMENT[2 * part..2 * part + 2]).copied().collect();
        let name = |part: &usize| PAYMENT[2 * part].trim_start_matches('-');
        let missing: Vec<&str> = [0, 1, 2].iter().filter(|part| !given.contains(part)).map(name).collect();
        let code = if missing.is_empty() { 0 } else { 26 };
        let kept = json(&[&args[..], &elsewhere].concat(), code);
        assert_eq!(kept["valid"], missing.is_empty(), "{kept}");
        assert_eq!(kept["compared"], json!(given.iter().map(name).collect::<Vec<_>>()));
        assert_eq!(kept["not_compared"], json!(missing));
        let replay = &kept["checks"].as_array().unwrap()[12];
        assert_eq!((&replay["check"], &replay["status"]), (&json!("replay"), &json!("elsewhere")));
        // Without a word on the nonce it is missing as well.
        let unsaid = json(&args, 26);
        assert_eq!(unsaid["not_compared"], json!([&missing[..], &["nonce"]].concat()));
        assert_eq!(
            (&unsaid["error"]["check"], &unsaid["error"]["exit_code"]),
            (&json!("not_compared"), &json!(26))
        );
        assert!(unsaid["claims"]["nonce"].is_string(), "{unsaid}");
    }
    let nonces = folder.path().join("nonces");
    let stored = [&PAYMENT[..], &["--mandate", MANDATE, "--nonce-store", nonces.to_str().unwrap()]].concat();
    let claimed = json(&stored, 0);
    assert_eq!(claimed["compared"], json!(["amount", "currency", "recipient", "mandate", "nonce"]));
    assert_eq!(claimed["not_compared"], json!([]));
    let read = json(&["--signature-only"], 0);
    assert_eq!(
        (&read["valid"], &read["not_compared"]),
        (&json!(true), &json!(["amount", "currency", "recipient", "nonce"]))
    );
    for both in [["--signature-only", "--nonce-elsewhere"], ["--event", "--signature-only"]] {
        ran(verify(&token, &jwks).args(both)).code(2).says("cannot be used with");
    }
}

#[test]
fn an_order_is_one_json() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let token = token(json!({}));
    let file = folder.path().join("order.json");
    let order = |text: &str| {
        std::fs::write(&file, text).unwrap();
        ran(verify(&token, &jwks).arg("--order").arg(&file).arg("--nonce-elsewhere"))
    };
    let payment = r#""amount": 40.00, "currency": "USD", "recipient": "vendor:acme""#;
    order(&format!("{{{payment}}}\n"))
        .code(0)
        .shows("(not compared)\nreplay")
        .shows("(kept elsewhere)\nVALID");
    let whole = order(&format!("{{\"id\": 7, {payment}, \"mandate\": \"{MANDATE}\"}}")).code(0);
    assert!(!whole.out.contains("not compared"), "{whole:?}");
    order(&format!("{{{}}}", payment.replace("40.00", "40.01"))).code(17).shows("NOT VALID (amount)");
    order(&format!("{{{}}}", payment.replace("currency", "curency"))).code(2).says("curency");
    order(r#"{"amount": 40}"#).code(2).says("currency is required");
    let order = format!("{{{payment}}}");
    run_with_stdin(verify(&token, &jwks).args(["--order", "-", "--nonce-elsewhere"]), order.as_bytes())
        .code(0);
    ran(verify("-", &jwks).args(["--order", "-"])).code(2).says("the order and what is verified cannot both");
    ran(verify(&token, &jwks).args(["--order", "/nowhere", "--amount", "40"]))
        .code(2)
        .says("cannot be used with");
}

#[test]
fn json_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let kid = key(EnvironmentKind::Sandbox).kid().to_string();
    let valid = ran(verify(&token(json!({})), &jwks).args(["--json", "--amount", "40"])).code(26);
    assert_eq!(
        valid.json(),
        json!({"valid": false, "compared": ["amount"], "not_compared": ["currency", "recipient", "nonce"], "error": {
            "check": "not_compared",
            "message": "the signature is valid; not compared with anything: currency, recipient, nonce",
            "exit_code": 26,
        }, "claims": claims(json!({})), "checks": [
            {"check": "algorithm", "status": "passed", "value": "ES256"},
            {"check": "signature", "status": "passed", "value": kid},
            {"check": "kind", "status": "passed", "value": "a verdict"},
            {"check": "issuer", "status": "passed", "value": ISSUER},
            {"check": "environment", "status": "noted", "value": "sandbox - not real money"},
            {"check": "issued_at", "status": "passed", "value": "2026-03-01T12:00:00.000Z"},
            {"check": "expiry", "status": "passed", "value": "2026-03-01T12:05:00.000Z"},
            {"check": "verdict", "status": "passed", "value": "allow"},
            {"check": "amount", "status": "passed", "value": "40"},
            {"check": "currency", "status": "not_compared", "value": "USD"},
            {"check": "recipient", "status": "not_compared", "value": "vendor:acme"},
            {"check": "mandate", "status": "not_compared", "value": MANDATE},
            {"check": "replay", "status": "not_compared", "value": NONCE},
        ]})
    );
    let refused = ran(verify(&token(json!({"iss": "https://other.example"})), &jwks).arg("--json")).code(14);
    let message = "the issuer must be `https://verdicts.example`; the token has `https://other.example`";
    assert_eq!(
        refused.json(),
        json!({"valid": false, "error": {"check": "issuer", "message": message, "exit_code": 14}, "checks": [
            {"check": "algorithm", "status": "passed", "value": "ES256"},
            {"check": "signature", "status": "passed", "value": kid},
            {"check": "kind", "status": "passed", "value": "a verdict"},
            {"check": "issuer", "status": "failed", "value": message},
        ]})
    );
}

/// Checks exit code and name of the failed check, as text and as JSON, and that no other check is said to have failed.
#[track_caller]
fn check(token: &str, args: &[&str], code: i32, name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let text = ran(verify(token, &jwks).args(args)).code(code).shows(&format!("\nNOT VALID ({name}): the "));
    assert!(!text.out.contains("\nVALID"), "{text:?}");
    let json = ran(verify(token, &jwks).args(args).arg("--json")).code(code).json();
    assert_eq!((&json["valid"], &json["error"]["check"]), (&json!(false), &json!(name)), "{json}");
    assert_eq!((&json["error"]["exit_code"], &json["claims"]), (&json!(code), &Value::Null));
    let checks = json["checks"].as_array().unwrap();
    let failed = checks.iter().position(|c| c["status"] == "failed").unwrap();
    assert_eq!((failed, &checks[failed]["check"]), (checks.len() - 1, &json!(name)), "{json}");
}

#[test]
fn every_failure_has_its_code() {
    let good = token(json!({}));
    let (input, signature) = good.rsplit_once('.').unwrap();
    let (header, body) = input.split_once('.').unwrap();
    let other = token(json!({"nonce": "n_00000000000000000000000004"}));
    let event = json!({"iss": ISSUER, "jti": "evt_00000000000000000000000001", "iat": IAT, "type": "ping", "data": {}});
    let event = jwt::sign(&*key(EnvironmentKind::Sandbox), &event.to_string()).unwrap();

    check(&format!("{good} "), &[], 10, "encoding");
    check(&format!("{good}="), &[], 10, "encoding");
    check(&"a".repeat(16_385), &[], 10, "size");
    check(&format!("eyJhbGciOiJub25lIn0.{body}.{signature}"), &[], 10, "algorithm");
    check(&token(json!({"exp": IAT + 301})), &[], 10, "claims");
    check(&token(json!({"nonce": null})), &[], 10, "claims");
    check(&format!("{header}.{}.{signature}", other.split('.').nth(1).unwrap()), &[], 11, "signature");
    check(&token(json!({"iss": "https://verdicts.example/"})), &[], 14, "issuer");
    check(&event, &[], 15, "kind");
    check(&token(json!({"verdict": "review"})), &[], 16, "verdict");
    check(&token(json!({"verdict": "deny_no_mandate", "mandate": null})), &[], 16, "verdict");
    check(&good, &["--amount", "40.01"], 17, "amount");
    check(&good, &["--amount", "40", "--currency", "JPY"], 17, "currency");
    check(&good, &["--recipient", "vendor:Acme"], 17, "recipient");
    check(&good, &["--mandate", "mnd_00000000000000000000000009"], 17, "mandate");
}

#[test]
fn a_key_that_is_not_in_the_set_verifies_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.json");
    std::fs::write(&empty, r#"{"keys":[]}"#).unwrap();
    let ran = ran(&mut verify(&token(json!({})), empty.to_str().unwrap())).code(11);
    assert!(ran.out.starts_with("algorithm    ES256\nunknown_key  the key set has no key"), "{ran:?}");
}

#[test]
fn leeway_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    for (at, leeway, code) in [
        (IAT, "0", 0),
        (IAT + 299, "0", 0),
        (IAT + 300, "0", 12),
        (IAT - 1, "0", 13),
        (IAT + 304, "5", 0),
        (IAT + 329, "30", 0),
        (IAT + 330, "30", 12),
        (IAT - 30, "30", 0),
        (IAT - 31, "30", 13),
    ] {
        let ran = ran(verify_at(&token(json!({})), &jwks, at).args([
            "--signature-only",
            "--leeway",
            leeway,
            "--json",
        ]))
        .code(code);
        let check = match code {
            12 => json!("expiry"),
            13 => json!("issued_at"),
            _ => Value::Null,
        };
        assert_eq!(ran.json()["error"]["check"], check);
    }
    let verify_now = |args: &[&str]| {
        ran(mandate(&["verify", &token(json!({})), "--issuer", ISSUER, "--jwks", &jwks, "--allow-sandbox"])
            .args(args))
    };
    verify_now(&[]).code(12).shows("the token has expired");
    verify_now(&["--signature-only", "--at", "2026-03-01T13:00:00+01:00"]).code(0);
    for (option, value, message) in [
        ("--leeway", "31", "leeway must be from 0 to 30 seconds"),
        ("--leeway", "-1", "leeway must be from 0 to 30 seconds"),
        ("--leeway", "1.5", "must be whole seconds"),
        ("--at", "noon", "time must be an RFC 3339 instant"),
        ("--amount", "1,5", "amount must be a number"),
        ("--mandate", "mnd_1", "must be `mnd_` and 26 characters"),
    ] {
        verify_now(&[option, value]).code(2).says(message);
    }
}

#[test]
fn a_token_from_standard_input_may_end_in_one_line_break() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let token = token(json!({}));
    for (text, code) in [
        (token.clone(), 0),
        (format!("{token}\n"), 0),
        (format!("{token}\r\n"), 0),
        (format!("{token}\n\n"), 10),
        (format!("{token} \n"), 10),
        (format!("\u{feff}{token}"), 10),
        (String::new(), 10),
    ] {
        run_with_stdin(verify("-", &jwks).arg("--signature-only"), text.as_bytes()).code(code);
    }
    run_with_stdin(&mut verify("-", &jwks), "a".repeat(100_000).as_bytes()).code(10);
}

#[test]
fn the_key_set_is_fetched_from_the_issuer() {
    let published = "200 OK\r\ncache-control: public, max-age=300";
    let jwks = jwks();
    for how in ["option", "variable", "its key set's address", "a variable with it"] {
        let service = Service::new(&[(published, &jwks)]);
        let token = token(json!({"iss": service.address()}));
        let url = format!("{}/.well-known/jwks.json", service.address());
        let mut command =
            mandate(&["verify", "--signature-only", &token, "--allow-sandbox", "--at", &IAT.to_string()]);
        match how {
            "option" => command.args(["--issuer", service.address()]).env("MANDATE_JWKS", "/nowhere"),
            "variable" => command.env("MANDATE_ISSUER", service.address()),
            "its key set's address" => command.args(["--jwks", &url]),
            _ => command.env("MANDATE_JWKS", &url),
        };
        ran(&mut command).code(0).shows(&format!("issuer       {}\n", service.address()));
        let request = service.request();
        assert_eq!(request.line, "GET /.well-known/jwks.json HTTP/1.1", "{how}");
        assert_eq!(request.header("authorization"), None);
    }
}

#[test]
fn a_key_set_that_cannot_be_had_is_19() {
    let too_long = format!("{}{}", jwks(), " ".repeat(65_536));
    let private = jwks().replacen("\"kty\"", "\"d\":\"AA\",\"kty\"", 1);
    for (status, body, message) in [
        ("404 Not Found", "{}", "HTTP 404"),
        ("500 Internal Server Error", "{}", "HTTP 500"),
        (
            "308 Permanent Redirect\r\nlocation: https://elsewhere.example/jwks.json",
            "",
            "points to       https://elsewhere.example/jwks.json",
        ),
        ("200 OK", "<html>", "the key set is refused: key set must be JSON"),
        ("200 OK", private.as_str(), "keys[0].d is part of a secret key"),
        ("200 OK", too_long.as_str(), "cannot be fetched"),
    ] {
        let service = Service::new(&[(status, body)]);
        let jwks = format!("{}/keys", service.address());
        let text = ran(&mut verify(&token(json!({})), &jwks)).code(19).says(message);
        assert_eq!(text.out, "");
        service.requests();
    }
    for place in ["/nowhere/jwks.json", "/dev/zero", "http://127.0.0.1:1/jwks.json"] {
        let ran = ran(verify(&token(json!({})), place).arg("--json")).code(19).says(place);
        assert_eq!((&ran.json()["valid"], &ran.json()["error"]["exit_code"]), (&json!(false), &json!(19)));
    }
}

#[test]
fn without_issuer_or_keys_it_says_what_to_pass() {
    let token = token(json!({}));
    for (args, message) in [
        (vec![], "pass --issuer URL (its keys are then fetched), or --issuer URL and --jwks FILE"),
        (vec!["--jwks", "keys.json"], "pass --issuer URL, or set MANDATE_ISSUER"),
        (vec!["--jwks", "https://verdicts.example/keys"], "pass --issuer URL"),
        (vec!["--issuer", "http://verdicts.example"], "http is accepted for this machine only"),
        (vec!["--issuer", "verdicts"], "it must be a complete URL: https://"),
        (
            vec!["--issuer", ISSUER, "--jwks", "ftp://verdicts.example/keys"],
            "it must be a complete URL: https://",
        ),
    ] {
        let ran = ran(mandate(&["verify", &token]).args(args)).code(2).says(message);
        assert_eq!(ran.out, "");
    }
}

#[test]
fn published_vectors() {
    let document: Value =
        serde_json::from_str(include_str!("../../../mandate-core/vectors/verdicts.json")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let jwks = folder.path().join("jwks.json");
    std::fs::write(&jwks, document["jwks"].to_string()).unwrap();
    let mut checked = 0;
    // The sandbox alone cannot be asked for here: to allow it is to allow production, too.
    let asks_for_sandbox = |v: &&Value| v["environment"] == "sandbox" && v["check"] == "environment";
    for vector in document["vectors"].as_array().unwrap().iter().filter(|v| !asks_for_sandbox(v)) {
        let issuer = vector["issuer"].as_str().or(document["issuer"].as_str()).unwrap();
        let mut command = mandate(&["verify", "-", "--json", "--issuer", issuer]);
        command.arg("--jwks").arg(&jwks).args(["--at", vector["now"].as_str().unwrap()]);
        command.args(["--leeway", &vector["leeway_seconds"].to_string()]);
        if vector["environment"] == "sandbox" || vector["environment"] == "any" {
            command.arg("--allow-sandbox");
        }
        let is_signature_only = vector["signature_only"] == true;
        command.arg(if is_signature_only { "--signature-only" } else { "--nonce-elsewhere" });
        for name in ["amount", "currency", "recipient", "mandate"] {
            if let Some(expected) = vector[name].as_str() {
                command.arg(format!("--{name}")).arg(expected);
            }
        }
        // Standard input loses a line break, which some vectors have: one more keeps it.
        let token = format!("{}\n", vector["token"].as_str().unwrap());
        let said = run_with_stdin(&mut command, token.as_bytes()).json();
        if issuer.ends_with('/') {
            // Refused before anything is checked.
            assert_eq!((&said["error"]["exit_code"], &vector["check"]), (&json!(2), &json!("issuer")));
            continue;
        }
        assert_eq!(said["error"]["check"], vector["check"], "{}: {said}", vector["name"]);
        assert_eq!(said["valid"], vector["check"].is_null(), "{}", vector["name"]);
        checked += 1;
    }
    assert!(checked > 50, "{checked}");
}

#[test]
fn a_file_given_as_a_token_gets_advice() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let file = folder.path().join("token.txt");
    std::fs::write(&file, token(json!({}))).unwrap();
    let name = file.to_str().unwrap();
    ran(&mut verify(name, &jwks)).code(2).says(&format!("@{name} reads the token from it"));
    ran(verify(&format!("@{name}"), &jwks).arg("--signature-only")).code(0);
    for nothing in ["", "\n"] {
        run_with_stdin(&mut verify("-", &jwks), nothing.as_bytes())
            .code(10)
            .says("standard input: it is empty");
    }
    // What is known of no token is shown through the same fields and expressions.
    let mut command = verify("a.b.c", "/nonexistent");
    assert_eq!(ran(command.args(["--jq", ".valid, .error.exit_code"])).code(19).out, "false\n19\n");
}
