//! A month that is being closed, while its files are lost, clocks are wrong and reviews are answered.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mandate_core::{DecisionId, Timestamp};
use mandate_server::admin::retention::close::{Listener, Step};
use mandate_server::admin::retention::files_with;
use mandate_server::clock::Clock as _;
use mandate_server::error::Fault;
use mandate_server::service::decide::Engine;
use mandate_tests::Kind;
use tempfile::tempdir;

use crate::apart;
use crate::check::found;
use crate::retention::{
    ThreeMonths, close, close_by, close_some, files, go_to, refused, reopen, rows, shown, stop, three_months,
};
use crate::world::{World, json};

const DAY: i64 = 24 * 60 * 60;
const JUNE: (&str, i64) = ("2026-06", 3);

/// Closes June until this step is done.
fn close_until(world: &World, to: &Path, step: &str) {
    for most in 1.. {
        let (_, done) = close_some(world, JUNE, to, most);
        if done.last().is_some_and(|last| last.starts_with(step)) {
            return;
        }
    }
}

fn only(folder: &Path) -> PathBuf {
    let [file]: [PathBuf; 1] = files(folder).try_into().unwrap();
    file
}

/// Adds a byte to a file.
fn change(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    bytes.push(b'\n');
    fs::write(file, bytes).unwrap();
}

/// Removes what is written as soon as decisions are counted.
struct Remover<'a>(&'a Path);

impl Listener for Remover<'_> {
    fn done(&mut self, step: &Step<'_>) -> Result<(), Fault> {
        if matches!(step, Step::Counted(_)) {
            for file in files(self.0) {
                fs::remove_file(file).unwrap();
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_file_that_is_gone_or_changed_is_written_again_while_all_rows_are_there() {
    let ThreeMonths { world, decisions, .. } = three_months().await;
    let folder = tempdir().unwrap();
    stop(&world);
    let before = rows(&world);
    close_until(&world, folder.path(), "Written");
    fs::remove_file(only(folder.path())).unwrap();
    close_until(&world, folder.path(), "Written");
    let changed = only(folder.path());
    change(&changed);
    let now = [world.clock.now(); 2];
    let lost =
        close_by(&world, JUNE, folder.path(), now, &mut Remover(folder.path())).unwrap_err().to_string();
    assert!(lost.contains("No row is deleted without it"), "{lost}");
    assert_eq!((rows(&world), files(folder.path())), (before, Vec::new()));
    close(&world, "2026-06", folder.path()).unwrap();
    let wanted = DecisionId::parse(decisions["denied"]["decision"].as_str().unwrap()).unwrap();
    let has_it = apart::on_a_thread(|| files_with(&world.database, wanted)).unwrap();
    assert_eq!((has_it[0].found.path(), &has_it[0].unreadable), (only(folder.path()), &None));
    assert_eq!(found(&world.database), Vec::<String>::new());
}

#[tokio::test]
async fn no_row_is_deleted_while_a_file_is_gone_or_changed() {
    let ThreeMonths { world, .. } = three_months().await;
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    stop(&world);
    close_until(&world, folder.path(), "Ready");
    let (before, file, away) = (rows(&world), only(folder.path()), other.path().join("away"));
    fs::rename(&file, &away).unwrap();
    let gone = refused(&world, "2026-06", folder.path());
    assert!(gone.contains(file.to_str().unwrap()) && gone.contains("put it back"), "{gone}");
    fs::copy(&away, &file).unwrap();
    change(&file);
    let changed = refused(&world, "2026-06", folder.path());
    assert!(changed.contains(" has changed: its SHA-256 is "), "{changed}");
    let moved = refused(&world, "2026-06", other.path());
    assert!(moved.starts_with("closing 2026-06 deletes rows that are in files in "), "{moved}");
    assert_eq!(rows(&world), before);
    fs::rename(&away, &file).unwrap();
    close(&world, "2026-06", folder.path()).unwrap();
    assert!(rows(&world)["decisions"] < before["decisions"]);
}

#[tokio::test]
async fn while_all_rows_are_there_a_closing_goes_on_with_another_directory() {
    let ThreeMonths { world, .. } = three_months().await;
    let (folder, other) = (tempdir().unwrap(), tempdir().unwrap());
    stop(&world);
    close_until(&world, folder.path(), "Counted");
    let closed = close(&world, "2026-06", other.path()).unwrap();
    assert!(only(other.path()).starts_with(&closed.directory), "{closed:?}");
    let directory = world.number("SELECT count(DISTINCT file) FROM closed_months");
    assert_eq!(directory, 1);
    assert!(refused(&world, "2026-06", folder.path()).ends_with(&closed.directory));
}

#[tokio::test]
async fn files_that_have_less_than_is_counted_end_a_closing() {
    let ThreeMonths { world, .. } = three_months().await;
    let folder = tempdir().unwrap();
    stop(&world);
    let before = rows(&world);
    close_until(&world, folder.path(), "Written");
    world.change("UPDATE closed_months SET rows = rows - 1");
    let less = refused(&world, "2026-06", folder.path());
    assert!(less.contains("9 decisions of 2026-06, and 8 in its file"), "{less}");
    assert_eq!(rows(&world), before);
    let other = tempdir().unwrap();
    close(&world, "2026-06", other.path()).unwrap();
}

#[tokio::test]
async fn a_month_that_is_not_over_or_not_the_next_is_refused() {
    let ThreeMonths { mut world, a, .. } = three_months().await;
    let folder = tempfile::tempdir().unwrap();
    if crate::KIND == Kind::Sqlite {
        assert!(refused(&world, "2026-06", folder.path()).contains(" belongs to process "));
    }
    stop(&world);
    for early in ["2026-07", "2026-08", "2026-09"] {
        let wanted =
            format!("month must be before 2026-07, the last one by this machine's clock; got `{early}`");
        assert!(refused(&world, early, folder.path()).starts_with(&wanted), "{early}");
    }
    world.clock.advance(31 * DAY);
    reopen(&mut world);
    world.ask(&a, "60").await;
    stop(&world);
    for other in ["2026-05", "2026-07"] {
        let order = refused(&world, other, folder.path());
        assert!(order.starts_with("month must be 2026-06, the next one: dec_"), "{order}");
        assert!(order.contains(&format!("; got `{other}`")), "{order}");
    }
    assert_eq!(close_some(&world, JUNE, folder.path(), 1).1, ["Begun"]);
    let unfinished = refused(&world, "2026-05", folder.path());
    assert!(unfinished.starts_with("closing 2026-06 was cut short: run "), "{unfinished}");
    close(&world, "2026-06", folder.path()).unwrap();
    for other in ["2025-12", "2026-05"] {
        let order = refused(&world, other, folder.path());
        assert!(order.starts_with("month must be 2026-07, the next one: dec_"), "{order}");
    }
    assert_eq!(world.number("SELECT count(*) FROM closings"), 1);
    close(&world, "2026-07", folder.path()).unwrap();
}

#[tokio::test]
async fn no_clock_that_is_ahead_closes_a_month_in_which_servers_decide() {
    let ThreeMonths { world, .. } = three_months().await;
    let folder = tempdir().unwrap();
    stop(&world);
    let (now, ahead) = (world.clock.now(), Timestamp::parse("2026-10-20T00:00:00Z").unwrap());
    let mut steps = Remover(folder.path());
    let databases = match crate::KIND {
        Kind::Sqlite => "the newest decision",
        Kind::Postgres => "the database's clock",
    };
    for (clocks, by) in [([ahead, now], databases), ([ahead, ahead], "the newest decision")] {
        for month in ["2026-07", "2026-08"] {
            let early =
                close_by(&world, (month, 3), folder.path(), clocks, &mut steps).unwrap_err().to_string();
            assert!(
                early.starts_with(&format!("month must be before 2026-07, the last one by {by}; ")),
                "{early}"
            );
        }
    }
    let behind =
        close_by(&world, ("2026-06", 3), folder.path(), [now.plus_seconds(-90 * 86_400), now], &mut steps);
    assert!(behind.unwrap_err().to_string().contains("by this machine's clock"));
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    if crate::KIND == Kind::Postgres {
        close_by(&world, JUNE, folder.path(), [ahead, now], &mut Steady).unwrap();
        assert_eq!(world.number("SELECT began_at FROM closings"), now.millis());
    }
}

/// Otherwise the closed month would be the next one to close, for ever.
#[tokio::test]
async fn a_clock_that_is_set_back_into_a_closed_month_leaves_the_next_one_to_be_closed() {
    let ThreeMonths { mut world, a, .. } = three_months().await;
    let folder = tempdir().unwrap();
    stop(&world);
    close(&world, "2026-06", folder.path()).unwrap();
    world.set_back(world.clock.now().millis_since(Timestamp::parse("2026-06-25T00:00:00Z").unwrap()) / 1_000);
    reopen(&mut world);
    let late = world.agent("late").await;
    for agent in [&late, &late, &a] {
        let asked = world.ask(agent, "1").await;
        let id = DecisionId::parse(asked["decision"].as_str().unwrap()).unwrap();
        assert!(id.created_at() >= Timestamp::parse("2026-07-01T00:00:00Z").unwrap(), "{asked}");
    }
    go_to(&world, "2026-09-20T00:00:00Z");
    for agent in [&late, &a] {
        world.ask(agent, "1").await;
    }
    stop(&world);
    assert_eq!(found(&world.database), Vec::<String>::new());
    close(&world, "2026-07", folder.path()).unwrap();
    close(&world, "2026-07", folder.path()).unwrap_err();
    assert_eq!(found(&world.database), Vec::<String>::new());
}

/// The approval is what the server decides first.
#[tokio::test]
async fn an_approval_by_a_clock_that_is_set_back_into_a_closed_month_is_in_the_next_one() {
    let mut world = World::new().await;
    let folder = tempdir().unwrap();
    stop(&world);
    world.engine = Arc::new(Engine::new(world.keyring.clone(), Arc::clone(&world.moments), 90 * 86_400));
    world.store = apart::open(&world.database, Arc::clone(&world.engine) as _).unwrap();
    let (agent, other) = (world.agent("a").await, world.agent("b").await);
    world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    let waits = world.ask(&agent, "210").await;
    world.ask(&other, "1").await;
    go_to(&world, "2026-08-20T00:00:00Z");
    world.ask(&other, "1").await;
    stop(&world);
    close(&world, "2026-06", folder.path()).unwrap();
    world.set_back(world.clock.now().millis_since(Timestamp::parse("2026-06-25T00:00:00Z").unwrap()) / 1_000);
    reopen(&mut world);
    let approved = json(&world.approve(&waits["review"]["id"]).await);
    let id = DecisionId::parse(approved["decision"].as_str().unwrap()).unwrap();
    assert!(id.created_at() >= Timestamp::parse("2026-07-01T00:00:00Z").unwrap(), "{approved}");
    go_to(&world, "2026-10-20T00:00:00Z");
    world.ask(&other, "1").await;
    stop(&world);
    // On SQLite ids follow the newest, which was in August.
    let next = if crate::KIND == Kind::Postgres { "2026-07" } else { "2026-08" };
    close(&world, next, folder.path()).unwrap();
    assert_eq!(found(&world.database), Vec::<String>::new());
}

/// Lets a closing go on.
struct Steady;

impl Listener for Steady {
    fn done(&mut self, _: &Step<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

/// What resolves a review may have looked at the clock before the closing began, and commit after its file was written.
#[tokio::test]
async fn a_review_that_is_answered_while_a_month_is_closed_stays() {
    let mut world = World::new().await;
    let folder = tempdir().unwrap();
    stop(&world);
    world.engine = Arc::new(Engine::new(world.keyring.clone(), Arc::clone(&world.moments), 90 * 86_400));
    world.store = apart::open(&world.database, Arc::clone(&world.engine) as _).unwrap();
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    let [before, meanwhile] = [world.ask(&agent, "210").await, world.ask(&agent, "220").await];
    assert_eq!(world.deny(&before["review"]["id"], None).await.status, 200);
    go_to(&world, "2026-08-20T00:00:00Z");
    world.ask(&agent, "1").await;
    world.clock.advance(60);
    stop(&world);
    close_until(&world, folder.path(), "Written");
    world.clock.step(-10);
    reopen(&mut world);
    assert_eq!(world.deny(&meanwhile["review"]["id"], None).await.status, 200);
    stop(&world);
    world.clock.step(10);
    close(&world, "2026-06", folder.path()).unwrap();
    assert_eq!(found(&world.database), Vec::<String>::new());
    reopen(&mut world);
    assert!(shown(&world, &agent, &before["decision"]).await.is_none());
    let stays = shown(&world, &agent, &meanwhile["decision"]).await.unwrap();
    assert_eq!(stays["review"]["status"], "denied");
}

#[tokio::test]
async fn a_check_holds_the_files_of_closed_months_against_openings() {
    let ThreeMonths { world, .. } = three_months().await;
    let folder = tempdir().unwrap();
    stop(&world);
    close(&world, "2026-06", folder.path()).unwrap();
    assert_eq!(found(&world.database), Vec::<String>::new());
    world.change("UPDATE closed_months SET rows = rows + 1");
    assert_eq!(found(&world.database), ["closed_months: 10 decisions in all files"]);
    world.change("UPDATE closed_months SET rows = rows - 1, last_decision = first_decision");
    let openings = found(&world.database);
    assert!(openings.iter().all(|found| found.starts_with("openings: up to decision dec_")), "{openings:?}");
    assert!(!openings.is_empty());
    world.change("UPDATE closed_months SET last_decision = (SELECT behind FROM closings)");
    let beyond = found(&world.database);
    assert!(
        matches!(&beyond[..], [file] if file.starts_with("closed_months: the file acme-sandbox-")),
        "{beyond:?}"
    );
    world.change("DELETE FROM closed_months");
    let lost = found(&world.database);
    assert!(lost.contains(&"closed_months: 0 decisions in all files".to_owned()), "{lost:?}");
    let entries = "logs: 6 entries of decisions that are not there";
    assert!(lost.iter().any(|found| found == entries), "{lost:?}");
    assert_eq!(lost.len(), 4, "and each agent's opening: {lost:?}");
}
