//! POST /v1/authorizations.

use serde_json::json;

use crate::harness::{Agent, TestServer, authorization, terms};

const ALLOW: &str = r#"{"decision":"dec_*","verdict":"allow","mode":"enforce","verdict_token":"JWT"}"#;

fn denial(code: &str, reason: &str) -> String {
    format!(r#"{{"decision":"dec_*","verdict":"{code}","mode":"enforce","reason":"{reason}"}}"#)
}

#[test]
fn every_verdict_is_a_201() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.agent("buyer");
    agent.ask(40).is(201, &denial("deny_no_mandate", "agent agt_buyer has no mandate"));

    let mandate = organization.mandate(&terms("agt_buyer"));
    agent.ask(200).is(201, ALLOW);
    agent.ask(201).is(
        201,
        concat!(
            r#"{"decision":"dec_*","verdict":"review","mode":"enforce","review":"#,
            r#"{"id":"rev_*","status":"pending","waits_for":"role:head-of-it","expires_at":"TIME"}}"#
        ),
    );
    agent.ask(900).is(201, &denial("deny_limit", "amount 900 exceeds per_transaction limit 500"));
    let ask = |name: &str, value: &str| {
        let mut body = authorization(40);
        body[name] = json!(value);
        agent.client.post("/authorizations", &body)
    };
    ask("currency", "EUR").is(201, &denial("deny_limit", "currency EUR is not the mandate's currency USD"));
    let reason = "category travel is not among the mandate's categories";
    ask("category", "travel").is(201, &denial("deny_category", reason));

    organization.client.act(&format!("/mandates/{mandate}/revoke"));
    agent.ask(40).is(201, &denial("deny_revoked", "mandate mnd_* is revoked"));
}

#[test]
fn a_month_is_spent_to_the_last_cent_and_no_further() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.agent("buyer");
    let mut limited = terms("agt_buyer");
    limited["limits"]["per_month"] = json!(100.5);
    organization.mandate(&limited);
    agent.ask(60).is(201, ALLOW);
    agent.ask(41).is(201, &denial("deny_limit", "amount 41 exceeds per_month limit 100.5 (60 spent)"));
    let cents = r#"{"amount":40.50,"currency":"USD","recipient":"vendor:acme","category":"software"}"#;
    agent.client.post_text("/authorizations", cents).is(201, ALLOW);
    let least = r#"{"amount":1e-8,"currency":"USD","recipient":"vendor:acme","category":"software"}"#;
    let reason = "amount 0.00000001 exceeds per_month limit 100.5 (100.5 spent)";
    agent.client.post_text("/authorizations", least).is(201, &denial("deny_limit", reason));
    // Another mandate of the same agent does not begin the month anew.
    organization.mandate(&limited);
    agent.ask(1).is(201, &denial("deny_limit", "amount 1 exceeds per_month limit 100.5 (100.5 spent)"));
}

#[test]
fn the_eleventh_request_within_a_minute_is_too_fast() {
    let server = TestServer::start();
    let organization = server.demo();
    let (agent, other) = (organization.buyer("buyer"), organization.buyer("other"));
    for n in 0..10 {
        // Denied ones count; refused ones don't.
        let verdict = agent.ask(if n % 2 == 0 { 1 } else { 900 }).text("/verdict");
        assert_eq!(verdict, if n % 2 == 0 { "allow" } else { "deny_limit" });
        assert_eq!(agent.client.post_text("/authorizations", "{}").status, 400);
    }
    agent.ask(1).is(201, &denial("deny_velocity", "more than 10 requests in 60 seconds"));
    // The earlier rule wins, and the decision lists both.
    let both = agent.ask(900).is(201, &denial("deny_limit", "amount 900 exceeds per_transaction limit 500"));
    let decision = agent.client.get(&format!("/decisions/{}", both.text("/decision"))).json();
    assert_eq!(decision["denials"], json!(["deny_limit", "deny_velocity"]));
    assert_eq!(decision["basis"], json!({ "spent": 5, "recent_requests": 10 }));
    other.ask(1).is(201, ALLOW);
}

#[test]
fn production_begins_in_observe() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = Agent::register(&organization.live, "buyer");
    let observed = |verdict: &str, rest: &str| {
        format!(r#"{{"decision":"dec_*","verdict":"{verdict}","mode":"observe",{rest}}}"#)
    };
    agent.ask(1).is(201, &observed("deny_no_mandate", r#""reason":"agent agt_buyer has no mandate""#));
    assert_eq!(organization.live.post("/mandates", &terms("agt_buyer")).status, 201);
    agent.ask(1).is(201, &observed("allow", r#""verdict_token":"JWT""#));
}

#[test]
fn what_is_wrong_with_a_request_is_said() {
    let server = TestServer::start();
    let agent = server.demo().buyer("buyer");
    for (spoilt, message) in [
        (json!({ "amount": "40" }), "amount must be a number; got a string"),
        (json!({ "amount": 0 }), "amount must be greater than 0; got `0`"),
        (json!({ "amount": -1 }), "amount must be greater than 0; got `-1`"),
        (
            json!({ "amount": 0.123_456_789 }),
            "amount must have at most 15 digits, of which at most 8 are fractional; got `0.123456789`",
        ),
        (json!({ "amount": null }), "amount must be a number; got null"),
        (
            json!({ "currency": "us" }),
            "currency must be 3 to 8 characters of A-Z and 0-9, the first a letter; got `us`",
        ),
        (
            json!({ "recipient": "acme" }),
            "recipient must be `vendor:` and a name that matches [A-Za-z0-9][A-Za-z0-9_.-]{0,127}; got `acme`",
        ),
        (json!({ "category": "Software" }), "category must match [a-z0-9][a-z0-9_.-]{0,63}; got `Software`"),
        (
            json!({ "agent": "agt_other" }),
            "agent is not a known field; known are amount, currency, recipient, category",
        ),
    ] {
        let mut body = authorization(40);
        body.as_object_mut().unwrap().extend(spoilt.as_object().unwrap().clone());
        agent.client.post("/authorizations", &body).refused(400, "invalid_request", message);
    }
    agent.client.get("/decisions").is(200, r#"{"data":[],"has_more":false}"#);
}

#[test]
fn a_retry_is_replayed_and_does_not_count() {
    let server = TestServer::start();
    let agent = server.demo().buyer("buyer");
    let ask =
        |amount| agent.client.post_once("payment-1", "/authorizations", &authorization(amount)).unwrap();
    let first = ask(40).is(201, ALLOW);
    for _ in 0..12 {
        let again = ask(40);
        assert_eq!((again.status, &again.body), (201, &first.body));
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
    }
    let message =
        "Idempotency-Key `payment-1` was used with another request less than 24 hours ago; use a new key";
    ask(41).refused(409, "idempotency_conflict", message);
    agent.ask(1).is(201, ALLOW);
    assert_eq!(agent.client.get("/decisions").json()["data"].as_array().unwrap().len(), 2);
}

#[test]
fn only_an_agent_asks() {
    let server = TestServer::start();
    let organization = server.demo();
    let message = "this takes an agent key; the one sent is an organization key";
    for client in [&organization.client, &organization.live] {
        client.post("/authorizations", &authorization(40)).refused(403, "forbidden", message);
    }
    let message = "the API key is missing or revoked; send it as `Authorization: Bearer <API_KEY>`. Keys are issued at onboarding";
    for client in [server.stranger("base_url"), server.client("ak_sandbox_1")] {
        let refused =
            client.post("/authorizations", &authorization(40)).refused(401, "unauthorized", message);
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
        client.get("/no/such/path").refused(401, "unauthorized", message);
    }
}
