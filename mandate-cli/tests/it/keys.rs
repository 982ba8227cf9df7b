//! Where keys come from: the cache, one more fetch for a key that is new, and what was pinned.

use std::path::Path;
use std::process::Command;

use mandate_core::EnvironmentKind;
use mandate_core::jwks::{KeySet, VerificationKey};
use serde_json::json;

use crate::harness::{Ran, Service, mandate, run_with_stdin};
use crate::issuer::{IAT, ISSUER, jwks, jwks_file, key, live_token, token};

const CACHEABLE: &str = "200 OK\r\ncache-control: public, max-age=300";

fn ran(command: &mut Command) -> Ran {
    command.output().unwrap().into()
}

/// A run in a home of its own.
fn at_home(home: &Path, args: &[&str]) -> Command {
    let mut command = mandate(args);
    command.env("HOME", home).env_remove("MANDATE_CONFIG_DIR");
    command
}

fn only(environment: EnvironmentKind) -> String {
    let key = key(environment);
    KeySet::new(vec![VerificationKey::new(key.kid().clone(), *key.public_key()).unwrap()]).unwrap().to_json()
}

/// Makes the one copy of a key set older by so many seconds: from 30 on it is fetched again for a key that it lacks, and
/// from 300 on it is too old to count.
fn age_the_copy(home: &Path, seconds: i64) {
    let folder = home.join(".cache/mandate/jwks");
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let mut kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    kept["fetched_at"] = json!(kept["fetched_at"].as_i64().unwrap() - seconds * 1000);
    std::fs::write(&file, kept.to_string()).unwrap();
}

#[test]
fn a_key_set_is_kept_for_as_long_as_its_issuer_says() {
    for (head, fetches) in
        [(CACHEABLE, 1), ("200 OK", 2), ("200 OK\r\ncache-control: max-age=300, no-store", 2)]
    {
        let home = tempfile::tempdir().unwrap();
        let jwks = jwks();
        let service = Service::new(&vec![(head, jwks.as_str()); fetches]);
        let (address, at) = (service.address().to_owned(), IAT.to_string());
        let token = live_token(json!({ "iss": address }));
        for _ in 0..2 {
            ran(&mut at_home(
                home.path(),
                &["verify", "--signature-only", &token, "--issuer", &address, "--at", &at],
            ))
            .code(0);
        }
        assert_eq!(service.requests().len(), fetches, "{head}");
    }
}

/// An issuer that says an hour is cached for five minutes. When it cannot be reached, those are what is left.
#[test]
fn a_key_set_that_cannot_be_fetched_is_used_for_five_minutes_and_no_longer() {
    let home = tempfile::tempdir().unwrap();
    let jwks = jwks();
    let service = Service::new(&[("200 OK\r\ncache-control: max-age=3600", jwks.as_str())]);
    let (address, at) = (service.address().to_owned(), IAT.to_string());
    let token = live_token(json!({ "iss": address }));
    let verify = ["verify", "--signature-only", &token, "--issuer", &address, "--at", &at];
    let verify = || ran(&mut at_home(home.path(), &verify));
    verify().code(0);
    assert_eq!(service.requests().len(), 1);
    // Nothing listens any more.
    age_the_copy(home.path(), 290);
    verify().code(0);
    age_the_copy(home.path(), 11);
    verify().code(19).says("the key set cannot be fetched");
}

#[test]
fn a_key_that_is_not_known_is_fetched_once_and_not_again_at_once() {
    let home = tempfile::tempdir().unwrap();
    let (old, new) = (only(EnvironmentKind::Sandbox), jwks());
    // One fetch, then nothing listens any more.
    let service = Service::new(&[(CACHEABLE, &old), (CACHEABLE, &new)]);
    let (address, at) = (service.address().to_owned(), IAT.to_string());
    let token = live_token(json!({ "iss": address }));
    let verify = || {
        ran(&mut at_home(
            home.path(),
            &["verify", "--signature-only", &token, "--issuer", &address, "--at", &at],
        ))
    };
    verify().code(11).shows("unknown_key");
    // It was fetched a moment ago: a second stranger's key causes no second fetch.
    verify().code(11).shows("unknown_key");
    // Once the copy has some age, the new key is looked for.
    age_the_copy(home.path(), 31);
    verify().code(0);
    assert_eq!(service.requests().len(), 2);
    verify().code(0);
}

#[test]
fn an_issuer_that_fails_is_not_asked_for_each_token() {
    let home = tempfile::tempdir().unwrap();
    let old = only(EnvironmentKind::Sandbox);
    // After these two answers nothing listens any more.
    let service = Service::new(&[(CACHEABLE, &old), ("503 Service Unavailable", "")]);
    let (address, at) = (service.address().to_owned(), IAT.to_string());
    let verify = |more: &[&str]| {
        let args =
            [&["verify", "--signature-only"], more, &["--issuer", &address, "--at", &at, "--allow-sandbox"]]
                .concat();
        at_home(home.path(), &args)
    };
    ran(&mut verify(&[&token(json!({ "iss": address }))])).code(0);
    age_the_copy(home.path(), 31);
    let stranger = format!("{}\n", live_token(json!({ "iss": address })));
    let asked = run_with_stdin(&mut verify(&["--tokens", "-"]), stranger.repeat(3).as_bytes());
    assert_eq!(service.requests().len(), 2);
    let answers: Vec<&str> = asked.out.lines().collect();
    assert_eq!(answers.len(), 3, "{asked:?}");
    assert!(answers.iter().all(|answer| answer.contains("HTTP 503")), "{asked:?}");
}

#[test]
fn a_cache_that_is_of_no_use_is_none() {
    let home = tempfile::tempdir().unwrap();
    let jwks = jwks();
    let service = Service::new(&[(CACHEABLE, jwks.as_str()), (CACHEABLE, &jwks)]);
    let (address, at) = (service.address().to_owned(), IAT.to_string());
    let token = live_token(json!({ "iss": address }));
    let verify = || {
        ran(&mut at_home(
            home.path(),
            &["verify", "--signature-only", &token, "--issuer", &address, "--at", &at],
        ))
    };
    verify().code(0);
    let folder = home.path().join(".cache/mandate/jwks");
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, "{").unwrap();
    verify().code(0);
    assert_eq!(service.requests().len(), 2);
}

#[test]
fn the_sandbox_counts_only_when_it_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let verify = |token: &str, more: &[&str]| {
        ran(mandate(&[
            "verify",
            "--signature-only",
            token,
            "--issuer",
            ISSUER,
            "--jwks",
            &jwks,
            "--at",
            &IAT.to_string(),
        ])
        .args(more))
    };
    let refused = verify(&token(json!({})), &[]).code(22);
    assert!(refused.out.ends_with("or test with --allow-sandbox; do not deliver\n"), "{refused:?}");
    verify(&token(json!({})), &["--allow-sandbox"]).code(0).shows("; sandbox - not real money\n");
    verify(&live_token(json!({})), &["--allow-sandbox"]).code(0).shows("environment  production\n");
}

#[test]
fn only_pinned_keys_count_with_pinned() {
    let (home, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let jwks = jwks_file(folder.path());
    let print = key(EnvironmentKind::Production).kid().to_string();
    let run = |args: &[&str]| ran(&mut at_home(home.path(), args));
    let verify = |token: &str| {
        run(&[
            "verify",
            "--signature-only",
            token,
            "--issuer",
            ISSUER,
            "--pinned",
            "--at",
            &IAT.to_string(),
            "--allow-sandbox",
        ])
    };

    verify(&live_token(json!({}))).code(19).says("no keys are pinned");
    run(&["jwks", "pin", ISSUER, "--jwks", &jwks]).code(2).says("pass --fingerprint THUMBPRINT");
    for other in ["AAAA", "-AAA"] {
        let pin = run(&["jwks", "pin", ISSUER, "--jwks", &jwks, "--fingerprint", other]);
        pin.code(23).says(&format!("`{other}`"));
    }
    run(&["jwks", "pin", ISSUER, "--jwks", &jwks, "--fingerprint", &print])
        .code(0)
        .shows(&format!("key          {print}  production\n"));
    verify(&live_token(json!({}))).code(0);
    verify(&token(json!({}))).code(11).shows("unknown_key");

    // Trust on first use is for the first use.
    run(&["jwks", "pin", ISSUER, "--jwks", &jwks, "--trust-on-first-use"]).code(23).says("the keys pinned");
    let listed = run(&["jwks", "list", "--json"]).code(0).json();
    assert_eq!((&listed[0]["issuer"], &listed[0]["keys"][0]["thumbprint"]), (&json!(ISSUER), &json!(print)));
    let unpinned = run(&["jwks", "unpin", ISSUER, "--json"]).code(0).json();
    assert_eq!(unpinned, json!({"issuer": ISSUER, "keys": []}));
    run(&["jwks", "unpin", ISSUER]).code(33).says("no keys are pinned");
    run(&["jwks", "pin", ISSUER, "--jwks", &jwks, "--trust-on-first-use"]).code(0);
    run(&["jwks", "pin", ISSUER, "--jwks", &jwks, "--trust-on-first-use"]).code(0);
    verify(&token(json!({}))).code(0);
    run(&["jwks", "show", "--jwks", &jwks]).code(0).shows("  sandbox\n").shows("  production\n");
}

#[test]
fn every_check_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let token = live_token(json!({}));
    let verify = ["verify", &token, "--issuer", ISSUER, "--jwks", &jwks, "--at", "2026-03-01T12:00:10Z"];
    insta::assert_snapshot!(ran(mandate(&verify).args(["--amount", "40.0", "--explain"])).code(26).out);
    let json = ran(mandate(&verify).args(["--signature-only", "--explain", "--json"])).code(0).json();
    for check in json["checks"].as_array().unwrap() {
        assert!(check["what"].as_str().is_some_and(|text| !text.is_empty()), "{check}");
        assert!(check["source"].as_str().is_some_and(|text| !text.is_empty()), "{check}");
    }
}

#[test]
fn the_keys_of_an_issuer_are_shown_and_kept() {
    let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = jwks_file(folder.path());
    let run = |args: &[&str]| ran(&mut at_home(home.path(), args)).code(0);
    let shown = |args: &[&str]| {
        let out = run(args).out;
        let times =
            out.find("\"pinned_at\":\"").map(|at| at + 13).or(out.find("pinned       ").map(|at| at + 13));
        times.map_or(out.clone(), |at| format!("{}TIME{}", &out[..at], &out[at + 24..]))
    };
    let transcripts = [
        &["jwks", "show", "--jwks", &file][..],
        &["jwks", "show", ISSUER, "--jwks", &file, "--json"],
        &["jwks", "pin", ISSUER, "--jwks", &file, "--trust-on-first-use"],
        &["jwks", "list"],
        &["jwks", "list", "--json"],
        &["jwks", "list", "--jq", ".[].keys[].environment"],
        &["jwks", "unpin", ISSUER],
        &["jwks", "list", "--json"],
    ]
    .map(|args| format!("$ mandate {}\n{}", args.join(" ").replace(&file, "jwks.json"), shown(args)));
    assert!(run(&["jwks", "list"]).err.contains("none are pinned"));
    insta::assert_snapshot!(transcripts.concat());
}
