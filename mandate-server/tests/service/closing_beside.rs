//! A month is closed on PostgreSQL beside servers that decide, an open reader, a dump, and another closing of it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use mandate_server::admin::retention::close::{Listener, Step};
use mandate_server::clock::Clock as _;
use mandate_server::error::Fault;
use mandate_server::model::call::Caller;
use mandate_server::store::{Authorization, Store};
use mandate_tests::cluster::{OpenTransaction, query, run};
use mandate_tests::wait::{DEADLINE, until};
use tokio::runtime::Runtime;

use crate::apart;
use crate::check::found;
use crate::retention::{ThreeMonths, close, close_by, close_some, files, go_to, rows, three_months};
use crate::world::World;

const READ: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM decisions";

/// Has two closings begin at once.
struct Meets<'a>(&'a Barrier);

impl Listener for Meets<'_> {
    fn done(&mut self, step: &Step<'_>) -> Result<(), Fault> {
        if matches!(step, Step::Begun) {
            self.0.wait();
        }
        Ok(())
    }
}

/// Says that something has ended, however it has.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Has agents ask two servers until something has ended. Returns how often.
async fn ask(world: &World, servers: [(&Store, &Arc<Caller>); 2], has_ended: &AtomicBool) -> i64 {
    let mut asked = 0;
    while !has_ended.load(Ordering::SeqCst) {
        for (store, agent) in servers {
            let authorization = Authorization::new(world.call(agent), Ok(World::request(agent, "1")));
            assert_eq!(store.decide(authorization).await.unwrap().status, 201);
            asked += 1;
        }
    }
    asked
}

/// Closes June twice at once. One of them does it, and the other says so.
fn close_twice(world: &World, folder: &Path) {
    let (both, now) = (Barrier::new(2), [world.clock.now(); 2]);
    let close = || close_by(world, ("2026-06", 1), folder, now, &mut Meets(&both));
    let ended = thread::scope(|scope| {
        let closings = [scope.spawn(close), scope.spawn(close)];
        closings.map(|closing| closing.join().unwrap())
    });
    let refused: Vec<_> =
        ended.iter().filter_map(|ended| ended.as_ref().err()).map(Fault::to_string).collect();
    assert_eq!(refused, ["another command closes 2026-06; run this again when that has ended"]);
}

#[test]
fn two_closings_at_once_beside_servers_a_reader_and_a_dump_close_a_month_once() {
    let runtime = Runtime::new().unwrap();
    let ThreeMonths { world, a, b, .. } = runtime.block_on(three_months());
    let second = apart::another(&world.store, &world.database, Arc::clone(&world.engine) as _).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let reader = OpenTransaction::begin(&world.database, READ);
    let before = rows(&world)["decisions"];
    assert_eq!(close_some(&world, ("2026-06", 1), folder.path(), 1).1, ["Begun"]);
    let has_ended = AtomicBool::new(false);
    let asked = thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = Ends(&has_ended);
            close_twice(&world, folder.path());
        });
        // Each is a run of pg_dump.
        scope.spawn(|| while !world.held.holds("acme") || !has_ended.load(Ordering::SeqCst) {});
        runtime.block_on(ask(&world, [(&world.store, &a), (&second, &b)], &has_ended))
    });
    reader.commit();
    assert!(asked > 2, "{asked}");
    assert_eq!(rows(&world)["decisions"], before - 6 + asked);
    assert_eq!(files(folder.path()).len(), 1, "no other file is left");
    assert_eq!(found(&world.database), Vec::<String>::new());
}

/// As the operator does for each of the month's partitions, once no row is left: both statements hold up no decision.
#[test]
fn the_partition_of_a_closed_month_without_rows_is_detached_beside_a_server_and_dropped() {
    const WAITS: &str = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE%'";
    let runtime = Runtime::new().unwrap();
    let world = runtime.block_on(World::new());
    let agent = runtime.block_on(world.agent("a"));
    runtime.block_on(world.mandate(&agent, 1_000, ""));
    let ask = || assert_eq!(runtime.block_on(world.ask(&agent, "1"))["verdict"], "allow");
    for instant in ["2026-06-20T00:00:00Z", "2026-07-20T00:00:00Z", "2026-08-20T00:00:00Z"] {
        go_to(&world, instant);
        ask();
    }
    let folder = tempfile::tempdir().unwrap();
    close(&world, "2026-06", folder.path()).unwrap();
    let url = &world.database;
    for table in ["decisions", "events"] {
        assert_eq!(query(url, &format!("SELECT count(*) FROM {table}_2026_06")), "0", "{table}");
        let reader = OpenTransaction::begin(url, &READ.replace("decisions", table));
        let detach = format!("ALTER TABLE {table} DETACH PARTITION {table}_2026_06 CONCURRENTLY");
        thread::scope(|scope| {
            let detached = scope.spawn(|| run(url, &detach));
            until(DEADLINE, "DETACH waits for the reader", || (query(url, WAITS) == "1").then_some(()));
            ask();
            reader.commit();
            detached.join().unwrap();
        });
        assert_eq!(found(url), Vec::<String>::new());
        run(url, &format!("DROP TABLE {table}_2026_06"));
        ask();
    }
    go_to(&world, "2026-09-20T00:00:00Z");
    ask();
    close(&world, "2026-07", folder.path()).unwrap();
    assert_eq!(found(url), Vec::<String>::new());
    assert_eq!(files(folder.path()).len(), 2);
}
