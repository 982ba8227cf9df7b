//! The rate of a key where several servers share a database: on a file there is one.

use std::sync::Arc;
use std::time::Instant;

use mandate_tests::cluster::query;
use mandate_tests::wait::{DEADLINE, until_async};

use crate::world::{World, spend};

/// Both are asked alternately, and then one alone, until all say that the window is full, and not only this round's
/// share. The clock does not move meanwhile, so that nothing leaves the window.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_holds_for_two_servers_together() {
    const RATE: usize = 12;
    const FULL: u32 = 3;
    let one = World::start().await;
    let servers = [one.beside(Arc::clone(&one.clock)).await, one];
    for (name, asked) in [("both", [0, 1]), ("one", [1, 1])] {
        let agent = servers[0].agent(name).await;
        servers[0].change_key(&agent, |key| key.rate = 12);
        let ask = async |server: usize| {
            let reply = servers[server].get(&agent, "/v1/decisions").await;
            assert!([200, 429].contains(&reply.status), "{}", reply.body);
            reply.header("retry-after").map(|seconds| seconds.parse::<u32>().unwrap())
        };
        let (mut admitted, mut waits) = (0, [0; 2]);
        let began = Instant::now();
        while waits.iter().any(|wait| *wait < FULL) {
            assert!(began.elapsed() < DEADLINE, "{name}: {admitted} were admitted");
            for (wait, server) in waits.iter_mut().zip(asked) {
                let refused = ask(server).await;
                admitted += usize::from(refused.is_none());
                *wait = refused.unwrap_or_default();
            }
        }
        assert!(admitted >= RATE, "{name}: {admitted} were admitted");
        // A server that was not asked keeps its share until it has read the reports.
        for server in [0, 1] {
            let mut refused = ask(server).await;
            while refused.is_none_or(|wait| wait < FULL) {
                assert!(began.elapsed() < DEADLINE, "{name}: {admitted} were admitted");
                admitted += usize::from(refused.is_none());
                refused = ask(server).await;
            }
        }
        assert!(admitted <= RATE * 3 / 2 + 2, "{name}: {admitted} were admitted");
        servers[0].clock.advance(30);
        assert!(ask(0).await.is_some() && ask(1).await.is_some());
        servers[0].clock.advance(31);
        for server in [0, 1] {
            let is_admitted = async || ask(server).await.is_none().then_some(());
            until_async(DEADLINE, "the window has slid", is_admitted).await;
        }
    }
    let agent = servers[0].agent("asking").await;
    for server in &servers {
        assert_eq!(server.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
    }
    assert_eq!(servers[0].holds(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_stopped_is_not_counted_among_those_that_share() {
    const SERVERS: &str = "SELECT count(*) FILTER (WHERE ended = 0) || ' ' || count(*) FROM servers";
    let stays = World::start().await;
    let ends = stays.beside(Arc::clone(&stays.clock)).await;
    let agent = stays.agent("asking").await;
    for server in [&stays, &ends] {
        assert_eq!(server.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
    }
    let url = stays.settings.database.clone();
    assert_eq!(query(&url, SERVERS), "2 2");
    ends.running.stop().await;
    assert_eq!(query(&url, SERVERS), "1 2", "what it has admitted counts on");
    assert_eq!(stays.holds(), 2);
}
