//! The log's partitions, made by the scheduler a year ahead.

use std::sync::Arc;

use mandate_server::worker::export::Exports;
use mandate_server::worker::sweep::Sweep;
use mandate_tests::cluster::{query, run};

use crate::world::World;

const YEAR: i64 = 365 * 24 * 60 * 60;

/// How many partitions there are for a month.
fn partitions(world: &World, month: &str) -> String {
    query(&world.database, &format!("SELECT count(*) FROM pg_class WHERE relname = 'decisions_{month}'"))
}

#[tokio::test]
async fn partitions_are_made_on_time_by_a_clock_that_was_set_back() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    run(&world.database, "DROP TABLE decisions_earlier, decisions_later, events_earlier, events_later");
    let exports = Arc::new(Exports::new(folder.path().to_owned()));
    let sweep =
        Sweep::new(world.store.clone(), exports, Arc::clone(&world.moments), Arc::clone(&world.clock) as _);
    for (jump, month) in [(2 * YEAR, "2028_06"), (-4 * YEAR, "2024_06")] {
        world.clock.advance(jump);
        assert_eq!(partitions(&world, month), "0");
        sweep.sweep().await;
        assert_eq!(partitions(&world, month), "1");
    }
    // Not with every look.
    world.clock.advance(59);
    assert_eq!(query(&world.database, "DROP TABLE decisions_2024_06"), "");
    sweep.sweep().await;
    assert_eq!(partitions(&world, "2024_06"), "0");
    world.clock.advance(1);
    sweep.sweep().await;
    assert_eq!(partitions(&world, "2024_06"), "1");
}
