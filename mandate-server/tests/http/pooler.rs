//! Two servers whose connections go through `PgBouncer` in transaction mode: fewer connections than one server has, and each
//! transaction on another.

use std::collections::BTreeSet;
use std::sync::Arc;

use mandate_tests::{Cluster, Pooler};
use serde_json::json;

use crate::replicas::{RACERS, all, limited, race, statuses, verdicts};
use crate::world::{World, spend};

#[tokio::test(flavor = "multi_thread")]
async fn through_a_pooler_that_shares_connections_all_is_as_without() {
    let cluster = Cluster::start();
    cluster.create("mandate");
    let pooler = Pooler::before(&cluster);
    let one = World::start_with(|settings| settings.database = pooler.url("mandate")).await;
    let servers = [one.beside(Arc::clone(&one.clock)).await, one];
    let organization = &servers[0].organization_key;
    let (month, velocity, single) =
        (servers[0].agent("month").await, servers[1].agent("velocity").await, servers[0].agent("once").await);
    for (server, agent) in servers.iter().zip(["agt_month", "agt_once"]) {
        limited(server, agent, 100).await;
    }
    limited(&servers[0], "agt_velocity", 1000).await;

    let replies = race(&servers, RACERS, &month, "/v1/authorizations", "", &spend(30)).await;
    assert_eq!(verdicts(&replies)["allow"], 3);
    let replies = race(&servers, RACERS, &velocity, "/v1/authorizations", "", &spend(1)).await;
    assert_eq!((verdicts(&replies)["allow"], verdicts(&replies)["deny_velocity"]), (10, RACERS - 10));
    let headers = "Idempotency-Key: once\r\n";
    let replies = race(&servers, RACERS, &single, "/v1/authorizations", headers, &spend(1)).await;
    assert!(replies.iter().all(|reply| (reply.status, &reply.body) == (201, &replies[0].body)));
    assert_eq!(replies.iter().filter(|reply| !reply.replayed()).count(), 1);
    assert_eq!(all(&servers[1], &single, "/v1/decisions").await.len(), 1);

    // Scripts: advisory locks, reviews, lists.
    let named = race(&servers, 8, organization, "/v1/agents", headers, &json!({ "name": "named" })).await;
    assert!(named.iter().all(|reply| (reply.status, &reply.body) == (201, &named[0].body)));
    servers[0].clock.advance(61);
    let asked = servers[0].post(&velocity, "/v1/authorizations", &spend(300)).await.json();
    let path = format!("/v1/reviews/{}/approve", asked["review"]["id"].as_str().unwrap());
    let approved = race(&servers, 8, organization, &path, "", &json!({})).await;
    assert_eq!((statuses(&approved)[&201], statuses(&approved)[&400]), (1, 7));
    let kept = all(&servers[0], organization, "/v1/decisions").await;
    let ids: BTreeSet<_> = kept.iter().map(|decision| decision["jti"].as_str().unwrap()).collect();
    assert_eq!((kept.len(), ids.len()), (2 * RACERS + 3, 2 * RACERS + 3));
    assert_eq!(servers[0].holds(), 2 * RACERS + 3);
}
