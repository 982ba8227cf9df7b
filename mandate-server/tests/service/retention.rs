//! Months are closed: files and balances take the place of rows, and all that uses the log goes on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mandate_core::{DecisionId, ExportId, Month, Timestamp};
use mandate_server::admin::retention::close::{self, ClosedMonth, Listener, Order, Step};
use mandate_server::admin::retention::files_with;
use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::error::Fault;
use mandate_server::model::call::{Caller, ScriptError};
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::audit::Operator;
use mandate_server::service::exports::{self, Build};
use mandate_server::service::retention::{self, Clocks, Period};
use mandate_server::service::{decisions, signing};
use mandate_server::store::sql::environments;
use mandate_tests::{Kind, oracle};
use serde_json::Value;

use crate::apart;
use crate::check::found;
use crate::escrows;
use crate::events::{self, ping};
use crate::world::{ISSUER, World};

const DAY: i64 = 24 * 60 * 60;
const TABLES: [&str; 5] = ["decisions", "reviews", "events", "deliveries", "attempts"];

/// Notes the steps, and stops after some.
struct Steps {
    done: Vec<String>,
    most: usize,
}

impl Listener for Steps {
    fn done(&mut self, step: &Step<'_>) -> Result<(), Fault> {
        self.done.push(format!("{step:?}"));
        if self.done.len() >= self.most { Err(Fault::new("cut short")) } else { Ok(()) }
    }
}

pub(crate) fn month(text: &str) -> Month {
    Month::parse(text).unwrap()
}

/// Closes a month as an operator does, in such pieces, by the operator's and by the database's clock.
pub(crate) fn close_by(
    world: &World,
    (of, piece): (&str, i64),
    to: &Path,
    [operator, shown]: [Timestamp; 2],
    listener: &mut (dyn Listener + Send),
) -> Result<ClosedMonth, Fault> {
    let (by, master) = (Operator { name: "test".to_owned(), at: operator }, MasterKey::from_bytes([7; 32]));
    apart::on_a_thread(|| {
        let order = Order {
            database: &world.database,
            month: month(of),
            directory: to,
            master: &master,
            issuer: None,
            piece,
            by: &by,
            time: &|_| shown,
            entropy: Arc::new(SystemEntropy),
        };
        close::close(&order, listener)
    })
}

/// Closes a month in such pieces; stops after `most` steps.
pub(crate) fn close_some(
    world: &World,
    of: (&str, i64),
    to: &Path,
    most: usize,
) -> (Result<ClosedMonth, Fault>, Vec<String>) {
    let mut steps = Steps { done: Vec::new(), most };
    let ended = close_by(world, of, to, [world.clock.now(); 2], &mut steps);
    (ended, steps.done)
}

pub(crate) fn close(world: &World, of: &str, to: &Path) -> Result<ClosedMonth, Fault> {
    close_some(world, (of, 3), to, usize::MAX).0
}

pub(crate) fn refused(world: &World, of: &str, to: &Path) -> String {
    close(world, of, to).unwrap_err().to_string()
}

/// Opens the database again, as a server that starts.
pub(crate) fn reopen(world: &mut World) {
    if crate::KIND == Kind::Sqlite {
        world.store = apart::open(&world.database, Arc::clone(&world.engine) as _).unwrap();
    }
}

/// Has no server work in a file. On PostgreSQL servers go on.
pub(crate) fn stop(world: &World) {
    if crate::KIND == Kind::Sqlite {
        world.store.close();
    }
}

pub(crate) fn go_to(world: &World, instant: &str) {
    let wait = Timestamp::parse(instant).unwrap().millis_since(world.clock.now());
    world.clock.advance(wait / 1_000);
}

/// A decision as its agent sees it. None if it is absent.
pub(crate) async fn shown(world: &World, agent: &Arc<Caller>, id: &Value) -> Option<Value> {
    let (call, id, now) = (world.call(agent), id.as_str().unwrap().to_owned(), world.clock.now());
    match world.store.read(move |tx| decisions::get(tx, &call, &id, now)).await.unwrap() {
        Ok(answer) => Some(crate::world::json(&answer)),
        Err(ScriptError::Refused(refusal)) => {
            assert_eq!(refusal.code.status(), 404);
            None
        }
        Err(ScriptError::Fault(fault)) => panic!("{fault}"),
    }
}

pub(crate) fn rows(world: &World) -> BTreeMap<&'static str, i64> {
    apart::snapshot(&world.database, |tx| {
        let mut rows = BTreeMap::new();
        for table in TABLES {
            let sql: &'static str = format!("SELECT count(*) FROM {table}").leak();
            rows.insert(table, tx.row(sql, &[])?.unwrap().integer()?);
        }
        Ok(rows)
    })
    .unwrap()
}

/// What happened in three months, by name.
pub(crate) struct ThreeMonths {
    pub(crate) world: World,
    pub(crate) a: Arc<Caller>,
    pub(crate) b: Arc<Caller>,
    pub(crate) decisions: BTreeMap<&'static str, Value>,
    escrow: Value,
}

/// June with decisions of all kinds, an escrow, and reviews: resolved, approved in July, and never; July; and one decision in
/// August, where it is the 20th.
pub(crate) async fn three_months() -> ThreeMonths {
    let world = World::new().await;
    let (a, b) = (world.agent("a").await, world.agent("b").await);
    let mandate = r#","review_above":200"#;
    world.mandate(&a, 1_000, mandate).await;
    world.mandate(&b, 1_000, mandate).await;
    let hook = events::webhook(&world, &["decision.review_pending"]).await;
    ping(&world, world.call(&world.organization), &hook).await;
    let mut decisions = BTreeMap::new();
    decisions.insert("allowed", world.ask(&a, "10").await);
    decisions.insert("only", world.ask(&b, "7").await);
    let escrow = escrows::escrow(&world, &a, "20").await;
    world.ask(&a, "501").await;
    for (name, reason) in [("approved", None), ("denied", Some("no"))] {
        let asked = world.ask(&a, "210").await;
        let review = &asked["review"]["id"];
        let status = match reason {
            None => world.approve(review).await.status,
            Some(_) => world.deny(review, reason).await.status,
        };
        assert!(matches!(status, 200 | 201));
        decisions.insert(name, asked);
    }
    go_to(&world, "2026-06-30T23:59:40Z");
    decisions.insert("late", world.ask(&a, "220").await);
    decisions.insert("pending", world.ask(&a, "230").await);
    go_to(&world, "2026-07-01T00:00:10Z");
    decisions.insert("july", world.ask(&a, "30").await);
    assert_eq!(world.approve(&decisions["late"]["review"]["id"]).await.status, 201);
    world.clock.advance(DAY);
    world.ask(&a, "40").await;
    go_to(&world, "2026-08-20T00:00:00Z");
    decisions.insert("august", world.ask(&a, "50").await);
    // As after its 24 hours: what is pending stays, whatever it waits for.
    world.change("UPDATE deliveries SET state = 'failed' WHERE event IN (SELECT event FROM events WHERE type <> 'ping')");
    ThreeMonths { world, a, b, decisions, escrow }
}

/// Writes an export of all that there is.
fn export(world: &World, to: &Path) {
    export_of(world, exports::Filter::default(), to);
}

fn export_of(world: &World, filter: exports::Filter, to: &Path) {
    let now = world.clock.now();
    let keyring = world.keyring.clone();
    apart::snapshot(&world.database, |tx| {
        let environment = environments::all(tx)?.into_iter().next().unwrap();
        let period = Period::of(now.month())?;
        let mut export = retention::export(&period, &environment, ExportId::new(now, 1), now);
        export.filter = filter;
        let out = fs::File::create(to).unwrap();
        exports::write(tx, &Build { export: &export, keyring: &keyring, now }, out, &|| true)
    })
    .unwrap();
}

/// Audits files of adjoining periods as one. Gives the summary.
fn audited(world: &World, folder: &Path, files: &[&Path]) -> Value {
    let keys = folder.join("keys.json");
    fs::write(&keys, apart::snapshot(&world.database, signing::archive).unwrap()).unwrap();
    let files = files.iter().map(|file| file.to_str().unwrap());
    let words = ["--issuer", ISSUER, "--jwks", keys.to_str().unwrap(), "--json"];
    let ran = oracle::run(&["audit"].into_iter().chain(files).chain(words).collect::<Vec<_>>()).code(0);
    serde_json::from_str::<Value>(ran.out.lines().last().unwrap()).unwrap()["summary"].clone()
}

/// The files of a directory.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_closed_month_is_in_its_file_and_the_rest_goes_on_from_balances() {
    let ThreeMonths { mut world, a, b, decisions, escrow } = three_months().await;
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    stop(&world);
    assert_eq!(found(&world.database), Vec::<String>::new());
    let usage = world.number("SELECT count(*) FROM usage");
    let closed = close(&world, "2026-06", &archive).unwrap();
    assert_eq!(found(&world.database), Vec::<String>::new());
    assert_eq!(world.number("SELECT count(*) FROM usage"), usage, "the metering stays");
    assert_eq!(world.number("SELECT count(*) FROM audit WHERE action = 'retention.close'"), 1);
    reopen(&mut world);
    let is_there = async |name: &str| {
        let agent = if name == "only" { &b } else { &a };
        shown(&world, agent, &decisions[name]["decision"]).await.is_some()
    };
    for name in ["allowed", "only", "approved", "denied"] {
        assert!(!is_there(name).await, "{name}");
    }
    // Named by a newer decision, waiting for a person, and of later months.
    for name in ["late", "pending", "july", "august"] {
        assert!(is_there(name).await, "{name}");
    }
    let kept = escrows::get(&world, &world.organization, &escrow).await.unwrap();
    assert_eq!(kept["amount"], 20);

    let written = files(&archive);
    let [file] = &written[..] else { panic!("one environment has decisions: {written:?}") };
    assert!(file.starts_with(&closed.directory), "{file:?}");
    let all = folder.path().join("rest.ndjson");
    export(&world, &all);
    let june = audited(&world, folder.path(), &[file]);
    let rest = audited(&world, folder.path(), &[&all]);
    let both = audited(&world, folder.path(), &[file, &all]);
    assert_eq!((&june["findings"], &rest["findings"], &both["findings"]), (&0.into(), &0.into(), &0.into()));
    assert_eq!(
        (&june["decisions"], &rest["decisions"], &both["decisions"]),
        (&9.into(), &4.into(), &13.into())
    );
    assert_eq!(both["openings"], 0, "together they have each decision once");

    let wanted = DecisionId::parse(decisions["denied"]["decision"].as_str().unwrap()).unwrap();
    let find = |id| apart::on_a_thread(|| files_with(&world.database, id));
    let has_it = find(wanted).unwrap();
    let [only] = &has_it[..] else { panic!("one file has it: {has_it:?}") };
    assert_eq!((only.found.path(), only.unreadable.as_ref()), (file.clone(), None));
    assert_eq!((only.found.organization.as_str(), only.found.rows), ("acme", 9));
    let later = DecisionId::parse(decisions["august"]["decision"].as_str().unwrap()).unwrap();
    let absent = find(later).unwrap_err().to_string();
    assert_eq!(absent, format!("no file of a closed month has {later}"));
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(file, &elsewhere).unwrap();
    let lost = find(wanted).unwrap();
    assert!(lost[0].unreadable.as_ref().unwrap().contains(file.to_str().unwrap()), "{lost:?}");
    // Another byte, far from the decision.
    fs::write(file, fs::read_to_string(elsewhere).unwrap() + "\n").unwrap();
    let changed = find(wanted).unwrap();
    assert!(changed[0].unreadable.as_ref().unwrap().contains(" has changed: its SHA-256 is "), "{changed:?}");

    // An agent without a row of the log goes on where it was.
    assert_eq!(world.ask(&b, "8").await["verdict"], "allow");
    assert_eq!(world.ask(&a, "9").await["verdict"], "allow");
    stop(&world);
    assert_eq!(found(&world.database), Vec::<String>::new());
}

#[tokio::test]
async fn a_closed_month_is_one_with_an_export_from_before_an_approval() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    go_to(&world, "2026-06-30T23:59:40Z");
    let asked = world.ask(&agent, "220").await;
    go_to(&world, "2026-07-01T00:02:00Z");
    world.ask(&agent, "30").await;
    let folder = tempfile::tempdir().unwrap();
    let [june, early, late] = ["june", "early", "late"].map(|name| folder.path().join(name));
    let turn = Some(Timestamp::parse("2026-07-01T00:00:00Z").unwrap());
    let july = exports::Filter { since: turn, ..exports::Filter::default() };
    export_of(&world, exports::Filter { until: turn, ..exports::Filter::default() }, &june);
    export_of(&world, july.clone(), &early);
    assert_eq!(world.approve(&asked["review"]["id"]).await.status, 201);
    go_to(&world, "2026-08-20T00:00:00Z");
    world.ask(&agent, "10").await;
    export_of(&world, july, &late);
    stop(&world);
    close(&world, "2026-06", &folder.path().join("archive")).unwrap();
    let closed = &files(&folder.path().join("archive"))[0];
    let outside = |parts: [&Path; 2]| audited(&world, folder.path(), &parts)["outside"].clone();
    assert_eq!((outside([&june, &early]), outside([&june, &late])), (0.into(), 1.into()));
    assert_eq!((outside([closed, &early]), outside([closed, &late])), (0.into(), 0.into()));
}

#[tokio::test]
async fn the_next_closing_deletes_what_is_open_no_more() {
    let ThreeMonths { mut world, a, decisions, .. } = three_months().await;
    let folder = tempfile::tempdir().unwrap();
    stop(&world);
    close(&world, "2026-06", folder.path()).unwrap();
    reopen(&mut world);
    go_to(&world, "2026-09-01T00:00:00Z");
    world.ask(&a, "60").await;
    stop(&world);
    close(&world, "2026-07", folder.path()).unwrap();
    assert_eq!(found(&world.database), Vec::<String>::new());
    reopen(&mut world);
    assert!(shown(&world, &a, &decisions["late"]["decision"]).await.is_none(), "its approval is gone too");
    assert!(shown(&world, &a, &decisions["pending"]["decision"]).await.is_some());
    let rest = folder.path().join("rest");
    export(&world, &rest);
    let files = files(folder.path());
    let paths: Vec<_> = files.iter().filter(|path| **path != rest).map(PathBuf::as_path).collect();
    let [first, second] = paths[..] else { panic!("{paths:?}") };
    let all = audited(&world, folder.path(), &[first, second, &rest]);
    assert_eq!((&all["findings"], &all["openings"], &all["decisions"]), (&0.into(), &0.into(), &14.into()));
}

#[tokio::test]
async fn a_closing_that_is_cut_short_at_any_step_goes_on_and_the_database_is_sound_between() {
    let ThreeMonths { world, .. } = three_months().await;
    let folder = tempfile::tempdir().unwrap();
    stop(&world);
    let (mut most, mut before) = (1, rows(&world)["decisions"]);
    loop {
        let (ended, done) = close_some(&world, ("2026-06", 1), folder.path(), most);
        assert_eq!(found(&world.database), Vec::<String>::new(), "{done:?}");
        let decisions = rows(&world)["decisions"];
        let ready = done.iter().any(|step| step == "Ready" || step.starts_with("Deleted"));
        assert!(
            ready || decisions == before,
            "nothing is deleted before all is written and counted: {done:?}"
        );
        before = decisions;
        if done.last().is_some_and(|step| step == "Closed") {
            assert_eq!(ended.is_ok(), most > done.len());
            break;
        }
        assert_eq!(ended.unwrap_err().to_string(), "cut short");
        most += 1;
    }
    assert!(most > 8, "{most}");
    assert_eq!(files(folder.path()).len(), 1);
    assert_eq!(world.number("SELECT count(*) FROM audit WHERE action = 'retention.close'"), 1);
    assert!(refused(&world, "2026-06", folder.path()).contains("2026-06 is closed"));
}

#[tokio::test]
async fn a_plan_says_what_is_deleted_and_what_is_pending_stays() {
    let ThreeMonths { world, .. } = three_months().await;
    let folder = tempfile::tempdir().unwrap();
    stop(&world);
    let period = Period::of(month("2026-06")).unwrap();
    let (before, now) = (rows(&world), world.clock.now());
    let plan = apart::snapshot(&world.database, |tx| {
        retention::plan(tx, &period, Clocks { operator: now, database: &|_| now })
    });
    let plan = plan.unwrap();
    assert_eq!(rows(&world), before, "a plan changes nothing");
    close(&world, "2026-06", folder.path()).unwrap();
    let after = rows(&world);
    for table in TABLES {
        assert_eq!(plan.tables[table].rows, before[table] - after[table], "{table}");
        assert_eq!(plan.tables[table].bytes > 0, plan.tables[table].rows > 0, "{table}");
    }
    assert_eq!(plan.decisions_that_stay, 3, "an escrow's, and those of two reviews");
    assert_eq!(world.number("SELECT count(*) FROM deliveries WHERE state = 'pending'"), 1);
    assert_eq!(world.number("SELECT count(*) FROM events WHERE type = 'ping'"), 1);
}

#[tokio::test]
async fn nothing_is_deleted_over_a_finding() {
    let ThreeMonths { world, .. } = three_months().await;
    let folder = tempfile::tempdir().unwrap();
    stop(&world);
    let before = rows(&world);
    world.change("UPDATE decisions SET spent = '1' WHERE amount = '20'");
    let finding = refused(&world, "2026-06", folder.path());
    assert!(finding.contains("No month is closed over a finding"), "{finding}");
    assert_eq!(rows(&world), before);
}

#[tokio::test]
async fn a_reader_that_stays_holds_nothing_up_and_sees_what_it_saw() {
    let ThreeMonths { world, .. } = three_months().await;
    let folder = tempfile::tempdir().unwrap();
    stop(&world);
    let seen = apart::snapshot(&world.database, |tx| {
        const DECISIONS: &str = "SELECT count(*) FROM decisions";
        let before = tx.row(DECISIONS, &[])?.unwrap().integer()?;
        close(&world, "2026-06", folder.path()).unwrap();
        Ok((before, tx.row(DECISIONS, &[])?.unwrap().integer()?))
    });
    let (before, after) = seen.unwrap();
    assert_eq!((before, after), (13, 13));
    assert_eq!(rows(&world)["decisions"], 7);
}
