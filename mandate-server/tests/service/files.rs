//! A database that is a file: where it is not, and what it is when it has been closed.

use std::sync::Arc;

use mandate_server::clock::Clock as _;
use mandate_server::service::deliveries::{self, Round};
use mandate_server::store::{self, Authorization};

use crate::apart;
use crate::deliveries::{pinged, webhook};
use crate::world::World;

#[tokio::test]
async fn a_database_that_is_nowhere_is_not_opened() {
    assert!(store::run_once("sqlite:///nowhere/at/all.db", |_| Ok(())).is_err());
    assert!(store::migrate("mysql://x").is_err());
}

#[tokio::test]
async fn a_closed_store_is_whole_in_its_one_file() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    world.ask(&agent, "1").await;
    world.store.close();
    let path = world.database.strip_prefix("sqlite://").unwrap();
    let left = std::fs::metadata(format!("{path}-wal")).map_or(0, |m| m.len());
    assert_eq!(left, 0, "the log is checkpointed");
    let gone = world.store.decide(Authorization::new(world.call(&agent), Ok(World::request(&agent, "1"))));
    assert!(gone.await.is_err());
}

#[tokio::test]
async fn what_a_killed_server_had_leased_is_due_at_the_next_start() {
    let mut world = World::new().await;
    let id = webhook(&world, "http://127.0.0.1:9/in").await;
    pinged(&world, &id).await;
    let lease = async |world: &World| {
        let (now, round) = (world.clock.now(), Round { room: 1, ..Round::default() });
        let leased = world.store.write(move |tx| Ok(deliveries::run_round(tx, &round, now)?)).await;
        leased.unwrap().unwrap().len()
    };
    assert_eq!(lease(&world).await, 1);
    assert_eq!(lease(&world).await, 0);
    // The lease is in the file, as after `kill -9`: only a deliverer that ends in order gives it back.
    world.store.close();
    world.store = apart::open(&world.database, Arc::clone(&world.engine) as _).unwrap();
    assert_eq!(lease(&world).await, 1);
}
