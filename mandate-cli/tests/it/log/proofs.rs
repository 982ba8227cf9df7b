//! Proofs of tokens and evidence: fetched, checked, and refused with the check that failed.

use super::*;
use crate::issuer::{jwks_file, verify};

/// A log of 300 entries with a token, its key, and governing changes.
fn served() -> (Site, TestLog, String) {
    let site = Site::new();
    let (mut log, token) = (TestLog::at(&site), token_of(&site, 1));
    log.push(&key_event(KeyChange::Published));
    log.strangers(270);
    log.push(&decision(&token));
    log.strangers(28);
    log.witnesses = vec![witness(1), witness(2)];
    log.publish(&site);
    log.publish_proof(&site, &token);
    (site, log, token)
}

/// `mandate verify --proof`, with the proof and further options in `more`.
fn checked(folder: &Path, token: &str, (issuer, jwks): (&str, &str), more: &[&str]) -> Ran {
    let at = (IAT + 1).to_string();
    let args =
        ["verify", token, "--issuer", issuer, "--jwks", jwks, "--allow-sandbox", "--at", &at, "--proof"];
    let mut command = mandate(&[&args, more].concat());
    command.args(["--amount", "40", "--currency", "USD", "--recipient", "vendor:acme"]);
    if !more.contains(&"--nonce-store") {
        command.arg("--nonce-elsewhere");
    }
    command.env("MANDATE_CONFIG_DIR", folder.join("config"));
    ran(command)
}

#[test]
fn a_proof_is_fetched_checked_and_verifies_with_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let (site, test, token) = served();
    let proof = folder.path().join("p.tlog-proof");
    let proof = proof.to_str().unwrap();
    let (issuer, key) = (site.address(), test.verifier());
    let fetch = ["proof", &token, "--issuer", issuer, "--log-key", &key];
    let printed = ran(log(folder.path(), &fetch)).code(0);
    assert_eq!((printed.out.as_str(), printed.err.as_str()), (test.proof_of(&token).as_str(), ""));
    ran(log(folder.path(), &[&fetch[..], &["-o", proof]].concat())).code(0).shows("271 of 300");
    // Without a known key it is checked all the same, and the reader is warned.
    ran(log(folder.path(), &fetch[..4])).code(0).says("the log's key is not pinned");

    let policy = write(folder.path(), "policy", policy_of(&[witness(1), witness(2)]));
    let jwks = jwks_file(folder.path());
    let check = |token: &str, more: &[&str]| checked(folder.path(), token, (issuer, &jwks), more);
    check(&token, &[proof, "--log-key", &key])
        .code(0)
        .shows("entry 271 of 300")
        .shows("none asked for (not compared)");
    check(&token, &[proof, "--log-key", &key, "--policy", &policy])
        .code(0)
        .shows("w1.example at ")
        .shows("w2.example at ");
    let explained = check(&token, &[proof, "--log-key", &key, "--policy", &policy, "--explain"]).code(0);
    explained.shows("the decision is an entry of the issuer's public log");
    // The key must be known, and a proof's options want a proof.
    check(&token, &[proof]).code(2).says("mandate log key pin");
    ran({
        let mut command = verify(&crate::issuer::token(json!({})), &jwks);
        command.args(["--log-key", &key]);
        command
    })
    .code(2)
    .says("--log-key and --policy are for a proof");
    // A policy that lists the log names its key; one that lists another does not.
    let listing = format!("log {key}\n{}", policy_of(&[witness(1)]));
    let listing = write(folder.path(), "listing", listing);
    check(&token, &[proof, "--policy", &listing]).code(0);
    let other = TestLog::new("other.example/log/sandbox");
    let listing = write(folder.path(), "other", format!("log {}\nquorum none\n", other.verifier()));
    check(&token, &[proof, "--policy", &listing])
        .code(51)
        .shows("NOT VALID (origin)")
        .shows("do not deliver");
    // A log of another issuer may be on the list, but does not prove this issuer's tokens.
    let mut foreign = other;
    foreign.push(&decision(&token));
    let foreign = write(folder.path(), "foreign", foreign.proof_of(&token));
    check(&token, &[&foreign, "--policy", &listing]).code(51).shows("is not that of the issuer");
}

#[test]
fn a_proof_that_fails_names_its_check() {
    let folder = tempfile::tempdir().unwrap();
    let (site, test, token) = served();
    let (issuer, key, jwks) = (site.address(), test.verifier(), jwks_file(folder.path()));
    let check = |token: &str, more: &[&str]| checked(folder.path(), token, (issuer, &jwks), more);
    let proof = &write(folder.path(), "p.tlog-proof", test.proof_of(&token));
    let policy = write(folder.path(), "policy", policy_of(&[witness(1), witness(2)]));
    for (name, text, code) in [
        ("quorum", test.proof_of(&token), 51),
        ("root", test.proof_of(&token).replace("index 271", "index 270"), 51),
        ("index", test.proof_of(&token).replace("index 271", "index 300"), 50),
        ("proof_header", test.checkpoint().to_string(), 50),
        ("proof_header", "x".to_owned(), 51),
        ("extra", test.proof(271, None).to_string(), 51),
    ] {
        let wanted = if name == "quorum" { vec![witness(1), witness(3)] } else { vec![witness(1)] };
        let policy = write(folder.path(), "wanted", policy_of(&wanted));
        let proof = write(folder.path(), "edited", text);
        let refused = check(&token, &[&proof, "--log-key", &key, "--policy", &policy]).code(code);
        refused.shows(&format!("NOT VALID ({name})"));
        let json =
            check(&token, &[&proof, "--log-key", &key, "--policy", &policy, "--json"]).code(code).json();
        assert_eq!((&json["valid"], &json["error"]["check"]), (&json!(false), &json!(name)));
    }
    let another = token_of(&site, 2);
    check(&another, &[proof, "--log-key", &key]).code(51).shows("NOT VALID (root)");
    // Its witnesses saw the log before this token was issued.
    let later = crate::issuer::token(json!({"iss": issuer, "iat": IAT + 10, "exp": IAT + 310}));
    let early = check(&later, &[proof, "--log-key", &key, "--policy", &policy, "--leeway", "30"]);
    early.code(50).shows("NOT VALID (root)");
}

#[test]
fn a_token_that_is_not_proved_is_not_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let (site, test, token) = served();
    let (key, jwks) = (test.verifier(), jwks_file(folder.path()));
    let nonces = folder.path().join("nonces.db");
    let check = |proof: &str| {
        let more = [proof, "--log-key", &key, "--nonce-store", nonces.to_str().unwrap()];
        checked(folder.path(), &token, (site.address(), &jwks), &more)
    };
    let proof = write(folder.path(), "p", test.proof_of(&token));
    let early = write(folder.path(), "early", test.checkpoint().to_string());
    check(&early).code(50);
    check(&early).code(50);
    check(&proof).code(0).shows("seen for the first time");
    check(&proof).code(18);
}

#[test]
fn a_second_signature_of_the_same_token_finds_the_same_entry() {
    let folder = tempfile::tempdir().unwrap();
    let (site, test, token) = served();
    let (input, signature) = token.rsplit_once('.').unwrap();
    let other = signature.chars().rev().collect::<String>();
    let other = format!("{input}.{other}");
    let hash = [&token, &other].map(|token| token_hash(token).unwrap());
    assert_eq!(hash[0], hash[1]);
    let args = ["proof", &token, "--issuer", site.address(), "--log-key", &test.verifier()];
    ran(log(folder.path(), &args)).code(0);
}

#[test]
fn a_token_that_is_not_there_is_not_in_the_log_yet() {
    let folder = tempfile::tempdir().unwrap();
    let (site, test, _) = served();
    let key = test.verifier();
    let args = |token: &str| {
        ran(log(folder.path(), &["proof", token, "--issuer", site.address(), "--log-key", &key]))
    };
    args(&token_of(&site, 2)).code(50).says("not in the log yet").says("older than a day");
    let now = now();
    args(&token(json!({"iss": site.address(), "iat": now, "exp": now + 300})))
        .code(50)
        .says("in a few seconds");
    args("a.b").code(10);
    ran(log(
        folder.path(),
        &["proof", &token_of(&site, 2), "--log", folder.path().to_str().unwrap(), "--log-key", &key],
    ))
    .code(2)
    .says("has no proofs");
}

#[test]
fn a_lying_service_is_refused_by_the_check_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let (site, test, token) = served();
    let path = proof_path(&token);
    let args = ["proof", &token, "--issuer", site.address(), "--log-key", &test.verifier(), "-o", "p"];
    let proof = test.proof_of(&token);
    for (text, check) in [
        (proof.replace("index 271", "index 1"), "proof_length"),
        (proof.replace("index 271", "index 270"), "root"),
        (proof.replace("\n300\n", "\n301\n"), "signature"),
        (proof.replace("tlog-proof@v1", "tlog-proof@v2"), "proof_header"),
        (String::new(), "proof_header"),
    ] {
        site.add(&path, text.into_bytes());
        let mut command = log(folder.path(), &args);
        command.current_dir(folder.path());
        ran(command).code(51).says(&format!("({check})"));
        assert!(!folder.path().join("p").exists());
    }
    site.add(&path, proof.into_bytes());
    let policy = write(folder.path(), "policy", policy_of(&[witness(3)]));
    let wanting = [&args[..], &["--policy", &policy]].concat();
    ran(log(folder.path(), &wanting)).code(51).says("(quorum)").says("ask again");
    site.flood(&path);
    ran(log(folder.path(), &args)).code(38).says("longer than");
}

#[test]
fn evidence_needs_neither_clock_nor_network() {
    let folder = tempfile::tempdir().unwrap();
    let (site, test, token) = served();
    let file = folder.path().join("e");
    let (file, key) = (file.to_str().unwrap(), test.verifier());
    let make = ["evidence", &token, "--issuer", site.address(), "--log-key", &key, "-o", file];
    ran(log(folder.path(), &make)).code(0).shows("entry 0");
    // With the list of keys' entries nothing else is read.
    let kid = crate::issuer::key(EnvironmentKind::Sandbox).kid().clone();
    site.add("/log/sandbox/keys", format!("0 {kid}\n").into_bytes());
    site.remove("/log/sandbox/tile/entries/001.p/44");
    let again = std::fs::read_to_string(file).unwrap();
    ran(log(folder.path(), &make)).code(0);
    assert_eq!(std::fs::read_to_string(file).unwrap(), again);
    let policy = write(folder.path(), "policy", policy_of(&[witness(1), witness(2)]));
    let verify = |file: &str, more: &[&str]| ran(log(folder.path(), &[&["verify", file], more].concat()));
    let shown =
        verify(file, &["--log-key", &key, "--policy", &policy]).code(0).shows("PROVED").shows("w1.example");
    assert!(!shown.out.contains("deliver") && shown.out.contains("sandbox - not real money"), "{shown:?}");
    let json = verify(file, &["--log-key", &key, "--policy", &policy, "--json"]).code(0).json();
    assert_eq!(json["claims"]["verdict"], "allow");
    assert_eq!(
        (&json["index"], &json["key"]["index"], &json["proved"]),
        (&json!(271), &json!(0), &json!(true))
    );
    verify(file, &[]).code(2).says("the log's key is not known");
    verify(file, &["--log-key", &key, "--issuer", "https://other.example"]).code(51).shows("(issuer)");

    let evidence: serde_json::Value = serde_json::from_str(&again).unwrap();
    let refused = |change: &dyn Fn(&mut serde_json::Value), check: &str| {
        let mut edited = evidence.clone();
        change(&mut edited);
        let file = write(folder.path(), "edited", edited.to_string());
        verify(&file, &["--log-key", &key]).code(51).shows(&format!("NOT PROVED ({check})"));
    };
    let base64 =
        |entry: &Entry| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, entry.to_bytes());
    refused(&|e| e["token"] = token_of(&site, 2).into(), "root");
    refused(&|e| e["token"] = evidence["token"].as_str().unwrap().replace('.', "..").into(), "parts");
    refused(&|e| e["key_entry"] = base64(&key_event(KeyChange::Retired)).into(), "root");
    refused(&|e| e["key_entry"] = base64(&key_event(KeyChange::Revoked)).into(), "key_change");
    refused(&|e| e["key_entry"] = base64(&decision(&token)).into(), "key_entry");
    refused(&|e| e["key_entry"] = "AA".into(), "key_entry");
    refused(&|e| e["key_proof"] = evidence["proof"].clone(), "root");
    refused(&|e| e["proof"] = evidence["key_proof"].clone(), "extra");
    // Another tree of the same size, of which the log's key has signed the root, too.
    let mut other = test.clone();
    other.entries[5] = strange(9_999).to_bytes();
    refused(&|e| e["key_proof"] = other.proof(0, None).to_string().into(), "fork");
    // The signature of another token, under the same key.
    let other = token_of(&site, 2);
    let (input, signature) = (token.rsplit_once('.').unwrap().0, other.rsplit_once('.').unwrap().1);
    refused(&|e| e["token"] = format!("{input}.{signature}").into(), "signature");
    for text in ["{}", "", "[]", &again.replace("\"evidence\": 1", "\"evidence\": 2")] {
        verify(&write(folder.path(), "edited", text), &["--log-key", &key]).code(51).says("is no evidence");
    }
}

#[test]
fn a_key_that_is_nowhere_in_the_log_makes_no_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new();
    let (mut test, token) = (TestLog::at(&site), token_of(&site, 1));
    test.push(&decision(&token));
    test.publish(&site);
    test.publish_proof(&site, &token);
    let file = folder.path().join("e");
    let key = test.verifier();
    let make =
        ["evidence", &token, "--issuer", site.address(), "--log-key", &key, "-o", file.to_str().unwrap()];
    ran(log(folder.path(), &make)).code(51).says("no entry that publishes the signing key");
    // The key's entry may come behind the checkpoint of the proof.
    test.push(&key_event(KeyChange::Published));
    test.publish(&site);
    // A list that is wrong leads nowhere else.
    ran(log(folder.path(), &make)).code(0).shows("entry 1");
    assert!(file.exists());
}

/// A log that has ended stays where it was, and so does its proofs' evidence; one that follows is below it.
#[test]
fn evidence_is_read_from_the_log_that_has_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let (site, first, old) = served();
    let origin = first.key.verifier().name().to_owned();
    let mut second = TestLog::new(&format!("{origin}/2"));
    second.push(&Entry::OlderLog(first.checkpoint()));
    second.push(&key_event(KeyChange::Published));
    let new = token_of(&site, 77);
    second.push(&decision(&new));
    second.publish(&site);
    second.publish_proof(&site, &new);
    site.add("/log/sandbox/next", format!("{}\n", second.verifier()).into_bytes());
    for (token, log_of, name) in [(&old, &first, "old"), (&new, &second, "new")] {
        let file = folder.path().join(name);
        let (key, file) = (log_of.verifier(), file.to_str().unwrap());
        let make = ["evidence", token, "--issuer", site.address(), "--log-key", &key, "-o", file];
        ran(log(folder.path(), &make)).code(0).shows(log_of.key.verifier().name());
        ran(log(folder.path(), &["verify", file, "--log-key", &key])).code(0);
    }
    // The key to pin is that of the newest.
    let shown = ran(log(folder.path(), &["key", "show", "--log", &site.log()])).code(0);
    shown.shows(&second.verifier());
}
