//! Idempotency: one effect for one key, whatever happens.

use crate::world::{World, claim, claim_at, json, random_key};
use mandate_core::api_key::KeyClass;
use mandate_core::{AgentName, Timestamp};
use mandate_server::clock::Clock;
use mandate_server::service::agents;

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_under_one_key_have_one_effect() {
    let world = std::sync::Arc::new(World::new().await);
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let key = random_key(KeyClass::Agent);
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let (world, agent) = (std::sync::Arc::clone(&world), std::sync::Arc::clone(&agent));
            let mut call = world.call(&agent);
            call.idempotency = Some(claim("one", "{\"amount\":7}", &key));
            tokio::spawn(async move { world.decide(call, "7").await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|a| !a.replayed).count(), 1);
    assert!(answers.iter().all(|a| a.body == answers[0].body && a.status == 201));
    let mut call = world.call(&agent);
    call.idempotency = Some(claim("one", "{\"amount\":8}", &key));
    let conflict = world.decide(call, "8").await;
    assert_eq!((conflict.status, &json(&conflict)["error"]["code"]), (409, &"idempotency_conflict".into()));
    let next = world.ask(&agent, "1").await;
    let basis = world.decision(&agent, &next["decision"]).await["basis"].clone();
    assert_eq!(basis, serde_json::json!({"spent": 7, "recent_requests": 1}), "replays count for nothing");
}

#[tokio::test]
async fn a_secret_is_kept_sealed_and_replayed_whole_for_a_day() {
    let world = World::new().await;
    let create = |at: Timestamp| agents::Create {
        name: AgentName::parse("a").unwrap(),
        key: random_key(KeyClass::Agent),
        id: [1; 16],
        at,
    };
    let run = |name: &'static str| {
        let mut call = world.call(&world.organization);
        call.idempotency =
            Some(claim_at(name, "{\"name\":\"a\"}", &world.organization_key, world.clock.now()));
        let create = create(world.clock.now());
        world.write(call, move |tx, call| agents::create(tx, call, &create))
    };
    let first = run("k").await;
    let secret = json(&first)["agent_key"].as_str().unwrap().to_owned();
    let again = run("k").await;
    assert_eq!((again.status, &again.body, again.replayed), (201, &first.body, true));
    let refused = run("other").await;
    assert_eq!((refused.status, &json(&refused)["error"]["code"]), (409, &"name_taken".into()));
    let refused_again = run("other").await;
    assert_eq!((refused_again.body, refused_again.replayed), (refused.body, true), "errors replay too");
    world.clock.advance(86_400);
    assert_eq!(run("k").await.status, 409, "after a day the key is free again");

    world.store.close();
    assert!(world.held.holds("agt_a"), "what is stored is found");
    assert!(!world.held.holds(&secret), "no secret is stored in the clear");
}
