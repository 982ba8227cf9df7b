//! What a witness has cosigned, or may have, binds the log: whatever another witness says, and wherever a server is cut off.

use std::thread;
use std::time::Duration;

use mandate_core::EnvironmentKind::Sandbox;
use mandate_core::log::{
    AddCheckpoint, Entry, Hash, SignedCheckpoint, VerifierKey, WitnessRefused, WitnessedLog, cosign,
    write_conflict, write_entry,
};
use mandate_server::clock::Clock as _;
use mandate_server::service::audit::Operator;
use mandate_server::service::public_log::{Remembered, append, operated, publish};
use mandate_server::store::sql::public_log::{self as rows, ENTRIES, PublicLog, TilePlace};
use mandate_server::store::sql::witnesses::Witness;
use mandate_server::store::tx::Tx;
use tokio::sync::mpsc;

use crate::apart;
use crate::check;
use crate::log_origins::new_origin;
use crate::public_log::{entries, keeper, log, published};
use crate::witnesses::{add, has_cosigned, honest, key, late, serving};
use crate::world::World;

/// The key that verifies the log's checkpoints.
fn of(world: &World) -> VerifierKey {
    VerifierKey::parse(&log(world).verifier_key).unwrap()
}

/// How many decisions are in the newest log.
fn decisions(world: &World) -> usize {
    entries(world).iter().filter(|entry| matches!(entry, Entry::Decision { .. })).count()
}

/// One that knows more than the server asks about, and no more than the log has by then.
#[tokio::test]
async fn what_a_witness_has_cosigned_is_published_where_the_log_has_grown_meanwhile() {
    let world = World::new().await;
    add(&world, "honest.example", honest("honest.example", &of(&world)));
    let (database, kept, at) = (world.database.clone(), world.keyring.clone(), world.clock.now());
    let overtake = move |_: &[u8]| {
        let (mut waiting, hash) = (Vec::new(), Hash::sha256(b"other"));
        let entry = Entry::Decision { tag: hash, token: hash, record: hash };
        write_entry(&mut waiting, &entry.to_bytes()).unwrap();
        let size = apart::run_once(&database, |tx| {
            rows::add(tx, Sandbox, at, waiting)?;
            append::append(tx, Sandbox, kept.log_secrets())?;
            Ok(rows::newest(tx, Sandbox)?.tree.size())
        });
        (409, write_conflict(size.unwrap().unwrap()))
    };
    add(&world, "ahead.example", serving(overtake));
    keeper(&world, None).keep(Sandbox).await.unwrap();
    let now = log(&world);
    assert_eq!((now.stopped, now.signed), (None, None));
    assert!(has_cosigned(&world, "honest.example"));
    assert!(published(&world).checkpoint().size() < now.tree.size());
}

/// A log of which one witness has cosigned more, or other entries, is stopped, and shows no more than it did. What another witness
/// has cosigned of it is published when it goes on, or when it ends.
#[tokio::test]
async fn what_a_witness_has_cosigned_of_a_log_that_another_stops_is_kept() {
    for (goes_on, more) in [(true, 0), (false, 0), (true, 1_000), (false, 1_000)] {
        let world = World::new().await;
        let agent = world.agent("buyer").await;
        let keeper = keeper(&world, None);
        keeper.keep(Sandbox).await.unwrap();
        let before = log(&world);
        add(&world, "honest.example", honest("honest.example", &of(&world)));
        let last = Some((before.tree.size() + more, Hash::sha256(b"other")));
        let state = WitnessedLog { keys: vec![of(&world)], last };
        let forked = move |body: &[u8]| match state.decide(&AddCheckpoint::parse(body).unwrap()) {
            Err(WitnessRefused::Conflict { size }) => (409, write_conflict(size)),
            Err(refused) => (refused.status(), String::new()),
            Ok(_) => (404, String::new()),
        };
        add(&world, "fork.example", serving(forked));
        world.ask(&agent, "1").await;
        keeper.keep(Sandbox).await.unwrap();
        let stopped = log(&world);
        let why = stopped.stopped.unwrap();
        let said = if more == 0 { "says that the first" } else { "says that it has cosigned 1" };
        assert!(why.contains(&format!("the witness fork.example {said}")), "{why}");
        assert_eq!(stopped.checkpoint, before.checkpoint);
        let signed = SignedCheckpoint::parse(stopped.signed.unwrap().as_bytes()).unwrap();
        assert_eq!(signed.checkpoint().size(), before.tree.size() + 1);
        assert!(signed.cosignature(key("honest.example").verifier()).unwrap().is_some());
        assert_eq!(check::findings(&world.database), []);
        if goes_on {
            let by = Operator { name: "op".to_owned(), at: world.clock.now() };
            let remembered = Remembered::new(None);
            let go_on = |tx: &mut Tx<'_>| {
                // The cosignature is not given a second time.
                operated::remove_witness(tx, "honest.example", &by)?;
                operated::remove_witness(tx, "fork.example", &by)?;
                operated::go_on(tx, Sandbox, &remembered, &by)
            };
            apart::run_once(&world.database, go_on).unwrap().unwrap();
            keeper.keep(Sandbox).await.unwrap();
            assert_eq!((published(&world), log(&world).signed), (signed, None));
        } else {
            let (ended, _) = new_origin(&world, None);
            assert_eq!((ended.checkpoint, ended.signed), (Some(signed.to_string()), None));
            assert_eq!((&entries(&world)[0], decisions(&world)), (&Entry::OlderLog(signed), 0));
        }
    }
}

/// No directory has what was signed, and the server is cut off before it hears what the witness has done.
#[tokio::test]
async fn what_a_witness_may_have_cosigned_is_in_the_database_before_it_is_asked() {
    for ends in [true, false] {
        let world = World::new().await;
        let agent = world.agent("buyer").await;
        let (asks, mut asked) = mpsc::unbounded_channel();
        let first = keeper(&world, None);
        first.keep(Sandbox).await.unwrap();
        let before = log(&world);
        let silent = move |body: &[u8]| {
            asks.send(AddCheckpoint::parse(body).unwrap().checkpoint).unwrap();
            thread::sleep(Duration::from_mins(1));
            (503, String::new())
        };
        add(&world, "w.example", serving(silent));
        world.ask(&agent, "1").await;
        let sent = tokio::select! {
            _ = first.keep(Sandbox) => None,
            sent = asked.recv() => sent,
        };
        let sent = sent.unwrap();
        let now = log(&world);
        assert_eq!(now.checkpoint, before.checkpoint, "it was cut off");
        assert_eq!(now.signed, Some(sent.to_string()));
        assert_eq!(check::findings(&world.database), []);
        if ends {
            // What may have been cosigned stays where it is.
            let (ended, _) = new_origin(&world, None);
            assert_eq!((ended.tree, ended.checkpoint), (now.tree, Some(sent.to_string())));
            assert_eq!((&entries(&world)[0], decisions(&world)), (&Entry::OlderLog(sent), 0));
        } else {
            keeper(&world, None).keep(Sandbox).await.unwrap();
            assert_eq!(published(&world).checkpoint(), sent.checkpoint());
        }
    }
}

/// A database that lacks entries, or has others, than what is signed according to it: nothing else is signed.
#[tokio::test]
async fn a_log_that_lacks_what_was_signed_by_its_database_is_stopped() {
    for size in [0, 1] {
        let world = World::new().await;
        let agent = world.agent("buyer").await;
        let keeper = keeper(&world, None);
        keeper.keep(Sandbox).await.unwrap();
        let before = log(&world);
        let mut other = before.clone();
        for entry in 0..=size {
            other.tree.append(Hash::of_leaf(&[entry]), |_, _| {}).unwrap();
        }
        other.signed = Some(publish::sign(&other, world.keyring.master()).unwrap().to_string());
        apart::run_once(&world.database, |tx| Ok(rows::put_checkpoints(tx, &other)?)).unwrap().unwrap();
        assert_ne!(check::findings(&world.database), []);
        world.ask(&agent, "1").await;
        let sign = |tx: &mut Tx<'_>| {
            append::append(tx, Sandbox, world.keyring.log_secrets())?;
            Ok(publish::sign_due(tx, Sandbox, world.keyring.master())?.is_some())
        };
        assert!(!apart::run_once(&world.database, sign).unwrap().unwrap(), "{size}");
        keeper.keep(Sandbox).await.unwrap();
        let now = log(&world);
        assert!(now.stopped.is_some(), "{size}");
        assert_eq!((now.checkpoint, now.signed), (before.checkpoint, other.signed));
    }
}

/// Has the database be as in a copy of when `old` was read. It had less than a bundle of entries.
pub(crate) fn restore(world: &World, old: &PublicLog, tiles: [Vec<u8>; 2]) {
    let restore = |tx: &mut Tx<'_>| {
        rows::grow(tx, old)?;
        rows::put_checkpoints(tx, old)?;
        for (level, content) in [ENTRIES, 0].into_iter().zip(tiles) {
            rows::put_tile(tx, old.id, TilePlace { level, tile: 0 }, content)?;
        }
        Ok(())
    };
    apart::run_once(&world.database, restore).unwrap().unwrap();
}

pub(crate) fn tiles(world: &World, log: &PublicLog) -> [Vec<u8>; 2] {
    let read = |tx: &mut Tx<'_>| {
        let mut tile = |level| rows::tile(tx, log.id, TilePlace { level, tile: 0 });
        Ok([tile(ENTRIES)?.unwrap(), tile(0)?.unwrap()])
    };
    apart::run_once(&world.database, read).unwrap().unwrap()
}

/// A witness that was away has fewer, and cosigns: the other one is asked before anything is signed. That is so where the server
/// is new. One that has run on knows what it has signed, also where the witness is away or there is none.
#[tokio::test]
async fn of_a_restored_database_nothing_is_signed() {
    for (is_new, witness) in [(true, "asked"), (false, "asked"), (false, "away"), (false, "none")] {
        let world = World::new().await;
        let agent = world.agent("buyer").await;
        let by = Operator { name: "op".to_owned(), at: world.clock.now() };
        if witness != "none" {
            add(&world, "honest.example", honest("honest.example", &of(&world)));
        }
        let first = keeper(&world, None);
        first.keep(Sandbox).await.unwrap();
        let old = log(&world);
        let old_tiles = tiles(&world, &old);
        world.ask(&agent, "1").await;
        first.keep(Sandbox).await.unwrap();
        let newer = log(&world);
        assert!(newer.tree.size() > old.tree.size());
        assert_eq!(has_cosigned(&world, "honest.example"), witness != "none");
        match witness {
            "asked" => add(&world, "lags.example", honest("lags.example", &of(&world))),
            "away" => {
                let remove = |tx: &mut Tx<'_>| operated::remove_witness(tx, "honest.example", &by);
                apart::run_once(&world.database, remove).unwrap().unwrap();
                add(&world, "honest.example", "http://127.0.0.1:9".to_owned());
            }
            _ => {}
        }
        restore(&world, &old, old_tiles);
        // Other decisions follow.
        world.ask(&agent, "2").await;
        let second = if is_new { keeper(&world, None) } else { first };
        for _ in 0..2 {
            second.keep(Sandbox).await.unwrap();
        }
        let now = log(&world);
        let why = now.stopped.unwrap();
        let said = if is_new { "the witness honest.example says that it has cosigned" } else { "was signed" };
        assert!(why.contains(said), "{witness}: {why}");
        assert_eq!((now.tree, now.checkpoint, now.signed), (old.tree, old.checkpoint, None), "{witness}");
    }
}

/// A checkpoint with more signatures than a note can have could never be read again, and the log would be lost.
#[tokio::test]
async fn no_checkpoint_gets_more_cosignatures_than_can_be_read() {
    let world = World::new().await;
    let by = Operator { name: "op".to_owned(), at: world.clock.now() };
    let (of, most) = (of(&world), operated::MAX_WITNESSES);
    let name = |number: usize| format!("w{number}.example");
    let url = honest(&name(0), &of);
    add(&world, &name(0), url.clone());
    for number in 1..most {
        add(&world, &name(number), format!("{url}/{number}"));
    }
    let witness = |number: usize| Witness {
        key: key(&name(number)).verifier().clone(),
        url: format!("{url}/{number}"),
        created_at: by.at,
    };
    let add_one = |tx: &mut Tx<'_>| operated::add_witness(tx, &witness(most), &by);
    let refused = apart::run_once(&world.database, add_one).unwrap().unwrap_err();
    assert!(refused.message.contains("63 are asked, and at most 63 can be"), "{}", refused.message);
    // One that is not asked any more has cosigned.
    let keeper = keeper(&world, None);
    keeper.keep(Sandbox).await.unwrap();
    let mut signed = published(&world);
    let said = signed.checkpoint().clone();
    for number in 1..most {
        signed.add(cosign(&key(&name(number)), &said, 1_781_524_800));
    }
    let replace = |tx: &mut Tx<'_>| {
        let log = rows::newest(tx, Sandbox)?;
        publish::publish(tx, &log, (&signed, true))?;
        operated::remove_witness(tx, &name(1), &by)?;
        operated::add_witness(tx, &witness(most), &by)?;
        signed.add(cosign(&key(&name(most)), &said, 1_781_524_800));
        publish::publish(tx, &log, (&signed, true))?;
        publish::keep_cosignatures(tx, &log, &signed)?;
        Ok(())
    };
    apart::run_once(&world.database, replace).unwrap().unwrap();
    assert_eq!(published(&world).note().signatures().len(), most + 1);
    let agent = world.agent("buyer").await;
    world.ask(&agent, "1").await;
    keeper.keep(Sandbox).await.unwrap();
    assert_eq!(published(&world).checkpoint().size(), log(&world).tree.size());
    assert_eq!(check::findings(&world.database), []);
}

/// It keeps to the rules, and answers later than the next checkpoint comes, each second: what no one has waited for counts.
#[tokio::test]
async fn a_slow_witness_cosigns_a_busy_log_now_and_then() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    let of = of(&world);
    for name in ["w1.example", "w2.example"] {
        add(&world, name, honest(name, &of));
    }
    add(&world, "slow.example", late("slow.example", &of, Duration::from_millis(1_200)));
    let (keeper, mut cosigned) = (keeper(&world, None), 0);
    for _ in 0..11 {
        world.ask(&agent, "1").await;
        let next = tokio::time::sleep(Duration::from_secs(1));
        keeper.keep(Sandbox).await.unwrap();
        next.await;
        cosigned += u32::from(has_cosigned(&world, "slow.example"));
        assert_eq!(log(&world).checkpoint, log(&world).witnessed);
    }
    assert!(cosigned >= 1);
}
