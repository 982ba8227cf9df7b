//! Servers on one database whose own clocks differ: all of them decide by the database's.

use std::sync::Arc;

use futures_util::future::join_all;
use mandate_core::EventId;
use mandate_tests::cluster::{OpenTransaction, query};
use mandate_tests::wait::{DEADLINE, until_async};
use serde_json::{Value, json};

use crate::replicas::{RACERS, all, limited, verdicts};
use crate::wire::exchange;
use crate::world::{World, noon, spend};

const NOON: &str = "2026-06-15T12:00:00.000Z";

/// Waits until a server has seen how far its clock is ahead.
async fn sees(server: &World, seconds: i64) {
    let ahead = format!("\nmandate_clock_ahead_seconds {seconds}.0\n");
    until_async(DEADLINE, "the server has seen it", async || {
        let metrics = exchange(server.running.ops, "GET", "/metrics", "", b"").await.body;
        metrics.contains(&ahead).then_some(())
    })
    .await;
}

async fn decisions(server: &World) -> Vec<Value> {
    all(server, &server.organization_key, "/v1/decisions").await
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_decide_by_the_clock_of_the_database() {
    for seconds in [60, -60] {
        let (one, wrong) = (World::start().await, noon());
        let others = [one.beside(Arc::clone(&one.clock)).await, one.beside(Arc::clone(&wrong)).await];
        let (right, off) = ([&one, &others[0]], &others[1]);
        let (agent, spender) = (one.agent("a").await, one.agent("b").await);
        limited(&one, "agt_a", 1000).await;
        limited(&one, "agt_b", 100).await;
        let asked = off.post(&agent, "/v1/authorizations", &spend(300)).await.json();
        let approve = format!("/v1/reviews/{}/approve", asked["review"]["id"].as_str().unwrap());
        wrong.err(seconds);
        sees(off, seconds).await;
        assert_eq!(exchange(off.running.ops, "GET", "/readyz", "", b"").await.status, 200);

        let (body, month) = (spend(1), spend(30));
        let asked = (0..3 * RACERS).map(|number| {
            let server = [right[0], right[1], off][number % 3];
            let (key, body) = if number % 2 == 0 { (&agent, &body) } else { (&spender, &month) };
            async move { (key, server.post(key, "/v1/authorizations", body).await) }
        });
        let replies = join_all(asked).await;
        for (key, allowed) in [(&agent, 9), (&spender, 3)] {
            let its = verdicts(replies.iter().filter(|(of, _)| *of == key).map(|(_, reply)| reply));
            assert_eq!(its["allow"], allowed, "{its:?}: the review was the first of ten");
        }
        assert_eq!(off.send("POST", &approve, &off.organization_key, "", "").await.status, 201);
        let mandate = all(&one, &spender, "/v1/mandates").await[0]["id"].as_str().unwrap().to_owned();
        let revoked =
            off.send("POST", &format!("/v1/mandates/{mandate}/revoke"), &off.organization_key, "", "").await;
        assert_eq!(revoked.json()["revoked_at"], NOON);
        assert_eq!(verdicts([&one.post(&spender, "/v1/authorizations", &body).await])["deny_revoked"], 1);
        for decision in decisions(off).await {
            assert_eq!(decision["decided_at"], NOON, "{decision}");
        }
        one.holds();
    }
}

/// From the moment at which a clock jumps, and not from the next look at it.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_has_just_jumped_dates_no_decision() {
    let (one, wrong) = (World::start().await, noon());
    let off = one.beside(Arc::clone(&wrong)).await;
    let agent = one.agent("a").await;
    limited(&one, "agt_a", 100_000).await;
    for seconds in [60, -60, 3_600, -3_600] {
        wrong.err(seconds);
        assert_eq!(off.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
        wrong.err(-seconds);
    }
    let decisions = decisions(&one).await;
    let shown: Vec<_> =
        decisions.iter().map(|one| (one["sequence"].clone(), one["decided_at"].clone())).collect();
    assert_eq!(shown, [4, 3, 2, 1].map(|sequence| (json!(sequence), json!(NOON))));
    assert_eq!(one.holds(), 4);
}

/// The database's clock is set back, and the server that wrote by it when it was ahead is not the one that goes on.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_behind_those_of_other_servers_whatever_the_clock_shows() {
    let one = World::start().await;
    let other = one.beside(Arc::clone(&one.clock)).await;
    let agent = one.agent("a").await;
    one.clock.step(40 * 24 * 60 * 60);
    let ahead = one.mandate("agt_a").await;
    assert_eq!(one.post(&agent, "/v1/authorizations", &spend(300)).await.json()["verdict"], "review");
    one.clock.step(-40 * 24 * 60 * 60);
    one.accept_clock();
    let newest = all(&one, &one.organization_key, "/v1/events").await[0]["event"].clone();
    assert_eq!(other.post(&agent, "/v1/authorizations", &spend(300)).await.json()["verdict"], "review");
    let revoke = format!("/v1/mandates/{ahead}/revoke");
    assert_eq!(other.send("POST", &revoke, &other.organization_key, "", "").await.status, 200);
    let behind = format!("/v1/events?ending_before={}", newest.as_str().unwrap());
    let page = one.get(&one.organization_key, &behind).await.json();
    let types: Vec<_> = page["data"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(types, ["mandate.revoked", "decision.review_pending"]);
    let governing = other.mandate("agt_a").await;
    let mandates = all(&one, &one.organization_key, "/v1/mandates").await;
    assert_eq!((&mandates[0]["id"], &mandates[1]["id"]), (&json!(governing), &json!(ahead)));
    one.holds();
}

const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Waits until a transaction waits for a lock.
async fn waits(url: &str) {
    until_async(DEADLINE, "a lock is waited for", async || (query(url, WAITING) != "0").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ping_that_waits_for_its_webhook_is_dated_behind_the_wait() {
    let world = World::start().await;
    let webhook = json!({"url": "https://hooks.example/in", "events": ["mandate.revoked"]});
    let webhook = world.post(&world.organization_key, "/v1/webhooks", &webhook).await.json();
    let path = format!("/v1/webhooks/{}/ping", webhook["webhook"].as_str().unwrap());
    let url = world.settings.database.as_str();
    let holder = OpenTransaction::begin(url, "SELECT 1 FROM webhooks FOR UPDATE");
    let meanwhile = async {
        waits(url).await;
        world.clock.advance(90);
        holder.commit();
    };
    let (pinged, ()) = tokio::join!(world.send("POST", &path, &world.organization_key, "", ""), meanwhile);
    assert_eq!(pinged.status, 202, "{}", pinged.body);
    assert_eq!(pinged.json()["created_at"], "2026-06-15T12:01:30.000Z");
    let id = EventId::parse(pinged.json()["event"].as_str().unwrap()).unwrap();
    assert_eq!(id.created_at().to_string(), "2026-06-15T12:01:30.000Z");
}

/// Asks for an export; gives its path.
async fn export(server: &World, period: &Value) -> String {
    let mut body = period.clone();
    body["format"] = json!("ndjson");
    let asked = server.post(&server.organization_key, "/v1/exports", &body).await;
    assert_eq!(asked.status, 202, "{}", asked.body);
    format!("/v1/exports/{}", asked.json()["export"].as_str().unwrap())
}

async fn ready(server: &World, path: &str) -> Value {
    until_async(DEADLINE, "the export is built", async || {
        let export = server.get(&server.organization_key, path).await.json();
        (export["status"] != "pending").then(|| export["rows"].clone())
    })
    .await
}

/// The clock has stepped ahead meanwhile, so that the minute after the period has passed at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_commits_late_is_in_one_of_two_exports_that_adjoin() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    limited(&world, "agt_a", 1000).await;
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
    world.clock.advance(10);
    let url = world.settings.database.as_str();
    // What is decided waits to be written.
    let holder = OpenTransaction::begin(url, "LOCK TABLE decisions IN SHARE MODE");
    let meanwhile = async {
        waits(url).await;
        world.clock.step(120);
        let before = export(&world, &json!({"until": "2026-06-15T12:00:12Z"})).await;
        for _ in 0..20 {
            let record = world.get(&world.organization_key, &before).await.json();
            assert_eq!(record["status"], "pending", "a decision of the period is under way");
        }
        holder.commit();
        before
    };
    let body = spend(1);
    let (late, before) = tokio::join!(world.post(&agent, "/v1/authorizations", &body), meanwhile);
    assert_eq!(late.status, 201, "{}", late.body);
    let shown =
        world.get(&agent, &format!("/v1/decisions/{}", late.json()["decision"].as_str().unwrap())).await;
    assert_eq!(shown.json()["decided_at"], "2026-06-15T12:00:10.000Z");
    let after = export(&world, &json!({"since": "2026-06-15T12:00:12Z"})).await;
    assert_eq!((ready(&world, &before).await, ready(&world, &after).await), (json!(2), json!(0)));
    assert_eq!(world.holds(), 2);
}
