//! A lock on an agent's row that somebody keeps, outside of any server: it delays nobody else, and has nothing done late.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mandate_tests::cluster::{Held, query};

use crate::world::{World, spend};

/// More than go by one lane, so that some share the one of the agent that is held.
const OTHERS: usize = 8;
const DECISIONS: &str = "SELECT count(*) FROM decisions WHERE agent = 'agt_held'";

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_row_is_held_delays_no_other_and_is_not_decided_for_later() {
    let world = &World::start().await;
    let held = &world.agent("held").await;
    let mut others = Vec::with_capacity(OTHERS);
    for number in 0..OTHERS {
        others.push(world.agent(&format!("a{number}")).await);
    }
    let url = world.settings.database.as_str();
    let holder = Held::begin(url, "SELECT 1 FROM agents WHERE agent = 'agt_held' FOR UPDATE");
    let (began, body) = (Instant::now(), spend(1));
    let late = join_all((0..5).map(|_| world.post(held, "/v1/authorizations", &body)));
    let free = async {
        for _ in 0..2 {
            for reply in join_all(others.iter().map(|key| world.post(key, "/v1/authorizations", &body))).await
            {
                assert_eq!(reply.status, 201, "{}", reply.body);
            }
        }
        began.elapsed()
    };
    let (late, free) = tokio::join!(late, free);
    assert!(free < Duration::from_secs(10), "the others were answered after {free:?}");
    for reply in late {
        reply.refused(500, "server_error");
    }
    let given_up = began.elapsed();
    assert!(given_up > Duration::from_secs(19) && given_up < Duration::from_secs(25), "{given_up:?}");
    holder.commit();
    assert_eq!(world.post(held, "/v1/authorizations", &body).await.status, 201);
    assert_eq!(query(url, DECISIONS), "1", "what was given up is not done later");
}
