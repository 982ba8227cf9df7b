//! The whole job, as its three parties do it: with the `mandate` command, against a real server.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Ran, TestServer, mandate, masked, terms};

/// One of the three parties: what it types, and the variables that are set for it.
struct Party<'a>(&'a [(&'a str, &'a str)]);

impl Party<'_> {
    fn types(&self, args: &[&str]) -> Ran {
        self.pipes("", args)
    }

    fn pipes(&self, stdin: &str, args: &[&str]) -> Ran {
        let mut command: Command = mandate(args);
        command
            .envs(self.0.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that reads nothing may be gone by now.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait_with_output().unwrap().into()
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran:#?}"))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} is not in {value}"))
}

#[test]
fn from_the_agent_to_the_denial_after_the_revocation() {
    let server = TestServer::start();
    let base_url = server.ready("base_url");
    let organization = Party(&[
        ("MANDATE_BASE_URL", base_url),
        ("MANDATE_ORGANIZATION_KEY", server.ready("organization_key")),
    ]);

    let created = json(&organization.types(&["agent", "create", "buyer", "--json"]).code(0));
    assert_eq!(text(&created, "id"), "agt_buyer");
    let agent = Party(&[("MANDATE_BASE_URL", base_url), ("MANDATE_AGENT_KEY", text(&created, "agent_key"))]);
    let written =
        organization.pipes(&terms("agt_buyer").to_string(), &["mandate", "create", "-f", "-", "--json"]);
    let written = json(&written.code(0));
    assert_eq!(text(&written, "status"), "active");

    let ask = |amount: &str, more: &[&str]| {
        let request = ["authorize", amount, "USD", "--to", "vendor:acme", "--category", "software"];
        agent.types(&[&request[..], more].concat())
    };
    let allowed = ask("40.50", &[]).code(0);
    assert_eq!(
        masked(&allowed.out),
        "verdict      allow\ndecision     dec_*\nmode         enforce\ntoken        JWT\n"
    );
    let token = allowed.out.split_whitespace().last().unwrap();

    // No key, nothing but the issuer's public keys; then not even the network.
    let stranger = Party(&[]);
    let issuer = server.ready("verdicts_url");
    let settle = |token: &str, amount: &str, more: &[&str]| {
        let what =
            ["verify", token, "--allow-sandbox", "--issuer", issuer, "--amount", amount, "--currency", "USD"];
        stranger.types(&[&what[..], &["--recipient", "vendor:acme"], more].concat())
    };
    let online = settle(token, "40.5", &["--nonce-elsewhere"]).code(0);
    assert!(online.out.contains("\nVALID, sandbox"), "{online:?}");
    settle(token, "40.5", &[]).code(26);
    let files = tempfile::tempdir().unwrap();
    let (key_set, nonces) = (files.path().join("jwks.json"), files.path().join("nonces.db"));
    std::fs::write(&key_set, server.stranger("verdicts_url").get("/.well-known/jwks.json").body).unwrap();
    let offline = ["--jwks", key_set.to_str().unwrap(), "--nonce-store", nonces.to_str().unwrap()];
    settle(token, "41", &offline).code(17);
    settle(token, "40.5", &offline).code(0);
    settle(token, "40.5", &offline).code(18);

    assert!(ask("300", &[]).code(21).out.starts_with("verdict      review\n"));
    let denied = json(&ask("900", &["--json"]).code(20));
    assert_eq!(text(&denied, "reason"), "amount 900 exceeds per_transaction limit 500");

    let revoked = organization.types(&["mandate", "revoke", text(&written, "id"), "--json"]);
    assert_eq!(text(&json(&revoked.code(0)), "status"), "revoked");
    let denied = json(&ask("40.50", &["--json"]).code(20));
    assert_eq!(text(&denied, "verdict"), "deny_revoked");
    // What was allowed before stays valid until it expires: that is why it does so after five minutes.
    settle(token, "40.5", &["--nonce-elsewhere", "--jwks", key_set.to_str().unwrap()]).code(0);
}

#[test]
fn a_review_is_approved_and_the_agent_fetches_the_fresh_token() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let waiting = agent.ask(300);
    let review = agent.client.get(&format!("/decisions/{}", waiting.text("/decision")));
    let (id, waits_for) = (review.text("/review/id"), review.text("/review/waits_for"));
    assert_eq!(waits_for, "role:head-of-it");
    organization.client.act(&format!("/reviews/{id}/approve"));
    let fresh =
        agent.client.get(&format!("/decisions/{}", waiting.text("/decision"))).text("/review/decision");
    let token = agent.client.get(&format!("/decisions/{fresh}")).text("/verdict_token");
    let issuer = server.ready("verdicts_url");
    let verify = |token: &str| {
        let what =
            ["verify", token, "--allow-sandbox", "--issuer", issuer, "--amount", "300", "--currency", "USD"];
        Party(&[]).types(&[&what[..], &["--recipient", "vendor:acme", "--nonce-elsewhere"]].concat())
    };
    verify(&token).code(0);
    // The token of the review itself is signed, too, and is no permission.
    verify(&review.text("/verdict_token")).code(16);
}
