//! The clock jumps ahead and is set back: what was done by time is not done again, and nothing waits for the time that
//! was shown by mistake. Each job of the scheduler has its test here, deliveries and settlements in their own files.

use std::sync::Arc;

use mandate_core::ExportId;
use mandate_server::clock::{Clock as _, SystemEntropy, TestClock};
use mandate_server::model::call::Caller;
use mandate_server::model::idempotency::KEPT_SECONDS;
use mandate_server::service::audit::Operator;
use mandate_server::service::exports;
use mandate_server::service::moments::Moments;
use mandate_server::service::signing::rotation::{self, Maker};
use mandate_server::store::sql::decisions::Filter;
use mandate_server::store::sql::exports::Format;
use mandate_server::worker::export::Exports;
use mandate_server::worker::rotate::Rotation;
use mandate_server::worker::sweep::{JOBS, Sweep};

use crate::apart;
use crate::deliveries::{pinged, webhook};
use crate::events::{delete, log};
use crate::oracle;
use crate::world::{World, claim};

const DAY: i64 = 86_400;
/// How far the clock jumps: beyond the end of everything that these tests make.
const JUMP: i64 = 195 * DAY;

fn sweeper(world: &World, directory: &std::path::Path) -> Sweep {
    let clock: Arc<TestClock> = Arc::clone(&world.clock);
    Sweep::new(
        world.store.clone(),
        Arc::new(Exports::new(directory.to_owned())),
        Arc::clone(&world.moments),
        clock,
    )
}

/// Sweeps, and expects the scheduler to look again soon, whatever is known of what is due.
async fn sweep(world: &World, sweep: &Sweep) {
    let next = sweep.sweep().await;
    assert!(next > world.clock.now() && next <= world.clock.now().plus_seconds(10), "{next}");
}

/// Has a decision made.
async fn denied(world: &World) {
    let agent = world.agent("asking").await;
    assert_eq!(world.ask(&agent, "1").await["verdict"], "deny_no_mandate");
}

/// How many events there are of a type.
async fn events(world: &World, kind: &str) -> usize {
    log(world).await.iter().filter(|event| event["type"] == kind).count()
}

async fn keep(world: &World, agent: &Arc<Caller>, name: &str) -> bool {
    let mut call = world.call(agent);
    call.idempotency = Some(claim(name, "{}", &world.organization_key));
    world.decide(call, "1").await.replayed
}

async fn export(world: &World) -> ExportId {
    let (id, at) = (ExportId::from_bytes(world.new_id()), world.clock.now());
    let create = exports::Create { format: Format::Csv, filter: Filter::default(), id, at };
    let call = world.call(&world.organization);
    world.write(call, move |tx, call| exports::create(tx, call, &create)).await;
    id
}

#[test]
fn every_job_of_the_scheduler_has_its_test_here() {
    let tested = [
        "announce that mandates are about to expire",
        "resolve reviews that have expired",
        "keep for how long no answer is forgotten",
        "forget answers kept for retries",
        "forget sessions, links and statements of people that are over",
        "delete exports that have expired",
        "delete files that no export owns",
        "end deliveries whose webhook is gone",
        "rotate signing keys",
        // Nothing is done for a file.
        "maintain the database",
    ];
    assert_eq!(JOBS.map(|job| job.name), tested);
}

#[tokio::test]
async fn mandates_and_reviews_have_one_event_when_the_clock_jumps_and_goes_back() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000_000, r#","review_above":200"#).await;
    let first = world.ask(&agent, "300").await;
    let one = sweeper(&world, folder.path());
    for jump in [JUMP, -JUMP, 0, JUMP] {
        world.clock.advance(jump);
        sweep(&world, &one).await;
        sweep(&world, &sweeper(&world, folder.path())).await;
        assert_eq!(
            (events(&world, "mandate.expiring").await, events(&world, "decision.resolved").await),
            (1, 1)
        );
    }
    // What ended by mistake stays ended, since an event has announced it.
    world.clock.advance(-JUMP);
    assert_eq!(world.approve(&first["review"]["id"]).await.status, 400);
    // What is new goes by the right clock, under the same scheduler.
    let second = world.ask(&agent, "300").await;
    world.clock.advance(DAY - 1);
    sweep(&world, &one).await;
    assert_eq!(events(&world, "decision.resolved").await, 1);
    world.clock.advance(1);
    sweep(&world, &one).await;
    assert_eq!(events(&world, "decision.resolved").await, 2);
    let shown = world.decision(&world.organization, &second["decision"]).await;
    assert_eq!(shown["review"]["status"], "expired");
    assert_eq!(oracle::holds(&world.database), 2);
}

#[tokio::test]
async fn kept_answers_go_on_time_past_those_that_a_clock_kept_which_was_ahead() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    let agent = world.agent("a").await;
    let one = sweeper(&world, folder.path());
    world.clock.advance(JUMP);
    // More than go in one transaction.
    for number in 0..201 {
        assert!(!keep(&world, &agent, &format!("ahead{number}")).await);
    }
    world.set_back(JUMP);
    assert!(!keep(&world, &agent, "now").await);
    assert!(keep(&world, &agent, "ahead0").await, "one that was kept ahead is replayed");
    let kept = || world.number("SELECT count(*) FROM idempotency");
    world.clock.advance(KEPT_SECONDS - 1);
    sweep(&world, &one).await;
    assert_eq!(kept(), 202);
    world.clock.advance(1);
    sweep(&world, &one).await;
    assert_eq!(kept(), 201, "it does not wait behind the others");
    world.clock.advance(JUMP);
    sweep(&world, &one).await;
    assert_eq!(kept(), 0);
    assert_eq!(oracle::holds(&world.database), 202);
}

/// What the database keeps of it is for all servers, and each has its own.
#[tokio::test]
async fn a_server_shortens_no_hold_that_another_has_written_down() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    denied(&world).await;
    let held = || world.number("SELECT held FROM clock") / 1_000;
    let start = || {
        let clock = Arc::new(TestClock::at(world.clock.now()));
        let moments = Arc::new(Moments::new(Arc::clone(&clock) as _, Arc::clone(&world.ids)));
        let exports = Arc::new(Exports::new(folder.path().to_owned()));
        let sweep = Sweep::new(world.store.clone(), exports, moments, Arc::clone(&clock) as _);
        (clock, sweep)
    };
    let ((one, first), (other, second)) = (start(), start());
    one.step(3_600);
    first.sweep().await;
    assert_eq!(held(), DAY);
    one.advance(DAY - 3_600);
    first.sweep().await;
    assert_eq!(held(), 3_600);
    other.advance(DAY - 3_599);
    other.step(3_600);
    second.sweep().await;
    assert_eq!(held(), DAY, "that of the other is longer");
    one.advance(3_600);
    first.sweep().await;
    assert_eq!(held(), DAY);
    other.advance(DAY);
    second.sweep().await;
    assert_eq!(held(), 0);
    assert_eq!(oracle::holds(&world.database), 1);
}

#[tokio::test]
async fn exports_and_files_go_by_the_clock_that_was_set_back() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    denied(&world).await;
    let one = sweeper(&world, folder.path());
    let exports = || world.number("SELECT count(*) FROM exports");
    world.clock.advance(JUMP);
    sweep(&world, &one).await;
    world.clock.advance(-JUMP);
    let id = export(&world).await;
    let file = |name: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, "x").unwrap();
        path
    };
    let (owned, orphan) = (file(id.to_string()), file(ExportId::from_bytes(world.new_id()).to_string()));
    sweep(&world, &one).await;
    assert!(owned.exists() && !orphan.exists(), "the next look is not put off by the jump");
    let late = file(ExportId::from_bytes(world.new_id()).to_string());
    world.clock.advance(3_600);
    sweep(&world, &one).await;
    assert!(!late.exists());
    world.clock.advance(exports::KEPT_SECONDS - 3_600 - 1);
    sweep(&world, &one).await;
    assert_eq!((exports(), owned.exists()), (1, true));
    world.clock.advance(1);
    sweep(&world, &one).await;
    assert_eq!((exports(), owned.exists()), (0, false));
    assert_eq!(oracle::holds(&world.database), 1);
}

#[tokio::test]
async fn deliveries_of_a_webhook_that_is_gone_end_by_the_clock_that_was_set_back() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    denied(&world).await;
    let one = sweeper(&world, folder.path());
    world.clock.advance(JUMP);
    sweep(&world, &one).await;
    world.clock.advance(-JUMP);
    let id = webhook(&world, "http://127.0.0.1:9/in").await;
    pinged(&world, &id).await;
    delete(&world, &id).await;
    let pending = || world.number("SELECT count(*) FROM deliveries WHERE state = 'pending'");
    assert_eq!(pending(), 1);
    sweep(&world, &one).await;
    assert_eq!(pending(), 0, "the next look is not put off by the jump");
    assert_eq!(oracle::holds(&world.database), 1);
}

#[tokio::test]
async fn keys_are_rotated_once_through_a_jump_and_back_and_a_key_of_the_wrong_time_can_be_revoked() {
    let (world, folder) = (World::new().await, tempfile::tempdir().unwrap());
    denied(&world).await;
    let rotation = Rotation { days: 90, keyring: world.keyring.clone(), entropy: Arc::new(SystemEntropy) };
    let one = sweeper(&world, folder.path()).rotating(Some(rotation));
    let keys = || world.number("SELECT count(*) FROM signing_keys");
    let noon = world.clock.now();
    let before = keys();
    world.clock.advance(JUMP);
    sweep(&world, &one).await;
    assert_eq!(keys(), 2 * before, "one of each kind");
    world.clock.advance(-JUMP);
    for _ in 0..2 {
        sweep(&world, &one).await;
        assert_eq!(keys(), 2 * before);
    }
    assert_eq!(world.clock.now(), noon);
    // The old key signs and is published still.
    world
        .store
        .read({
            let keyring = world.keyring.clone();
            move |tx| keyring.refresh(tx)
        })
        .await
        .unwrap()
        .unwrap();
    let kind = world.organization.environment.kind;
    assert!(world.keyring.signing(kind, noon).is_ok());
    assert!(world.keyring.public_key_set(noon).unwrap().contains("sandbox-"));
    // The key that the wrong clock has made is revoked, and the next is made on time.
    let master = world.keyring.master().clone();
    let made: Vec<String> = apart::run_once(&world.database, |tx| {
        let all = rotation::list(tx)?.into_iter();
        Ok(all.filter(|key| key.sign_from > noon).map(|key| key.kid).collect())
    })
    .unwrap()
    .unwrap();
    assert_eq!(i64::try_from(made.len()).unwrap(), before);
    let by = Operator { name: "test".to_owned(), at: noon };
    apart::run_once(&world.database, |tx| {
        let maker = Maker { master: &master, entropy: &SystemEntropy };
        made.iter().try_for_each(|kid| rotation::revoke(tx, maker, kid, &by).map(|_| ()))
    })
    .unwrap()
    .unwrap();
    world.clock.advance(90 * DAY - 1);
    sweep(&world, &one).await;
    assert_eq!(keys(), 2 * before);
    world.clock.advance(1);
    sweep(&world, &one).await;
    assert_eq!(keys(), 3 * before);
    assert_eq!(oracle::holds(&world.database), 1);
}
