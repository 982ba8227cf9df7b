//! `/v1/escrows`, and the contracts that anyone with the address can read.

use mandate_core::Timestamp;
use mandate_core::jwks::KeySet;
use mandate_core::jwt::Unverified;
use mandate_core::verify::{Expected, VerifyError, verify_event, verify_verdict};
use reqwest::Response;
use serde_json::{Value, json};

use crate::server::Server;

fn body(decision: &Value) -> Value {
    json!({"decision": decision["decision"], "condition": "delivered", "refund_after": "2026-07-01T00:00:00Z"})
}

/// What anyone with the address can read.
async fn read(server: &Server, address: &str, accept: &str) -> Response {
    let url = format!("{}/contracts/{address}", server.running.urls.verdicts);
    server.http.get(url).header("accept", accept).send().await.unwrap()
}

#[tokio::test]
async fn an_escrow_goes_its_way() {
    let server = Server::start().await;
    let (agent, organization) = (server.agent("a").await, server.organization_key.clone());
    let decision = server.ask(&agent, json!(40)).await;
    let opened = server.post(&organization, "/escrows", &body(&decision), 201).await;
    let path = format!("/escrows/{}", opened["escrow"].as_str().unwrap());
    let delivered = json!({"to": "delivered", "note": "seen"});
    let moved = server.post(&organization, &format!("{path}/transitions"), &delivered, 200).await;
    assert_eq!((&moved["state"], &moved["history"][1]["note"]), (&json!("delivered"), &json!("seen")));
    assert_eq!(server.read(&agent, &path, 200).await, moved);
    assert_eq!(server.read(&agent, "/escrows", 200).await, json!({"data": [moved], "has_more": false}));

    let stranger = server.stranger();
    server.read(&stranger, &path, 404).await;
    server.post(&stranger, &format!("{path}/transitions"), &delivered, 404).await;
    server.post(&agent, &format!("{path}/transitions"), &delivered, 403).await;
    server.post(&agent, "/escrows", &body(&decision), 403).await;
    let refused = server.post(&stranger, "/escrows", &body(&decision), 400).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("decision must be one of this environment"), "{message}");
}

#[tokio::test]
async fn what_is_wrong_with_a_body_is_named() {
    let server = Server::start().await;
    let agent = server.agent("a").await;
    let good = body(&server.ask(&agent, json!(40)).await);
    for (field, value, message) in [
        (
            "decision",
            json!("x"),
            "decision must be `dec_` and 26 characters of lower-case Crockford base32; got `x`",
        ),
        ("condition", json!(""), "condition must be 1 to 2000 characters long"),
        ("condition", json!("x".repeat(2001)), "condition must be 1 to 2000 characters long"),
        ("arbiter", json!("x".repeat(201)), "arbiter must be 1 to 200 characters long"),
        (
            "refund_after",
            json!("soon"),
            "refund_after must be an RFC 3339 instant such as 2026-03-01T12:00:00Z; got `soon`",
        ),
        (
            "amount",
            json!(1),
            "amount is not a known field; known are decision, arbiter, condition, refund_after",
        ),
    ] {
        let mut bad = good.clone();
        bad[field] = value;
        let refused = server.post(&server.organization_key, "/escrows", &bad, 400).await;
        assert_eq!(refused["error"]["message"], message);
    }
    let opened = server.post(&server.organization_key, "/escrows", &good, 201).await;
    let path = format!("/escrows/{}/transitions", opened["escrow"].as_str().unwrap());
    let refused = server.post(&server.organization_key, &path, &json!({"to": "paid"}), 400).await;
    let message = "to must be opening, funded, delivered, released, refunded, disputed or failed; got `paid`";
    assert_eq!(refused["error"]["message"], message);
}

#[tokio::test]
async fn a_retry_opens_no_second_escrow() {
    let server = Server::start().await;
    let agent = server.agent("a").await;
    let good = body(&server.ask(&agent, json!(40)).await);
    let post = async || {
        let request = server.http.post(format!("{}/escrows", server.running.urls.base));
        let request = request.bearer_auth(&server.organization_key).header("idempotency-key", "k");
        let response = request.json(&good).send().await.unwrap();
        let replayed = response.headers().contains_key("idempotency-replayed");
        (replayed, response.text().await.unwrap())
    };
    let (first, second) = (post().await, post().await);
    assert_eq!((first.0, second.0, first.1), (false, true, second.1));
}

#[tokio::test]
async fn anyone_with_the_address_reads_the_contract() {
    let server = Server::start().await;
    let agent = server.agent("a").await;
    let decision = server.ask(&agent, json!(40.5)).await;
    let opened = server.post(&server.organization_key, "/escrows", &body(&decision), 201).await;
    let address = opened["contract"].as_str().unwrap();
    let response = read(&server, address, "*/*").await;
    assert_eq!(response.headers()["content-type"], "application/json");
    let shown: Value = response.json().await.unwrap();
    let mut public = opened.clone();
    public
        .as_object_mut()
        .unwrap()
        .retain(|name, _| !["escrow", "decision", "settlement"].contains(&name.as_str()));
    assert_eq!(shown, public);

    let response = read(&server, address, "application/jwt").await;
    assert_eq!(
        (response.headers()["content-type"].as_bytes(), response.headers()["vary"].as_bytes()),
        (&b"application/jwt"[..], &b"accept"[..])
    );
    let token = response.text().await.unwrap();
    let key_set = server.http.get(format!("{}/.well-known/jwks.json", server.running.urls.verdicts));
    let key_set = key_set.send().await.unwrap().bytes().await.unwrap();
    let keys = KeySet::parse(&key_set).unwrap();
    let verified = Unverified::parse(&token).unwrap().verify(&keys).unwrap();
    assert!(verified.kid().is_sandbox());
    let claims: Value = serde_json::from_slice(verified.claims()).unwrap();
    assert_eq!(
        claims,
        json!({"iss": server.running.urls.verdicts, "iat": 1_781_524_800, "contract": public})
    );

    let response =
        read(&server, address, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8").await;
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    for (name, value) in [("cache-control", "no-cache"), ("vary", "accept")] {
        assert_eq!(response.headers()[name], value);
    }
    let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(
        policy.starts_with("default-src 'none'; ") && policy.ends_with("trusted-types 'none'"),
        "{policy}"
    );
    let page = response.text().await.unwrap();
    // The token of the page is signed in the same instant; a signature is never the same twice.
    let signed = token.rsplit_once('.').unwrap().0;
    assert!(page.contains(&format!("<meta name=\"contract\" content=\"{signed}.")), "{page}");
    for shown in ["40.5", "vendor:v", "agt_a", "delivered", "2026-07-01 00:00:00 UTC", "Sandbox"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(!page.contains("esc_") && !page.contains("dec_"), "{page}");

    let now = Timestamp::parse("2026-06-15T12:00:00Z").unwrap();
    let expected = Expected::new(&server.running.urls.verdicts, now);
    assert!(matches!(verify_verdict(&token, &keys, &expected), Err(VerifyError::Kind { .. })));
    assert!(matches!(verify_event(&token, &keys, &expected), Err(VerifyError::Kind { .. })));

    for nothing in ["0".repeat(64), address.to_uppercase(), address[1..].to_owned(), String::new()] {
        let response = read(&server, &nothing, "*/*").await;
        assert_eq!(response.status(), 404, "{nothing}");
        assert_eq!(response.json::<Value>().await.unwrap()["error"]["message"], "no such object");
        let response = read(&server, &nothing, "text/html").await;
        assert_eq!(
            (response.status().as_u16(), response.headers()["vary"].as_bytes()),
            (404, &b"accept"[..])
        );
        assert!(response.text().await.unwrap().contains("There is no contract at this address"));
    }
}
