//! /v1/reviews/{id}/approve and /deny.

use serde_json::json;

use crate::harness::{Agent, Answer, Organization, TestServer, terms};

/// A pending review and the decision that waits for it.
fn pending(agent: &Agent) -> (String, String) {
    let answer = agent.ask(300);
    assert_eq!(answer.text("/verdict"), "review");
    (answer.text("/review/id"), answer.text("/decision"))
}

fn approve(organization: &Organization, review: &str) -> Answer {
    organization.client.act(&format!("/reviews/{review}/approve"))
}

#[test]
fn approving_makes_a_fresh_decision() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let (review, original) = pending(&agent);
    let fresh = approve(&organization, &review).is(
        201,
        r#"{"decision":"dec_*","verdict":"allow","mode":"enforce","verdict_token":"JWT","supersedes":"dec_*"}"#,
    );
    assert_eq!(fresh.text("/supersedes"), original);

    let old = agent.client.get(&format!("/decisions/{original}")).json();
    let new = agent.client.get(&format!("/decisions/{}", fresh.text("/decision"))).json();
    assert_eq!(old["verdict"], "review", "the original stays as it was");
    assert_eq!((&old["review"]["status"], &old["review"]["decision"]), (&json!("approved"), &new["jti"]));
    assert!(old["review"]["resolved_at"].is_string());
    assert_eq!((&new["supersedes"], &new["verdict"]), (&json!(original), &json!("allow")));
    assert_eq!(new["request"], old["request"]);
    assert_ne!(new["nonce"], old["nonce"]);
    assert_eq!(new["verdict_token"], fresh.json()["verdict_token"]);

    for action in ["approve", "deny"] {
        let again = organization.client.act(&format!("/reviews/{review}/{action}"));
        again.refused(
            400,
            "invalid_request",
            "the review is approved; only a pending review can be resolved",
        );
    }
    // What was approved is spent.
    assert_eq!(
        agent.client.get(&format!("/decisions/{}", agent.ask(1).text("/decision"))).json()["basis"]["spent"],
        300
    );
}

#[test]
fn denying_shows_the_decision_with_its_review() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let (review, original) = pending(&agent);
    let deny = |body| organization.client.post_text(&format!("/reviews/{review}/deny"), body);
    deny(r#"{"reason":7}"#).refused(400, "invalid_request", "reason must be a string; got a number");
    let long = format!(r#"{{"reason":"{}"}}"#, "x".repeat(501));
    deny(&long).refused(400, "invalid_request", "reason must be at most 500 characters long");
    let denied = deny(r#"{"reason":"not this month"}"#);
    assert_eq!(
        (denied.status, denied.text("/jti"), denied.text("/verdict")),
        (200, original.clone(), "review".to_owned())
    );
    let shown = denied.json()["review"].clone();
    assert_eq!((&shown["status"], &shown["reason"]), (&json!("denied"), &json!("not this month")));
    assert_eq!(organization.client.get(&format!("/decisions/{original}")).body, denied.body);
    approve(&organization, &review).refused(
        400,
        "invalid_request",
        "the review is denied; only a pending review can be resolved",
    );
}

#[test]
fn what_has_changed_since_decides_anew() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.agent("buyer");
    let mandate = organization.mandate(&terms("agt_buyer"));
    let reviews: Vec<_> = (0..3).map(|_| pending(&agent).0).collect();
    let mut tighter = terms("agt_buyer");
    tighter["limits"]["per_month"] = json!(500);
    let tighter = organization.mandate(&tighter);
    assert_ne!(mandate, tighter);
    approve(&organization, &reviews[0]);
    approve(&organization, &reviews[1]).is(
        201,
        concat!(
            r#"{"decision":"dec_*","verdict":"deny_limit","mode":"enforce","#,
            r#""reason":"amount 300 exceeds per_month limit 500 (300 spent)","supersedes":"dec_*"}"#
        ),
    );
    organization.client.act(&format!("/mandates/{tighter}/revoke"));
    assert_eq!(approve(&organization, &reviews[2]).text("/verdict"), "deny_revoked");
}

#[test]
fn an_approval_waives_threshold_and_velocity_and_retries_replay() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let (review, _) = pending(&agent);
    (0..10).for_each(|_| drop(agent.ask(1)));
    assert_eq!(agent.ask(1).text("/verdict"), "deny_velocity");
    let path = format!("/reviews/{review}/approve");
    let approve = || organization.client.post_once("approval-1", &path, &json!({})).unwrap();
    let first = approve();
    assert_eq!(first.text("/verdict"), "allow");
    let again = approve();
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
}

#[test]
fn a_foreign_review_is_as_absent_and_none_can_be_read() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let other = server.organization("other");
    let (review, _) = pending(&agent);
    for client in [&organization.live, &other.client, &other.live] {
        for id in
            [review.as_str(), "rev_00000000000000000000000000", "rev_1", "dec_00000000000000000000000000"]
        {
            client.act(&format!("/reviews/{id}/approve")).refused(404, "not_found", "no such object");
            client.act(&format!("/reviews/{id}/deny")).refused(404, "not_found", "no such object");
        }
    }
    let message = "this takes an organization key; the one sent is an agent key";
    agent.client.act(&format!("/reviews/{review}/approve")).refused(403, "forbidden", message);
    for client in [&organization.client, &agent.client] {
        for path in ["/reviews", &format!("/reviews/{review}")] {
            client.get(path).refused(404, "not_found", "no such path");
        }
    }
    assert_eq!(approve(&organization, &review).text("/verdict"), "allow", "it is not resolved yet");
}
