//! Requests that are not as they must be: each is 400 and says what is wrong, and none reaches the engine.

use mandate_server::http::router::table;
use reqwest::Method;
use serde_json::json;

use crate::samples::{request, sample};
use crate::tenants::{Asking, Tenants};

const MAX_BODY_BYTES: usize = 64 * 1024;

/// A request with these bytes as its body, to every POST; each must be refused with `message`.
async fn refused(content_type: Option<&str>, body: &[u8], message: &str) {
    let Tenants { ours, .. } = &Tenants::new().await;
    for route in table().iter().filter(|route| route.method == Method::POST) {
        let sample = sample(ours, "POST", route.path).await;
        let path = route.path.replace("{id}", &sample.id);
        let asking = ours.client.request(&Method::POST, &path).bearer_auth(ours.key(route.key));
        let asking =
            content_type.into_iter().fold(asking, |asking, kind| asking.header("Content-Type", kind));
        let found = asking.body(body.to_vec()).asked().await.refused(400, "invalid_request");
        assert!(found.contains(message), "{route:?}: {found}");
    }
}

const JSON: Option<&str> = Some("application/json");

#[tokio::test]
async fn bytes_that_are_not_utf_8() {
    refused(JSON, b"{\"name\":\"\xff\"}", "UTF-8").await;
}

#[tokio::test]
async fn a_body_that_is_cut_short() {
    refused(JSON, b"{\"name\":", "byte 8").await;
}

#[tokio::test]
async fn bytes_behind_the_body() {
    refused(JSON, b"{} {}", "byte 3").await;
}

#[tokio::test]
async fn a_body_that_is_no_object() {
    refused(JSON, b"[]", "object").await;
}

#[tokio::test]
async fn a_body_that_is_too_deep() {
    let deep = format!("{{\"name\":{}{}}}", "[".repeat(40), "]".repeat(40));
    refused(JSON, deep.as_bytes(), "32").await;
}

#[tokio::test]
async fn a_body_that_is_too_deep_by_far() {
    refused(JSON, "[".repeat(MAX_BODY_BYTES).as_bytes(), "").await;
}

#[tokio::test]
async fn a_duplicate_name() {
    refused(JSON, b"{\"name\":\"a\",\"name\":\"a\"}", "name").await;
}

#[tokio::test]
async fn a_body_that_is_too_large() {
    let large = format!("{{\"name\":\"{}\"}}", "a".repeat(MAX_BODY_BYTES));
    refused(JSON, large.as_bytes(), "body must be at most 65536 bytes long").await;
}

#[tokio::test]
async fn a_content_type_that_is_not_json() {
    for kind in
        [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/jsonx")]
    {
        refused(kind, b"{}", "Content-Type must be application/json").await;
    }
}

#[tokio::test]
async fn an_idempotency_key_that_cannot_be_one() {
    let Tenants { ours, .. } = &Tenants::new().await;
    let post = || ours.client.post("/v1/agents", &json!({"name": "a"})).bearer_auth(&ours.organization_key);
    for key in [String::new(), "a".repeat(256), "é".to_owned(), "a\tb".to_owned()] {
        let message = post().header("Idempotency-Key", &key).asked().await.refused(400, "invalid_request");
        assert_eq!(message, "Idempotency-Key must be 1 to 255 printable ASCII characters", "{key:?}");
    }
    let twice = post().header("Idempotency-Key", "a").header("Idempotency-Key", "a").asked().await;
    assert_eq!(twice.refused(400, "invalid_request"), "Idempotency-Key must be sent once");
}

#[tokio::test]
async fn a_limit_that_cannot_be_one() {
    let Tenants { ours, .. } = &Tenants::new().await;
    let no_lists = ["/v1/enforcement", "/v1/usage"];
    let lists = table().into_iter().filter(|r| r.method == Method::GET && !r.path.contains('{'));
    let lists = lists.filter(|route| !no_lists.contains(&route.path));
    let mut seen = 0;
    for route in lists {
        for limit in ["0", "101", "1.5", "ten", "-1", "", "1e1", "%31%30%31"] {
            let path = format!("{}?limit={limit}", route.path);
            let answer = ours.client.get(&path).bearer_auth(&ours.organization_key).asked().await;
            let message = answer.refused(400, "invalid_request");
            assert_eq!(message, "limit must be an integer between 1 and 100", "{path}");
        }
        for cursor in ["x", "cur_", "cur_AAAA", "%00"] {
            let path = format!("{}?cursor={cursor}", route.path);
            let answer = ours.client.get(&path).bearer_auth(&ours.organization_key).asked().await;
            assert_eq!(answer.refused(400, "invalid_request"), "cursor expired or malformed", "{path}");
        }
        seen += 1;
    }
    assert!(seen >= 6);
}

#[tokio::test]
async fn amounts_that_cannot_be_any() {
    let Tenants { ours, .. } = &Tenants::new().await;
    let ask = |amount: &str| -> Asking {
        let body = request(40).to_string().replace("40", amount);
        let asking = ours.client.request(&Method::POST, "/v1/authorizations").bearer_auth(&ours.agent_key);
        asking.header("Content-Type", "application/json").body(body)
    };
    for amount in ["0", "-1", "\"40\"", "null", "1e400", "0.123456789", "1234567890123456", "true", "[40]"] {
        let message = ask(amount).asked().await.refused(400, "invalid_request");
        assert!(message.starts_with("amount "), "{amount}: {message}");
    }
    for amount in ["40.00", "4e1", "0.12345678", "123456789012345"] {
        assert_eq!(ask(amount).asked().await.status, 201, "{amount}");
    }
}
