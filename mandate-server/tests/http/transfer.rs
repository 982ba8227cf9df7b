//! An installation moved from SQLite to PostgreSQL: a client sees no difference, and neither does one that is cut short at
//! every step and gone on with.

mod notices;
mod people;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mandate_core::{EnvironmentKind, Month, Timestamp};
use mandate_server::admin::retention::close;
use mandate_server::clock::{Clock, SystemEntropy};
use mandate_server::error::Fault;
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::audit::{self, AuditEntry, Operator};
use mandate_server::service::check::{self, Finding};
use mandate_server::service::public_log::publish;
use mandate_server::service::transfer::{self, Listener, Nul, Summary};
use mandate_server::store::sql::public_log::{self, PublicLog};
use mandate_server::store::tx::Tx;
use mandate_server::store::{self, upkeep};
use mandate_tests::Kind;
use mandate_tests::campaign::{Numbers, scale, seed};
use mandate_tests::wait::{DEADLINE, until_async};
use serde_json::{Value, json};

use crate::apart;
use crate::operations::Recorder;
use crate::oracle;
use crate::receiver::{Answers, Receiver, claims};
use crate::wire::{Reply, exchange};
use crate::world::{World, noon, spend};

/// Operations of all kinds that the source is filled with.
const OPERATIONS: u32 = 700;
/// Draws the same operations at each run.
const SEED: u64 = 20_260_615;
/// The tables that only a closed month fills, which has a test of its own.
const OF_CLOSED_MONTHS: [&str; 4] = ["balances", "closed_months", "closings", "openings"];
/// The tables that only a long public log, or a cosigned one, fills; and what waits for it.
const OF_LONG_LOGS: [&str; 3] = ["log_index", "log_pending", "log_witnesses"];
const LISTS: [&str; 7] = ["agents", "mandates", "decisions", "webhooks", "events", "escrows", "usage"];

/// Ends a transfer after so many steps.
struct Cut {
    left: usize,
    steps: usize,
}

impl Cut {
    fn never() -> Self {
        Self { left: usize::MAX, steps: 0 }
    }
}

impl Listener for Cut {
    fn moved(&mut self, _: &str, rows: i64, of: i64) -> Result<(), Fault> {
        assert!(rows <= of, "{rows} of {of}");
        self.steps += 1;
        self.left -= 1;
        if self.left == 0 { Err(Fault::new("cut short")) } else { Ok(()) }
    }

    fn compared(&mut self, _: &str, _: i64) {}
}

impl check::Listener for Cut {
    fn finding(&mut self, finding: Finding) {
        panic!("{finding:?}");
    }

    fn looked_at(&mut self, _: i64, _: i64) {}
}

/// Tries to migrate the source, and to write into it, while it is moved.
struct WorkBeside<'a> {
    from: &'a str,
    refused: Vec<String>,
}

impl Listener for WorkBeside<'_> {
    fn moved(&mut self, _: &str, _: i64, _: i64) -> Result<(), Fault> {
        let refused = [store::migrate(self.from).map(drop), store::run_once(self.from, |_| Ok(())).map(drop)];
        self.refused = refused.map(|refused| refused.unwrap_err().to_string()).to_vec();
        Ok(())
    }

    fn compared(&mut self, _: &str, _: i64) {}
}

impl check::Listener for WorkBeside<'_> {
    fn finding(&mut self, finding: Finding) {
        panic!("{finding:?}");
    }

    fn looked_at(&mut self, _: i64, _: i64) {}
}

/// A server over SQLite, whose clock moves only when the test moves it.
async fn source() -> World {
    let clock = noon();
    World::on(Kind::Sqlite, Arc::clone(&clock), clock, Arc::new(SystemEntropy), |settings| {
        settings.loopback_webhooks = true;
        settings.base_url = Some("http://127.0.0.1:1/v1".to_owned());
        settings.verdicts_url = Some("http://127.0.0.1:2".to_owned());
    })
    .await
}

/// Carries operations out, until there are rows of all kinds.
async fn fill(world: &World, operations: u32) {
    let mut recorder = Recorder::new(SEED, [world.organization_key.clone(), world.live_key.clone()]);
    for _ in 0..operations {
        let operation = recorder.next();
        world.clock.advance(operation.seconds % 4_000);
        let reply = operation.send(world).await;
        assert!(reply.status < 500, "{operation:?}: {}", reply.body);
        recorder.remember(&operation, &reply);
    }
}

fn operator(world: &World) -> Operator {
    Operator { name: "a test".to_owned(), at: world.clock.now() }
}

fn run(from: &str, to: &str, page: i64, by: &Operator, cut: &mut Cut) -> Result<Summary, Fault> {
    thread::scope(|scope| scope.spawn(|| transfer::run(from, to, (page, Nul::Refused), by, cut)).join())
        .unwrap()
}

/// The bytes of the file that a database is.
fn bytes(database: &str) -> Vec<u8> {
    std::fs::read(database.strip_prefix("sqlite://").unwrap()).unwrap()
}

/// Every page of every list, and the key set.
async fn reads(world: &World) -> Vec<(String, String)> {
    let mut read = Vec::new();
    for key in [&world.organization_key, &world.live_key] {
        for list in LISTS {
            // Metering is a page of its own size.
            let first = format!("/v1/{list}?{}", if list == "usage" { "" } else { "limit=100" });
            let mut path = first.clone();
            loop {
                let page = world.get(key, &path).await;
                assert_eq!(page.status, 200, "{path}: {}", page.body);
                read.push((path.clone(), page.body.clone()));
                let Some(cursor) = page.json()["next_cursor"].as_str().map(str::to_owned) else { break };
                path = format!("{first}&cursor={cursor}");
            }
        }
        let mode = world.get(key, "/v1/enforcement").await;
        read.push(("/v1/enforcement".to_owned(), mode.body));
    }
    let keys = exchange(world.running.public, "GET", "/.well-known/jwks.json", "", b"").await;
    read.push(("jwks".to_owned(), keys.body));
    read
}

async fn keyed(world: &World, key: &str, name: &str, body: &Value) -> Reply {
    world
        .post_text(key, "/v1/authorizations", &format!("Idempotency-Key: {name}\r\n"), &body.to_string())
        .await
}

/// Asks for an export, and waits until it is ready.
async fn export(world: &World) -> String {
    let asked = world.post(&world.organization_key, "/v1/exports", &json!({ "format": "ndjson" })).await;
    let path = format!("/v1/exports/{}", asked.json()["export"].as_str().unwrap());
    until_async(DEADLINE, "the export is ready", async || {
        let export = world.get(&world.organization_key, &path).await.json();
        (export["status"] == "ready").then_some(())
    })
    .await;
    path
}

/// Reads an event until its one delivery is as wanted.
async fn delivery(world: &World, event: &str, is_wanted: impl Fn(&Value) -> bool) {
    until_async(DEADLINE, "the delivery is as wanted", async || {
        let read = world.get(&world.live_key, event).await.json();
        is_wanted(&read["deliveries"][0]).then_some(())
    })
    .await;
}

async fn content(world: &World, path: &str) -> Reply {
    world.send("GET", path, &world.organization_key, "Accept: application/x-ndjson\r\n", "").await
}

/// Makes a dry run, transfers, and tries a second time.
fn moves_all_and_only_once(from: &str, to: &str, by: &Operator) {
    let untouched = bytes(from);
    let dry = on_a_thread(|| transfer::dry_run(from, to, Nul::Refused)).unwrap();
    assert_eq!((dry.complete, dry.target), (false, "empty"));
    assert_eq!(on_a_thread(|| upkeep::schema(to)).unwrap().current, 0, "a dry run changes nothing");
    let summary = run(from, to, 100, by, &mut Cut::never()).unwrap();
    assert_eq!((&dry.rows, &dry.usage), (&summary.rows, &summary.usage));
    let empty = summary.rows.iter().filter(|(table, rows)| **rows == 0 && !OF_LONG_LOGS.contains(table));
    assert!(
        empty.map(|(table, _)| *table).eq(OF_CLOSED_MONTHS),
        "a row of each other kind was moved: {:?}",
        summary.rows
    );
    let refused = run(from, to, 100, by, &mut Cut::never()).unwrap_err().to_string();
    assert!(refused.contains("the target is not empty, it has organizations"), "{refused}");
    assert!(bytes(from) == untouched, "the source is as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_no_difference() {
    let world = source().await;
    fill(&world, OPERATIONS).await;
    let (agent, gone) = (world.agent("a").await, world.agent("gone").await);
    world.mandate("agt_a").await;
    let answered = keyed(&world, &agent, "kept", &spend(40)).await;
    assert_eq!(answered.status, 201);
    let review = world.post(&agent, "/v1/authorizations", &spend(300)).await.json();
    world.change_key(&gone, |key| key.revoked_at = Some(Timestamp::from_millis(1)));
    let mut receiver = Receiver::start(Answers::With(503)).await;
    let webhook = json!({ "url": receiver.url, "events": ["mandate.revoked"] });
    let webhook = world.post(&world.live_key, "/v1/webhooks", &webhook).await.json();
    let ping = format!("/v1/webhooks/{}/ping", webhook["webhook"].as_str().unwrap());
    let event = world.post(&world.live_key, &ping, &json!({})).await.json();
    let event = format!("/v1/events/{}", event["event"].as_str().unwrap());
    let token = claims(&receiver.next().await);
    delivery(&world, &event, |delivery| delivery["attempts"] != json!([])).await;
    let entry = AuditEntry {
        action: "test",
        organization: Some("acme"),
        environment: None,
        subject: "a",
        details: json!({}),
    };
    let by = operator(&world);
    apart::run_once(&world.settings.database, |tx| Ok(audit::write(tx, &by, &entry)?)).unwrap().unwrap();
    notices::set(&world, &by);
    people::set(&world, &by);
    let newest = |tx: &mut Tx<'_>| Ok(public_log::newest(tx, EnvironmentKind::Sandbox)?);
    let exported = export(&world).await;
    let (downloaded, before) = (content(&world, &exported).await, reads(&world).await);

    let target = Kind::Postgres.fresh();
    let (from, to) = (world.settings.database.clone(), target.url().to_owned());
    let refused = run(&from, &to, 100, &by, &mut Cut::never()).unwrap_err().to_string();
    assert!(refused.contains("belongs to process "), "{refused}");
    let mut logged = None;
    let world = world
        .moved(target, |from, to| {
            logged = Some(apart::run_once(from, newest).unwrap().unwrap());
            moves_all_and_only_once(from, to, &by);
        })
        .await;

    assert_eq!(reads(&world).await, before);
    let again = keyed(&world, &agent, "kept", &spend(40)).await;
    assert_eq!((again.replayed(), &again.body), (true, &answered.body));
    assert_eq!(keyed(&world, &agent, "kept", &spend(41)).await.status, 409);
    assert_eq!(world.get(&gone, "/v1/usage").await.status, 401);
    assert_eq!(content(&world, &exported).await.body, downloaded.body);
    let approve = format!("/v1/reviews/{}/approve", review["review"]["id"].as_str().unwrap());
    let approved = world.send("POST", &approve, &world.organization_key, "", "").await;
    assert_eq!((approved.status, approved.json()["verdict"].as_str()), (201, Some("allow")));
    // What was not delivered there is delivered here, once the server there would have given up.
    receiver.answer(Answers::With(200));
    world.clock.advance(120);
    assert_eq!(claims(&receiver.next().await), token);
    delivery(&world, &event, |delivery| delivery["status"] == "delivered").await;
    // Numbers go on behind the greatest.
    let new = world.agent("new").await;
    world.mandate("agt_new").await;
    assert_eq!(world.post(&new, "/v1/authorizations", &spend(1)).await.json()["verdict"], "allow");
    goes_on(&to, &logged.unwrap()).await;
    world.onboard("another");
    let records = apart::run_once(&to, |tx| Ok(audit::newest(tx, None, Timestamp::from_millis(0), 100)?));
    let records = records.unwrap().unwrap();
    let record = records.iter().find(|record| record.action == "transfer").unwrap();
    assert_eq!(
        (record.operator.as_str(), &record.subject),
        ("a test", &mandate_server::model::database::redacted(&to))
    );
    assert!(record.details.get().contains("\"decisions\":"), "{}", record.details.get());
    assert!(oracle::holds(&to) > 50);
}

/// The public log grows on under its name and key, from the entries that it had.
async fn goes_on(database: &str, before: &PublicLog) {
    let began = Instant::now();
    loop {
        let read = apart::run_once(database, |tx| {
            let log = public_log::newest(tx, EnvironmentKind::Sandbox)?;
            let then = publish::tree_at(tx, &log, before.tree.size())?;
            Ok((publish::published(&log)?, then, log))
        });
        let (published, then, log) = read.unwrap().unwrap();
        assert_eq!((&log.origin, &log.verifier_key), (&before.origin, &before.verifier_key));
        assert_eq!(then.map(|tree| tree.root()), Some(before.tree.root()));
        if published.is_some_and(|published| published.checkpoint().size() > before.tree.size()) {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "{log:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

struct Steady;

impl close::Listener for Steady {
    fn done(&mut self, _: &close::Step<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_months_are_moved_with_what_is_left_of_them() {
    let world = source().await;
    let (agent, folder) = (world.agent("a").await, tempfile::tempdir().unwrap());
    world.mandate("agt_a").await;
    for days in [60, 1] {
        assert_eq!(world.post(&agent, "/v1/authorizations", &spend(40)).await.status, 201);
        world.clock.advance(days * 86_400);
    }
    let (target, by) = (Kind::Postgres.fresh(), operator(&world));
    world
        .stopped(&target, |from, to| {
            let closing = close::Order {
                database: from,
                month: Month::parse("2026-06").unwrap(),
                directory: folder.path(),
                master: &MasterKey::from_bytes([7; 32]),
                issuer: None,
                piece: 10,
                by: &by,
                time: &|shown| shown,
                entropy: Arc::new(SystemEntropy),
            };
            close::close(&closing, &mut Steady).unwrap();
            // A transfer compares the rows of each table.
            let summary = run(from, to, 100, &by, &mut Cut::never()).unwrap();
            assert!(OF_CLOSED_MONTHS.iter().all(|table| summary.rows[table] > 0), "{:?}", summary.rows);
            on_a_thread(|| upkeep::snapshot(to, |tx| check::full(tx, None, &mut Cut::never()))).unwrap();
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cut_short_at_any_step_goes_on() {
    let world = source().await;
    fill(&world, 150).await;
    let (target, by) = (Kind::Postgres.fresh(), operator(&world));
    world
        .stopped(&target, |from, to| {
            // Behind each step from scale 10 on; below it behind one in four.
            let mut random = Numbers::from_seed(seed("transfer cut short"));
            let mut next = || if scale() >= 10 { 1 } else { 1 + random.below(7) };
            let mut steps = 0;
            let summary = loop {
                let mut cut = Cut { left: next(), steps: 0 };
                let ran = run(from, to, 15, &by, &mut cut);
                steps += cut.steps;
                match ran {
                    Ok(summary) => break summary,
                    Err(fault) => assert_eq!(fault.to_string(), "cut short"),
                }
                let refused = apart::run_once(to, |_| Ok(())).unwrap_err().to_string();
                assert!(refused.contains("has not ended: run `mandate-server transfer` again"), "{refused}");
                let refused = on_a_thread(|| upkeep::must_be_complete(to)).unwrap_err().to_string();
                assert!(refused.contains("has not ended"), "{refused}");
                let refused = apart::migrate(to, "2026-06-15T12:00:00Z").unwrap_err().to_string();
                assert!(refused.contains("has not ended: run `mandate-server transfer` again"), "{refused}");
            };
            assert_eq!(summary.target, "gone on with");
            // The same without a cut, into another database, takes as many steps and moves as much.
            let other = Kind::Postgres.fresh();
            let mut cut = Cut::never();
            let whole = run(from, other.url(), 15, &by, &mut cut).unwrap();
            assert_eq!((steps, &summary.rows, &summary.usage), (cut.steps, &whole.rows, &whole.usage));
            assert!(steps >= 20, "{steps}");
            assert!(oracle::holds(to) > 10);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_has_changed_is_moved_from_the_beginning() {
    let world = source().await;
    let agent = world.agent("a").await;
    world.mandate("agt_a").await;
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
    let (target, by) = (Kind::Postgres.fresh(), operator(&world));
    world
        .stopped(&target, |from, to| {
            let mut cut = Cut { left: 12, steps: 0 };
            assert_eq!(run(from, to, 1, &by, &mut cut).unwrap_err().to_string(), "cut short");
            // Nothing but an agent's row, which has arrived by then, shows it.
            let changed = apart::run_once(from, |tx| {
                Ok(tx.execute("UPDATE agents SET position = $1", &[[1; 16].into()])?)
            });
            assert_eq!(changed.unwrap().unwrap(), 1);
            let summary = run(from, to, 1, &by, &mut Cut::never()).unwrap();
            assert_eq!(summary.target, "emptied");
            assert_eq!(oracle::holds(to), 1);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_being_moved_says_so() {
    let world = source().await;
    world.agent("a").await;
    let (target, by) = (Kind::Postgres.fresh(), operator(&world));
    world
        .stopped(&target, |from, to| {
            let mut beside = WorkBeside { from, refused: Vec::new() };
            on_a_thread(|| transfer::run(from, to, (100, Nul::Refused), &by, &mut beside)).unwrap();
            let WorkBeside { refused, .. } = beside;
            let is_named = |refused: &String| refused.contains(", which transfers it to another database; ");
            assert!(refused.len() == 2 && refused.iter().all(is_named), "{refused:?}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_holds_anything_is_refused() {
    let world = source().await;
    let (target, by) = (Kind::Postgres.fresh(), operator(&world));
    mandate_tests::cluster::run(target.url(), "CREATE TABLE theirs (n int)");
    world
        .stopped(&target, |from, to| {
            for refused in [
                run(from, to, 9, &by, &mut Cut::never()),
                on_a_thread(|| transfer::dry_run(from, to, Nul::Refused)),
            ] {
                let refused = refused.unwrap_err().to_string();
                assert!(refused.contains("the target is not empty, it has theirs"), "{refused}");
            }
            let refused = run(to, from, 9, &by, &mut Cut::never()).unwrap_err().to_string();
            assert!(refused.contains("and no other way"), "{refused}");
            let absent = "sqlite:///nowhere/at/all.db";
            let refused = run(absent, to, 9, &by, &mut Cut::never()).unwrap_err().to_string();
            assert!(refused.contains("is not there"), "{refused}");
        })
        .await;
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap()
}
