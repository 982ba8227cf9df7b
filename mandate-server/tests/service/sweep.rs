//! Scheduled jobs: each takes effect once, at its time and not before, whichever server runs it and however often.

use std::path::PathBuf;
use std::sync::Arc;

use mandate_core::{ExportId, Timestamp};
use mandate_server::clock::{Clock as _, TestClock};
use mandate_server::model::call::Answer;
use mandate_server::model::idempotency::KEPT_SECONDS;
use mandate_server::service::{exports, keys};
use mandate_server::store::Store;
use mandate_server::store::sql::decisions::Filter;
use mandate_server::store::sql::exports::Format;
use mandate_server::worker::export::Exports;
use mandate_server::worker::sweep::Sweep;
use serde_json::{Value, json};

use crate::apart;
use crate::events::log;
use crate::oracle;
use crate::world::{World, claim_at, json as body};

/// How long a review waits.
const REVIEW_SECONDS: i64 = 86_400;

/// A scheduler over a world; another one each time, as after a restart.
fn sweeper(world: &World) -> Sweep {
    of(world, world.store.clone(), "/nowhere/exports".into())
}

fn of(world: &World, store: Store, directory: PathBuf) -> Sweep {
    let clock: Arc<TestClock> = Arc::clone(&world.clock);
    Sweep::new(store, Arc::new(Exports::new(directory)), Arc::clone(&world.moments), clock)
}

/// The data of the events of a type, newest first.
async fn events_of(world: &World, kind: &str) -> Vec<Value> {
    let events = log(world).await;
    events.into_iter().filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
}

/// Sets the clock to an instant, less `seconds`.
fn move_to(world: &World, instant: &str, seconds: i64) {
    let millis = Timestamp::parse(instant).unwrap().millis_since(world.clock.now());
    world.clock.advance(millis / 1000 - seconds);
}

#[tokio::test]
async fn the_expiry_of_a_mandate_is_announced_once_seven_days_before() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let mandate = world.mandate(&agent, 1_000, "").await;
    move_to(&world, "2026-12-24T00:00:00Z", 1);
    let next = sweeper(&world).sweep().await;
    assert!(events_of(&world, "mandate.expiring").await.is_empty());
    assert_eq!(
        next.to_string(),
        "2026-12-24T00:00:00.000Z",
        "it is looked again when there is something to do"
    );
    world.clock.advance(1);
    for _ in 0..2 {
        sweeper(&world).sweep().await;
        let found = events_of(&world, "mandate.expiring").await;
        assert_eq!(
            (found.len(), &found[0]["id"], &found[0]["status"]),
            (1, &json!(mandate), &json!("active"))
        );
    }
}

#[tokio::test]
async fn the_expiry_of_a_revoked_or_replaced_mandate_is_not_announced() {
    let world = World::new().await;
    let (a, b) = (world.agent("a").await, world.agent("b").await);
    world.revoke(&world.mandate(&a, 1_000, "").await).await;
    world.mandate(&b, 1_000, "").await;
    let governing = world.mandate(&b, 2_000, "").await;
    move_to(&world, "2026-12-24T00:00:00Z", 0);
    sweeper(&world).sweep().await;
    let found = events_of(&world, "mandate.expiring").await;
    assert_eq!((found.len(), &found[0]["id"]), (1, &json!(governing)));
}

#[tokio::test]
async fn a_mandate_for_less_than_seven_days_is_announced_when_it_is_written() {
    let world = World::new().await;
    world.agent("a").await;
    move_to(&world, "2026-12-24T00:00:00Z", 0);
    let mut announced = 0;
    for (expires, soon) in [("2026-12-30", true), ("2026-12-31", true), ("2027-01-01", false)] {
        let terms = json!({"principal": "role:cfo", "agent": "agt_a", "categories": ["c"], "expires": expires,
            "limits": {"per_transaction": 500, "currency": "USD"}});
        let written = world.write_mandate(&terms.to_string()).await;
        announced += usize::from(soon);
        let found = events_of(&world, "mandate.expiring").await;
        assert_eq!(found.len(), announced, "{expires}");
        assert_eq!(found[0] == written, soon, "{expires}: the mandate as it was answered");
    }
    sweeper(&world).sweep().await;
    assert_eq!(events_of(&world, "mandate.expiring").await.len(), announced);
    world.clock.advance(86_400);
    sweeper(&world).sweep().await;
    assert_eq!(events_of(&world, "mandate.expiring").await.len(), announced + 1);
}

/// A world with as many pending reviews. Returns their decisions, oldest first.
async fn pending(count: usize) -> (World, Vec<Value>) {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000_000, r#","review_above":200"#).await;
    let mut decisions = Vec::new();
    for _ in 0..count {
        decisions.push(world.ask(&agent, "300").await);
        world.clock.advance(7);
    }
    (world, decisions)
}

#[tokio::test]
async fn an_expired_review_is_resolved_with_one_event() {
    let (world, decisions) = pending(1).await;
    world.clock.advance(REVIEW_SECONDS - 7 - 1);
    let next = sweeper(&world).sweep().await;
    assert!(events_of(&world, "decision.resolved").await.is_empty());
    assert_eq!(json!(next), decisions[0]["review"]["expires_at"]);
    world.clock.advance(1);
    let shown = world.decision(&world.organization, &decisions[0]["decision"]).await;
    assert_eq!(shown["review"]["status"], "expired", "before any sweep");
    for _ in 0..2 {
        sweeper(&world).sweep().await;
        assert_eq!(events_of(&world, "decision.resolved").await, std::slice::from_ref(&shown));
        assert_eq!(world.number("SELECT count(*) FROM reviews WHERE status = 'expired'"), 1);
    }
    assert_eq!(world.decision(&world.organization, &decisions[0]["decision"]).await, shown);
    assert_eq!(world.approve(&decisions[0]["review"]["id"]).await.status, 400);
    assert_eq!(events_of(&world, "decision.resolved").await.len(), 1);
}

async fn resolve(world: &World, review: &Value, approve: bool) -> Answer {
    if approve { world.approve(&review["id"]).await } else { world.deny(&review["id"], None).await }
}

#[tokio::test]
async fn an_answer_that_waited_until_the_review_had_expired_comes_too_late() {
    let (world, decisions) = pending(2).await;
    world.clock.advance(REVIEW_SECONDS - 7 * 2 - 1);
    assert!(resolve(&world, &decisions[1]["review"], false).await.status < 300);
    let (world, decisions) = pending(2).await;
    world.clock.advance(REVIEW_SECONDS);
    for (approve, decision) in [(true, &decisions[0]), (false, &decisions[1])] {
        let shown = world.decision(&world.organization, &decision["decision"]).await;
        assert_eq!(shown["review"]["status"], "expired", "as readers see it");
        let late = resolve(&world, &decision["review"], approve).await;
        let message = "the review is expired; only a pending review can be resolved";
        assert_eq!((late.status, &body(&late)["error"]["message"]), (400, &json!(message)));
        assert_eq!(world.decision(&world.organization, &decision["decision"]).await, shown);
    }
    assert!(events_of(&world, "decision.resolved").await.is_empty());
}

#[tokio::test]
async fn of_a_person_and_the_time_one_resolves_a_review() {
    let (world, decisions) = pending(24).await;
    world.clock.advance(REVIEW_SECONDS - 7 * 24 - 1);
    let second = apart::another(&world.store, &world.database, Arc::clone(&world.engine) as _).unwrap();
    let sweepers = [sweeper(&world), of(&world, second, "/nowhere/exports".into())];
    let ask = |asked: std::ops::Range<usize>| {
        let asked = asked.map(|n| resolve(&world, &decisions[n]["review"], n % 2 == 0));
        futures_util::future::join_all(asked)
    };
    // A third of the approvals are decided before the expiry, a third at the same time, and a third after it. All
    // requests arrived before.
    let before = ask(0..8).await;
    let expiring = async {
        world.clock.advance(7 * 24 + 1);
        tokio::join!(sweepers[0].sweep(), sweepers[1].sweep())
    };
    let (at_once, _) = tokio::join!(ask(8..16), expiring);
    let after = ask(16..24).await;
    assert!(
        before.iter().all(|answer| answer.status < 300) && after.iter().all(|answer| answer.status == 400)
    );
    let resolved = events_of(&world, "decision.resolved").await;
    assert_eq!(resolved.len(), decisions.len(), "each has one event");
    for (n, (answer, decision)) in before.iter().chain(&at_once).chain(&after).zip(&decisions).enumerate() {
        let resolution = if n % 2 == 0 { "approved" } else { "denied" };
        let status = if answer.status < 300 { resolution } else { "expired" };
        let event = resolved.iter().find(|data| data["jti"] == decision["decision"]).unwrap();
        assert_eq!(event["review"]["status"], status);
        let shown = world.decision(&world.organization, &decision["decision"]).await;
        assert_eq!(shown["review"], event["review"]);
    }
    assert!(oracle::holds(&world.database) >= decisions.len());
}

#[tokio::test]
async fn two_servers_announce_nothing_twice() {
    let (world, _) = pending(5).await;
    for n in 0..30 {
        let agent = world.agent(&format!("agent-{n}")).await;
        world.mandate(&agent, 1_000, "").await;
    }
    move_to(&world, "2026-12-24T00:00:00Z", 0);
    let second = apart::another(&world.store, &world.database, Arc::clone(&world.engine) as _).unwrap();
    let other = of(&world, second, "/nowhere/exports".into());
    let one = sweeper(&world);
    tokio::join!(one.sweep(), other.sweep(), one.sweep(), other.sweep());
    assert_eq!(events_of(&world, "mandate.expiring").await.len(), 31);
    assert_eq!(events_of(&world, "decision.resolved").await.len(), 5);
    assert_eq!(oracle::holds(&world.database), 5);
}

/// A sweep of many transactions takes time, and what it read at its begin is no time for the last of them.
#[tokio::test]
async fn what_a_sweep_announces_is_dated_when_its_rows_are_held() {
    let (world, _) = pending(1).await;
    move_to(&world, "2026-12-24T00:00:00Z", 0);
    let began = Arc::new(TestClock::at(world.clock.now()));
    world.clock.advance(30);
    let exports = Arc::new(Exports::new("/nowhere/exports".into()));
    Sweep::new(world.store.clone(), exports, Arc::clone(&world.moments), began).sweep().await;
    let events = log(&world).await;
    for kind in ["mandate.expiring", "decision.resolved"] {
        let event = events.iter().find(|event| event["type"] == kind).unwrap();
        assert_eq!(event["created_at"], "2026-12-24T00:00:30.000Z", "{kind}");
    }
    assert_eq!(oracle::holds(&world.database), 1);
}

#[tokio::test]
async fn kept_answers_go_after_a_day_and_not_before() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let ask = async |name: &str| {
        let mut call = world.call(&agent);
        call.idempotency = Some(claim_at(name, "{}", &world.organization_key, world.clock.now()));
        assert!(!world.decide(call, "1").await.replayed);
    };
    // More than go in one transaction.
    let names: Vec<_> = (0..450).map(|n| format!("k{n}")).collect();
    futures_util::future::join_all(names.iter().map(|name| ask(name))).await;
    let kept = || world.number("SELECT count(*) FROM idempotency");
    world.clock.advance(3_600);
    ask("later").await;
    world.clock.advance(KEPT_SECONDS - 3_600 - 1);
    sweeper(&world).sweep().await;
    assert_eq!(kept(), 451);
    world.clock.advance(1);
    // One that is used again before any sweep is kept again, behind all others.
    ask("k0").await;
    sweeper(&world).sweep().await;
    assert_eq!(kept(), 2);
    world.clock.advance(3_600);
    sweeper(&world).sweep().await;
    assert_eq!(kept(), 1);
}

#[tokio::test]
async fn exports_go_after_seven_days_and_so_do_files_without_a_record() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let sweep = of(&world, world.store.clone(), folder.path().to_owned());
    let (id, at) = (ExportId::from_bytes(world.new_id()), world.clock.now());
    let create = exports::Create { format: Format::Csv, filter: Filter::default(), id, at };
    let call = world.call(&world.organization);
    world.write(call, move |tx, call| exports::create(tx, call, &create)).await;
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, "x").unwrap();
        path
    };
    let absent = ExportId::from_bytes(world.new_id());
    let owned = [file(&id.to_string()), file(&format!("{id}.a1b2c3.unfinished")), file("notes.txt")];
    let orphans = [file(&absent.to_string()), file(&format!("{absent}.d4e5f6.unfinished"))];
    sweep.sweep().await;
    assert!(owned.iter().all(|path| path.exists()) && !orphans.iter().any(|path| path.exists()));
    world.clock.advance(exports::KEPT_SECONDS - 1);
    sweep.sweep().await;
    assert!(owned.iter().all(|path| path.exists()));
    world.clock.advance(1);
    sweep.sweep().await;
    assert!(!owned[0].exists() && owned[2].exists());
    assert_eq!(world.number("SELECT count(*) FROM exports"), 0);
    let late = file(&id.to_string());
    world.clock.advance(3_600);
    sweep.sweep().await;
    assert!(!late.exists(), "within the hour, although it came later");
    assert!(!owned[1].exists() && owned[2].exists());
}

#[tokio::test]
async fn a_job_that_fails_holds_up_no_other() {
    let (world, _) = pending(1).await;
    world.change("ALTER TABLE mandates RENAME COLUMN expiring_at TO mislaid");
    world.clock.advance(REVIEW_SECONDS);
    let next = sweeper(&world).sweep().await;
    assert_eq!(events_of(&world, "decision.resolved").await.len(), 1);
    assert!(next > world.clock.now(), "and is tried again after a pause");
}

#[tokio::test]
async fn a_new_key_makes_no_server_forget_the_others() {
    let world = World::new().await;
    let revision = async || world.store.read(keys::revision).await.unwrap().unwrap();
    let before = revision().await;
    world.agent("a").await;
    assert_eq!(revision().await, before);
}
