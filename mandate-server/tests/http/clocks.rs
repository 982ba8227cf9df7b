//! Servers on one database whose clocks differ: one that is off by more than is bearable decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use crate::replicas::{RACERS, all, limited, verdicts};
use crate::wire::exchange;
use crate::world::{World, noon, spend};

/// Waits until a server says at `/readyz` whether it is ready.
async fn says(server: &World, status: u16) -> String {
    loop {
        let told = exchange(server.running.ops, "GET", "/readyz", "", b"").await;
        if told.status == status {
            return told.body;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_servers_the_one_whose_clock_is_off_decides_nothing() {
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
        assert!(says(off, 503).await.contains("the clock differs too much"));
        let metrics = exchange(off.running.ops, "GET", "/metrics", "", b"").await.body;
        let ahead = format!("\nmandate_clock_ahead_seconds {seconds}.0\n");
        assert!(metrics.contains(&ahead) && metrics.contains("\nmandate_ready 0\n"), "{metrics}");

        // What the three answer at once: the two that are right keep every limit, and the third says nothing.
        let (body, month) = (spend(1), spend(30));
        let asked = (0..3 * RACERS).map(|number| {
            let server = [right[0], right[1], off][number % 3];
            let (key, body) = if number % 2 == 0 { (&agent, &body) } else { (&spender, &month) };
            async move { (number % 3, key, server.post(key, "/v1/authorizations", body).await) }
        });
        let mut allowed = BTreeMap::new();
        for (server, key, reply) in join_all(asked).await {
            if server == 2 {
                reply.refused(500, "server_error");
            } else if verdicts([&reply]).contains_key("allow") {
                *allowed.entry(key).or_insert(0) += 1;
            }
        }
        assert_eq!((allowed[&agent], allowed[&spender]), (9, 3), "the review was the first of ten");
        off.send("POST", &approve, &off.organization_key, "", "").await.refused(500, "server_error");
        assert_eq!(one.send("POST", &approve, &one.organization_key, "", "").await.status, 201);
        // One that starts with such a clock does not begin to decide; what takes authority away it does all the same.
        let mandate = all(&one, &spender, "/v1/mandates").await[0]["id"].as_str().unwrap().to_owned();
        let late = one.beside(Arc::clone(&wrong)).await;
        late.post(&agent, "/v1/authorizations", &body).await.refused(500, "server_error");
        let revoke = format!("/v1/mandates/{mandate}/revoke");
        assert_eq!(late.send("POST", &revoke, &late.organization_key, "", "").await.status, 200);

        wrong.err(-seconds);
        assert_eq!(says(off, 200).await, "ready\n");
        assert_eq!(verdicts([&off.post(&spender, "/v1/authorizations", &body).await])["deny_revoked"], 1);
    }
}

/// From the moment at which a clock jumps, and not from the next look at it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_decided_by_a_clock_that_has_just_jumped() {
    const JUMPS: usize = 6;
    let (one, wrong) = (World::start().await, noon());
    let off = one.beside(Arc::clone(&wrong)).await;
    let agent = one.agent("a").await;
    limited(&one, "agt_a", 100_000).await;
    let asked = one.post(&agent, "/v1/authorizations", &spend(300)).await.json();
    let approve = format!("/v1/reviews/{}/approve", asked["review"]["id"].as_str().unwrap());
    for number in 0..JUMPS {
        // Velocity is of another minute.
        for clock in [&one.clock, &wrong] {
            clock.advance(61);
        }
        assert!(says(&off, 200).await.contains("ready"));
        assert_eq!(off.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
        let seconds = if number % 2 == 0 { 60 } else { -60 };
        wrong.err(seconds);
        if number % 3 == 0 {
            off.send("POST", &approve, &off.organization_key, "", "").await.refused(500, "server_error");
        }
        off.post(&agent, "/v1/authorizations", &spend(1)).await.refused(500, "server_error");
        wrong.err(-seconds);
    }
    assert!(says(&off, 200).await.contains("ready"));
    assert_eq!(one.send("POST", &approve, &one.organization_key, "", "").await.status, 201);
}
