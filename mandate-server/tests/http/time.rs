//! Scheduled jobs on a running server.

use mandate_tests::wait::{DEADLINE, until_async};
use serde_json::Value;

use crate::world::{World, spend};

/// Reads the events of a type until there is one.
async fn event(world: &World, kind: &str) -> Value {
    until_async(DEADLINE, "there is an event", async || {
        let events = world.get(&world.organization_key, &format!("/v1/events?type={kind}")).await.json();
        events["data"].as_array().unwrap().first().cloned()
    })
    .await
}

#[tokio::test]
async fn what_is_due_is_done_when_the_clock_comes_to_it() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    let mandate = world.mandate("agt_a").await;
    let asked = world.post(&agent, "/v1/authorizations", &spend(300)).await.json();
    world.clock.advance(86_400);
    let resolved = event(&world, "decision.resolved").await;
    assert_eq!(resolved["data"]["jti"], asked["decision"]);
    assert_eq!(resolved["data"]["review"]["status"], "expired");
    assert_eq!(resolved["created_at"], "2026-06-16T12:00:00.000Z");
    world.clock.advance(190 * 86_400 + 43_200);
    let expiring = event(&world, "mandate.expiring").await;
    assert_eq!(
        (expiring["data"]["id"].as_str(), &expiring["created_at"]),
        (Some(mandate.as_str()), &"2026-12-24T00:00:00.000Z".into())
    );
}
