//! The walk over the table: what holds for every operation is checked for each.

use mandate_server::http::router::{Key, Route, table};
use reqwest::Method;
use serde_json::{Value, json};

use crate::samples::{Sample, sample};
use crate::tenants::{Asking, Tenant, Tenants};
use crate::wire::Reply;

/// Methods that a client may try.
const METHODS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "get"];
/// Those of them that HTTP does not know. An answer does not repeat them: they can be anything.
const MADE_UP: [&str; 2] = ["BREW", "get"];

impl Sample {
    fn path(&self, route: &Route) -> String {
        route.path.replace("{id}", &self.id)
    }
}

async fn fresh(tenant: &Tenant, route: &Route) -> Sample {
    sample(tenant, route.method.as_str(), route.path).await
}

fn ask(tenant: &Tenant, route: &Route, path: &str, body: &Value) -> Asking {
    let asking = tenant.client.request(&route.method, path);
    if body.is_null() { asking } else { asking.json(body) }
}

#[tokio::test]
async fn every_operation_succeeds_as_the_contract_says() {
    let Tenants { ours, .. } = &Tenants::new().await;
    for route in table() {
        let sample = fresh(ours, &route).await;
        let answer = ask(ours, &route, &sample.path(&route), &sample.body).bearer_auth(ours.key(route.key));
        let answer = answer.asked().await;
        assert!(answer.succeeded(), "{route:?}: {}", answer.body);
        if route.key == Key::Any {
            let agents = ask(ours, &route, &sample.path(&route), &sample.body).bearer_auth(&ours.agent_key);
            assert!(agents.asked().await.succeeded(), "{route:?}");
        }
    }
}

#[tokio::test]
async fn without_a_key_or_with_one_that_is_not_known_it_is_401() {
    let Tenants { ours, .. } = &Tenants::new().await;
    let unknown = "sk_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye";
    for route in table() {
        let sample = fresh(ours, &route).await;
        let (path, body) = (sample.path(&route), &sample.body);
        let anonymous = ask(ours, &route, &path, body).asked().await;
        assert!(anonymous.refused(401, "unauthorized").contains("missing or revoked"), "{route:?}");
        let stranger = ask(ours, &route, &path, body).bearer_auth(unknown).asked().await;
        assert_eq!(stranger.anonymous(), anonymous.anonymous(), "{route:?}");
    }
    let nowhere = ours.client.get("/v1/nowhere").asked().await;
    nowhere.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_key_of_the_wrong_class_is_403() {
    let Tenants { ours, .. } = &Tenants::new().await;
    for route in table().iter().filter(|route| route.key != Key::Any) {
        let sample = fresh(ours, route).await;
        let wrong = if route.key == Key::Agent { &ours.organization_key } else { &ours.agent_key };
        let answer = ask(ours, route, &sample.path(route), &sample.body).bearer_auth(wrong).asked().await;
        answer.refused(403, "forbidden");
        // The class is looked at before the object.
        let absent = route.path.replace("{id}", sample.absent);
        ask(ours, route, &absent, &sample.body).bearer_auth(wrong).asked().await.refused(403, "forbidden");
    }
}

#[tokio::test]
async fn objects_of_another_tenant_are_answered_like_unknown_ones() {
    let Tenants { ours, theirs, .. } = &Tenants::new().await;
    for route in table().iter().filter(|route| route.path.contains("{id}")) {
        let (own, foreign) = (fresh(ours, route).await, fresh(theirs, route).await);
        let get = async |key: &str, id: &str| -> Reply {
            ask(ours, route, &route.path.replace("{id}", id), &own.body).bearer_auth(key).asked().await
        };
        let organization = &ours.organization_key;
        let absent = get(organization, own.absent).await;
        absent.refused(404, "not_found");
        for id in [foreign.id.as_str(), "x", "mnd_", &"a".repeat(2000), "%00"] {
            assert_eq!(get(organization, id).await.anonymous(), absent.anonymous(), "{route:?} {id}");
        }
        if route.key == Key::Any {
            let agents = get(&ours.other_agent_key, &own.id).await;
            assert_eq!(agents.anonymous(), absent.anonymous(), "{route:?}: another agent's");
        }
        // It is there, for its owner.
        let owner =
            ask(theirs, route, &foreign.path(route), &foreign.body).bearer_auth(theirs.key(route.key));
        assert!(owner.asked().await.succeeded(), "{route:?}");
    }
}

#[tokio::test]
async fn lists_hold_nothing_of_another_tenant() {
    let Tenants { ours, theirs, .. } = &Tenants::new().await;
    // One of everything, by making each operation possible.
    for route in table() {
        fresh(theirs, &route).await;
    }
    let lists =
        table().into_iter().filter(|route| route.method == Method::GET && !route.path.contains("{id}"));
    let mut seen = 0;
    for route in lists {
        let page = async |tenant: &Tenant, key: &str| {
            let answer = ask(tenant, &route, route.path, &Value::Null).bearer_auth(key).asked().await;
            answer.json()["data"].as_array().cloned().unwrap_or_default()
        };
        let foreign = page(theirs, &theirs.organization_key).await;
        for key in [&ours.organization_key, &ours.agent_key] {
            if *key == ours.agent_key && route.key != Key::Any {
                continue;
            }
            let own = page(ours, key).await;
            assert!(own.iter().all(|row| !foreign.contains(row)), "{route:?}");
        }
        seen += usize::from(!foreign.is_empty());
    }
    assert_eq!(seen, 7, "agents, mandates, decisions, webhooks, events, escrows and usage have rows");
}

#[tokio::test]
async fn another_method_is_400_without_allow() {
    let Tenants { ours, .. } = &Tenants::new().await;
    for route in table() {
        let path = fresh(ours, &route).await.path(&route);
        let served: Vec<Method> =
            table().into_iter().filter(|r| r.path == route.path).map(|r| r.method).collect();
        for method in METHODS.map(|method| Method::from_bytes(method.as_bytes()).unwrap()) {
            if served.contains(&method) {
                continue;
            }
            for key in [&ours.organization_key, &ours.agent_key] {
                let answer = ours.client.request(&method, &path).bearer_auth(key).asked().await;
                assert_eq!(answer.header("Allow"), None, "{method} {path}");
                if method == Method::HEAD {
                    assert_eq!(answer.status, 400, "{method} {path}");
                } else {
                    let message = answer.refused(400, "invalid_request");
                    let named =
                        if MADE_UP.contains(&method.as_str()) { "this method" } else { method.as_str() };
                    assert_eq!(message, format!("{named} is not supported on {}", route.path));
                }
            }
        }
    }
}

#[tokio::test]
async fn an_unknown_field_of_the_body_is_400() {
    let Tenants { ours, .. } = &Tenants::new().await;
    for route in table().iter().filter(|route| route.method == Method::POST) {
        let sample = fresh(ours, route).await;
        let mut body = if sample.body.is_null() { json!({}) } else { sample.body.clone() };
        body["surprise"] = json!(1);
        let answer =
            ask(ours, route, &sample.path(route), &body).bearer_auth(ours.key(route.key)).asked().await;
        let message = answer.refused(400, "invalid_request");
        assert!(message.starts_with("surprise is not a known field"), "{route:?}: {message}");
    }
}

#[tokio::test]
async fn an_unknown_parameter_is_400() {
    let Tenants { ours, .. } = &Tenants::new().await;
    for route in table() {
        let sample = fresh(ours, &route).await;
        let path = format!("{}?surprise=1", sample.path(&route));
        let answer = ask(ours, &route, &path, &sample.body).bearer_auth(ours.key(route.key)).asked().await;
        let message = answer.refused(400, "invalid_request");
        assert!(message.starts_with("surprise is not a known parameter"), "{route:?}: {message}");
    }
}

#[tokio::test]
async fn every_post_is_replayed_under_its_idempotency_key() {
    let Tenants { ours, .. } = &Tenants::new().await;
    for (number, route) in table().iter().filter(|route| route.method == Method::POST).enumerate() {
        let sample = fresh(ours, route).await;
        let name = format!("walk {number}");
        let post = async |body: &Value| {
            let asking = ask(ours, route, &sample.path(route), body).header("Idempotency-Key", &name);
            asking.bearer_auth(ours.key(route.key)).asked().await
        };
        let (first, second) = (post(&sample.body).await, post(&sample.body).await);
        assert!(first.succeeded() && !first.replayed(), "{route:?}: {}", first.body);
        assert!(second.replayed(), "{route:?}");
        assert_eq!((second.status, &second.body), (first.status, &first.body), "{route:?}");
        assert_ne!(second.header("X-Request-Id"), first.header("X-Request-Id"), "{route:?}");
        post(&json!({"surprise": number})).await.refused(409, "idempotency_conflict");
    }
}

#[tokio::test]
async fn a_refusal_is_replayed_too() {
    let Tenants { ours, .. } = &Tenants::new().await;
    for (number, route) in table().iter().filter(|route| route.method == Method::POST).enumerate() {
        let path = fresh(ours, route).await.path(route);
        let name = format!("refused {number}");
        let post = async || {
            let asking = ask(ours, route, &path, &json!({"surprise": 1})).header("Idempotency-Key", &name);
            asking.bearer_auth(ours.key(route.key)).asked().await
        };
        let (first, second) = (post().await, post().await);
        let message = first.refused(400, "invalid_request");
        assert!(!first.replayed() && second.replayed(), "{route:?}");
        // Each has the id of its own request, in the header and in the envelope.
        assert_eq!(second.refused(400, "invalid_request"), message, "{route:?}");
        assert_ne!(second.header("x-request-id"), first.header("x-request-id"), "{route:?}");
        assert_eq!(second.anonymous().body, first.anonymous().body, "{route:?}");
    }
}
