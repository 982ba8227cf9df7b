//! Scheduled jobs and exports where several servers share a database: one of them does what changes it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mandate_core::ExportId;
use mandate_server::clock::Clock as _;
use mandate_server::service::exports::{self, CLOSES_SECONDS, Create, KEPT_SECONDS};
use mandate_server::store::Store;
use mandate_server::store::sql::{decisions::Filter, exports::Format};
use mandate_server::worker::export::{Exports, build_next};
use mandate_server::worker::sweep::Sweep;
use mandate_tests::cluster::{OpenTransaction, run};
use tokio::sync::watch;
use tokio::time::timeout;

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

/// Its end is known still: the next look renews it, and no other server has to wait for its end.
#[tokio::test]
async fn a_lease_on_the_jobs_that_is_not_renewed_for_a_fault_is_held_still() {
    let world = World::new().await;
    assert!(world.store.has_jobs().await.unwrap());
    let until = || world.number("SELECT until FROM leases");
    let before = until();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(15)).await;
    tokio::time::resume();
    run(&world.database, "ALTER TABLE leases ADD CONSTRAINT fails CHECK (until < 0) NOT VALID");
    assert!(world.store.has_jobs().await.is_err());
    run(&world.database, "ALTER TABLE leases DROP CONSTRAINT fails");
    assert_eq!(until(), before);
    assert!(world.store.has_jobs().await.unwrap(), "no other server has it");
    assert!(until() > before);
    assert_eq!(world.store.write_with_jobs(|_| Ok(())).await.unwrap(), Some(()));
}

/// The database's clock was ahead when the lease was given, and is set right.
#[tokio::test]
async fn a_lease_on_the_jobs_that_only_a_wrong_clock_can_have_given_holds_up_nothing() {
    let world = World::new().await;
    let second = apart::another(&world.store, &world.database, Arc::clone(&world.engine) as _).unwrap();
    assert!(world.store.has_jobs().await.unwrap());
    for (later, taken) in [("64000", false), ("70000", true), ("7776000000", true)] {
        let at = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        run(&world.database, &format!("UPDATE leases SET until = {at} + {later}"));
        assert_eq!(second.has_jobs().await.unwrap(), taken, "{later}");
        second.leases().unwrap().give_jobs_back().await.unwrap();
        run(&world.database, "INSERT INTO leases (name, until) VALUES ('jobs', 0) ON CONFLICT DO NOTHING");
    }
    let ran = world.store.write_with_jobs(|_| Ok(())).await.unwrap();
    assert_eq!(ran, None, "what has lost it runs no job");
}

/// The clock of the server that builds it was ahead.
#[tokio::test]
async fn a_lease_on_an_export_that_only_a_wrong_clock_can_have_given_holds_up_nothing() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    ask(&world).await;
    world.clock.advance(CLOSES_SECONDS);
    let (exports, stop) = (Arc::new(Exports::new(folder.path().to_owned())), watch::Sender::new(false));
    let stopping = stop.subscribe();
    for (seconds, built) in [(120, false), (121, true)] {
        let until = world.clock.now().plus_seconds(seconds).millis();
        run(&world.database, &format!("UPDATE exports SET leased_until = {until}"));
        let building = build_next(&world.store, &exports, &world.keyring, &world.moments, &stopping);
        assert_eq!(building.await.unwrap(), built, "{seconds}");
    }
    assert_eq!(world.number("SELECT count(*) FROM exports WHERE status = 'ready'"), 1);
}

/// Asks for an export of what was decided until now.
async fn ask(world: &World) -> ExportId {
    let (id, at) = (ExportId::from_bytes(world.new_id()), world.clock.now());
    let filter = Filter { until: Some(at), ..Filter::default() };
    let create = Create { format: Format::Csv, filter, id, at };
    let call = world.call(&world.organization);
    assert_eq!(world.write(call, move |tx, call| exports::create(tx, call, &create)).await.status, 202);
    id
}

#[tokio::test]
async fn expired_exports_are_deleted_by_the_server_with_the_jobs_and_files_by_each() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let second = apart::another(&world.store, &world.database, Arc::clone(&world.engine) as _).unwrap();
    let (own, copies) = (folder.path().join("one"), folder.path().join("other"));
    let (one, other) = (sweep(&world, &world.store, &own), sweep(&world, &second, &copies));
    let exports = || world.number("SELECT count(*) FROM exports");
    one.sweep().await;
    let name = ask(&world).await.to_string();
    for directory in [&own, &copies] {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join(&name), "x").unwrap();
    }
    world.clock.advance(KEPT_SECONDS);
    other.sweep().await;
    assert_eq!((exports(), copies.join(&name).exists()), (1, true), "the other server has the jobs");
    one.sweep().await;
    assert_eq!((exports(), own.join(&name).exists()), (0, false));
    world.clock.advance(3_600);
    other.sweep().await;
    assert!(!copies.join(&name).exists(), "no export owns it any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_the_jobs_between_two_exports_deletes_no_other() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let second = apart::another(&world.store, &world.database, Arc::clone(&world.engine) as _).unwrap();
    let one = sweep(&world, &world.store, folder.path());
    for _ in 0..2 {
        ask(&world).await;
    }
    world.clock.advance(KEPT_SECONDS);
    let holder = OpenTransaction::begin(&world.database, "SELECT 1 FROM exports FOR UPDATE");
    let lost = async {
        while world.number(WAITING) == 0 {
            tokio::task::yield_now().await;
        }
        world.store.leases().unwrap().give_jobs_back().await.unwrap();
        assert!(second.has_jobs().await.unwrap());
        holder.commit();
    };
    let both = async { tokio::join!(one.sweep(), lost) };
    timeout(Duration::from_mins(1), both).await.unwrap();
    assert_eq!(world.number("SELECT count(*) FROM exports"), 1, "the one that was begun");
    sweep(&world, &second, folder.path()).sweep().await;
    assert_eq!(world.number("SELECT count(*) FROM exports"), 0);
}

const WAITING: &str = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE NOT l.granted AND a.datname = current_database()";

#[tokio::test]
async fn a_server_closes_no_period_for_an_export_that_another_builds() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    ask(&world).await;
    world.clock.advance(CLOSES_SECONDS);
    let mark = || world.number("SELECT mark FROM clock");
    let before = mark();
    // The other one takes it when this one has read that it is pending.
    let until = world.clock.now().plus_seconds(60).millis();
    let taking =
        OpenTransaction::begin(&world.database, &format!("UPDATE exports SET leased_until = {until}"));
    let (exports, stop) = (Arc::new(Exports::new(folder.path().to_owned())), watch::Sender::new(false));
    let stopping = stop.subscribe();
    let building = build_next(&world.store, &exports, &world.keyring, &world.moments, &stopping);
    let taken = async {
        while world.number(WAITING) == 0 {
            tokio::task::yield_now().await;
        }
        taking.commit();
    };
    let both = async { tokio::join!(building, taken).0 };
    timeout(Duration::from_mins(1), both).await.unwrap().unwrap();
    assert_eq!(mark(), before);
}

#[tokio::test]
async fn an_export_that_ends_while_the_clock_is_accepted_says_so() {
    let world = World::new().await;
    ask(&world).await;
    world.clock.advance(CLOSES_SECONDS);
    let (now, moments) = (world.clock.now(), Arc::clone(&world.moments));
    let export = world.store.read(move |tx| exports::pending(tx, now, 1)).await.unwrap().unwrap().remove(0);
    let closing = export.clone();
    world.store.write(move |tx| Ok(exports::close(tx, &closing, &moments)?)).await.unwrap().unwrap();
    let until = now.plus_seconds(CLOSES_SECONDS);
    let written = exports::Written { rows: 0, sha256: [0; 32] };
    // What accepts a clock has found no export that is built.
    let back = now.plus_seconds(-2 * CLOSES_SECONDS).millis();
    let accepting = OpenTransaction::begin(&world.database, &format!("UPDATE clock SET mark = {back}"));
    let ending = world.store.write(move |tx| {
        assert!(exports::lease(tx, &export, now, until)?);
        Ok(exports::end_leased(tx, &export, until, Some(written))?)
    });
    let accepted = async {
        while world.number(WAITING) == 0 {
            tokio::task::yield_now().await;
        }
        accepting.commit();
    };
    let both = async { tokio::join!(ending, accepted).0 };
    assert!(timeout(Duration::from_mins(1), both).await.unwrap().unwrap().unwrap());
    assert_eq!(world.number("SELECT incomplete_since FROM exports"), back);
}
