//! Scheduled jobs where several servers share a database: one of them runs those that change it.

use std::path::Path;
use std::sync::Arc;

use mandate_core::ExportId;
use mandate_server::store::Store;
use mandate_server::worker::export::Exports;
use mandate_server::worker::sweep::Sweep;
use mandate_tests::cluster::run;

use crate::apart;
use crate::world::World;

fn sweep(world: &World, store: &Store, directory: &Path) -> Sweep {
    let (exports, clock) = (Arc::new(Exports::new(directory.to_owned())), Arc::clone(&world.clock));
    Sweep::new(store.clone(), exports, Arc::clone(&world.moments), clock as _)
}

/// Has a review expire.
async fn expires(world: &World) {
    let agent = world.agent(&format!("a{}", world.number("SELECT count(*) FROM agents"))).await;
    world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    world.ask(&agent, "300").await;
    world.clock.advance(86_400);
}

#[tokio::test]
async fn the_jobs_are_one_servers_until_it_stops_or_its_lease_ends() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let second = apart::another(&world.store, &world.database, Arc::clone(&world.engine) as _).unwrap();
    let (one, other) = (sweep(&world, &world.store, folder.path()), sweep(&world, &second, folder.path()));
    let expired = || world.number("SELECT count(*) FROM reviews WHERE status = 'expired'");
    one.sweep().await;
    expires(&world).await;
    let file = folder.path().join(ExportId::from_bytes(world.new_id()).to_string());
    std::fs::write(&file, "x").unwrap();
    other.sweep().await;
    assert_eq!(expired(), 0, "the other server has the jobs");
    assert!(!file.exists(), "its own files each server deletes");
    one.sweep().await;
    assert_eq!(expired(), 1);

    world.store.leases().unwrap().give_jobs_back().await.unwrap();
    expires(&world).await;
    other.sweep().await;
    assert_eq!(expired(), 2, "one that stops gives them back");

    expires(&world).await;
    one.sweep().await;
    assert_eq!(expired(), 2);
    run(&world.database, "UPDATE leases SET until = 0");
    one.sweep().await;
    assert_eq!(expired(), 3, "the lease of one that has died ends");
}
