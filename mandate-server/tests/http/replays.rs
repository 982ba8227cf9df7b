//! Idempotency over the wire: what is kept under a key, what is not, and how a replay looks.

use serde_json::json;

use crate::world::{Reply, World, spend};

async fn keyed(world: &World, key: &str, path: &str, name: &str, body: &str) -> Reply {
    world.post_text(key, path, &format!("Idempotency-Key: {name}\r\n"), body).await
}

fn replayed(reply: &Reply) -> bool {
    reply.header("idempotency-replayed") == Some("true")
}

#[tokio::test]
async fn an_answer_is_replayed_with_an_id_of_its_own() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    world.mandate("agt_a").await;
    let body = spend(40).to_string();
    let first = keyed(&world, &agent, "/v1/authorizations", "k", &body).await;
    let second = keyed(&world, &agent, "/v1/authorizations", "k", &body).await;
    assert_eq!((first.status, replayed(&first), replayed(&second)), (201, false, true));
    assert_eq!((first.status, &first.body), (second.status, &second.body));
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
    let decisions = world.get(&agent, "/v1/decisions").await.json();
    assert_eq!(decisions["data"].as_array().unwrap().len(), 1);

    let other = keyed(&world, &agent, "/v1/authorizations", "k", &spend(41).to_string()).await;
    assert_eq!((other.status, other.code().as_str()), (409, "idempotency_conflict"));
}

#[tokio::test]
async fn a_key_that_is_shown_once_is_shown_again_to_a_retry() {
    let world = World::start().await;
    let body = json!({ "name": "a" }).to_string();
    let first = keyed(&world, &world.organization, "/v1/agents", "k", &body).await;
    let second = keyed(&world, &world.organization, "/v1/agents", "k", &body).await;
    assert!(first.json()["agent_key"].is_string() && replayed(&second));
    assert_eq!(first.body, second.body);
}

/// Each refusal that comes after the rate check is kept, also of what never became a command.
#[tokio::test]
async fn refusals_are_kept() {
    let world = World::start().await;
    let key = world.organization.as_str();
    let large = format!("{}{{}}", " ".repeat(70_000));
    for (number, (path, body, status)) in [
        ("/v1/agents", "{}", 400),
        ("/v1/agents", "not JSON", 400),
        ("/v1/agents", &large, 400),
        ("/v1/agents?x=1", "{}", 400),
        ("/v1/mandates/mnd_1/revoke", "{}", 404),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("k{number}");
        let first = keyed(&world, key, path, &name, body).await;
        let second = keyed(&world, key, path, &name, body).await;
        assert_eq!(
            (first.status, replayed(&first), replayed(&second)),
            (status, false, true),
            "{path} {number}"
        );
        assert_eq!((first.status, &first.body), (second.status, &second.body));
    }
}

#[tokio::test]
async fn what_the_gate_refuses_is_not_kept() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    for key in ["", agent.as_str()] {
        for _ in 0..2 {
            let reply = keyed(&world, key, "/v1/enforcement", "k", r#"{"mode":"observe"}"#).await;
            assert!([401, 403].contains(&reply.status) && !replayed(&reply));
        }
    }
}

#[tokio::test]
async fn an_idempotency_key_is_sent_once_and_printable() {
    let world = World::start().await;
    let long = "k".repeat(256);
    for headers in [
        "Idempotency-Key: a\r\nIdempotency-Key: a\r\n",
        "Idempotency-Key: \r\n",
        "Idempotency-Key: é\r\n",
        &format!("Idempotency-Key: {long}\r\n"),
    ] {
        let reply = world.post_text(&world.organization, "/v1/agents", headers, r#"{"name":"a"}"#).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"), "{headers}");
        assert!(reply.message().starts_with("Idempotency-Key must be "), "{}", reply.message());
    }
}
