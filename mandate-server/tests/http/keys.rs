//! What another process does to a key holds within a second.

use std::time::{Duration, Instant};

use mandate_core::Timestamp;
use mandate_core::api_key::ApiKey;
use mandate_server::clock::Clock as _;
use mandate_server::service::audit::Operator;
use mandate_server::service::issuance::{self, KeyId, Selection};

use crate::apart;
use crate::world::World;

#[tokio::test]
async fn a_key_that_another_process_revokes_stops_within_a_second() {
    let world = World::start().await;
    let key = world.agent("a").await;
    assert_eq!(world.get(&key, "/v1/agents").await.status, 200);
    world.change_key(&key, |key| key.revoked_at = Some(Timestamp::from_millis(1)));
    let revoked = Instant::now();
    loop {
        let sent = revoked.elapsed();
        match world.get(&key, "/v1/agents").await.status {
            401 => return,
            status => assert!(status == 200 && sent <= Duration::from_secs(1), "{status} after {sent:?}"),
        }
    }
}

#[tokio::test]
async fn a_key_works_at_once_although_it_was_unknown_before() {
    let world = World::start().await;
    for name in ["a", "b", "c"] {
        let key = world.agent(name).await;
        assert_eq!(world.get(&key, "/v1/agents").await.status, 200);
    }
    let other = world.onboard("other");
    assert_eq!(world.get(&other, "/v1/agents").await.status, 200);
}

#[tokio::test]
async fn a_caller_that_waits_as_the_new_rate_says_is_admitted() {
    let world = World::start().await;
    let key = world.agent("a").await;
    for _ in 0..4 {
        assert_eq!(world.get(&key, "/v1/agents").await.status, 200);
        world.clock.advance(10);
    }
    let selection = Selection::Key(KeyId::of(&ApiKey::parse(&key).unwrap().hash()));
    let by = Operator { name: "test".to_owned(), at: world.clock.now() };
    let set = apart::run_once(&world.settings.database, |tx| issuance::set_rate(tx, &selection, 3, &by));
    let since = Instant::now();
    assert_eq!(set.unwrap().unwrap().len(), 1);
    let refused = loop {
        let answer = world.get(&key, "/v1/agents").await;
        if answer.status == 429 {
            break answer;
        }
        assert!(since.elapsed() <= Duration::from_secs(1), "{answer:?}");
    };
    // Requests admitted before the new rate was read count as well. All were admitted in this second.
    let seconds: i64 = refused.header("retry-after").unwrap().parse().unwrap();
    world.clock.advance(seconds - 1);
    assert_eq!(world.get(&key, "/v1/agents").await.status, 429, "a second too early");
    world.clock.advance(1);
    assert_eq!(world.get(&key, "/v1/agents").await.status, 200, "after {seconds} s");
}
