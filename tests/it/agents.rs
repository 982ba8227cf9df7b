//! /v1/agents and /v1/agents/{id}.

use serde_json::json;

use crate::harness::{Agent, Client, TestServer};

#[test]
fn an_agent_is_registered_and_its_key_shown_once() {
    let server = TestServer::start();
    let organization = server.demo();
    let created = organization.client.post("/agents", &json!({ "name": "buyer" }));
    let created = created
        .is(201, r#"{"id":"agt_buyer","name":"buyer","created_at":"TIME","agent_key":"ak_sandbox_*"}"#);
    let agent = server.client(&created.text("/agent_key"));
    for client in [&organization.client, &agent] {
        client.get("/agents/agt_buyer").is(200, r#"{"id":"agt_buyer","name":"buyer","created_at":"TIME"}"#);
    }
    let live = organization.live.post("/agents", &json!({ "name": "buyer" }));
    live.is(201, r#"{"id":"agt_buyer","name":"buyer","created_at":"TIME","agent_key":"ak_live_*"}"#);
}

#[test]
fn a_name_is_taken_once_in_an_environment() {
    let server = TestServer::start();
    server.demo().agent("buyer");
    let again = server.demo().client.post("/agents", &json!({ "name": "buyer" }));
    again.refused(409, "name_taken", "name `buyer` is taken by another agent; choose another");
    server.organization("other").agent("buyer");
    Agent::register(&server.demo().live, "buyer");
}

#[test]
fn what_is_wrong_with_a_body_is_said() {
    let server = TestServer::start();
    let organization = server.demo().client;
    let long = format!(r#"{{"name":"{}"}}"#, "a".repeat(65_536));
    let deep = format!("{}{}", r#"{"name":"#.repeat(33), "}".repeat(33));
    for (body, message) in [
        ("", "body must be a JSON object; it is empty"),
        ("{}", "name is required"),
        ("[]", "body must be a JSON object"),
        (r#"{"name":"Buyer"}"#, "name must match [a-z0-9][a-z0-9_-]{0,63}; got `Buyer`"),
        (r#"{"name":7}"#, "name must be a string; got a number"),
        (r#"{"name":"a","name":"b"}"#, "name appears twice in the object"),
        (r#"{"name":"a","role":"b"}"#, "role is not a known field; known are name"),
        (r#"{"name":"a"} {}"#, "body must be JSON and nothing else; it is not at byte 13"),
        (&long, "body must be at most 65536 bytes long"),
        (&deep, "body must be at most 32 levels deep; the limit is passed at byte 256"),
    ] {
        organization.post_text("/agents", body).refused(400, "invalid_request", message);
    }
    let plain = organization.send("POST", "/agents", &[("content-type", "text/plain")], r#"{"name":"a"}"#);
    plain.unwrap().refused(400, "invalid_request", "Content-Type must be application/json");
    organization.get("/agents").is(200, r#"{"data":[],"has_more":false}"#);
}

#[test]
fn an_agent_sees_itself_and_an_organization_its_own() {
    let server = TestServer::start();
    let organization = server.demo();
    let (first, _second) = (organization.agent("first"), organization.agent("second"));
    let listed = |client: &Client| client.get("/agents");
    listed(&organization.client).is(
        200,
        concat!(
            r#"{"data":[{"id":"agt_second","name":"second","created_at":"TIME"},"#,
            r#"{"id":"agt_first","name":"first","created_at":"TIME"}],"has_more":false}"#
        ),
    );
    listed(&first.client)
        .is(200, r#"{"data":[{"id":"agt_first","name":"first","created_at":"TIME"}],"has_more":false}"#);
    listed(&organization.live).is(200, r#"{"data":[],"has_more":false}"#);
    listed(&server.organization("other").client).is(200, r#"{"data":[],"has_more":false}"#);

    let absent = first.client.get("/agents/agt_absent").refused(404, "not_found", "no such object");
    for (client, id) in
        [(&first.client, "agt_second"), (&organization.live, "agt_first"), (&first.client, "second")]
    {
        let foreign = client.get(&format!("/agents/{id}")).refused(404, "not_found", "no such object");
        assert_eq!(foreign.headers.keys().collect::<Vec<_>>(), absent.headers.keys().collect::<Vec<_>>());
    }
}

#[test]
fn lists_are_walked_by_cursor() {
    let server = TestServer::start();
    let organization = server.demo();
    let agents: Vec<_> = (0..5).map(|n| organization.agent(&format!("agent-{n}"))).collect();
    let mut path = "/agents?limit=2".to_owned();
    let mut walked = Vec::new();
    loop {
        let page = organization.client.get(&path).json();
        walked.extend(
            page["data"].as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page["next_cursor"].as_str() else {
            assert_eq!(page["has_more"], false);
            break;
        };
        assert_eq!(page["has_more"], true);
        path = format!("/agents?limit=2&cursor={cursor}");
    }
    let newest_first: Vec<_> = agents.iter().rev().map(|agent| agent.id.clone()).collect();
    assert_eq!(walked, newest_first);

    let cursor = organization.client.get("/agents?limit=2").text("/next_cursor");
    let message = "cursor expired or malformed";
    for (client, path) in [
        (&organization.client, format!("/agents?cursor={}", &cursor[..cursor.len() - 1])),
        (&organization.client, format!("/agents?cursor={cursor}0")),
        (&organization.client, "/agents?cursor=cur_1".to_owned()),
        (&organization.client, "/agents?cursor=".to_owned()),
        (&organization.client, format!("/mandates?cursor={cursor}")),
        (&organization.live, format!("/agents?cursor={cursor}")),
        (&agents[0].client, format!("/agents?cursor={cursor}")),
        (&server.organization("other").client, format!("/agents?cursor={cursor}")),
    ] {
        client.get(&path).refused(400, "invalid_request", message);
    }
    for limit in ["0", "101", "1.5", "ten", "-1", "", "1e1"] {
        let message = "limit must be an integer between 1 and 100";
        organization.client.get(&format!("/agents?limit={limit}")).refused(400, "invalid_request", message);
    }
    let unknown = organization.client.get("/agents?page=2");
    assert_eq!((unknown.status, unknown.text("/error/code").as_str()), (400, "invalid_request"));
    assert!(
        unknown.text("/error/message").starts_with("page is not a known parameter; known are limit, cursor")
    );
}

#[test]
fn a_retry_gets_the_key_again_and_another_request_does_not() {
    let server = TestServer::start();
    let organization = server.demo().client;
    let create =
        |name: &str| organization.post_once("onboarding 1", "/agents", &json!({ "name": name })).unwrap();
    let first = create("buyer");
    assert_eq!((first.status, first.header("idempotency-replayed")), (201, None));
    let again = create("buyer");
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_ne!(again.header("x-request-id"), first.header("x-request-id"));
    let message =
        "Idempotency-Key `onboarding 1` was used with another request less than 24 hours ago; use a new key";
    create("seller").refused(409, "idempotency_conflict", message);

    // A refusal is kept like a success, and has the id of the request that it answers.
    let refuse = || organization.post_once("onboarding 2", "/agents", &json!({ "name": "buyer" })).unwrap();
    let taken = "name `buyer` is taken by another agent; choose another";
    let refused = refuse().refused(409, "name_taken", taken);
    let again = refuse().refused(409, "name_taken", taken);
    assert_ne!(again.header("x-request-id"), refused.header("x-request-id"));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    for key in ["", &"k".repeat(256), "é"] {
        let message = "Idempotency-Key must be 1 to 255 printable ASCII characters";
        organization.post_once(key, "/agents", &json!({ "name": "c" })).unwrap().refused(
            400,
            "invalid_request",
            message,
        );
    }
}
