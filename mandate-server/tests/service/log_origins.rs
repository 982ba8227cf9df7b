//! Logs that end, and those that begin in their place; and what clocks and slow servers do to one.

use std::path::Path;

use mandate_core::EnvironmentKind::Sandbox;
use mandate_core::log::{Entry, Policy, Tile, VerifierKey};
use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::service::audit::Operator;
use mandate_server::service::public_log::{Remembered, append, keys, operated, publish, serve};
use mandate_server::service::signing::rotation::{self, Maker};
use mandate_server::store::sql::public_log::PublicLog;
use mandate_server::store::tx::Tx;

use crate::apart;
use crate::check;
use crate::public_log::{entries, keeper, log, proof, published, token};
use crate::world::World;

/// Begins another log in place of the newest. Gives both.
pub(crate) fn new_origin(world: &World, directory: Option<&Path>) -> (PublicLog, PublicLog) {
    let by = operator(world);
    let remembered = Remembered::new(directory.map(Path::to_owned));
    let maker = Maker { master: world.keyring.master(), entropy: &SystemEntropy };
    let begin = |tx: &mut Tx<'_>| operated::new_origin(tx, maker, (Sandbox, None), &remembered, &by);
    apart::run_once(&world.database, begin).unwrap().unwrap()
}

/// The directory outlives the database: each log has its own file in it, and a log that is lost keeps its number.
#[tokio::test]
async fn a_log_that_a_restored_database_forgot_is_not_made_again() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let agent = world.agent("buyer").await;
    let keeper = keeper(&world, Some(folder.path()));
    world.ask(&agent, "1").await;
    keeper.look().await;
    let first = log(&world);
    let (_, second) = new_origin(&world, Some(folder.path()));
    keeper.look().await;
    let last = published(&world);
    assert_eq!(last.checkpoint().origin(), second.origin);
    assert_eq!(std::fs::read_to_string(folder.path().join("sandbox")).unwrap(), first.checkpoint.unwrap());
    // The database as it was before the second.
    for change in [
        "DELETE FROM log_tiles WHERE log = (SELECT MAX(log) FROM logs)",
        "DELETE FROM logs WHERE log = (SELECT MAX(log) FROM logs)",
        "UPDATE logs SET stopped = 'the database was restored' WHERE kind = 'sandbox'",
    ] {
        assert!(world.change(change) > 0, "{change}");
    }
    let by = Operator { name: "op".to_owned(), at: world.clock.now() };
    let remembered = Remembered::new(Some(folder.path().to_owned()));
    let refused = apart::run_once(&world.database, |tx| operated::go_on(tx, Sandbox, &remembered, &by));
    let refused = refused.unwrap().unwrap_err().message;
    assert!(refused.contains("/log/sandbox/2 was published"), "{refused}");
    let (_, third) = new_origin(&world, Some(folder.path()));
    assert_eq!(third.origin, format!("{}/3", first.origin));
    keeper.look().await;
    assert_eq!(entries(&world)[0], Entry::OlderLog(last));
    assert_eq!(check::findings(&world.database), []);
}

/// A copy of the database that was taken before, put in place by hand: no command has stopped the log.
#[tokio::test]
async fn a_restored_database_does_not_go_on_with_a_log_that_has_ended() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let agent = world.agent("buyer").await;
    let keeper = keeper(&world, Some(folder.path()));
    world.ask(&agent, "1").await;
    keeper.look().await;
    let first = log(&world);
    new_origin(&world, Some(folder.path()));
    keeper.look().await;
    for change in [
        "DELETE FROM log_tiles WHERE log = (SELECT MAX(log) FROM logs)",
        "DELETE FROM logs WHERE log = (SELECT MAX(log) FROM logs)",
        "UPDATE logs SET stopped = NULL WHERE kind = 'sandbox'",
    ] {
        assert!(world.change(change) > 0, "{change}");
    }
    world.ask(&agent, "2").await;
    keeper.look().await;
    let now = log(&world);
    let why = now.stopped.unwrap_or_default();
    assert!(why.contains("/log/sandbox/2 was published in place of this log"), "{why}");
    assert_eq!((now.tree.size(), now.checkpoint), (first.tree.size(), first.checkpoint));
}

/// What a log has behind its last published checkpoint moves to the one that begins in its place.
#[tokio::test]
async fn what_was_appended_and_not_published_moves_to_the_new_log() {
    for decisions in [3_usize, 300] {
        let world = World::new().await;
        let agent = world.agent("buyer").await;
        world.mandate(&agent, 100_000, "").await;
        let first = token(&world, &agent, "1").await;
        keeper(&world, None).look().await;
        let before = log(&world);
        let mut tokens = Vec::new();
        for _ in 0..decisions {
            tokens.push(token(&world, &agent, "1").await);
        }
        world.agent("other").await;
        loop {
            let secrets = world.keyring.clone();
            let append = move |tx: &mut Tx<'_>| Ok(append::append(tx, Sandbox, secrets.log_secrets())?);
            if apart::run_once(&world.database, append).unwrap().unwrap() == 0 {
                break;
            }
        }
        assert!(log(&world).tree.size() > before.tree.size() + decisions as u64);
        let (old, new) = new_origin(&world, None);
        assert_eq!((&old.tree, &old.checkpoint), (&before.tree, &before.checkpoint));
        assert_eq!(new.tree.size(), decisions as u64 + 2, "the older log, the decisions, and the agent");
        keeper(&world, None).look().await;
        // The older one stays where it was, and says which follows.
        let served = apart::run_once(&world.database, |tx| {
            let of = |number| (Sandbox, number);
            let both = [serve::checkpoint(tx, of(1))?, serve::checkpoint(tx, of(2))?];
            assert_eq!(serve::next(tx, of(1))?, Some(format!("{}\n", new.verifier_key)));
            assert_eq!(serve::next(tx, of(2))?, None);
            let tile = |number, log: &PublicLog| (of(number), Tile::of_entry(0, log.tree.size()).unwrap());
            let tiles = [tile(1, &old), tile(2, &new)];
            let tiles = tiles.map(|(which, tile)| serve::tile(tx, which, tile).unwrap().unwrap());
            assert_ne!(tiles[0], tiles[1]);
            Ok(both)
        });
        let now = [old.checkpoint.clone(), log(&world).checkpoint];
        assert_eq!(served.unwrap().unwrap(), now);
        for (token, of) in tokens.iter().map(|token| (token, &new)).chain([(&first, &old)]) {
            let key = VerifierKey::parse(&of.verifier_key).unwrap();
            proof(&world, token).unwrap().verify_decision(token, Some(&key), &Policy::none()).unwrap();
        }
        assert_eq!(check::findings(&world.database), []);
    }
}

/// What is appended and not published may move to another log, and caches keep a tile for ever.
#[tokio::test]
async fn a_tile_is_served_once_it_is_published() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    let keeper = keeper(&world, None);
    let served = |entries: u64| {
        apart::run_once(&world.database, |tx| {
            let tiles = Tile::between(0, entries).map(|tile| serve::tile(tx, (Sandbox, 1), tile));
            Ok(tiles.collect::<Result<Vec<_>, _>>()?)
        })
        .unwrap()
        .unwrap()
    };
    let append = || {
        let secrets = world.keyring.clone();
        let append = move |tx: &mut Tx<'_>| Ok(append::append(tx, Sandbox, secrets.log_secrets())?);
        assert!(apart::run_once(&world.database, append).unwrap().unwrap() > 0);
        log(&world).tree.size()
    };
    let first = append();
    assert_eq!(served(first), [None, None], "nothing is published");
    keeper.look().await;
    assert!(served(first).iter().all(Option::is_some));
    world.ask(&agent, "1").await;
    let second = append();
    assert_eq!(served(second), [None, None]);
    assert!(served(first).iter().all(Option::is_some));
    keeper.look().await;
    assert!(served(second).iter().all(Option::is_some));
}

/// The list of keys' entries goes as far as what is published, and moves with what moves.
#[tokio::test]
async fn each_log_lists_where_its_keys_are() {
    let world = World::new().await;
    let keeper = keeper(&world, None);
    let listed = |number: u64| {
        let listed = apart::run_once(&world.database, |tx| Ok(serve::key_entries(tx, (Sandbox, number))?));
        listed.unwrap().unwrap().unwrap()
    };
    assert_eq!(listed(1), "");
    keeper.look().await;
    let first = listed(1);
    assert!(first.starts_with("0 ") && first.lines().count() == 1, "{first}");
    let (master, secrets) = (world.keyring.master(), world.keyring.log_secrets());
    let by = Operator { name: "op".to_owned(), at: world.clock.now() };
    let rotate = |tx: &mut Tx<'_>| {
        let maker = Maker { master, entropy: &SystemEntropy };
        rotation::rotate(tx, maker, &[Sandbox], &by)?;
        Ok(append::append(tx, Sandbox, secrets)?)
    };
    assert!(apart::run_once(&world.database, rotate).unwrap().unwrap() > 0);
    assert_eq!(listed(1), first, "nothing more is published");
    new_origin(&world, None);
    keeper.look().await;
    assert_eq!(listed(1), first);
    let keys = entries(&world).into_iter().enumerate().filter_map(|(index, entry)| match entry {
        Entry::Key(event) => Some(format!("{index} {}\n", event.kid)),
        _ => None,
    });
    assert_eq!(listed(2), keys.collect::<String>());
    assert!(listed(2).lines().count() > 2);
    assert_eq!(check::findings(&world.database), []);
    world.change("UPDATE logs SET key_entries = '1' || key_entries WHERE origin LIKE '%/sandbox/2'");
    let found = check::found(&world.database);
    assert!(found.len() == 1 && found[0].starts_with("logs: other places of keys"), "{found:?}");
}

/// However many logs there are: of a decision, of what governs and of a signing key.
#[tokio::test]
async fn a_row_that_is_in_no_log_is_named_by_check() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1_000, "").await;
    let keeper = keeper(&world, None);
    for _ in 0..3 {
        world.ask(&agent, "1").await;
        keeper.look().await;
        new_origin(&world, None);
    }
    world.ask(&agent, "1").await;
    assert_eq!(check::findings(&world.database), [], "the last one waits");
    keeper.look().await;
    assert_eq!(check::findings(&world.database), []);
    let lost = world.ask(&agent, "1").await;
    world.agent("lost").await;
    let (master, by) = (world.keyring.master(), operator(&world));
    let rotated = apart::run_once(&world.database, |tx| {
        rotation::rotate(tx, Maker { master, entropy: &SystemEntropy }, &[Sandbox], &by)
    });
    let kid = rotated.unwrap().unwrap().remove(0).kid;
    assert!(world.change("DELETE FROM log_pending") > 0);
    assert_eq!(world.change("UPDATE log_records SET logged = 1 WHERE logged = 0"), 1);
    let found = check::findings(&world.database).into_iter();
    let (lacking, retired): (Vec<_>, Vec<_>) =
        found.partition(|finding| finding.found == "no entry in the public log");
    // The entry that says until when the key before it signs was lost, too.
    let not_retired = "not retired at any instant, not published until any instant";
    let expected: Vec<_> = retired.into_iter().map(|finding| finding.expected).collect();
    assert_eq!(expected.join(", "), not_retired);
    let found: Vec<_> = lacking.into_iter().map(|finding| (finding.table, finding.id.unwrap())).collect();
    let record = world.number("SELECT MAX(number) FROM log_records").to_string();
    let decision = lost["decision"].as_str().unwrap().to_owned();
    let wanted = [("signing_keys", kid), ("log_records", record), ("decisions", decision)];
    assert_eq!(found, wanted.map(|(table, id)| (table.to_owned(), id)));
}

/// Whatever becomes of signing keys, and in how many logs.
#[tokio::test]
async fn a_signing_key_that_is_not_what_its_entries_say_is_named_by_check() {
    let world = World::new().await;
    let keeper = keeper(&world, None);
    let master = world.keyring.master();
    let rotate = || {
        let (maker, by) = (Maker { master, entropy: &SystemEntropy }, operator(&world));
        let rotated = apart::run_once(&world.database, |tx| rotation::rotate(tx, maker, &[Sandbox], &by));
        rotated.unwrap().unwrap().remove(0).kid
    };
    let revoke = |kid: &str| {
        let (maker, by) = (Maker { master, entropy: &SystemEntropy }, operator(&world));
        apart::run_once(&world.database, |tx| rotation::revoke(tx, maker, kid, &by)).unwrap().unwrap();
    };
    // The first one's end is taken back, and comes later; then another log repeats what it has been.
    let incoming = rotate();
    world.clock.advance(60);
    revoke(&incoming);
    keeper.look().await;
    new_origin(&world, None);
    world.clock.advance(60);
    let second = rotate();
    keeper.look().await;
    new_origin(&world, None);
    world.clock.advance(30 * 86_400);
    revoke(&second);
    assert_eq!(check::findings(&world.database), [], "some entries wait");
    keeper.look().await;
    assert_eq!(check::findings(&world.database), []);
    for (change, back) in [
        (
            "UPDATE signing_keys SET created_at = created_at + 1
             WHERE signing_key = (SELECT MIN(signing_key) FROM signing_keys WHERE kind = 'sandbox')",
            "UPDATE signing_keys SET created_at = created_at - 1
             WHERE signing_key = (SELECT MIN(signing_key) FROM signing_keys WHERE kind = 'sandbox')",
        ),
        (
            "UPDATE signing_keys SET sign_until = sign_until + 1
             WHERE signing_key = (SELECT MIN(signing_key) FROM signing_keys WHERE kind = 'sandbox')",
            "UPDATE signing_keys SET sign_until = sign_until - 1
             WHERE signing_key = (SELECT MIN(signing_key) FROM signing_keys WHERE kind = 'sandbox')",
        ),
        (
            "UPDATE signing_keys SET publish_until = publish_until + 1
             WHERE signing_key = (SELECT MIN(signing_key) FROM signing_keys WHERE kind = 'sandbox')",
            "UPDATE signing_keys SET publish_until = publish_until - 1
             WHERE signing_key = (SELECT MIN(signing_key) FROM signing_keys WHERE kind = 'sandbox')",
        ),
        (
            "UPDATE signing_keys SET created_at = created_at + 1
             WHERE signing_key = (SELECT MAX(signing_key) FROM signing_keys WHERE kind = 'sandbox')",
            "UPDATE signing_keys SET created_at = created_at - 1
             WHERE signing_key = (SELECT MAX(signing_key) FROM signing_keys WHERE kind = 'sandbox')",
        ),
    ] {
        assert_eq!(world.change(change), 1);
        let found = check::found(&world.database);
        assert!(found.len() == 1 && found[0].starts_with("signing_keys: "), "{change}: {found:?}");
        assert_eq!(world.change(back), 1);
    }
    assert_eq!(check::findings(&world.database), []);
    assert_eq!(world.change("UPDATE signing_keys SET revoked_at = revoked_at + 1 WHERE revoked_at > 0"), 2);
    assert_eq!(check::findings(&world.database).len(), 2);
    assert_eq!(world.change("UPDATE signing_keys SET revoked_at = NULL WHERE revoked_at > 0"), 2);
    let found = check::found(&world.database);
    assert!(found.len() == 2 && found[1].contains("not revoked at any instant"), "{found:?}");
}

fn operator(world: &World) -> Operator {
    Operator { name: "op".to_owned(), at: world.clock.now() }
}

/// No clock says what is new to the log.
#[tokio::test]
async fn a_log_grows_on_when_the_clock_steps() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 100_000, "").await;
    let keeper = keeper(&world, None);
    let mut tokens = Vec::new();
    for step in [0, 40 * 86_400, 3, -7_200, -86_400, 1, 7_200] {
        if step < 0 {
            world.set_back(-step);
        } else {
            world.clock.advance(step);
        }
        tokens.push(token(&world, &agent, "1").await);
        keeper.look().await;
        let key = VerifierKey::parse(&log(&world).verifier_key).unwrap();
        for token in &tokens {
            proof(&world, token).unwrap().verify_decision(token, Some(&key), &Policy::none()).unwrap();
        }
    }
    let decisions = entries(&world).iter().filter(|entry| matches!(entry, Entry::Decision { .. })).count();
    assert_eq!(decisions, tokens.len());
    assert_eq!(check::findings(&world.database), []);
}

/// A server that has lost its lease while it signed goes on as if it had not: nothing of what another published is undone.
#[tokio::test]
async fn a_slow_server_takes_nothing_back() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let agent = world.agent("buyer").await;
    let keeper = keeper(&world, Some(folder.path()));
    world.ask(&agent, "1").await;
    keeper.look().await;
    let slow = published(&world);
    let of = log(&world);
    world.ask(&agent, "2").await;
    keeper.look().await;
    let newest = log(&world).checkpoint;
    let (late, slow_of) = (slow.clone(), of.clone());
    let publish = move |tx: &mut Tx<'_>| Ok(publish::publish(tx, &slow_of, (&late, true))?);
    world.store.write(publish).await.unwrap().unwrap();
    assert_eq!(log(&world).checkpoint, newest);
    let remembered = Remembered::new(Some(folder.path().to_owned()));
    remembered.remember(&of, &slow).unwrap();
    assert_eq!(remembered.last(&of).unwrap().map(|last| last.to_string()), newest);
}

/// A server that waits for its witnesses while another log is begun publishes nothing that this log has taken over.
#[tokio::test]
async fn a_checkpoint_that_was_signed_before_a_log_ended_is_not_published_after_it() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.ask(&agent, "1").await;
    keeper(&world, None).look().await;
    world.ask(&agent, "2").await;
    let secrets = world.keyring.clone();
    let append = move |tx: &mut Tx<'_>| Ok(append::append(tx, Sandbox, secrets.log_secrets())?);
    assert_eq!(apart::run_once(&world.database, append).unwrap().unwrap(), 1);
    let signed = publish::sign(&log(&world), world.keyring.master()).unwrap();
    let (old, _) = new_origin(&world, None);
    let ended = old.clone();
    let publish = move |tx: &mut Tx<'_>| Ok(publish::publish(tx, &ended, (&signed, true))?);
    world.store.write(publish).await.unwrap().unwrap();
    let served = apart::run_once(&world.database, |tx| Ok(serve::checkpoint(tx, (Sandbox, 1))?));
    assert_eq!(served.unwrap().unwrap(), old.checkpoint);
    assert_eq!(check::findings(&world.database), []);
}

#[tokio::test]
async fn a_log_under_the_name_of_another_issuer_is_named() {
    let world = World::new().await;
    let of = |issuer: &str| {
        let others = apart::run_once(&world.database, |tx| Ok(keys::of_another_issuer(tx, issuer)?));
        others.unwrap().unwrap().into_iter().map(|log| log.origin).collect::<Vec<_>>()
    };
    let (_, second) = new_origin(&world, None);
    assert!(second.origin.ends_with("/2"));
    assert_eq!(of(crate::world::ISSUER), Vec::<String>::new());
    let others = of("https://other.example");
    assert!(others.len() == 2 && others.contains(&second.origin), "{others:?}");
}
