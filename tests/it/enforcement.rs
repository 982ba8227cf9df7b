//! GET and POST /v1/enforcement.

use serde_json::json;

use crate::harness::{Client, TestServer};

fn switch(client: &Client, mode: &str) -> String {
    let wanted = format!(r#"{{"mode":"{mode}","since":"TIME"}}"#);
    let answer = client.post("/enforcement", &json!({ "mode": mode })).is(200, &wanted);
    assert_eq!(client.get("/enforcement").is(200, &wanted).body, answer.body);
    answer.text("/since")
}

#[test]
fn the_mode_is_switched_for_one_environment() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    organization.client.get("/enforcement").is(200, r#"{"mode":"enforce","since":"TIME"}"#);
    let live = organization.live.get("/enforcement").is(200, r#"{"mode":"observe","since":"TIME"}"#);

    let since = switch(&organization.client, "observe");
    assert_eq!(switch(&organization.client, "observe"), since, "what is in force is not switched");
    assert_eq!(agent.ask(900).text("/mode"), "observe");
    assert_eq!(agent.ask(900).text("/verdict"), "deny_limit", "the verdict is the same in both modes");
    assert!(switch(&organization.client, "enforce") > since);
    let answer = agent.ask(40);
    assert_eq!(answer.text("/mode"), "enforce");
    assert_eq!(organization.live.get("/enforcement").body, live.body);

    // A decision shows the mode in which it was made.
    switch(&organization.client, "observe");
    assert_eq!(
        agent.client.get(&format!("/decisions/{}", answer.text("/decision"))).text("/mode"),
        "enforce"
    );
    server.organization("other").client.get("/enforcement").is(200, r#"{"mode":"enforce","since":"TIME"}"#);
}

#[test]
fn there_are_two_modes_and_an_organization_chooses() {
    let server = TestServer::start();
    let organization = server.demo();
    for (body, message) in [
        (json!({}), "mode is required"),
        (json!({ "mode": "off" }), "mode must be observe or enforce; got `off`"),
        (json!({ "mode": true }), "mode must be a string; got a boolean"),
        (json!({ "mode": "observe", "why": "" }), "why is not a known field; known are mode"),
    ] {
        organization.client.post("/enforcement", &body).refused(400, "invalid_request", message);
    }
    let agent = organization.agent("buyer");
    let message = "this takes an organization key; the one sent is an agent key";
    agent.client.get("/enforcement").refused(403, "forbidden", message);
    agent.client.post("/enforcement", &json!({ "mode": "observe" })).refused(403, "forbidden", message);
    organization.client.get("/enforcement").is(200, r#"{"mode":"enforce","since":"TIME"}"#);
    let unsupported = organization.client.send("PUT", "/enforcement", &[], "").unwrap();
    let message = "PUT is not supported on /v1/enforcement";
    assert_eq!(unsupported.refused(400, "invalid_request", message).header("allow"), None);
}
