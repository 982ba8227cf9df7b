//! /v1/mandates, /v1/mandates/{id} and /v1/mandates/{id}/revoke.

use serde_json::{Value, json};

use crate::harness::{Organization, TestServer, authorization, terms};

/// What [`terms`] look like when they are read again.
const ACTIVE: &str = concat!(
    r#"{"id":"mnd_*","principal":"role:head-of-it","agent":"agt_buyer","#,
    r#""limits":{"per_transaction":500,"per_month":2000,"currency":"USD"},"categories":["software","cloud"],"#,
    r#""review_above":200,"expires":"2099-12-31","status":"active","created_at":"TIME","governs_from":1}"#
);

fn revoke(organization: &Organization, id: &str) -> crate::harness::Answer {
    organization.client.act(&format!("/mandates/{id}/revoke"))
}

#[test]
fn a_mandate_is_written_and_read() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.agent("buyer");
    let written = organization.client.post("/mandates", &terms("agt_buyer")).is(201, ACTIVE);
    let path = format!("/mandates/{}", written.text("/id"));
    for client in [&organization.client, &agent.client] {
        assert_eq!(client.get(&path).is(200, ACTIVE).body, written.body);
        client.get("/mandates").is(200, &format!(r#"{{"data":[{ACTIVE}],"has_more":false}}"#));
    }
}

#[test]
fn what_is_optional_may_be_absent_and_amounts_are_normalised() {
    let server = TestServer::start();
    let organization = server.demo();
    organization.agent("buyer");
    let body = r#"{"principal":"role:cfo","agent":"agt_buyer","limits":{"per_transaction":1.50e2,"currency":"USDC"},
        "categories":["cloud.compute"],"expires":"2099-02-28"}"#;
    organization.client.post_text("/mandates", body).is(
        201,
        concat!(
            r#"{"id":"mnd_*","principal":"role:cfo","agent":"agt_buyer","limits":{"per_transaction":150,"currency":"USDC"},"#,
            r#""categories":["cloud.compute"],"expires":"2099-02-28","status":"active","created_at":"TIME","governs_from":1}"#
        ),
    );
    let body = r#"{"principal":"role:cfo","agent":"agt_buyer","limits":{"per_transaction":0.00000001,"per_month":9.50,"currency":"USD"},
        "categories":["a"],"expires":"2099-02-28","review_above":0,"escrow":{"required_above":100.0}}"#;
    organization.client.post_text("/mandates", body).is(
        201,
        concat!(
            r#"{"id":"mnd_*","principal":"role:cfo","agent":"agt_buyer","#,
            r#""limits":{"per_transaction":0.00000001,"per_month":9.5,"currency":"USD"},"categories":["a"],"review_above":0,"#,
            r#""expires":"2099-02-28","escrow":{"required_above":100},"status":"active","created_at":"TIME","governs_from":1}"#
        ),
    );
}

#[test]
fn what_is_wrong_with_a_mandate_is_said() {
    let server = TestServer::start();
    let organization = server.demo();
    organization.agent("buyer");
    let check = |spoil: &dyn Fn(&mut Value), message: &str| {
        let mut body = terms("agt_buyer");
        spoil(&mut body);
        organization.client.post("/mandates", &body).refused(400, "invalid_request", message);
    };
    let without = |path: &'static [&'static str]| {
        move |body: &mut Value| {
            let (name, parents) = path.split_last().unwrap();
            let parent = parents.iter().fold(body, |at, name| &mut at[*name]);
            parent.as_object_mut().unwrap().remove(*name).unwrap();
        }
    };
    check(&without(&["principal"]), "principal is required");
    check(&without(&["agent"]), "agent is required");
    check(&without(&["limits"]), "limits.currency is required");
    check(&without(&["limits", "currency"]), "limits.currency is required");
    check(&without(&["limits", "per_transaction"]), "limits.per_transaction is required");
    check(&without(&["categories"]), "categories is required");
    check(&without(&["expires"]), "expires is required");
    check(
        &|b| b["limits"]["per_transaction"] = json!("500"),
        "limits.per_transaction must be a number; got a string",
    );
    check(&|b| b["limits"]["per_month"] = json!(0), "limits.per_month must be greater than 0; got `0`");
    check(
        &|b| b["limits"]["per_day"] = json!(1),
        "limits.per_day is not a known field; known are currency, per_transaction, per_month",
    );
    check(
        &|b| b["limits"]["currency"] = json!("usd"),
        "limits.currency must be 3 to 8 characters of A-Z and 0-9, the first a letter; got `usd`",
    );
    check(&|b| b["categories"] = json!([]), "categories must hold 1 to 64 categories; got 0");
    check(&|b| b["categories"] = json!(["a", "b", "a"]), "categories[2] must not appear twice; got `a`");
    check(
        &|b| b["review_above"] = json!(500.01),
        "review_above must not be above limits.per_transaction, 500; got `500.01`",
    );
    check(
        &|b| b["expires"] = json!("2099-02-29"),
        "expires must be a calendar date in the form YYYY-MM-DD; got `2099-02-29`",
    );
    check(
        &|b| b["agent"] = json!("agt_absent"),
        "agent must be one that is registered in this environment; got `agt_absent`",
    );
    check(&|b| b["escrow"] = json!({}), "escrow.required_above is required");

    let mut expired = terms("agt_buyer");
    expired["expires"] = json!("2020-01-01");
    let refused = organization.client.post("/mandates", &expired);
    assert_eq!(refused.status, 400);
    assert!(
        refused
            .text("/error/message")
            .starts_with("expires must not be in the past; got `2020-01-01`, today is ")
    );
}

#[test]
fn the_newest_governs_and_only_it_can_be_revoked() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.agent("buyer");
    let first = organization.mandate(&terms("agt_buyer"));
    let second = organization.mandate(&terms("agt_buyer"));
    let replaced = ACTIVE.replace(
        r#""active","created_at":"TIME""#,
        r#""replaced","created_at":"TIME","replaced_by":"mnd_*""#,
    );
    let replaced = replaced.replace(r#""governs_from":1"#, r#""governs_from":1,"governed_until":0"#);
    let shown = organization.client.get(&format!("/mandates/{first}")).is(200, &replaced);
    assert_eq!(shown.text("/replaced_by"), second);
    let message = format!(
        "mandate {first} was replaced and governs no agent; to stop agt_buyer, revoke {second}, which governs it"
    );
    revoke(&organization, &first).refused(400, "invalid_request", &message);
    assert_eq!(agent.ask(40).text("/verdict"), "allow");

    let revoked = ACTIVE
        .replace(r#""active","created_at":"TIME""#, r#""revoked","created_at":"TIME","revoked_at":"TIME""#)
        .replace(r#""governs_from":1"#, r#""governs_from":1,"revoked_after":1"#);
    let once = revoke(&organization, &second).is(200, &revoked);
    let twice = revoke(&organization, &second).is(200, &revoked);
    assert_eq!(once.body, twice.body, "revoking it again changes nothing");
    let denied = agent.ask(40);
    assert_eq!(denied.text("/verdict"), "deny_revoked");
    assert_eq!(denied.text("/reason"), format!("mandate {second} is revoked"));

    let third = organization.mandate(&terms("agt_buyer"));
    // It stays revoked, and governs no longer.
    let ended = revoked.replace(r#""revoked_after":1"#, r#""revoked_after":1,"governed_until":2"#);
    agent.client.get(&format!("/mandates/{second}")).is(200, &ended);
    assert_eq!(agent.ask(40).text("/verdict"), "allow");
    let governs = ACTIVE.replace(r#""governs_from":1"#, r#""governs_from":3"#);
    organization
        .client
        .get("/mandates")
        .is(200, &format!(r#"{{"data":[{governs},{ended},{replaced}],"has_more":false}}"#));
    assert_eq!(agent.client.get("/mandates?limit=1").text("/data/0/id"), third);
}

#[test]
fn a_foreign_mandate_is_as_absent() {
    let server = TestServer::start();
    let organization = server.demo();
    let (_, stranger) = (organization.agent("buyer"), organization.agent("other"));
    let other = server.organization("other");
    let mandate = organization.mandate(&terms("agt_buyer"));
    let absent = "mnd_00000000000000000000000000";
    for client in [&stranger.client, &organization.live, &other.client, &other.live] {
        for id in [mandate.as_str(), absent, "mnd_1", "dec_00000000000000000000000000", "%2e%2e"] {
            client.get(&format!("/mandates/{id}")).refused(404, "not_found", "no such object");
        }
        client.get("/mandates").is(200, r#"{"data":[],"has_more":false}"#);
    }
    for id in [mandate.as_str(), absent, "mnd_1"] {
        for client in [&organization.live, &other.client] {
            client.act(&format!("/mandates/{id}/revoke")).refused(404, "not_found", "no such object");
        }
    }
    let message = "this takes an organization key; the one sent is an agent key";
    stranger.client.post("/mandates", &terms("agt_other")).refused(403, "forbidden", message);
    stranger.client.act(&format!("/mandates/{mandate}/revoke")).refused(403, "forbidden", message);
    organization.client.get(&format!("/mandates/{mandate}")).is(200, ACTIVE);
}

#[test]
fn deleting_is_refused_without_an_allow_header() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    for client in [&organization.client, &agent.client] {
        let refused = client.send("DELETE", "/mandates/mnd_1", &[], "").unwrap();
        let refused = refused.refused(400, "invalid_request", "DELETE is not supported on /v1/mandates/{id}");
        assert_eq!(refused.header("allow"), None);
    }
    let foreign_names = json!({ "amount": 1, "currency": "USD", "recipient": "vendor:a", "category": "software", "mandate": "mnd_1" });
    assert_ne!(foreign_names, authorization(1));
    agent.client.post("/authorizations", &foreign_names).refused(
        400,
        "invalid_request",
        "mandate is not a known field; known are amount, currency, recipient, category",
    );
}
