//! Velocity and the month.

use crate::oracle;
use crate::world::World;

#[tokio::test]
async fn the_eleventh_request_in_sixty_seconds_is_denied_and_denied_ones_count() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 100_000, "").await;
    for n in 0..10 {
        let amount = if n % 2 == 0 { "1" } else { "501" };
        let wanted = if n % 2 == 0 { "allow" } else { "deny_limit" };
        assert_eq!(world.ask(&agent, amount).await["verdict"], wanted);
        world.clock.advance(1);
    }
    let denied = world.ask(&agent, "1").await;
    assert_eq!(denied["verdict"], "deny_velocity");
    assert_eq!(denied["reason"], "more than 10 requests in 60 seconds");
    assert!(denied.get("verdict_token").is_none());
    // 60 s after the second request the first two and no others have left the window; the eleventh stays in it.
    world.clock.advance(51);
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
    assert_eq!(world.ask(&agent, "1").await["verdict"], "deny_velocity");
}

#[tokio::test]
async fn the_velocity_of_one_agent_is_not_that_of_another() {
    let world = World::new().await;
    let (a, b) = (world.agent("a").await, world.agent("b").await);
    for agent in [&a, &b] {
        world.mandate(agent, 1_000, "").await;
    }
    for _ in 0..11 {
        world.ask(&a, "1").await;
    }
    assert_eq!(world.ask(&a, "1").await["verdict"], "deny_velocity");
    assert_eq!(world.ask(&b, "1").await["verdict"], "allow");
}

#[tokio::test]
async fn a_month_is_a_calendar_month_and_outlives_a_replacement() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    assert_eq!(world.ask(&agent, "490").await["verdict"], "allow");
    assert_eq!(world.ask(&agent, "490").await["verdict"], "allow");
    let denied = world.ask(&agent, "40").await;
    assert_eq!(denied["reason"], "amount 40 exceeds per_month limit 1000 (980 spent)");
    world.mandate(&agent, 1_000, "").await;
    assert_eq!(world.ask(&agent, "20.00000001").await["verdict"], "deny_limit");
    assert_eq!(world.ask(&agent, "20").await["verdict"], "allow");
    let last = world.ask(&agent, "0.00000001").await;
    assert_eq!(last["reason"], "amount 0.00000001 exceeds per_month limit 1000 (1000 spent)");
    // From 15 June, noon, to the last instant of the month, and over its end.
    world.clock.advance(15 * 86_400 + 43_200 - 1);
    assert_eq!(world.ask(&agent, "1").await["verdict"], "deny_limit");
    world.clock.advance(1);
    let fresh = world.ask(&agent, "1").await;
    assert_eq!(fresh["verdict"], "allow");
    assert_eq!(world.decision(&agent, &fresh["decision"]).await["basis"]["spent"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_once_never_pass_a_limit_together() {
    let world = std::sync::Arc::new(World::new().await);
    let agent = world.agent("a").await;
    world.mandate(&agent, 300, "").await;
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (world, agent) = (std::sync::Arc::clone(&world), std::sync::Arc::clone(&agent));
            tokio::spawn(
                async move { world.ask(&agent, "100").await["verdict"].as_str().unwrap().to_owned() },
            )
        })
        .collect();
    let mut verdicts = Vec::new();
    for task in tasks {
        verdicts.push(task.await.unwrap());
    }
    let count = |wanted: &str| verdicts.iter().filter(|v| *v == wanted).count();
    assert_eq!((count("allow"), count("deny_limit"), count("deny_velocity")), (3, 61, 0));
    world.store.close();
    assert_eq!(oracle::holds(&world.database), 64);
}
