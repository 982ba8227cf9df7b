//! The public log: each decision has its entry, once, and no size has two roots.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use mandate_core::EnvironmentKind::Sandbox;
use mandate_core::Timestamp;
use mandate_core::log::{
    Entry, Frontier, Hash, LogProof, Policy, SignedCheckpoint, VerifierKey, token_hash, write_entry,
};
use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::error::Fault;
use mandate_server::metrics::{Metrics, Reading};
use mandate_server::model::call::ScriptError;
use mandate_server::service::audit::Operator;
use mandate_server::service::gauges;
use mandate_server::service::public_log::{Remembered, append, keys, operated, publish, serve};
use mandate_server::service::signing::rotation::Maker;
use mandate_server::store::sql::public_log::{self as rows, ENTRIES, PublicLog, TilePlace};
use mandate_server::store::tx::Tx;
use mandate_server::worker::public_log::LogKeeper;
use mandate_tests::campaign;

use crate::apart;
use crate::check;
use crate::log_origins::new_origin;
use crate::world::World;

/// A log keeper of a world, with a directory for what was signed last.
pub(crate) fn keeper(world: &World, directory: Option<&Path>) -> LogKeeper {
    let clock = Arc::clone(&world.clock) as _;
    let directory = directory.map(Path::to_owned);
    LogKeeper::new(world.store.clone(), world.keyring.clone(), clock, directory).unwrap()
}

/// The log of sandboxes as the database has it.
pub(crate) fn log(world: &World) -> PublicLog {
    apart::run_once(&world.database, |tx| Ok(rows::newest(tx, Sandbox)?)).unwrap().unwrap()
}

/// All entries of the log, in their order.
pub(crate) fn entries(world: &World) -> Vec<Entry> {
    let read = apart::run_once(&world.database, |tx| {
        let log = rows::newest(tx, Sandbox)?;
        let mut entries = Vec::new();
        while (entries.len() as u64) < log.tree.size() {
            let tile = i64::try_from(entries.len() / 256).unwrap();
            let bundle = rows::tile(tx, log.id, TilePlace { level: ENTRIES, tile })?.unwrap();
            entries
                .extend(append::entries_of(&bundle).unwrap().into_iter().map(|e| Entry::parse(e).unwrap()));
        }
        Ok(entries)
    });
    read.unwrap().unwrap()
}

pub(crate) fn proof(world: &World, token: &str) -> Option<LogProof> {
    let hash = token_hash(token).unwrap();
    let found = apart::run_once(&world.database, |tx| Ok(serve::proof(tx, Sandbox, &hash)?));
    found.unwrap().unwrap().map(|text| LogProof::parse(text.as_bytes()).unwrap())
}

pub(crate) fn published(world: &World) -> SignedCheckpoint {
    SignedCheckpoint::parse(log(world).checkpoint.unwrap().as_bytes()).unwrap()
}

pub(crate) async fn token(
    world: &World,
    agent: &Arc<mandate_server::model::call::Caller>,
    amount: &str,
) -> String {
    let answer = world.ask(agent, amount).await;
    let decision = world.decision(agent, &answer["decision"]).await;
    decision["verdict_token"].as_str().unwrap().to_owned()
}

/// Since when something waits for the log.
pub(crate) fn waits_since(world: &World) -> Option<Timestamp> {
    apart::run_once(&world.database, |tx| Ok(append::waits_since(tx)?)).unwrap().unwrap()
}

#[tokio::test]
async fn what_waits_for_the_log_shows_since_when() {
    let world = World::new().await;
    let keeper = keeper(&world, None);
    keeper.look().await;
    assert_eq!(waits_since(&world), None);
    let begun = world.clock.now();
    let agent = world.agent("buyer").await;
    world.clock.advance(1);
    world.mandate(&agent, 1_000, "").await;
    assert_eq!(waits_since(&world), Some(begun), "what governs waits like a decision");
    keeper.look().await;
    assert_eq!(waits_since(&world), None);
    world.clock.advance(1);
    world.ask(&agent, "1").await;
    assert_eq!(waits_since(&world), Some(world.clock.now()));
}

/// What is appended has left the tables of what waits, and yet no counterparty sees it.
#[tokio::test]
async fn a_log_that_cannot_be_published_is_behind() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let directory = folder.path().join("checkpoints");
    // Nothing is in it, and it cannot be made.
    symlink(folder.path().join("gone").join("gone"), &directory).unwrap();
    let metrics = Metrics::new();
    let keeper = keeper(&world, Some(&directory)).measured(metrics.clone());
    let delay = || {
        let now = world.clock.now();
        let stored = apart::run_once(&world.database, |tx| Ok(gauges::read(tx, now)?)).unwrap().unwrap();
        let reading = Reading { now: Some(now), stored: Some(stored), ..Reading::default() };
        let written = metrics.write(&reading).unwrap();
        let line = written.lines().find_map(|line| line.strip_prefix("mandate_public_log_delay_seconds "));
        line.unwrap().parse::<f64>().unwrap()
    };
    keeper.look().await;
    let first = delay();
    assert!(first > 0.0 && waits_since(&world).is_none(), "all is appended");
    keeper.look().await;
    assert!(delay() > first, "it is not counted anew");
    std::fs::remove_file(&directory).unwrap();
    keeper.look().await;
    assert_eq!(published(&world).checkpoint().size(), log(&world).tree.size());
    assert!(delay() <= 0.0);
}

#[tokio::test]
async fn each_decision_is_proved_to_be_in_the_log() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1_000, "").await;
    let keeper = keeper(&world, None);
    let first = token(&world, &agent, "1").await;
    assert!(proof(&world, &first).is_none(), "it is not appended yet");
    keeper.look().await;
    let mut tokens = vec![first];
    for amount in ["2", "600", "3"] {
        tokens.push(token(&world, &agent, amount).await);
    }
    keeper.look().await;
    let log = log(&world);
    let key = VerifierKey::parse(&log.verifier_key).unwrap();
    assert_eq!(log.origin, "verdicts.example/log/sandbox");
    for token in &tokens {
        let proof = proof(&world, token).unwrap();
        proof.verify_decision(token, Some(&key), &Policy::none()).unwrap();
        // (r, n-s) verifies too: the log goes by what was signed.
        let input = token.rsplit_once('.').unwrap().0;
        proof.verify_decision(&format!("{input}.AAAA"), Some(&key), &Policy::none()).unwrap();
    }
    let other = proof(&world, &tokens[0]).unwrap();
    assert!(other.verify_decision(&tokens[1], Some(&key), &Policy::none()).is_err());
    // The key, the agent, the mandate, and four decisions.
    let entries = entries(&world);
    assert_eq!(entries.len(), 7);
    let watch = &world.keyring.log_secrets().environment(world.organization.environment.id).watch;
    let id = agent.agent.clone().unwrap();
    for (tag, expected) in [
        (watch.governing(1), 1),
        (watch.governing(2), 1),
        (watch.governing(3), 0),
        (watch.decision(&id, 1), 1),
        (watch.decision(&id, 4), 1),
        (watch.decision(&id, 5), 0),
    ] {
        let of = |entry: &&Entry| matches!(entry, Entry::Decision { tag: of, .. } | Entry::Governing { tag: of, .. } if *of == tag);
        assert_eq!(entries.iter().filter(of).count(), expected);
    }
    assert_eq!(check::findings(&world.database), []);
}

#[tokio::test]
async fn no_size_has_two_roots_whatever_is_cut_and_however_many_append() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 100_000, "").await;
    let keepers = [keeper(&world, None), keeper(&world, None)];
    let mut roots: BTreeMap<u64, Hash> = BTreeMap::new();
    for round in 0..40_usize {
        for _ in 0..(round % 7) * 5 {
            world.ask(&agent, "1").await;
        }
        // What is appended and then taken back leaves nothing.
        let keyring = world.keyring.clone();
        let cut = apart::run_once(&world.database, move |tx| -> Result<(), ScriptError> {
            append::append(tx, Sandbox, keyring.log_secrets())?;
            Err(Fault::new("cut").into())
        });
        cut.unwrap_err();
        tokio::join!(keepers[0].look(), keepers[1].look());
        let checkpoint = published(&world);
        let (size, root) = (checkpoint.checkpoint().size(), *checkpoint.checkpoint().root());
        assert_eq!(*roots.entry(size).or_insert(root), root);
    }
    let entries = entries(&world);
    let mut grown = Frontier::default();
    for entry in &entries {
        grown.append(entry.leaf(), |_, _| {}).unwrap();
        if let Some(root) = roots.get(&grown.size()) {
            assert_eq!(grown.root(), *root, "{}", grown.size());
        }
    }
    let decisions = entries.iter().filter(|entry| matches!(entry, Entry::Decision { .. })).count();
    assert_eq!(i64::try_from(decisions).unwrap(), world.number("SELECT COUNT(*) FROM decisions"));
    assert!(roots.len() > 20);
    assert_eq!(check::findings(&world.database), []);
}

#[tokio::test]
async fn a_log_behind_a_signed_checkpoint_is_stopped_until_another_begins() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1_000, "").await;
    let folder = tempfile::tempdir().unwrap();
    let old = token(&world, &agent, "1").await;
    keeper(&world, Some(folder.path())).look().await;
    // The database is one that was backed up then, and more was published since.
    let before = log(&world);
    let mut more = before.clone();
    more.tree.append(Hash::of_leaf(b"lost"), |_, _| {}).unwrap();
    let signed = publish::sign(&more, world.keyring.master()).unwrap();
    std::fs::write(folder.path().join("sandbox"), signed.to_string()).unwrap();
    let waiting = token(&world, &agent, "2").await;
    let keeper = keeper(&world, Some(folder.path()));
    keeper.look().await;
    keeper.look().await;
    let stopped = log(&world);
    assert!(stopped.stopped.as_ref().unwrap().contains("was restored"), "{stopped:?}");
    assert_eq!((stopped.tree.size(), &stopped.checkpoint), (before.tree.size(), &before.checkpoint));
    let by = Operator { name: "op".to_owned(), at: world.clock.now() };
    let remembered = Remembered::new(Some(folder.path().to_owned()));
    let refused = apart::run_once(&world.database, |tx| operated::go_on(tx, Sandbox, &remembered, &by));
    assert!(refused.unwrap().unwrap_err().message.contains("new-origin"));

    let (old_log, new_log) = new_origin(&world, Some(folder.path()));
    assert_eq!(new_log.origin, format!("{}/2", old_log.origin));
    keeper.look().await;
    let now = log(&world);
    assert_eq!(now.origin, new_log.origin);
    let entries = entries(&world);
    // The last one that was published, and not the one that the database knows of; and before all that waited.
    assert_eq!(entries[0], Entry::OlderLog(signed));
    let published =
        |entry: &Entry| matches!(entry, Entry::Key(event) if event.change.as_str() == "published");
    assert!(entries.iter().any(published), "evidence of a token wants its key");
    for (token, log) in [(&old, &old_log), (&waiting, &new_log)] {
        let key = VerifierKey::parse(&log.verifier_key).unwrap();
        proof(&world, token).unwrap().verify_decision(token, Some(&key), &Policy::none()).unwrap();
    }
    assert_eq!(check::findings(&world.database), []);
}

#[tokio::test]
async fn a_log_that_was_stopped_goes_on_where_nothing_is_lost() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.ask(&agent, "1").await;
    let keeper = keeper(&world, None);
    keeper.look().await;
    apart::run_once(&world.database, operated::stop_after_restore).unwrap().unwrap();
    world.ask(&agent, "1").await;
    let before = log(&world).tree.size();
    keeper.look().await;
    assert_eq!(log(&world).tree.size(), before);
    let by = Operator { name: "op".to_owned(), at: world.clock.now() };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sandbox"), log(&world).checkpoint.unwrap()).unwrap();
    let remembered = Remembered::new(Some(folder.path().to_owned()));
    apart::run_once(&world.database, |tx| operated::go_on(tx, Sandbox, &remembered, &by)).unwrap().unwrap();
    keeper.look().await;
    assert_eq!(log(&world).tree.size(), before + 1);
    let refused = apart::run_once(&world.database, |tx| operated::go_on(tx, Sandbox, &remembered, &by));
    assert!(refused.unwrap().unwrap_err().message.contains("not stopped"));
}

#[tokio::test]
async fn a_row_that_is_not_what_was_decided_is_found_by_its_entry() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1_000, r#","review_above":100"#).await;
    world.ask(&agent, "1").await;
    let review = world.ask(&agent, "200").await;
    world.approve(&review["review"]["id"]).await;
    let denied = world.ask(&agent, "600").await;
    let keeper = keeper(&world, None);
    keeper.look().await;
    assert_eq!(check::findings(&world.database), []);
    // Not a word of it is in the token, and the checksum is right.
    let id = denied["decision"].as_str().unwrap();
    world.change("UPDATE decisions SET mode = 'observe' WHERE sequence = 4");
    world.reseal(&denied["decision"]);
    let found = check::findings(&world.database);
    assert!(found.iter().all(|finding| finding.id.as_deref() == Some(id)), "{found:?}");
    let found: Vec<_> = found.into_iter().filter(|finding| finding.found.contains("public log")).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].id.as_deref() == Some(id) && found[0].found.contains("its entry in the public log"),
        "{found:?}"
    );
    world.change("UPDATE decisions SET mode = 'enforce' WHERE sequence = 4");
    world.reseal(&denied["decision"]);
    assert_eq!(check::findings(&world.database), []);

    for (change, wanted) in [
        (
            "UPDATE log_records SET record = replace(record, 'buyer', 'other') WHERE number = 1",
            "log_records: a record that is not that of its entry in the public log",
        ),
        (
            "UPDATE log_records SET logged = 0 WHERE number = 1",
            "log_records: an entry in the public log already",
        ),
        (
            "DELETE FROM log_records WHERE number = (SELECT MAX(number) FROM log_records)",
            "logs: 1 entries of governing records that are not there",
        ),
        (
            "UPDATE log_tiles SET content = (SELECT content FROM log_tiles WHERE level = 0 AND log = 1) WHERE level = -1",
            "logs: bundle",
        ),
    ] {
        let kept = log(&world);
        assert!(world.change(change) > 0, "{change}");
        assert!(
            check::found(&world.database).iter().any(|found| found.starts_with(wanted)),
            "{change}: {:?}",
            check::found(&world.database)
        );
        if wanted.starts_with("log_records") {
            world
                .change("UPDATE log_records SET record = replace(record, 'other', 'buyer') WHERE number = 1");
        }
        assert_eq!(log(&world).tree, kept.tree);
    }
}

#[tokio::test]
async fn what_a_logs_own_row_says_is_checked() {
    let world = World::new().await;
    keeper(&world, None).look().await;
    assert_eq!(check::findings(&world.database), []);
    for (change, back, wanted) in [
        (
            "UPDATE logs SET witnessed = replace(checkpoint, 'verdicts', 'vendicts') WHERE kind = 'sandbox'",
            "UPDATE logs SET witnessed = NULL",
            "logs: ",
        ),
        (
            "UPDATE logs SET indexed = 65536 WHERE kind = 'sandbox'",
            "UPDATE logs SET indexed = 0",
            "logs: an index of 65536 entries",
        ),
        (
            "UPDATE logs SET sealed = (SELECT sealed FROM log_secret) WHERE kind = 'sandbox'",
            "UPDATE logs SET indexed = 0",
            "logs: ",
        ),
    ] {
        assert!(world.change(change) > 0, "{change}");
        let found = check::found(&world.database);
        assert!(found.len() == 1 && found[0].starts_with(wanted), "{change}: {found:?}");
        world.change(back);
    }
}

#[tokio::test]
async fn keys_that_sign_are_in_the_log_in_clear() {
    let world = World::new().await;
    let (master, now) = (world.keyring.master().clone(), world.clock.now());
    let by = Operator { name: "op".to_owned(), at: now };
    let rotated = apart::run_once(&world.database, |tx| {
        let maker = Maker { master: &master, entropy: &SystemEntropy };
        mandate_server::service::signing::rotation::rotate(tx, maker, &[Sandbox], &by)
    });
    let new = rotated.unwrap().unwrap();
    keeper(&world, None).look().await;
    let said: Vec<_> = entries(&world)
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Key(event) => Some((event.change.as_str(), event.kid.to_string())),
            _ => None,
        })
        .collect();
    let old = said[0].1.clone();
    let new = new[0].kid.clone();
    assert_eq!(said, [("published", old.clone()), ("retired", old), ("published", new)]);
    let opened = apart::run_once(&world.database, |tx| Ok(keys::secrets(tx, &master)?));
    opened.unwrap().unwrap();
}

/// Entries of unsigned tokens: what is tried here is the log alone.
fn made_up(number: u64) -> (Hash, Entry) {
    let hash = |what: &str| Hash::sha256(format!("{what} {number}").as_bytes());
    let token = hash("token");
    (token, Entry::Decision { tag: hash("tag"), token, record: hash("record") })
}

/// Has the log take as many of them.
pub(crate) async fn add_made_up(world: &World, keeper: &LogKeeper, entries: u64) {
    let at = world.clock.now();
    for first in (0..entries).step_by(4_000) {
        let mut waiting = Vec::new();
        for number in first..(first + 4_000).min(entries) {
            write_entry(&mut waiting, &made_up(number).1.to_bytes()).unwrap();
        }
        let add = move |tx: &mut Tx<'_>| Ok(rows::add(tx, Sandbox, at, waiting.clone())?);
        world.store.write(add).await.unwrap().unwrap();
        keeper.look().await;
    }
}

#[tokio::test]
async fn a_long_log_has_one_root_and_a_proof_of_each_entry() {
    let entries = 70_000 * u64::from(campaign::scale().min(100));
    let world = World::new().await;
    let keeper = keeper(&world, None);
    let mut expected = Frontier::default();
    keeper.look().await;
    for entry in self::entries(&world) {
        expected.append(entry.leaf(), |_, _| {}).unwrap();
    }
    let before = expected.size();
    let began = std::time::Instant::now();
    add_made_up(&world, &keeper, entries).await;
    let appended = began.elapsed();
    for number in 0..entries {
        expected.append(made_up(number).1.leaf(), |_, _| {}).unwrap();
    }
    let checkpoint = published(&world);
    assert_eq!(checkpoint.checkpoint().size(), expected.size());
    assert_eq!(*checkpoint.checkpoint().root(), expected.root());
    let key = VerifierKey::parse(&log(&world).verifier_key).unwrap();
    let began = std::time::Instant::now();
    let edges = [0, 1, 255, 256, append::RUN - before - 1, append::RUN - before, entries - 1];
    let all: Vec<_> = (0..entries).step_by(usize::try_from(entries / 300).unwrap()).chain(edges).collect();
    for number in &all {
        let (token, entry) = made_up(*number);
        let found = world.store.read(move |tx| serve::proof(tx, Sandbox, &token)).await.unwrap().unwrap();
        let proof = LogProof::parse(found.unwrap().as_bytes()).unwrap();
        assert_eq!(proof.index, before + number);
        proof.verify(&entry.leaf(), Some(&key), &Policy::none()).unwrap();
    }
    println!("{entries} entries appended in {appended:?}; {} proofs in {:?}", all.len(), began.elapsed());
    let absent = Hash::sha256(b"no token");
    assert!(world.store.read(move |tx| serve::proof(tx, Sandbox, &absent)).await.unwrap().unwrap().is_none());
}
