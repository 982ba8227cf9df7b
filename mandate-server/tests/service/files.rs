//! A database that is a file: where it is not, and what it is when it has been closed.

use mandate_server::store::{self, Authorization};

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
