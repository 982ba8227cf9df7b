//! Idempotency over the wire: what is kept under a key, what is not, and how a replay looks.

use mandate_tests::wait::{DEADLINE, until_async};
use serde_json::json;

use crate::wire::Reply;
use crate::world::{World, spend};

async fn keyed(world: &World, key: &str, path: &str, name: &str, body: &str) -> Reply {
    world.post_text(key, path, &format!("Idempotency-Key: {name}\r\n"), body).await
}

#[tokio::test]
async fn an_answer_is_replayed_with_an_id_of_its_own() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    world.mandate("agt_a").await;
    let body = spend(40).to_string();
    let first = keyed(&world, &agent, "/v1/authorizations", "k", &body).await;
    let second = keyed(&world, &agent, "/v1/authorizations", "k", &body).await;
    assert_eq!((first.status, first.replayed(), second.replayed()), (201, false, true));
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
    let first = keyed(&world, &world.organization_key, "/v1/agents", "k", &body).await;
    let second = keyed(&world, &world.organization_key, "/v1/agents", "k", &body).await;
    assert!(first.json()["agent_key"].is_string() && second.replayed());
    assert_eq!(first.body, second.body);
}

/// Each refusal that comes after the rate check is kept, also of what never became a command.
#[tokio::test]
async fn refusals_are_kept() {
    let world = World::start().await;
    let key = world.organization_key.as_str();
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
            (first.status, first.replayed(), second.replayed()),
            (status, false, true),
            "{path} {number}"
        );
        assert_eq!((first.code(), first.message()), (second.code(), second.message()));
        assert_eq!(first.anonymous().body, second.anonymous().body);
    }
}

#[tokio::test]
async fn what_the_gate_refuses_is_not_kept() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    for key in ["", agent.as_str()] {
        for _ in 0..2 {
            let reply = keyed(&world, key, "/v1/enforcement", "k", r#"{"mode":"observe"}"#).await;
            assert!([401, 403].contains(&reply.status) && !reply.replayed());
        }
    }
    world.change_key(&agent, |key| key.rate = 1);
    let ask = async || keyed(&world, &agent, "/v1/authorizations", "k", &spend(40).to_string()).await;
    until_async(DEADLINE, "the rate is used up", async || {
        (world.get(&agent, "/v1/agents").await.status != 200).then_some(())
    })
    .await;
    assert_eq!(ask().await.status, 429);
    world.clock.advance(61);
    let admitted = ask().await;
    assert_eq!((admitted.status, admitted.replayed()), (201, false));
}

#[tokio::test]
async fn a_name_belongs_to_the_api_key_that_is_presented() {
    let world = World::start().await;
    let keys = [world.agent("a").await, world.agent("b").await, world.onboard("other")];
    for (key, path, body) in [
        (&keys[0], "/v1/authorizations", spend(40)),
        (&keys[1], "/v1/authorizations", spend(40)),
        (&world.organization_key, "/v1/agents", json!({ "name": "c" })),
        (&keys[2], "/v1/agents", json!({ "name": "c" })),
    ] {
        let reply = keyed(&world, key, path, "k", &body.to_string()).await;
        assert_eq!((reply.status, reply.replayed()), (201, false), "{}", reply.body);
    }
}

/// What is kept under a name is bound to all of the body, also where only its beginning was read.
#[tokio::test]
async fn a_body_that_is_too_large_is_not_its_beginning() {
    let world = World::start().await;
    let key = world.organization_key.as_str();
    let small = json!({ "name": "a" }).to_string();
    let large = format!("{small}{}{{}}", " ".repeat(70_000));
    for (name, first, status, then) in [("k1", &small, 201, &large), ("k2", &large, 400, &small)] {
        assert_eq!(keyed(&world, key, "/v1/agents", name, first).await.status, status);
        assert_eq!(keyed(&world, key, "/v1/agents", name, then).await.status, 409);
    }
}
