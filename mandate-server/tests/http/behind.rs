//! A clock that is behind the instants by which decisions were made: the server's own, or that of a standby which has taken
//! the place of the database.

use serde_json::{Value, json};

use crate::wire::exchange;
use crate::world::{World, spend};

const KEPT: &str = "idempotency-key: k\r\n";
const DAY: i64 = 24 * 60 * 60;

async fn newest(server: &World) -> Value {
    let listed = server.send("GET", "/v1/decisions?limit=1", &server.organization_key, "", "").await.json();
    listed["data"][0].clone()
}

/// What is refused, and what goes on.
async fn decides_nothing(server: &World, agent: &str, review: &str, first: &str) {
    let refused = server.post(agent, "/v1/authorizations", &spend(1)).await;
    assert_eq!(refused.header("retry-after"), Some("60"));
    refused.refused(503, "server_error");
    let approve = format!("/v1/reviews/{review}/approve");
    server.send("POST", &approve, &server.organization_key, "", "").await.refused(503, "server_error");
    let decision = serde_json::from_str::<Value>(first).unwrap()["decision"].take();
    let escrow = json!({"decision": decision, "condition": "c", "refund_after": "2999-01-01T00:00:00Z"});
    server.post(&server.organization_key, "/v1/escrows", &escrow).await.refused(503, "server_error");
    let ready = exchange(server.running.ops, "GET", "/readyz", "", b"").await;
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("the clock is behind"), "{}", ready.body);
    let metrics = exchange(server.running.ops, "GET", "/metrics", "", b"").await.body;
    assert!(metrics.contains("\nmandate_clock_behind_seconds 5184001.0\n"), "{metrics}");
    // What was answered is answered again.
    let again = server.post_text(agent, "/v1/authorizations", KEPT, &spend(1).to_string()).await;
    assert_eq!((again.status, again.body.as_str()), (201, first));
}

/// The switch of the mode goes on, and for an agent that has not asked what gives authority and takes it away.
async fn goes_on(world: &World) {
    for mode in ["observe", "enforce"] {
        let switched = world.post(&world.organization_key, "/v1/enforcement", &json!({ "mode": mode })).await;
        assert_eq!((switched.status, &switched.json()["mode"]), (200, &json!(mode)));
    }
    world.agent("b").await;
    let (replaced, governing) = (world.mandate("agt_b").await, world.mandate("agt_b").await);
    let path = format!("/v1/mandates/{replaced}");
    let shown = world.get(&world.organization_key, &path).await.json();
    assert_eq!((&shown["status"], &shown["replaced_by"]), (&json!("replaced"), &json!(governing)));
    revoke(world, &governing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_sixty_days_behind_decides_nothing_until_it_is_accepted() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    let terms = json!({
        "principal": "role:cfo", "agent": "agt_a", "categories": ["software"], "expires": "2026-12-31",
        "limits": {"per_transaction": 500, "per_month": 1000, "currency": "USD"}, "review_above": 200,
    });
    let mandate = world.post(&world.organization_key, "/v1/mandates", &terms).await.json();
    assert_eq!(mandate["governs_from"], 1);
    let first = world.post_text(&agent, "/v1/authorizations", KEPT, &spend(1).to_string()).await.body;
    let reviewed: Vec<_> = [
        world.post(&agent, "/v1/authorizations", &spend(300)).await.json(),
        world.post(&agent, "/v1/authorizations", &spend(301)).await.json(),
    ]
    .iter()
    .map(|reviewed| reviewed["review"]["id"].as_str().unwrap().to_owned())
    .collect();
    world.clock.step(-60 * 24 * 60 * 60);
    decides_nothing(&world, &agent, &reviewed[0], &first).await;
    // After a restart too.
    let world = world.restart().await;
    decides_nothing(&world, &agent, &reviewed[0], &first).await;
    goes_on(&world).await;
    let deny = format!("/v1/reviews/{}/deny", reviewed[0]);
    let denied = world.send("POST", &deny, &world.organization_key, "", "").await;
    assert_eq!((denied.status, &denied.json()["review"]["resolved_after"]), (200, &json!(3)));
    world.accept_clock();
    let made = world.post(&agent, "/v1/authorizations", &spend(1)).await.json();
    assert_eq!(made["verdict"], "allow");
    let shown = newest(&world).await;
    assert_eq!(
        (&shown["jti"], &shown["sequence"]),
        (&made["decision"], &json!(4)),
        "the newest by its id, too"
    );
    assert_eq!(shown["decided_at"], "2026-04-16T12:00:00.000Z");
    // Requests of the future do not count for velocity; this month's spending is another's.
    assert_eq!(shown["basis"], json!({"spent": 0, "recent_requests": 0}));
    let approve = format!("/v1/reviews/{}/approve", reviewed[1]);
    let approved = world.send("POST", &approve, &world.organization_key, "", "").await;
    assert_eq!((approved.status, &approved.json()["verdict"]), (201, &json!("allow")));
    assert_eq!(newest(&world).await["sequence"], 5);
    let revoke = format!("/v1/mandates/{}/revoke", mandate["id"].as_str().unwrap());
    let revoked = world.send("POST", &revoke, &world.organization_key, "", "").await.json();
    assert_eq!(revoked["revoked_after"], 5);
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(1)).await.json()["verdict"], "deny_revoked");
    let next = world.post(&world.organization_key, "/v1/mandates", &terms).await.json();
    assert_eq!(next["governs_from"], 7);
    let path = format!("/v1/mandates/{}", mandate["id"].as_str().unwrap());
    let before = world.send("GET", &path, &world.organization_key, "", "").await.json();
    assert_eq!((&before["governed_until"], &before["status"]), (&json!(6), &json!("revoked")));
    world.holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_five_seconds_behind_is_good_enough() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
    // The mark is a second ahead.
    world.clock.step(-4);
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
    let shown = newest(&world).await;
    assert_eq!((&shown["sequence"], &shown["decided_at"]), (&json!(2), &json!("2026-06-15T11:59:56.000Z")));
    assert_eq!(shown["basis"]["recent_requests"], 1, "a request nearer ahead than that counts");
    world.clock.step(-1);
    world.post(&agent, "/v1/authorizations", &spend(1)).await.refused(503, "server_error");
    // It goes on by itself.
    world.clock.advance(1);
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
    world.holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_ahead_forgets_no_kept_answer() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    let first = world.post_text(&agent, "/v1/authorizations", KEPT, &spend(1).to_string()).await;
    let again = async || world.post_text(&agent, "/v1/authorizations", KEPT, &spend(1).to_string()).await;
    world.clock.step(2 * DAY);
    assert_eq!(again().await.body, first.body, "the clock has jumped");
    world.clock.advance(DAY - 1);
    assert_eq!(again().await.body, first.body);
    world.clock.advance(1);
    assert_ne!(again().await.body, first.body, "the server has been running for a day since");
    world.holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_long_after_the_last_decision_forgets_no_kept_answer() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    let first = world.post_text(&agent, "/v1/authorizations", KEPT, &spend(1).to_string()).await;
    world.clock.step(2 * DAY);
    let world = world.restart().await;
    let again = async || world.post_text(&agent, "/v1/authorizations", KEPT, &spend(1).to_string()).await;
    assert_eq!(again().await.body, first.body);
    world.clock.advance(DAY);
    assert_ne!(again().await.body, first.body);
    world.holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_ahead_and_a_restart_forget_no_kept_answer() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    let first = world.post_text(&agent, "/v1/authorizations", KEPT, &spend(1).to_string()).await;
    world.clock.step(40 * DAY);
    // The newest decision is of the wrong time, too.
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
    let world = world.restart().await;
    let again = async || world.post_text(&agent, "/v1/authorizations", KEPT, &spend(1).to_string()).await;
    assert_eq!(again().await.body, first.body);
    world.clock.advance(DAY - 1);
    assert_eq!(again().await.body, first.body);
    world.clock.advance(1);
    assert_ne!(again().await.body, first.body, "a server has been running for a day since");
    world.holds();
}

/// The ids in a list, newest first.
async fn ids(world: &World, list: &str, member: &str) -> Vec<String> {
    let page = world.get(&world.organization_key, list).await.json();
    let rows = page["data"].as_array().unwrap().iter();
    rows.map(|row| row[member].as_str().unwrap().to_owned()).collect()
}

async fn revoke(world: &World, mandate: &str) {
    let path = format!("/v1/mandates/{mandate}/revoke");
    assert_eq!(world.send("POST", &path, &world.organization_key, "", "").await.status, 200);
}

/// The types of the events behind `newest`, newest first.
async fn types_behind(world: &World, newest: &str) -> Vec<String> {
    ids(world, &format!("/v1/events?ending_before={newest}"), "type").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_the_events_sees_a_revocation_after_a_step_back_and_a_restart() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    let mandate = world.mandate("agt_a").await;
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(300)).await.json()["verdict"], "review");
    let newest = ids(&world, "/v1/events", "event").await.remove(0);
    world.clock.step(-120);
    let world = world.restart().await;
    revoke(&world, &mandate).await;
    assert_eq!(types_behind(&world, &newest).await, ["mandate.revoked"]);
    world.holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_forty_days_ahead_and_a_restart_what_is_newer_is_listed_as_newer() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    world.clock.step(40 * DAY);
    let ahead = world.mandate("agt_a").await;
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(300)).await.json()["verdict"], "review");
    world.clock.step(-40 * DAY);
    world.accept_clock();
    let world = world.restart().await;
    let newest = ids(&world, "/v1/events", "event").await.remove(0);
    let governing = world.mandate("agt_a").await;
    assert_eq!(ids(&world, "/v1/mandates", "id").await, [governing.as_str(), ahead.as_str()]);
    let review = world.post(&agent, "/v1/authorizations", &spend(300)).await.json()["review"]["id"].clone();
    let deny = format!("/v1/reviews/{}/deny", review.as_str().unwrap());
    assert_eq!(world.send("POST", &deny, &world.organization_key, "", "").await.status, 200);
    revoke(&world, &governing).await;
    let wanted = ["mandate.revoked", "decision.resolved", "decision.review_pending"];
    assert_eq!(types_behind(&world, &newest).await, wanted);
    world.holds();
}
