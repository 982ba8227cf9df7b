//! The public log where several servers share a database: the one that has lost the lease keeps it no more.

use std::sync::Arc;

use mandate_core::EnvironmentKind::Sandbox;
use mandate_server::store::Store;
use mandate_tests::cluster::run;

use crate::apart;
use crate::public_log::{keeper, log, published, waits_since};
use crate::witnesses::{add, serving};
use crate::world::World;

/// Another server that has taken the lease, which has ended.
async fn takes_over(world: &World) -> Store {
    run(&world.database, "UPDATE leases SET until = 0");
    let other = apart::another(&world.store, &world.database, Arc::clone(&world.engine) as _).unwrap();
    assert!(other.has_jobs().await.unwrap());
    other
}

#[tokio::test]
async fn a_server_whose_lease_another_has_taken_keeps_no_log() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    let keeper = keeper(&world, None);
    keeper.keep(Sandbox).await.unwrap();
    let before = log(&world);
    let other = takes_over(&world).await;
    world.ask(&agent, "1").await;
    keeper.keep(Sandbox).await.unwrap();
    let now = log(&world);
    assert_eq!((now.tree.size(), now.checkpoint), (before.tree.size(), before.checkpoint));
    assert!(waits_since(&world).is_some());
    assert!(!world.store.has_jobs().await.unwrap(), "it knows by now");
    other.leases().unwrap().give_jobs_back().await.unwrap();
    keeper.keep(Sandbox).await.unwrap();
    assert_eq!(published(&world).checkpoint().size(), before.tree.size() + 1);
}

#[tokio::test]
async fn a_server_that_loses_its_lease_while_witnesses_answer_publishes_nothing() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    let keeper = keeper(&world, None);
    keeper.keep(Sandbox).await.unwrap();
    let before = log(&world);
    let database = world.database.clone();
    let lose = move |_: &[u8]| {
        run(&database, "UPDATE leases SET until = until + 1");
        (403, String::new())
    };
    add(&world, "w.example", serving(lose));
    world.ask(&agent, "1").await;
    keeper.keep(Sandbox).await.unwrap();
    let now = log(&world);
    assert_eq!((now.tree.size(), now.checkpoint), (before.tree.size() + 1, before.checkpoint));
}
