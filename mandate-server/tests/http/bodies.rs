//! What is read of a request: body, Content-Type, query.

use crate::world::World;

/// The largest body that is read.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// A body that names an agent, filled up with blanks to a length.
fn body_of(bytes: usize) -> String {
    let name = r#"{"name":"a"}"#;
    format!("{}{name}", " ".repeat(bytes - name.len()))
}

#[tokio::test]
async fn bodies_that_are_refused() {
    let world = World::start().await;
    let key = world.organization_key.as_str();
    let large = body_of(MAX_BODY_BYTES + 1);
    for (path, body, message) in [
        ("/v1/agents", "", "body must be a JSON object; it is empty"),
        ("/v1/agents", "[]", "body must be a JSON object"),
        ("/v1/agents", "{}", "name is required"),
        ("/v1/agents", r#"{"name":"a"} x"#, "body "),
        ("/v1/agents", r#"{"name":"a","name":"b"}"#, "name "),
        ("/v1/agents", r#"{"name":"a","x":1}"#, "x is not a known field; known are name"),
        ("/v1/agents", r#"{"name":7}"#, "name must be a string; got a number"),
        ("/v1/agents", &large, "body must be at most 65536 bytes long"),
        (
            "/v1/agents?dry=1",
            r#"{"name":"a"}"#,
            "dry is not a known parameter; this path takes no parameters",
        ),
        ("/v1/mandates/mnd_1/revoke", r#"{"x":1}"#, "x is not a known field; none is known here"),
        ("/v1/reviews/rev_1/deny", r#"{"reason":1}"#, "reason must be a string; got a number"),
        ("/v1/enforcement", r#"{"mode":"off"}"#, "mode must be observe or enforce"),
    ] {
        let reply = world.post_text(key, path, "", body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"), "{path} {message}");
        assert!(reply.message().starts_with(message), "{}", reply.message());
    }
    assert_eq!(world.get(key, "/v1/agents").await.json()["data"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn a_body_may_be_64_kib_and_come_in_pieces() {
    let world = World::start().await;
    let key = world.organization_key.as_str();
    let whole = world.post_text(key, "/v1/agents", "", &body_of(MAX_BODY_BYTES)).await;
    assert_eq!(whole.status, 201, "{}", whole.body);
    let chunked = "Content-Type: application/json; charset=utf-8\r\nTransfer-Encoding: chunked\r\n";
    let pieces = "6\r\n{\"name\r\n6\r\n\":\"b\"}\r\n0\r\n\r\n";
    let reply = world.send("POST", "/v1/agents", key, chunked, pieces).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    let endless = format!("10000\r\n{0}\r\n10000\r\n{0}\r\n0\r\n\r\n", " ".repeat(MAX_BODY_BYTES));
    let reply = world.send("POST", "/v1/agents", key, chunked, &endless).await;
    assert_eq!(reply.message(), "body must be at most 65536 bytes long");
}

/// The head says enough: the body is not asked for.
#[tokio::test]
async fn a_body_that_is_announced_as_too_large_is_refused_from_the_head() {
    let world = World::start().await;
    let key = world.organization_key.as_str();
    let expecting = |length: usize| {
        format!("Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n")
    };
    let reply = world.send("POST", "/v1/agents", key, &expecting(MAX_BODY_BYTES + 1), "").await;
    assert_eq!(reply.refused(400, "invalid_request"), "body must be at most 65536 bytes long");
    let named = format!("Idempotency-Key: k\r\n{}", expecting(1 << 40));
    for replayed in [false, true] {
        let reply = world.send("POST", "/v1/agents", key, &named, "").await;
        assert_eq!((reply.status, reply.replayed()), (400, replayed));
    }
    let body = body_of(100);
    assert_eq!(world.send("POST", "/v1/agents", key, &expecting(body.len()), &body).await.status, 100);
}

#[tokio::test]
async fn a_body_is_json_and_says_so() {
    let world = World::start().await;
    let key = world.organization_key.as_str();
    for header in ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"]
    {
        let headers = format!("{header}Content-Length: 12\r\n");
        let reply = world.send("POST", "/v1/agents", key, &headers, r#"{"name":"a"}"#).await;
        assert_eq!((reply.status, reply.message().as_str()), (400, "Content-Type must be application/json"));
    }
}

/// A header that says that the bytes are not plain JSON is refused, not passed over.
#[tokio::test]
async fn a_body_is_not_decoded() {
    let world = World::start().await;
    let key = world.organization_key.as_str();
    for header in [
        "Content-Type: application/json; charset=latin-1",
        "Content-Type: application/json\r\nContent-Encoding: gzip",
    ] {
        let headers = format!("{header}\r\nContent-Length: 12\r\n");
        assert_eq!(world.send("POST", "/v1/agents", key, &headers, r#"{"name":"a"}"#).await.status, 400);
    }
}

/// An operation that takes no body takes an empty one and `{}`, and nothing else.
#[tokio::test]
async fn no_body_is_nothing_or_an_empty_object() {
    let world = World::start().await;
    world.agent("a").await;
    let revoke = format!("/v1/mandates/{}/revoke", world.mandate("agt_a").await);
    let key = world.organization_key.as_str();
    assert_eq!(world.send("POST", &revoke, key, "Content-Length: 0\r\n", "").await.status, 200);
    assert_eq!(world.send("POST", &revoke, key, "", "").await.status, 200);
    assert_eq!(world.post_text(key, &revoke, "", "{}").await.status, 200);
    assert_eq!(world.post_text(key, &revoke, "", "null").await.status, 400);
}

#[tokio::test]
async fn parameters_of_a_list() {
    let world = World::start().await;
    let key = world.organization_key.as_str();
    for path in ["/v1/agents", "/v1/mandates", "/v1/decisions"] {
        for limit in ["0", "101", "1.5", "ten", "", "-1", "%2B5"] {
            let reply = world.get(key, &format!("{path}?limit={limit}")).await;
            assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"), "{path} {limit}");
            assert_eq!(reply.message(), "limit must be an integer between 1 and 100");
        }
        for (query, message) in [
            ("page=2", "page is not a known parameter; known are limit, cursor, "),
            ("limit=1&limit=2", "limit must be given once"),
            ("cursor=cur_x", "cursor expired or malformed"),
            ("cursor=", "cursor expired or malformed"),
        ] {
            let reply = world.get(key, &format!("{path}?{query}")).await;
            assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"), "{path}?{query}");
            assert!(reply.message().starts_with(message), "{}", reply.message());
        }
        let reply = world.get(key, &format!("{path}?limit=100")).await;
        assert_eq!(reply.body, r#"{"data":[],"has_more":false}"#);
    }
}

#[tokio::test]
async fn a_page_begins_at_one_place() {
    let world = World::start().await;
    for query in [
        "cursor=cur_x&starting_after=agt_a",
        "starting_after=agt_a&ending_before=agt_a",
        "cursor=cur_x&ending_before=agt_a",
    ] {
        let reply = world.get(&world.organization_key, &format!("/v1/agents?{query}")).await;
        let message = "only one of cursor, starting_after and ending_before can be given";
        assert_eq!(reply.refused(400, "invalid_request"), message, "{query}");
    }
}
