//! Reviews: resolved once, by a fresh evaluation, or not in time.

use serde_json::json;

use crate::oracle;
use crate::world::{World, json};

const REVIEWED: &str = r#","review_above":200"#;

#[tokio::test]
async fn an_approval_is_a_fresh_decision_that_points_at_the_first() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, REVIEWED).await;
    let asked = world.ask(&agent, "300").await;
    assert_eq!(asked["verdict"], "review");
    assert_eq!(asked["review"]["status"], "pending");
    assert_eq!(asked["review"]["waits_for"], "role:cfo");
    assert_eq!(asked["review"]["expires_at"], "2026-06-16T12:00:00.000Z");
    assert!(asked.get("verdict_token").is_none() && asked.get("reason").is_none());

    let original = world.decision(&agent, &asked["decision"]).await;
    world.clock.advance(60);
    let answer = world.approve(&asked["review"]["id"]).await;
    let fresh = json(&answer);
    assert_eq!(
        (answer.status, &fresh["verdict"], &fresh["supersedes"]),
        (201, &json!("allow"), &asked["decision"])
    );
    let after = world.decision(&agent, &asked["decision"]).await;
    assert_eq!(after["review"]["status"], "approved");
    assert_eq!(after["review"]["decision"], fresh["decision"]);
    assert_eq!(after["review"]["resolved_at"], "2026-06-15T12:01:00.000Z");
    assert_eq!(after["verdict_token"], original["verdict_token"], "the token is rebuilt byte for byte");
    let approved = world.decision(&agent, &fresh["decision"]).await;
    assert_eq!(approved["verdict_token"], fresh["verdict_token"]);
    assert_ne!(approved["nonce"], original["nonce"]);
    assert_eq!(approved["exp"].as_i64().unwrap() - approved["iat"].as_i64().unwrap(), 300);

    for again in [world.approve(&asked["review"]["id"]).await, world.deny(&asked["review"]["id"], None).await]
    {
        assert_eq!(again.status, 400);
        let message = "the review is approved; only a pending review can be resolved";
        assert_eq!(json(&again)["error"]["message"], message);
    }
}

#[tokio::test]
async fn an_approval_counts_towards_the_month_and_can_be_denied_by_it() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 700, REVIEWED).await;
    let (first, second) = (world.ask(&agent, "400").await, world.ask(&agent, "400").await);
    assert_eq!(second["verdict"], "review", "a pending review reserves nothing");
    assert_eq!(json(&world.approve(&first["review"]["id"]).await)["verdict"], "allow");
    let denied = json(&world.approve(&second["review"]["id"]).await);
    assert_eq!(denied["verdict"], "deny_limit");
    assert_eq!(denied["reason"], "amount 400 exceeds per_month limit 700 (400 spent)");
    assert_eq!(denied["supersedes"], second["decision"]);
}

#[tokio::test]
async fn an_approval_waives_velocity_but_not_a_revocation() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let mandate = world.mandate(&agent, 10_000, REVIEWED).await;
    let mut reviews = Vec::new();
    for _ in 0..10 {
        reviews.push(world.ask(&agent, "300").await);
    }
    assert_eq!(world.ask(&agent, "300").await["verdict"], "deny_velocity");
    assert_eq!(json(&world.approve(&reviews[0]["review"]["id"]).await)["verdict"], "allow");
    assert_eq!(world.revoke(&mandate).await.status, 200);
    let denied = json(&world.approve(&reviews[1]["review"]["id"]).await);
    assert_eq!((&denied["verdict"], denied.get("verdict_token")), (&json!("deny_revoked"), None));
    assert_eq!(denied["reason"], format!("mandate {mandate} is revoked"));
}

#[tokio::test]
async fn a_denial_says_why_and_an_old_review_has_expired_for_every_reader() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 10_000, REVIEWED).await;
    let (first, second) = (world.ask(&agent, "300").await, world.ask(&agent, "300").await);
    let answer = world.deny(&first["review"]["id"], Some("too dear")).await;
    let denied = json(&answer);
    assert_eq!((answer.status, &denied["review"]["status"]), (200, &json!("denied")));
    assert_eq!(denied["review"]["reason"], "too dear");
    assert_eq!(denied["verdict"], "review", "the decision itself stays as it was signed");
    world.clock.advance(86_399);
    assert_eq!(world.decision(&agent, &second["decision"]).await["review"]["status"], "pending");
    world.clock.advance(1);
    let expired = world.decision(&agent, &second["decision"]).await;
    assert_eq!(expired["review"]["status"], "expired");
    assert_eq!(expired["review"]["resolved_at"], expired["review"]["expires_at"]);
    let late = world.approve(&second["review"]["id"]).await;
    assert_eq!(
        json(&late)["error"]["message"],
        "the review is expired; only a pending review can be resolved"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_resolution_wins() {
    let world = std::sync::Arc::new(World::new().await);
    let agent = world.agent("a").await;
    world.mandate(&agent, 10_000, REVIEWED).await;
    let review = world.ask(&agent, "300").await["review"]["id"].clone();
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let (world, review) = (std::sync::Arc::clone(&world), review.clone());
            tokio::spawn(async move {
                if n % 2 == 0 {
                    world.approve(&review).await.status
                } else {
                    world.deny(&review, None).await.status
                }
            })
        })
        .collect();
    let mut refused = 0;
    for task in tasks {
        refused += usize::from(task.await.unwrap() == 400);
    }
    assert_eq!(refused, 15);
}

/// Where an agent's metering is written with every few decisions, the first of a month is written at once, whatever made it.
#[tokio::test]
async fn an_approval_that_is_the_first_decision_of_its_month_is_counted() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 600, r#","review_above":200"#).await;
    // A minute before July.
    world.clock.advance(15 * 86_400 + 12 * 3_600 - 60);
    let review = world.ask(&agent, "450").await["review"]["id"].clone();
    world.clock.advance(120);
    assert_eq!(json(&world.approve(&review).await)["verdict"], "allow");
    assert_eq!(world.ask(&agent, "180").await["verdict"], "deny_limit");
    assert_eq!(world.ask(&agent, "150").await["verdict"], "allow");
    world.store.close();
    assert_eq!(oracle::holds(&world.database), 4);
}
