//! Servers on one database whose own clocks differ: all of them decide by the database's.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::replicas::{RACERS, all, limited, verdicts};
use crate::wire::exchange;
use crate::world::{World, noon, spend};

const NOON: &str = "2026-06-15T12:00:00.000Z";

/// Waits until a server has seen how far its clock is ahead.
async fn sees(server: &World, seconds: i64) {
    let ahead = format!("\nmandate_clock_ahead_seconds {seconds}.0\n");
    loop {
        let metrics = exchange(server.running.ops, "GET", "/metrics", "", b"").await.body;
        if metrics.contains(&ahead) {
            return;
        }
    }
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
}
