//! Exports of periods that adjoin: together they hold each decision once, or say why not.

use std::sync::Arc;

use mandate_server::clock::Clock as _;
use mandate_server::error::Fault;
use mandate_server::service::audit::Operator;
use mandate_server::service::exports::{self, CLOSES_SECONDS, kept};
use mandate_server::service::moments;
use mandate_server::store::sql::exports::Format;
use mandate_server::store::{Authorization, sql::decisions::Filter};
use mandate_tests::oracle;
use serde_json::{Value, json};

use crate::apart;
use crate::exports::{Archive, ending, kinds};
use crate::world::{self, ISSUER, World};

/// Audits exports as one; gives the exit code and what was printed.
fn audit(world: &World, contents: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    std::fs::write(&keys, world.keyring.public_key_set(world.clock.now()).unwrap()).unwrap();
    let files: Vec<_> = (0..contents.len()).map(|number| folder.path().join(number.to_string())).collect();
    files.iter().zip(contents).for_each(|(file, content)| std::fs::write(file, content).unwrap());
    let files = files.iter().map(|file| file.to_str().unwrap());
    let args = ["audit", "--issuer", ISSUER, "--jwks", keys.to_str().unwrap()];
    let ran = oracle::run(&args.into_iter().chain(files).collect::<Vec<_>>());
    (ran.code, ran.out)
}

/// Accepts the clock; gives how many exports' periods are open again.
fn accept(world: &World) -> usize {
    let by = Operator { name: "test".to_owned(), at: world.clock.now() };
    let clock = Arc::clone(&world.clock);
    let accepted = apart::run_once(&world.database, |tx| moments::accept(tx, &*clock, &by));
    accepted.unwrap().unwrap().2
}

#[tokio::test]
async fn an_export_says_so_if_the_clock_was_set_back_while_it_was_built() {
    let archive = Archive::new().await;
    let world = &archive.world;
    let asked = world::json(&archive.ask(Format::Csv, ending(world.clock.now())).await);
    world.clock.advance(CLOSES_SECONDS);
    let (now, moments) = (world.clock.now(), Arc::clone(&world.moments));
    let export = world.store.read(move |tx| exports::pending(tx, now, 1)).await.unwrap().unwrap().remove(0);
    let closing = export.clone();
    let closed = world.store.write(move |tx| Ok(exports::close(tx, &closing, &moments)?)).await;
    assert!(closed.unwrap().unwrap().is_some());
    world.clock.step(-CLOSES_SECONDS - 1);
    assert_eq!(accept(world), 0, "it is not built yet");
    let written = exports::Written { rows: 0, sha256: [0; 32] };
    let ended = world.store.write(move |tx| Ok(exports::end(tx, &export, Some(written))?)).await;
    ended.unwrap().unwrap();
    let record = archive.get(&world.organization, &asked["export"]).await.unwrap();
    assert_eq!(record["incomplete_since"], "2026-06-15T11:59:59.000Z", "{record}");
}

#[tokio::test]
async fn periods_that_adjoin_hold_each_decision_once_or_the_record_of_the_earlier_says_so() {
    let archive = Archive::new().await;
    let world = &archive.world;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    world.ask(&agent, "1").await;
    world.ask(&agent, "1").await;
    world.clock.advance(CLOSES_SECONDS);
    let end = world.clock.now().plus_seconds(-30);
    world.clock.advance(30);
    let (record, earlier) = archive.export(Format::Ndjson, ending(end)).await;
    assert_eq!((&record["rows"], record.get("incomplete_since")), (&json!(2), None));
    // Back into the period: nothing is decided, though nothing was decided since.
    world.clock.step(-80);
    let asked = Authorization::new(world.call(&agent), Ok(World::request(&agent, "1")));
    let refused = world.store.decide(asked).await;
    assert!(matches!(refused, Err(Fault::ClockBehind { .. })), "{refused:?}");
    assert_eq!(accept(world), 1, "the export's period is open again");
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
    let record = archive.get(&world.organization, &record["export"]).await.unwrap();
    assert_eq!(record["incomplete_since"], "2026-06-15T12:00:10.000Z");
    let kept =
        apart::snapshot(&world.database, |tx| Ok(kept::all(tx, world.clock.now()).unwrap_or_default()));
    assert_eq!(kept.unwrap()[0].incomplete_since, Some(world.clock.now()));

    world.clock.advance(120);
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
    let later = archive.export(Format::Ndjson, Filter { since: Some(end), ..Filter::default() }).await.1;
    assert_eq!(kinds(&later).iter().filter(|kind| *kind == "decision").count(), 1);
    assert_eq!((audit(world, &[&earlier]).0, audit(world, &[&later]).0), (Some(0), Some(0)));
    let (code, printed) = audit(world, &[&earlier, &later]);
    let missing = "agt_a sequence 4  sequence: found 4; expected 3, the next of the agent";
    assert!(code == Some(23) && printed.contains(missing), "{printed}");
    // The same period again has all of it.
    let again = archive.export(Format::Ndjson, ending(end)).await.1;
    assert_eq!(audit(world, &[&again, &later]).0, Some(0));
    assert_eq!(audit(world, &[&later, &again]), (Some(2), String::new()));
}

#[tokio::test]
async fn an_export_is_dated_by_the_clock_that_was_set_back() {
    const DAY: i64 = 24 * 60 * 60;
    let archive = Archive::new().await;
    let world = &archive.world;
    world.clock.step(40 * DAY);
    archive.export(Format::Ndjson, Filter::default()).await;
    world.clock.step(-40 * DAY);
    let (record, content) = archive.export(Format::Ndjson, Filter::default()).await;
    let header: Value = serde_json::from_str(content.lines().next().unwrap()).unwrap();
    let noon = "2026-06-15T12:00:00.000Z";
    assert_eq!((&record["created_at"], &header["export"]["created_at"]), (&json!(noon), &json!(noon)));
    assert_eq!(record["expires_at"], "2026-06-22T12:00:00.000Z");
}

#[tokio::test]
async fn a_review_that_is_approved_between_two_exports_is_no_finding() {
    let archive = Archive::new().await;
    let world = &archive.world;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    world.ask(&agent, "1").await;
    let asked = world.ask(&agent, "300").await;
    world.ask(&agent, "1").await;
    world.clock.advance(CLOSES_SECONDS);
    let end = world.clock.now().plus_seconds(-30);
    world.clock.advance(30);
    let later = || archive.export(Format::Ndjson, Filter { since: Some(end), ..Filter::default() });
    let (earlier, nothing) = (archive.export(Format::Ndjson, ending(end)).await.1, later().await.1);
    world.ask(&agent, "1").await;
    let before = later().await.1;
    assert_eq!(world.approve(&asked["review"]["id"]).await.status, 201);
    world.ask(&agent, "1").await;
    let (again, after) = (archive.export(Format::Ndjson, ending(end)).await.1, later().await.1);
    assert_ne!(earlier, again);
    let pairs = [
        (&earlier, &after, true),
        (&again, &after, false),
        (&again, &before, false),
        (&again, &nothing, false),
    ];
    for (number, (one, other, is_outside)) in (0..).zip(pairs) {
        let (code, printed) = audit(world, &[one, other]);
        assert_eq!((number, code), (number, Some(0)), "{printed}");
        assert_eq!(printed.contains("outside      1 approvals"), is_outside, "{number}: {printed}");
    }
    // An approval that is not in an export that was written after it is found.
    let is_fresh = |line: &&str| !line.contains(r#""supersedes""#);
    let lost: String = after.split_inclusive('\n').filter(is_fresh).collect();
    let (code, printed) = audit(world, &[&again, &lost]);
    assert!(
        code == Some(23) && printed.contains("supersedes: found an approval; expected its decision"),
        "{printed}"
    );
}
