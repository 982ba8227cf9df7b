//! A key that is revoked by another process stops within a second.

use std::time::{Duration, Instant};

use mandate_core::api_key::ApiKey;

use crate::world::World;

#[tokio::test]
async fn a_key_that_another_process_revokes_stops_within_a_second() {
    let world = World::start().await;
    let key = world.agent("a").await;
    let hash = ApiKey::parse(&key).unwrap().hash();
    assert_eq!(world.get(&key, "/v1/agents").await.status, 200);
    world.change_keys("UPDATE api_keys SET revoked_at = 1 WHERE hash = $1", &[hash.into()]);
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
