//! /v1/webhooks and /v1/events

use reqwest::Method;
use serde_json::{Value, json};

use crate::server::Server;

async fn send(server: &Server, key: &str, method: Method, path: &str) -> (u16, String) {
    let url = format!("{}{path}", server.running.urls.base);
    let response = server.http.request(method, url).bearer_auth(key).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

fn message(refused: &Value) -> &str {
    refused["error"]["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_webhook_lives_from_its_creation_to_its_deletion() {
    let server = Server::start().await;
    let key = &server.organization_key;
    let body = json!({"url": "https://hooks.example/in", "events": ["decision.review_pending"]});
    let webhook = server.post(key, "/webhooks", &body, 201).await;
    let path = format!("/webhooks/{}", webhook["webhook"].as_str().unwrap());
    assert_eq!(server.read(key, &path, 200).await, webhook);
    assert_eq!(server.read(key, "/webhooks", 200).await, json!({"data": [webhook], "has_more": false}));

    let ping = server.post(key, &format!("{path}/ping"), &json!({}), 202).await;
    assert_eq!((&ping["type"], &ping["data"]), (&json!("ping"), &json!({"webhook": webhook["webhook"]})));
    assert_eq!(server.read(key, "/events?type=ping", 200).await, json!({"data": [ping], "has_more": false}));
    assert_eq!(
        server.read(key, "/events?type=mandate.revoked", 200).await,
        json!({"data": [], "has_more": false})
    );
    let event = format!("/events/{}", ping["event"].as_str().unwrap());
    let read = server.read(key, &event, 200).await;
    let delivery = &read["deliveries"][0];
    assert_eq!((&delivery["webhook"], &delivery["status"]), (&webhook["webhook"], &json!("pending")));

    assert_eq!(send(&server, key, Method::DELETE, &path).await, (204, String::new()));
    let read = server.read(key, &event, 200).await;
    let delivery = &read["deliveries"][0];
    assert_eq!((&delivery["status"], delivery.get("next_attempt_at")), (&json!("ended"), None));
    for (method, path) in
        [(Method::DELETE, path.clone()), (Method::GET, path.clone()), (Method::POST, format!("{path}/ping"))]
    {
        assert_eq!(send(&server, key, method, &path).await.0, 404);
    }
}

#[tokio::test]
async fn a_review_and_a_revocation_over_http_leave_their_events() {
    let server = Server::start().await;
    let key = &server.organization_key;
    let agent_key = server.agent("a").await;
    let mandate = json!({"principal": "role:cfo", "agent": "agt_a", "categories": ["c"], "review_above": 10,
        "limits": {"per_transaction": 500, "currency": "USD"}, "expires": "2026-12-31"});
    let mandate = server.post(key, "/mandates", &mandate, 201).await;
    for resolution in ["approve", "deny"] {
        let asked = server.ask(&agent_key, json!(40)).await;
        let path = format!("/reviews/{}/{resolution}", asked["review"]["id"].as_str().unwrap());
        server.post(key, &path, &json!({}), if resolution == "approve" { 201 } else { 200 }).await;
    }
    server.post(key, &format!("/mandates/{}/revoke", mandate["id"].as_str().unwrap()), &json!({}), 200).await;
    let events = server.read(key, "/events", 200).await;
    let events = events["data"].as_array().unwrap();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        [
            "mandate.revoked",
            "decision.resolved",
            "decision.review_pending",
            "decision.resolved",
            "decision.review_pending"
        ]
    );
    for (event, status) in events[1..].iter().zip(["denied", "pending", "approved", "pending"]) {
        assert_eq!(event["data"]["review"]["status"], status);
    }
}

#[tokio::test]
async fn what_is_refused_names_the_field() {
    let server = Server::start().await;
    let key = &server.organization_key;
    let https = "https://hooks.example/in";
    for (body, problem) in [
        (json!({"events": ["ping"]}), "url is required"),
        (json!({"url": https}), "events is required"),
        (json!({"url": 1, "events": ["ping"]}), "url must be a string; got a number"),
        (json!({"url": "http://127.0.0.1:9/", "events": ["ping"]}), "url must be an https URL"),
        (json!({"url": "https://127.0.0.1:9/", "events": ["ping"]}), "url must have a host that is public"),
        (json!({"url": https, "events": "ping"}), "events must be an array; got a string"),
        (json!({"url": https, "events": []}), "events must hold at least one type of event"),
        (json!({"url": https, "events": ["ping", "pong"]}), "events[1] must be decision.review_pending, "),
        (json!({"url": https, "events": ["ping", "ping"]}), "events[1] must not be given twice; got `ping`"),
        (json!({"url": https, "events": ["ping"], "secret": "s"}), "secret is not a known field"),
    ] {
        let refused = server.post(key, "/webhooks", &body, 400).await;
        assert!(message(&refused).starts_with(problem), "{body}: {refused}");
    }
    let refused = server.read(key, "/events?type=pong", 400).await;
    assert!(message(&refused).starts_with("type must be decision.review_pending, "), "{refused}");
    let refused = server.read(key, "/webhooks?url=x", 400).await;
    assert!(message(&refused).starts_with("url is not a known parameter"), "{refused}");

    let developers = Server::start_with(|settings| settings.loopback_webhooks = true).await;
    let body = json!({"url": "http://127.0.0.1:9/", "events": ["ping"]});
    developers.post(&developers.organization_key, "/webhooks", &body, 201).await;
}

#[tokio::test]
async fn webhooks_and_events_are_their_organizations_alone() {
    let server = Server::start().await;
    let body = json!({"url": "https://hooks.example/in", "events": ["ping"]});
    let webhook = server.post(&server.organization_key, "/webhooks", &body, 201).await;
    let webhook = format!("/webhooks/{}", webhook["webhook"].as_str().unwrap());
    let ping = server.post(&server.organization_key, &format!("{webhook}/ping"), &json!({}), 202).await;
    let event = format!("/events/{}", ping["event"].as_str().unwrap());
    let (agent, stranger) = (server.agent("a").await, server.stranger());
    for (method, path, owned) in [
        (Method::GET, webhook.as_str(), true),
        (Method::DELETE, &webhook, true),
        (Method::POST, &format!("{webhook}/ping"), true),
        (Method::GET, &event, true),
        (Method::POST, "/webhooks", false),
        (Method::GET, "/webhooks", false),
        (Method::GET, "/events", false),
    ] {
        assert_eq!(send(&server, &agent, method.clone(), path).await.0, 403, "{method} {path}");
        if owned {
            assert_eq!(send(&server, &stranger, method.clone(), path).await.0, 404, "{method} {path}");
        }
    }
    for list in ["/webhooks", "/events"] {
        assert_eq!(server.read(&stranger, list, 200).await, json!({"data": [], "has_more": false}));
    }
    assert_eq!(send(&server, &server.organization_key, Method::DELETE, "/events").await.0, 400);
}
