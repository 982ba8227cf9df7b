//! The public log where several servers share a database: the one that has lost the lease keeps it no more.

use std::sync::Arc;

use mandate_core::EnvironmentKind::Sandbox;
use mandate_core::log::VerifierKey;
use mandate_server::service::public_log::Remembered;
use mandate_server::store::Store;
use mandate_server::worker::public_log::LogKeeper;
use mandate_tests::cluster::run;

use crate::apart;
use crate::cosigned::{restore, tiles};
use crate::public_log::{keeper, log, published, waits_since};
use crate::witnesses::{add, has_cosigned, honest, serving};
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

/// A server that was frozen while another had the lease has not followed. Where it takes the lease anew, witnesses are asked.
#[tokio::test]
async fn a_server_that_takes_the_lease_anew_asks_the_witnesses_again() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    let second = keeper(&world, None);
    second.keep(Sandbox).await.unwrap();
    add(&world, "w1.example", honest("w1.example", &VerifierKey::parse(&log(&world).verifier_key).unwrap()));
    let old = log(&world);
    let old_tiles = tiles(&world, &old);
    let other = takes_over(&world).await;
    let first = LogKeeper::new(other.clone(), world.keyring.clone(), Arc::clone(&world.clock) as _, None);
    world.ask(&agent, "1").await;
    first.unwrap().keep(Sandbox).await.unwrap();
    assert!(has_cosigned(&world, "w1.example"));
    restore(&world, &old, old_tiles);
    world.ask(&agent, "2").await;
    other.leases().unwrap().give_jobs_back().await.unwrap();
    // It finds that its lease is gone, and takes it anew.
    for _ in 0..2 {
        second.keep(Sandbox).await.unwrap();
    }
    let now = log(&world);
    let why = now.stopped.unwrap();
    assert!(why.contains("the witness w1.example says"), "{why}");
    assert_eq!((now.checkpoint, now.signed), (old.checkpoint, None));
}

/// What witnesses refuse is taken back, and so nothing that a server which follows remembers.
#[tokio::test]
async fn a_server_that_follows_remembers_nothing_that_is_not_published() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    let directory = tempfile::tempdir().unwrap();
    let first = keeper(&world, None);
    first.keep(Sandbox).await.unwrap();
    let other = apart::another(&world.store, &world.database, Arc::clone(&world.engine) as _).unwrap();
    let follower = Some(directory.path().to_owned());
    let follower = LogKeeper::new(other, world.keyring.clone(), Arc::clone(&world.clock) as _, follower);
    let follower = follower.unwrap();
    follower.keep(Sandbox).await.unwrap();
    let remembered = Remembered::new(Some(directory.path().to_owned()));
    let before = remembered.in_file(&log(&world)).unwrap().unwrap();
    assert_eq!(before, published(&world));
    let (asked, mut comes) = tokio::sync::mpsc::unbounded_channel();
    let (answer, waits) = std::sync::mpsc::channel::<()>();
    let silent = move |_: &[u8]| {
        asked.send(()).unwrap();
        waits.recv().unwrap();
        (403, String::new())
    };
    add(&world, "w1.example", serving(silent));
    world.ask(&agent, "1").await;
    let follows = async {
        comes.recv().await.unwrap();
        assert!(log(&world).signed.is_some());
        follower.keep(Sandbox).await.unwrap();
        answer.send(()).unwrap();
    };
    let (kept, ()) = tokio::join!(first.keep(Sandbox), follows);
    kept.unwrap();
    assert_eq!(remembered.in_file(&log(&world)).unwrap().unwrap(), before);
}

/// It has led before, and then served what another has signed; then the database falls back to a copy, and the other is gone. It
/// knows what was signed by its memory, by its own directory, and by the witness.
#[tokio::test]
async fn a_server_that_has_run_on_beside_the_one_that_signed_signs_nothing_on_a_restored_database() {
    for (witness, forgets) in [(None, false), (Some("honest.example"), false), (Some("honest.example"), true)]
    {
        let world = World::new().await;
        let agent = world.agent("buyer").await;
        let directory = tempfile::tempdir().unwrap();
        let second = keeper(&world, Some(directory.path()));
        second.keep(Sandbox).await.unwrap();
        let other = takes_over(&world).await;
        let first = LogKeeper::new(other.clone(), world.keyring.clone(), Arc::clone(&world.clock) as _, None);
        let first = first.unwrap();
        if let Some(name) = witness {
            add(&world, name, honest(name, &VerifierKey::parse(&log(&world).verifier_key).unwrap()));
        }
        let old = log(&world);
        let old_tiles = tiles(&world, &old);
        world.ask(&agent, "1").await;
        // It finds that its lease is gone.
        second.keep(Sandbox).await.unwrap();
        first.keep(Sandbox).await.unwrap();
        let newer = published(&world);
        assert!(newer.checkpoint().size() > old.tree.size());
        assert_eq!(has_cosigned(&world, "honest.example"), witness.is_some());
        // What it has not looked at in time, only a witness knows.
        if !forgets {
            second.keep(Sandbox).await.unwrap();
            let written = Remembered::new(Some(directory.path().to_owned())).in_file(&old).unwrap().unwrap();
            assert_eq!(written.checkpoint(), newer.checkpoint());
        }
        restore(&world, &old, old_tiles);
        second.keep(Sandbox).await.unwrap();
        assert_eq!(log(&world).stopped, None, "it does not have the lease");
        world.ask(&agent, "2").await;
        other.leases().unwrap().give_jobs_back().await.unwrap();
        second.keep(Sandbox).await.unwrap();
        let now = log(&world);
        let why = now.stopped.unwrap();
        let said = if forgets { "the witness honest.example says" } else { "was signed" };
        assert!(why.contains(said), "{why}");
        assert_eq!((now.tree, now.checkpoint, now.signed), (old.tree, old.checkpoint, None));
    }
}
