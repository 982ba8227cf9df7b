//! Two roles: one owns the tables and migrates, and servers have another with the grants of docs/scaling.md.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use mandate_core::Month;
use mandate_server::admin::retention::close::{self, Listener, Order, Step};
use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::error::Fault;
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::audit::Operator;
use mandate_tests::cluster::{OpenTransaction, query, run, try_query};
use mandate_tests::wait::until_async;
use mandate_tests::{Cluster, Kind};
use serde_json::json;

use crate::apart;
use crate::operations::Recorder;
use crate::receiver::{Answers, Receiver};
use crate::wire::exchange;
use crate::world::{World, spend};

/// Operations of all kinds that are carried out.
const OPERATIONS: u32 = 400;
/// Draws the same operations at each run.
const SEED: u64 = 20_260_616;
const NOON: &str = "2026-06-15T12:00:00Z";
const PATIENCE: Duration = Duration::from_mins(1);
/// What servers delete, or empty, by time.
const LEFT: &str = "SELECT (SELECT count(*) FROM exports) + (SELECT count(*) FROM idempotency)";

/// The statements of the section "Two roles" of docs/scaling.md, block by block.
fn documented() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/scaling.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n### Two roles\n").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let blocks = section.split("```sql\n").skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0.replace('…', "secret")).collect()
}

/// The tables that the page lets the role change (`UPDATE`) or delete from (`DELETE`).
fn granted(right: &str) -> BTreeSet<String> {
    let [_, grants]: [String; 2] = documented().try_into().unwrap();
    let (_, tables) = grants.split_once(&format!("GRANT {right} ON ")).unwrap();
    let (tables, _) = tables.split_once(" TO ").unwrap();
    tables.split(',').map(|table| table.trim().to_owned()).collect()
}

/// The tables that statements of servers and of operators' commands change, and those from which they delete. Not those that only
/// the closing of a month, a transfer or SQLite has.
fn changed() -> [BTreeSet<String>; 2] {
    let (mut updated, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for folder in ["src/store/sql", "src/store/postgres"] {
        for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_the_owners = ["retention.rs", "openings.rs", "transfer.rs", "log_end.rs"].contains(&name);
            if is_the_owners || path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
            let table =
                |word: &str| word.trim_matches(|c: char| !c.is_ascii_lowercase() && c != '_').to_owned();
            let mut into = String::new();
            for [before, word, next] in words.array_windows() {
                match (*before, word.trim_start_matches(['(', '"']), *next) {
                    (_, "INTO", next) => into = table(next),
                    ("DO", "UPDATE", _) => _ = updated.insert(into.clone()),
                    // To lock; or of tables whose own statements are here too.
                    ("FOR" | "KEY", "UPDATE", _) => {}
                    (_, "UPDATE", next) if next.contains('{') => {}
                    (_, "UPDATE", next) => _ = updated.insert(table(next)),
                    ("DELETE" | "(DELETE" | "\"DELETE", "FROM", next) => _ = deleted.insert(table(next)),
                    _ => {}
                }
            }
        }
    }
    [updated, deleted]
}

#[test]
fn the_role_may_change_what_statements_change_and_nothing_else() {
    let [updated, deleted] = changed();
    assert_eq!(updated, granted("UPDATE"));
    assert_eq!(deleted, granted("DELETE"));
}

/// A database that `mandate` owns, and the URL of a role that has what the page grants it.
fn two_roles(cluster: &Cluster) -> String {
    two_roles_at(cluster, NOON)
}

/// The same, with the partitions of the year that begins at an instant.
fn two_roles_at(cluster: &Cluster, at: &str) -> String {
    cluster.create("mandate");
    let (owner, admin) = (cluster.url("mandate"), cluster.admin_url("mandate"));
    let served = format!("postgres://mandate_server:secret@{}/mandate", cluster.address());
    let [role, grants]: [String; 2] = documented().try_into().unwrap();
    run(&admin, &role);
    let refused = apart::migrate(&served, at).unwrap_err().to_string();
    let words = "This role may not create tables: run `mandate-server migrate` with the role that owns them";
    assert!(refused.ends_with(words), "{refused}");
    apart::migrate(&owner, at).unwrap();
    run(&owner, &grants);
    served
}

/// The number of seconds until which there are partitions, as the server says it.
async fn partitions_end(world: &World) -> f64 {
    let scrape = exchange(world.running.ops, "GET", "/metrics", "", b"").await.body;
    let mut lines =
        scrape.lines().filter(|line| line.starts_with("mandate_database_partitions_timestamp_seconds"));
    lines.next().unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Asks whether the server is ready until the answer has this status; gives the answer.
async fn readyz(world: &World, status: u16) -> String {
    let asked = async || {
        let reply = exchange(world.running.ops, "GET", "/readyz", "", b"").await;
        (reply.status == status).then_some(reply.body)
    };
    until_async(PATIENCE, &format!("/readyz is {status}"), asked).await
}

/// Asks for an export, and waits until it is ready.
async fn export(world: &World) {
    let asked = world.post(&world.organization_key, "/v1/exports", &json!({ "format": "csv" })).await;
    assert_eq!(asked.status, 202, "{}", asked.body);
    let path = format!("/v1/exports/{}", asked.json()["export"].as_str().unwrap());
    let built = async || {
        let export = world.get(&world.organization_key, &path).await.json();
        (export["status"] == "ready").then_some(())
    };
    until_async(PATIENCE, "the export is built", built).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_role_owns_no_table_serves_every_operation() {
    let cluster = Cluster::start();
    let served = two_roles(&cluster);
    let world = World::start_with(|settings| {
        settings.database = served;
        settings.loopback_webhooks = true;
    })
    .await;
    let agent = world.agent("first").await;
    world.mandate("agt_first").await;
    let mut receiver = Receiver::start(Answers::With(200)).await;
    let webhook = json!({ "url": receiver.url, "events": ["mandate.revoked"] });
    let webhook = world.post(&world.organization_key, "/v1/webhooks", &webhook).await.json();
    let webhook = format!("/v1/webhooks/{}", webhook["webhook"].as_str().unwrap());
    let pinged = world.post(&world.organization_key, &format!("{webhook}/ping"), &json!({})).await;
    assert!(pinged.succeeded(), "{}", pinged.body);
    receiver.next().await;
    let mut recorder = Recorder::new(SEED, [world.organization_key.clone(), world.live_key.clone()]);
    for _ in 0..OPERATIONS {
        let operation = recorder.next();
        world.clock.advance(operation.seconds % 4_000);
        let reply = operation.send(&world).await;
        assert!(reply.status < 500, "{operation:?}: {}", reply.body);
        recorder.remember(&operation, &reply);
    }
    export(&world).await;
    let deleted = world.send("DELETE", &webhook, &world.organization_key, "", "").await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    world.change_key(&agent, |key| key.rate += 1);
    world.clock.step(-60);
    world.accept_clock();

    // What is done by time, in steps that are no jump of the clock.
    let owner = cluster.url("mandate");
    let nothing_is_left = async || {
        let left = query(&owner, LEFT) != "0";
        if left {
            world.clock.advance(60 * 60);
        }
        (!left).then_some(())
    };
    until_async(PATIENCE, "no rows are left", nothing_is_left).await;
    assert!(world.holds() > 20);
    let world = world.restart().await;
    assert!(world.get(&world.organization_key, "/v1/agents").await.succeeded());
    // A batch worker that has just started takes the locks of a batch, to show that it can decide.
    readyz(&world, 200).await;
    run(
        &world.settings.database,
        "TRUNCATE commits_0; TRUNCATE commits_1; TRUNCATE commits_2; TRUNCATE commits_3",
    );
    world.running.stop().await;
    let log = cluster.logged();
    assert!(!log.contains("permission denied") && !log.contains("must be owner"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_servers_role_makes_no_partitions_the_owner_does() {
    let cluster = Cluster::start();
    let served = two_roles(&cluster);
    let world = World::start_with(|settings| settings.database = served).await;
    let agent = world.agent("first").await;
    world.mandate("agt_first").await;
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
    // The end of June 2027.
    assert!((partitions_end(&world).await - 1_814_400_000.0).abs() < 0.5);
    world.clock.advance(400 * 24 * 60 * 60);
    let refused = world.post(&agent, "/v1/authorizations", &spend(1)).await;
    refused.refused(500, "server_error");
    assert!(readyz(&world, 503).await.starts_with("nothing is decided"));
    assert!(partitions_end(&world).await < 1_814_400_000.0 + 40.0 * 86_400.0);
    apart::migrate(&cluster.url("mandate"), "2027-07-20T12:00:00Z").unwrap();
    let answered = world.post(&agent, "/v1/authorizations", &spend(1)).await;
    assert_eq!(answered.status, 201, "{}", answered.body);
    assert_eq!(readyz(&world, 200).await, "ready\n");
    assert_eq!(world.holds(), 2);
}

/// Lets a closing go on.
struct Steady;

impl Listener for Steady {
    fn done(&mut self, _: &Step<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_lacks_a_right_closes_no_month_and_the_right_is_named() {
    let cluster = Cluster::start();
    let served = two_roles(&cluster);
    let world = World::start_with(|settings| settings.database.clone_from(&served)).await;
    let agent = world.agent("first").await;
    world.mandate("agt_first").await;
    for days in [66, 0] {
        assert_eq!(world.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);
        world.clock.advance(days * 24 * 60 * 60);
    }
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let by = Operator { name: "test".to_owned(), at: world.clock.now() };
    let close = || {
        apart::on_a_thread(|| {
            let order = Order {
                database: &served,
                month: Month::parse("2026-06").unwrap(),
                directory: &archive,
                master: &MasterKey::from_bytes([7; 32]),
                issuer: None,
                piece: 10,
                by: &by,
                time: &|_| by.at,
                entropy: Arc::new(SystemEntropy),
            };
            close::close(&order, &mut Steady)
        })
    };
    let refused = close().unwrap_err().to_string();
    let lacks = "database: the role mandate_server may not close a month: it lacks DELETE ON answers, DELETE ON attempts, ";
    assert!(refused.starts_with(lacks), "{refused}");
    let owner = cluster.url("mandate");
    assert_eq!((archive.exists(), query(&owner, "SELECT count(*) FROM closings").as_str()), (false, "0"));
    // What it names is all that it needs.
    let (_, rights) = refused.split_once("it lacks ").unwrap();
    for right in rights.split_once(". Run ").unwrap().0.split(", ") {
        run(&owner, &format!("GRANT {right} TO mandate_server"));
    }
    close().unwrap();
    assert_eq!(query(&owner, "SELECT count(*) FROM decisions"), "1");
    let log = cluster.logged();
    assert!(!log.contains("permission denied"), "{log}");
}

/// Runs `mandate-server migrate`. Returns how it ended, and what it said.
fn migrate(url: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mandate-server"));
    let ended = command.env_clear().args(["migrate", "--database", url]).output().unwrap();
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

#[test]
fn a_table_in_the_place_of_a_partition_is_named_with_what_to_do() {
    let database = Kind::Postgres.fresh();
    assert_eq!(migrate(database.url()), (Some(0), String::new()));
    let newest =
        query(database.url(), "SELECT max(relname) FROM pg_class WHERE relname ~ '^events_[0-9_]+$'");
    run(database.url(), &format!("ALTER TABLE events DETACH PARTITION {newest}"));
    let (code, says) = migrate(database.url());
    assert_eq!(code, Some(1), "{says}");
    assert!(says.contains("have the names of partitions and are not attached, or half detached"), "{says}");
    let attach = says.lines().find_map(|line| line.strip_prefix(&format!("{newest}: "))).unwrap();
    run(database.url(), attach);
    assert_eq!(migrate(database.url()), (Some(0), String::new()));
}

/// A DETACH CONCURRENTLY that is cut off while it waits for a reader leaves a partition that takes no rows.
#[test]
fn a_partition_that_is_half_detached_is_named_with_what_to_do() {
    let database = Kind::Postgres.fresh();
    assert_eq!(migrate(database.url()), (Some(0), String::new()));
    let newest =
        query(database.url(), "SELECT max(relname) FROM pg_class WHERE relname ~ '^decisions_[0-9_]+$'");
    let reader = OpenTransaction::begin(
        database.url(),
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM decisions",
    );
    // It commits on its way, so that no other statement may be with it.
    let joined = if database.url().contains('?') { '&' } else { '?' };
    let impatient = format!("{}{joined}options=-cstatement_timeout%3D1000", database.url());
    let detach = format!("ALTER TABLE decisions DETACH PARTITION {newest} CONCURRENTLY");
    assert!(!try_query(&impatient, &detach).status.success(), "the reader holds it up");
    reader.commit();
    let (code, says) = migrate(database.url());
    assert_eq!(code, Some(1), "{says}");
    let attach = says.lines().find_map(|line| line.strip_prefix(&format!("{newest}: "))).unwrap();
    assert!(attach.contains("FINALIZE; "), "{attach}");
    attach.split("; ").for_each(|statement| run(database.url(), statement));
    assert_eq!(migrate(database.url()), (Some(0), String::new()));
}

#[test]
fn a_migration_that_can_make_no_partition_where_they_end_soon_fails() {
    let cluster = Cluster::start();
    let served = two_roles_at(&cluster, "2020-06-15T12:00:00Z");
    let (code, says) = migrate(&served);
    assert_eq!(code, Some(1), "{says}");
    assert!(says.contains("the partitions end soon, and this role may make none"), "{says}");
    let (code, says) = migrate(&cluster.url("mandate"));
    assert_eq!(code, Some(0), "{says}");
    assert_eq!(migrate(&served).0, Some(0));
}
