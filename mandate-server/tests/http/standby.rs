//! A database that waits for a standby, and the standby is not there, or goes.

use futures_util::future::join_all;
use mandate_tests::Cluster;
use mandate_tests::cluster::run;
use mandate_tests::wait::{DEADLINE, until_async};
use serde_json::json;

use crate::wire::exchange;
use crate::world::{World, spend};

/// How often every wait is cut short, by an operator who has lost patience.
const CUTS: usize = 40;
const CUT: [&str; 2] = [
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
];

/// What was committed without an answer is found by the retry: once.
#[tokio::test(flavor = "multi_thread")]
async fn while_the_standby_is_missing_nothing_is_acknowledged() {
    let cluster = Cluster::start();
    cluster.create("mandate");
    let world = &World::start_with(|settings| settings.database = cluster.url("mandate")).await;
    let agent = world.agent("a").await;
    world.mandate("agt_a").await;
    let organization = &world.organization_key;
    let asked = [
        (&agent, "/v1/authorizations", spend(40).to_string()),
        (organization, "/v1/agents", json!({ "name": "b" }).to_string()),
        (organization, "/v1/enforcement", json!({ "mode": "observe" }).to_string()),
    ];
    let ask = || {
        let asking = asked.iter().map(|(key, path, body)| async move {
            world.post_text(key, path, &format!("Idempotency-Key: {path}\r\n"), body).await
        });
        join_all(asking)
    };
    cluster.miss_standby();
    let admin = cluster.admin_url("postgres");
    let cutting = tokio::task::spawn_blocking(move || {
        for number in 0..CUTS {
            run(&admin, CUT[number % 2]);
        }
    });
    for reply in ask().await {
        reply.refused(500, "server_error");
    }
    cutting.await.unwrap();
    cluster.find_standby();
    for reply in ask().await {
        assert!(reply.succeeded(), "{}", reply.body);
    }
    let kept = world.get(&agent, "/v1/decisions").await.json();
    assert_eq!(kept["data"].as_array().unwrap().len(), 1, "{kept}");
    let agents = world.get(organization, "/v1/agents").await.json();
    assert_eq!(agents["data"].as_array().unwrap().len(), 2, "{agents}");
    assert_eq!(world.holds(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_far_a_standby_is_behind_is_shown_until_it_is_gone() {
    const LAG: &str = "mandate_database_replication_lag_bytes ";
    let cluster = Cluster::start();
    cluster.create("mandate");
    run(&cluster.admin_url("postgres"), "GRANT pg_monitor TO mandate");
    let standby = cluster.standby();
    let world = &World::start_with(|settings| settings.database = cluster.url("mandate")).await;
    let shown = async |receivers: &str, has_lag: bool| {
        // An empty set of labels is none.
        let text = exchange(world.running.ops, "GET", "/metrics", "", b"").await.body.replace("{}", "");
        let has = |start: &str| text.lines().any(|line| line.starts_with(start));
        (has(&format!("mandate_database_receivers {receivers}")) && has(LAG) == has_lag).then_some(())
    };
    until_async(DEADLINE, "a standby is shown", async || shown("1", true).await).await;
    cluster.find_standby();
    standby.crash();
    until_async(DEADLINE, "none is shown", async || shown("0", false).await).await;
}
