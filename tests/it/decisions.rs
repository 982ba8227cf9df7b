//! GET /v1/decisions and /v1/decisions/{id}.

use serde_json::json;

use crate::harness::{Agent, TestServer, authorization, terms};

fn decision(sequence: usize, verdict: &str, amount: u32, rest: &str) -> String {
    format!(
        concat!(
            r#"{{"iss":"http://127.0.0.1:*","jti":"dec_*","iat":*,"exp":*,"verdict":"{}","mandate":"mnd_*","#,
            r#""policy_version":"pol_*.1","nonce":"n_*","request":{{"agent":"agt_buyer","amount":{},"currency":"USD","#,
            r#""recipient":"vendor:acme","category":"software"}},"sequence":{},"decided_at":"TIME","mode":"enforce",{},"verdict_token":"JWT"}}"#
        ),
        verdict, amount, sequence, rest
    )
}

#[test]
fn a_decision_is_shown_with_its_grounds() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let mut shown = Vec::new();
    for (amount, verdict, rest) in [
        (40, "allow", r#""basis":{"spent":0,"recent_requests":0}"#),
        (
            900,
            "deny_limit",
            concat!(
                r#""reason":"amount 900 exceeds per_transaction limit 500","denials":["deny_limit"],"#,
                r#""basis":{"spent":40,"recent_requests":1}"#
            ),
        ),
        (
            300,
            "review",
            concat!(
                r#""basis":{"spent":40,"recent_requests":2},"#,
                r#""review":{"id":"rev_*","status":"pending","waits_for":"role:head-of-it","expires_at":"TIME"}"#
            ),
        ),
    ] {
        let answer = agent.ask(amount);
        let path = format!("/decisions/{}", answer.text("/decision"));
        let one = decision(shown.len() + 1, verdict, amount, rest);
        let found = organization.client.get(&path).is(200, &one);
        assert_eq!(agent.client.get(&path).body, found.body);
        assert_eq!(found.json()["exp"].as_i64().unwrap() - found.json()["iat"].as_i64().unwrap(), 300);
        if verdict == "allow" {
            assert_eq!(found.text("/verdict_token"), answer.text("/verdict_token"), "byte for byte");
        }
        shown.insert(0, one);
    }
    let list = format!(r#"{{"data":[{}],"has_more":false}}"#, shown.join(","));
    organization.client.get("/decisions").is(200, &list);
    agent.client.get("/decisions").is(200, &list);
}

#[test]
fn without_a_mandate_none_is_named() {
    let server = TestServer::start();
    let agent = server.demo().agent("buyer");
    let path = format!("/decisions/{}", agent.ask(40).text("/decision"));
    let rest = concat!(
        r#""reason":"agent agt_buyer has no mandate","denials":["deny_no_mandate"],"#,
        r#""basis":{"spent":0,"recent_requests":0}"#
    );
    let wanted = decision(1, "deny_no_mandate", 40, rest).replace(r#""mandate":"mnd_*","#, "");
    agent.client.get(&path).is(200, &wanted);
}

#[test]
fn amounts_are_exact_from_the_body_to_the_record() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.agent("buyer");
    let mut wide = terms("agt_buyer");
    wide["limits"] = json!({ "per_transaction": 999_999_999_999_999_i64, "currency": "USD" });
    wide.as_object_mut().unwrap().remove("review_above");
    organization.mandate(&wide);
    for (sent, kept) in [
        ("0.1", "0.1"),
        ("0.10", "0.1"),
        ("1.5e2", "150"),
        ("9999999.99999999", "9999999.99999999"),
        ("999999999999999", "999999999999999"),
        ("1E-8", "0.00000001"),
    ] {
        let body =
            format!(r#"{{"amount":{sent},"currency":"USD","recipient":"vendor:acme","category":"cloud"}}"#);
        let answer = agent.client.post_text("/authorizations", &body);
        let found = agent.client.get(&format!("/decisions/{}", answer.text("/decision")));
        assert!(found.body.contains(&format!(r#""amount":{kept},"#)), "{sent}: {found:?}");
    }
    let last = agent.client.get("/decisions?limit=1");
    assert!(
        last.body.contains(r#""spent":1000000010000149.19999999"#),
        "a sum may have more digits: {last:?}"
    );
}

#[test]
fn a_foreign_decision_is_as_absent() {
    let server = TestServer::start();
    let organization = server.demo();
    let (agent, stranger) = (organization.buyer("buyer"), organization.buyer("other"));
    let elsewhere = server.organization("other");
    let namesake = elsewhere.buyer("buyer");
    let decision = agent.ask(40).text("/decision");
    let absent = "dec_00000000000000000000000000";
    for client in [&stranger.client, &organization.live, &elsewhere.client, &namesake.client] {
        for id in [decision.as_str(), absent, "dec_1", "40"] {
            client.get(&format!("/decisions/{id}")).refused(404, "not_found", "no such object");
        }
        client.get("/decisions").is(200, r#"{"data":[],"has_more":false}"#);
    }
    assert_eq!(organization.client.get(&format!("/decisions/{decision}")).status, 200);
    let wrong = organization.client.post(&format!("/decisions/{decision}"), &authorization(1));
    let message = "POST is not supported on /v1/decisions/{id}";
    assert_eq!(wrong.refused(400, "invalid_request", message).header("allow"), None);
}

#[test]
fn pages_hold_still_while_decisions_are_made() {
    let server = TestServer::start();
    let organization = server.demo();
    let agents: Vec<_> = (0..3).map(|n| organization.buyer(&format!("buyer-{n}"))).collect();
    let ask_all =
        || agents.iter().flat_map(|agent: &Agent| [agent.ask(1), agent.ask(2)]).map(|a| a.text("/decision"));
    let mut before: Vec<_> = ask_all().collect();
    let mut page = organization.client.get("/decisions?limit=4").json();
    ask_all().for_each(drop);
    let mut walked = Vec::new();
    loop {
        walked.extend(page["data"].as_array().unwrap().iter().map(|d| d["jti"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        page = organization.client.get(&format!("/decisions?limit=4&cursor={cursor}")).json();
    }
    before.reverse();
    assert_eq!(walked, before);
}
