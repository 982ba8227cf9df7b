//! The three listeners: their headers, the key set, liveness and readiness, and an orderly end.

use mandate_core::jwks::KeySet;
use mandate_tests::wait::{DEADLINE, until_async};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::wire::exchange;
use crate::world::{World, spend};

const KEY_SET: &str = "/.well-known/jwks.json";

/// The id of the request, whichever the listener and the answer; no caching but of the key set.
#[tokio::test]
async fn every_answer_carries_its_id() {
    let world = World::start().await;
    let server = &world.running;
    let mut seen = std::collections::HashSet::new();
    for (host, method, path, status) in [
        (server.api, "GET", "/v1/agents", 401),
        (server.api, "GET", KEY_SET, 308),
        (server.public, "GET", KEY_SET, 200),
        (server.public, "GET", "/", 200),
        (server.public, "GET", "/nowhere", 404),
        (server.public, "GET", "/console", 404),
        (server.public, "POST", KEY_SET, 400),
        (server.ops, "GET", "/livez", 200),
        (server.ops, "GET", "/readyz", 200),
        (server.ops, "HEAD", "/readyz", 200),
        (server.ops, "POST", "/livez", 400),
        (server.ops, "GET", "/v1/agents", 404),
    ] {
        let reply = exchange(host, method, path, "", b"").await;
        assert_eq!(reply.status, status, "{method} {path}");
        let id = reply.header("x-request-id").unwrap().to_owned();
        assert!(id.starts_with("req_") && id.len() == 30 && seen.insert(id));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        let cached = match (path, status) {
            (KEY_SET, 200) => "public, max-age=300",
            ("/", _) => "no-cache",
            _ => "no-store",
        };
        assert_eq!(reply.header("cache-control"), Some(cached), "{method} {path}");
        if status >= 400 {
            let codes = [(400, "invalid_request"), (401, "unauthorized"), (404, "not_found")];
            assert!(codes.contains(&(status, reply.code().as_str())), "{}", reply.body);
        }
    }
}

#[tokio::test]
async fn the_key_set_is_cached_by_its_etag() {
    let world = World::start().await;
    let public = world.running.public;
    let first = exchange(public, "GET", KEY_SET, "", b"").await;
    assert_eq!(first.header("content-type"), Some("application/jwk-set+json"));
    assert_eq!(KeySet::parse(first.body.as_bytes()).unwrap().to_json(), first.body);
    let etag = first.header("etag").unwrap();
    let again = exchange(public, "GET", KEY_SET, &format!("If-None-Match: \"x\", {etag}\r\n"), b"").await;
    assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", Some(etag)));
    assert_eq!(again.header("cache-control"), Some("public, max-age=300"));
    let other = exchange(public, "GET", KEY_SET, "If-None-Match: \"x\"\r\n", b"").await;
    assert_eq!((other.status, &other.body), (200, &first.body));
    let head = exchange(public, "HEAD", KEY_SET, "", b"").await;
    assert_eq!((head.status, head.body.as_str(), head.header("etag")), (200, "", Some(etag)));
}

/// What anyone may have, any web page may read. A key does not belong in a page: the API says nothing of origins.
#[tokio::test]
async fn any_page_may_read_what_the_public_listener_answers_and_nothing_else() {
    let world = World::start().await;
    let server = &world.running;
    let page = "Origin: https://page.example\r\n";
    let asks = format!(
        "{page}Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: if-none-match\r\n"
    );
    for (path, status) in
        [(KEY_SET, 200), ("/openapi.yaml", 200), ("/reference", 200), ("/contracts/0", 404), ("/no", 404)]
    {
        for headers in ["", page] {
            let reply = exchange(server.public, "GET", path, headers, b"").await;
            assert_eq!(
                (reply.status, reply.header("access-control-allow-origin")),
                (status, Some("*")),
                "{path}"
            );
            assert_eq!(reply.header("access-control-expose-headers"), Some("*"));
            assert_eq!(reply.header("access-control-allow-credentials"), None);
        }
        let preflight = exchange(server.public, "OPTIONS", path, &asks, b"").await;
        assert_eq!((preflight.status, preflight.body.as_str()), (204, ""), "{path}");
        for (name, value) in [("origin", "*"), ("methods", "GET, HEAD"), ("headers", "*")] {
            assert_eq!(preflight.header(&format!("access-control-allow-{name}")), Some(value));
        }
        assert_eq!(preflight.header("access-control-max-age"), Some("86400"));
        let other = exchange(server.public, "OPTIONS", path, page, b"").await;
        assert_eq!(other.status, if path == "/no" { 404 } else { 400 }, "{path}: it is no preflight");
    }
    // What no router has seen: it is no request, or its head is too large.
    for (status, method, headers) in
        [(400, "G(T", String::new()), (431, "GET", format!("X: {}\r\n", "x".repeat(20_000)))]
    {
        let reply = exchange(server.public, method, KEY_SET, &headers, b"").await;
        assert_eq!(
            (reply.status, reply.header("access-control-allow-origin")),
            (status, Some("*")),
            "{reply:?}"
        );
        let reply = exchange(server.api, method, KEY_SET, &headers, b"").await;
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (status, None), "{reply:?}");
    }
    for (host, method, path) in [
        (server.api, "OPTIONS", "/v1/decisions"),
        (server.api, "GET", "/v1/decisions"),
        (server.api, "GET", KEY_SET),
        (server.ops, "GET", "/readyz"),
        (server.ops, "OPTIONS", "/readyz"),
    ] {
        let headers = format!("{asks}Authorization: Bearer {}\r\n", world.organization_key);
        let reply = exchange(host, method, path, &headers, b"").await;
        let allows = reply.headers.iter().any(|(name, _)| name.starts_with("access-control"));
        assert!(!allows, "{method} {path}: {reply:?}");
    }
}

#[tokio::test]
async fn the_key_set_has_moved_from_the_api() {
    let world = World::start().await;
    for method in ["GET", "HEAD"] {
        let moved = exchange(world.running.api, method, KEY_SET, "", b"").await;
        let location = format!("http://{}{KEY_SET}", world.running.public);
        assert_eq!((moved.status, moved.header("location")), (308, Some(location.as_str())));
    }
    assert_eq!(exchange(world.running.api, "POST", KEY_SET, "", b"").await.status, 401);
}

#[tokio::test]
async fn a_server_that_stops_leaves_its_database_whole() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    world.mandate("agt_a").await;
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(40)).await.status, 201);
    let (api, ops) = (world.running.api, world.running.ops);
    world.running.stop().await;
    for address in [api, ops] {
        assert!(tokio::net::TcpStream::connect(address).await.is_err());
    }
    let log = format!("{}-wal", world.settings.database.trim_start_matches("sqlite://"));
    assert!(std::fs::metadata(log).map_or(true, |log| log.len() == 0));
}

/// Otherwise the money would be spent, and the client would not know.
#[tokio::test]
async fn an_authorization_whose_client_closes_its_half_is_answered() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    world.mandate("agt_a").await;
    for _ in 0..20 {
        world.clock.advance(7);
        let body = spend(1).to_string();
        let mut stream = TcpStream::connect(world.running.api).await.unwrap();
        let head = format!(
            "POST /v1/authorizations HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {agent}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 ") && answer.contains(r#""verdict":"allow""#), "{answer:?}");
    }
}

/// Load balancers are notified first. Only then are no more requests accepted.
#[tokio::test]
async fn the_server_says_that_it_stops_before_it_does() {
    let world = World::start_with(|settings| settings.drain_delay_seconds = 1).await;
    let (api, ops) = (world.running.api, world.running.ops);
    let stopping = tokio::spawn(world.running.stop());
    until_async(DEADLINE, "it is not ready", async || {
        (exchange(ops, "GET", "/readyz", "", b"").await.status != 200).then_some(())
    })
    .await;
    assert_eq!(exchange(ops, "GET", "/readyz", "", b"").await.body, "stopping\n");
    assert_eq!(exchange(ops, "GET", "/livez", "", b"").await.status, 200);
    assert_eq!(exchange(api, "GET", "/v1/agents", "", b"").await.status, 401);
    stopping.await.unwrap();
    assert!(tokio::net::TcpStream::connect(api).await.is_err());
}
