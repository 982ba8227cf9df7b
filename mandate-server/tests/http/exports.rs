//! `/v1/exports`

use mandate_tests::wait::{DEADLINE, until_async};
use reqwest::Response;
use serde_json::{Value, json};

use crate::server::Server;

const NDJSON: &str = "application/x-ndjson";

async fn ready(server: &Server, path: &str) -> Value {
    let export = ended(server, path).await;
    assert_eq!(export["status"], "ready");
    export
}

/// Reads an export until it is built, or has failed.
async fn ended(server: &Server, path: &str) -> Value {
    until_async(DEADLINE, "the export is built", async || {
        let export = server.read(&server.organization_key, path, 200).await;
        (export["status"] != "pending").then_some(export)
    })
    .await
}

async fn content(server: &Server, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = server.get(&server.organization_key, path);
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn an_export_is_asked_for_built_and_streamed() {
    let server = Server::start().await;
    let agent = server.agent("a").await;
    server.ask(&agent, json!(40)).await;
    let key = &server.organization_key;
    let asked = server.post(key, "/exports", &json!({"format": "ndjson", "verdict": "allow"}), 202).await;
    let id = asked["export"].as_str().unwrap();
    let path = format!("/exports/{id}");
    let export = ready(&server, &path).await;
    assert_eq!((&export["rows"], &export["created_at"]), (&json!(1), &json!("2026-06-15T12:00:00.000Z")));

    let whole = content(&server, &path, &[("accept", NDJSON)]).await;
    let etag = format!("\"{}\"", export["sha256"].as_str().unwrap());
    assert_eq!(
        (whole.status().as_u16(), header(&whole, "content-type"), header(&whole, "etag")),
        (200, NDJSON, etag.as_str())
    );
    assert_eq!(header(&whole, "content-disposition"), format!("attachment; filename=\"{id}.ndjson\""));
    assert_eq!((header(&whole, "accept-ranges"), header(&whole, "cache-control")), ("bytes", "no-store"));
    assert!(header(&whole, "x-request-id").starts_with("req_"));
    let size = header(&whole, "content-length").to_owned();
    let text = whole.text().await.unwrap();
    assert_eq!(size, text.len().to_string());
    assert_eq!(text.lines().count(), 4);

    let rest =
        content(&server, &path, &[("accept", NDJSON), ("range", "bytes=100-"), ("if-range", &etag)]).await;
    assert_eq!(rest.status(), 206);
    assert_eq!(header(&rest, "content-range"), format!("bytes 100-{}/{size}", text.len() - 1));
    assert_eq!(rest.text().await.unwrap(), text[100..]);
    let other = [("accept", NDJSON), ("range", "bytes=100-"), ("if-range", "\"another\"")];
    assert_eq!(content(&server, &path, &other).await.status(), 200);
    let beyond = format!("bytes={size}-");
    let beyond = content(&server, &path, &[("accept", NDJSON), ("range", &beyond)]).await;
    let message = beyond.json::<Value>().await.unwrap()["error"]["message"].clone();
    assert_eq!(message, format!("Range must lie in the content, which has {size} bytes"));

    let csv = content(&server, &path, &[("accept", "text/csv")]).await;
    assert_eq!(csv.status(), 400);
    let message = csv.json::<Value>().await.unwrap()["error"]["message"].clone();
    assert_eq!(message, "the export is ndjson; ask for that, or for the record");
    server.read(&server.stranger(), &path, 404).await;
    server.read(&agent, &path, 403).await;
    let csv = server.post(key, "/exports", &json!({"format": "csv", "agent": "agt_a"}), 202).await;
    let path = format!("/exports/{}", csv["export"].as_str().unwrap());
    ready(&server, &path).await;
    let csv = content(&server, &path, &[("accept", "text/csv")]).await;
    assert_eq!(header(&csv, "content-type"), "text/csv");
    assert_eq!(csv.text().await.unwrap().lines().count(), 2);
}

#[tokio::test]
async fn a_text_of_an_export_ends_no_line_for_any_reader_and_is_read_as_it_was_written() {
    const REASON: &str = "one\u{2028}two\u{2029}three";
    let server = Server::start().await;
    let (agent, key) = (server.agent("a").await, &server.organization_key);
    let mandate = json!({"principal": "role:cfo", "agent": "agt_a", "categories": ["c"], "review_above": 200,
        "limits": {"per_transaction": 500, "currency": "USD"}, "expires": "2026-12-31"});
    server.post(key, "/mandates", &mandate, 201).await;
    let asked = server.ask(&agent, json!(300)).await;
    let deny = format!("/reviews/{}/deny", asked["review"]["id"].as_str().unwrap());
    server.post(key, &deny, &json!({ "reason": REASON }), 200).await;
    let asked = server.post(key, "/exports", &json!({"format": "ndjson"}), 202).await;
    let path = format!("/exports/{}", asked["export"].as_str().unwrap());
    ready(&server, &path).await;
    let text = content(&server, &path, &[("accept", NDJSON)]).await.text().await.unwrap();
    assert!(!text.contains(['\u{2028}', '\u{2029}']), "{text}");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(lines.any(|line| line["decision"]["review"]["reason"] == REASON), "{text}");
}

#[tokio::test]
async fn what_is_wrong_with_a_body_is_named() {
    let server = Server::start().await;
    for (body, message) in [
        (json!({}), "format is required"),
        (json!({"format": "xml"}), "format must be ndjson or csv"),
        (
            json!({"format": "csv", "since": "june"}),
            "since must be an RFC 3339 instant such as 2026-03-01T12:00:00Z; got `june`",
        ),
        (
            json!({"format": "csv", "mode": "enforce"}),
            "mode is not a known field; known are format, verdict, agent, since, until",
        ),
    ] {
        let refused = server.post(&server.organization_key, "/exports", &body, 400).await;
        assert_eq!(refused["error"]["message"], message);
    }
}

#[tokio::test]
async fn the_content_of_one_that_has_failed_cannot_be_read() {
    let server =
        Server::start_with(|settings| settings.exports_directory = Some("/dev/null/none".into())).await;
    let key = server.organization_key.clone();
    let asked = server.post(&key, "/exports", &json!({"format": "csv"}), 202).await;
    let path = format!("/exports/{}", asked["export"].as_str().unwrap());
    assert_eq!(ended(&server, &path).await["status"], "failed");
    let failed = content(&server, &path, &[("accept", "text/csv")]).await;
    let message = failed.json::<Value>().await.unwrap()["error"]["message"].clone();
    assert_eq!(message, "the export is failed; its content can be read when it is ready");
}

#[tokio::test]
async fn an_export_of_a_period_is_built_by_itself_when_its_minute_has_passed() {
    let server = Server::start().await;
    let agent = server.agent("a").await;
    server.ask(&agent, json!(40)).await;
    let key = server.organization_key.clone();
    let future = json!({"format": "csv", "until": "2026-06-15T12:00:00.001Z"});
    let refused = server.post(&key, "/exports", &future, 400).await;
    let message = "until must not be in the future; got `2026-06-15T12:00:00.001Z`, and it is \
        2026-06-15T12:00:00.000Z. Leave it out for all decisions so far";
    assert_eq!(refused["error"]["message"], message);
    let asked =
        server.post(&key, "/exports", &json!({"format": "csv", "until": "2026-06-15T12:00:00Z"}), 202).await;
    let path = format!("/exports/{}", asked["export"].as_str().unwrap());
    server.advance(59);
    // One that was asked for later is ready before.
    let other = server.post(&key, "/exports", &json!({"format": "csv"}), 202).await;
    ready(&server, &format!("/exports/{}", other["export"].as_str().unwrap())).await;
    assert_eq!(server.read(&key, &path, 200).await["status"], "pending");
    server.advance(1);
    assert_eq!(ready(&server, &path).await["rows"], 0);
}
