//! The decisions that no agent's rows count yet: every reader sees all of it, whatever was interrupted.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use mandate_core::json::Object;
use mandate_core::{DecisionId, Request};
use mandate_server::clock::{Clock, Ids, SystemEntropy, TestClock};
use mandate_server::error::Fault;
use mandate_server::model::call::Caller;
use mandate_server::model::records::{AgentKey, Direction, Mode, Slice};
use mandate_server::service::decide::Engine;
use mandate_server::service::moments::Moments;
use mandate_server::store::Authorization;
use mandate_server::store::sql::decisions::{self, Filter};
use mandate_server::store::sql::log_end;
use mandate_server::store::uncounted::MAX_UNCOUNTED;
use mandate_server::store::uncounted::Uncounted;
use tempfile::TempDir;

use crate::apart;
use crate::check::found;
use crate::oracle;
use crate::rotation::Random;
use crate::states::{below, campaign, log, rests, switch};
use crate::world::World;

/// What happens in the course of a campaign of scale 1.
const STEPS: i64 = 240;

/// What is in no agent's rows, as another process sees it.
fn all_uncounted(world: &World) -> Vec<(AgentKey, DecisionId)> {
    apart::snapshot(&world.database, log_end::all).unwrap()
}

async fn agents(world: &World, count: usize) -> Vec<Arc<Caller>> {
    let mut agents = Vec::new();
    for number in 0..count {
        let agent = world.agent(&format!("a{number}")).await;
        world.mandate(&agent, 1_000_000, r#","review_above":200"#).await;
        agents.push(agent);
    }
    agents
}

/// The world as the disk has it when the machine stops now: another server opens a copy of what lies there.
fn crash(world: &mut World) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = world.database.strip_prefix("sqlite://").unwrap().to_owned();
    let to = folder.path().join("mandate.db");
    for suffix in ["", "-wal"] {
        if Path::new(&format!("{from}{suffix}")).exists() {
            std::fs::copy(format!("{from}{suffix}"), format!("{}{suffix}", to.display())).unwrap();
        }
    }
    world.store.close();
    world.database = format!("sqlite://{}", to.display());
    world.store = apart::open(&world.database, Arc::clone(&world.engine) as _).unwrap();
    folder
}

fn open_again(world: &mut World) {
    world.store.close();
    world.store = apart::open(&world.database, Arc::clone(&world.engine) as _).unwrap();
}

/// All that a list of the agent's decisions and an export of them have, in pieces of `limit`.
async fn listed(world: &World, agent: &Caller, limit: i64) -> [Vec<DecisionId>; 3] {
    let environment = agent.environment.id;
    let filter = Filter { agent: agent.agent.clone(), ..Filter::default() };
    let now = world.call(&world.organization).at;
    let read = world.store.read(move |tx| {
        let walk = |tx: &mut _, direction, mut from| {
            let mut all = Vec::new();
            loop {
                let slice = Slice { direction, from, limit };
                let found = decisions::search(tx, environment, &filter, &slice, now, 1_000).unwrap();
                let Some(last) = found.ids.last() else { return all };
                from = last.to_bytes();
                all.extend(found.ids);
            }
        };
        let older = walk(tx, Direction::Older, [0xff; 16]);
        let newer = walk(tx, Direction::Newer, [0; 16]);
        let (mut onward, mut after) = (Vec::new(), [0; 16]);
        loop {
            let page = decisions::onward(tx, environment, &filter, after, limit).unwrap();
            let Some(last) = page.last() else { break };
            after = last.decision.id.to_bytes();
            onward.extend(page.iter().map(|whole| whole.decision.id));
        }
        [older, newer, onward]
    });
    read.await.unwrap()
}

/// Each agent's lists are the log, without what is of others.
async fn lists_are_whole(world: &World, agents: &[Arc<Caller>], random: &mut Random) {
    let log = log(world).await;
    for agent in agents {
        let own = log.iter().map(|whole| &whole.decision);
        let own = own.filter(|decision| Some(&decision.request.agent) == agent.agent.as_ref());
        let own: Vec<_> = own.map(|decision| decision.id).collect();
        let [mut older, newer, onward] = listed(world, agent, 1 + random.below(20)).await;
        older.reverse();
        assert_eq!((&older, &newer, &onward), (&own, &own, &own));
    }
}

#[tokio::test]
async fn an_agents_decisions_are_all_there_whatever_was_interrupted() {
    let (mut random, scale) = campaign("uncounted");
    let mut world = World::new().await;
    let agents = agents(&world, 4).await;
    let (mut folders, mut pending, mut uncounted_before_a_crash) = (Vec::new(), Vec::new(), 0);
    for step in 0..STEPS * scale {
        match random.below(40) {
            0 => {
                uncounted_before_a_crash += all_uncounted(&world).len();
                folders.push(crash(&mut world));
            }
            1 => {
                open_again(&mut world);
                assert_eq!(all_uncounted(&world), []);
            }
            2 => world.clock.advance([1, 30, 86_400, 20 * 86_400][below(&mut random, 4)]),
            3 if !pending.is_empty() => {
                let review = pending.swap_remove(below(&mut random, pending.len()));
                world.approve(&review).await;
            }
            _ => {
                // One asks seldom.
                let agent = &agents[[0, 0, 0, 1, 1, 2, 2][below(&mut random, 7)]];
                let agent = if step % 30 == 0 { &agents[3] } else { agent };
                world.clock.advance(i64::from(step % 3 == 0));
                let answer = world.ask(agent, ["1", "250"][below(&mut random, 2)]).await;
                pending.extend(answer.get("review").map(|review| review["id"].clone()));
            }
        }
        if step % 12 == 0 {
            lists_are_whole(&world, &agents, &mut random).await;
        }
        assert!(all_uncounted(&world).len() < agents.len() * MAX_UNCOUNTED);
    }
    assert!(uncounted_before_a_crash > 10, "{uncounted_before_a_crash}");
    rests(&world).await;
    oracle::holds(&world.database);
    world.store.close();
    oracle::holds(&world.database);
    assert_eq!(all_uncounted(&world), []);
}

#[tokio::test]
async fn what_is_oldest_is_counted_when_too_many_are_uncounted() {
    for (span, most) in [(12, 64), (1_000, 3)] {
        let mut world = World::new().await;
        let agents = agents(&world, 8).await;
        world.store.close();
        let uncounted = Uncounted::bounded(span, most);
        world.store =
            apart::open_bounded(&world.database, Arc::clone(&world.engine) as _, uncounted).unwrap();
        for round in 0..40 {
            for agent in &agents {
                // One asks twice, and is not heard of any more.
                if round < 2 || !Arc::ptr_eq(agent, &agents[0]) {
                    world.ask(agent, "1").await;
                }
                let left = all_uncounted(&world);
                let mut who: Vec<_> = left.iter().map(|(agent, _)| agent).collect();
                who.sort();
                who.dedup();
                // What the newest has added is counted with the next.
                assert!(left.len() <= 14 && who.len() <= most + 1, "{round}: {left:?}");
            }
            world.clock.advance(7);
        }
        assert!(!all_uncounted(&world).is_empty());
        assert!(all_uncounted(&world).iter().all(|(key, _)| Some(&key.agent) != agents[0].agent.as_ref()));
        rests(&world).await;
        // Those that were left by another server, and are known to no server.
        let _folder = crash(&mut world);
        world.store.close();
        let uncounted = Uncounted::bounded(1, 1);
        world.store =
            apart::open_bounded(&world.database, Arc::clone(&world.engine) as _, uncounted).unwrap();
        for agent in agents.iter().cycle().take(24) {
            world.ask(agent, "1").await;
        }
        assert!(all_uncounted(&world).len() <= 2);
        rests(&world).await;
        world.store.close();
        oracle::holds(&world.database);
    }
}

/// Rounds in which modes change while agents are counted, in a campaign of scale 1.
const CHANGES: i64 = 40;

#[tokio::test]
async fn what_is_counted_for_its_age_is_not_lost_when_modes_change_meanwhile() {
    let (mut random, scale) = campaign("age");
    let mut world = World::new().await;
    let agents = agents(&world, 24).await;
    world.store.close();
    let uncounted = Uncounted::bounded(1_000, 3);
    world.store = apart::open_bounded(&world.database, Arc::clone(&world.engine) as _, uncounted).unwrap();
    let (last, others) = agents.split_last().unwrap();
    for round in 0..CHANGES * scale {
        // The first of a month is written at once, and those that it comes behind are not to be missing by then.
        world.clock.advance(32 * 86_400);
        for agent in &agents {
            world.ask(agent, "1").await;
        }
        join_all(others.iter().map(|agent| world.ask(agent, "1"))).await;
        // The next batch counts them. It is decided on while the mode changes, and may know of the one before.
        let mode = if round % 2 == 0 { Mode::Observe } else { Mode::Enforce };
        let pause = random.below(100);
        let asks = async {
            for _ in 0..pause {
                tokio::task::yield_now().await;
            }
            world.ask(last, "1").await
        };
        tokio::join!(switch(&world, mode), asks);
    }
    world.clock.advance(32 * 86_400);
    for agent in &agents {
        world.ask(agent, "1").await;
    }
    rests(&world).await;
    lists_are_whole(&world, &agents, &mut random).await;
    world.store.close();
    oracle::holds(&world.database);
}

#[tokio::test]
async fn the_end_of_the_log_that_is_read_at_a_start_stays_short() {
    let mut world = World::new().await;
    let agents = agents(&world, 3).await;
    let since = |world: &World| apart::snapshot(&world.database, log_end::since).unwrap();
    for _ in 0..3 {
        world.ask(&agents[0], "1").await;
    }
    let quiet = all_uncounted(&world);
    assert_eq!(quiet.len(), 2, "the first is written with its metering");
    let _folder = crash(&mut world);
    world.store.close();
    let uncounted = Uncounted::bounded(64, 8);
    world.store = apart::open_bounded(&world.database, Arc::clone(&world.engine) as _, uncounted).unwrap();
    // All load is on two agents: what the third lacks is written, and where the rest begins.
    for agent in agents[1..].iter().cycle().take(100) {
        world.ask(agent, "1").await;
    }
    let first = agents[0].agent.clone().unwrap();
    assert!(all_uncounted(&world).iter().all(|(key, _)| key.agent != first));
    assert!(since(&world) > Some(quiet[1].1));
    let read = log(&world).await.iter().filter(|whole| Some(whole.decision.id) > since(&world)).count();
    assert!(read <= 70, "{read} decisions are read");
    lists_are_whole(&world, &agents, &mut Random(1)).await;
    let _folder = crash(&mut world);
    assert_eq!(since(&world), all_uncounted(&world).first().map(|(_, id)| *id), "a start says so too");
    open_again(&mut world);
    let all = log(&world).await;
    assert_eq!(since(&world), all.last().map(|whole| whole.decision.id));
    world.store.close();
    oracle::holds(&world.database);
}

#[tokio::test]
async fn a_clock_that_is_set_back_hides_nothing_after_a_crash() {
    let mut world = World::new().await;
    let agents = agents(&world, 3).await;
    for agent in agents.iter().take(2) {
        world.ask(agent, "1").await;
    }
    // All are counted, and the database says that all before the newest decision are.
    let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
    let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&world.clock);
    world.engine = Arc::new(Engine::new(world.keyring.clone(), Arc::new(Moments::new(clock, ids)), 86_400));
    open_again(&mut world);
    world.set_back(3_600);
    for agent in [&agents[2], &agents[2], &agents[1]] {
        world.ask(agent, "1").await;
    }
    assert_eq!(all_uncounted(&world).len(), 2, "the first is written with its metering");
    let _folder = crash(&mut world);
    assert_eq!(all_uncounted(&world).len(), 2);
    world.clock.advance(7_200);
    for agent in &agents {
        world.ask(agent, "1").await;
    }
    world.store.close();
    oracle::holds(&world.database);
}

#[tokio::test]
async fn an_agents_rows_lack_no_more_for_approvals_than_for_requests() {
    let mut world = World::new().await;
    let agents = agents(&world, 1).await;
    let mut reviews = Vec::new();
    for _ in 0..2 * MAX_UNCOUNTED {
        reviews.push(world.ask(&agents[0], "300").await["review"]["id"].clone());
        world.clock.advance(7);
    }
    let mut most = 0;
    for review in &reviews {
        assert_eq!(world.approve(review).await.status, 201);
        most = most.max(all_uncounted(&world).len());
    }
    assert_eq!(most, MAX_UNCOUNTED - 1);
    open_again(&mut world);
    world.ask(&agents[0], "1").await;
    rests(&world).await;
    world.store.close();
    oracle::holds(&world.database);
}

/// Runs SQL on the file, beside the server. The server notices at its next request, which is a fault.
async fn beside(world: &World, agent: &Arc<Caller>, sql: &str) {
    let other = rusqlite::Connection::open(world.database.strip_prefix("sqlite://").unwrap()).unwrap();
    other.execute_batch(sql).unwrap();
    assert!(ask_in(world, agent, "USD").await.is_err());
}

/// Has an agent ask for one of a currency.
async fn ask_in(world: &World, agent: &Arc<Caller>, currency: &str) -> Result<u16, Fault> {
    let body = format!(r#"{{"amount":1,"currency":"{currency}","recipient":"vendor:v","category":"c"}}"#);
    let request = Request::read(agent.agent.clone().unwrap(), Object::parse(body.as_bytes()).unwrap());
    let asked = Authorization::new(world.call(agent), Ok(request.unwrap()));
    world.store.decide(asked).await.map(|answer| answer.status)
}

/// The metering is written before the agent's own row, which is not.
const OBSTRUCT: &str = "CREATE TRIGGER obstruct BEFORE UPDATE ON agents WHEN old.agent = 'agt_a0'
    BEGIN SELECT RAISE(IGNORE); END";
const FREE: &str = "DROP TRIGGER obstruct";

#[tokio::test]
async fn rows_that_cannot_all_be_written_are_not_written_at_all() {
    for (most, currencies) in [(1, 2), (64, 8)] {
        let mut world = World::new().await;
        let agents = agents(&world, 3).await;
        world.store.close();
        let uncounted = Uncounted::bounded(1_000, most);
        world.store =
            apart::open_bounded(&world.database, Arc::clone(&world.engine) as _, uncounted).unwrap();
        let currencies = &["USD", "EUR", "GBP", "CHF", "SEK", "NOK", "DKK", "PLN"][..currencies];
        // The first of a currency is counted with it, the second is not.
        for currency in currencies.iter().chain(currencies) {
            assert_eq!(ask_in(&world, &agents[0], currency).await.unwrap(), 201);
            world.clock.advance(7);
        }
        beside(&world, &agents[0], OBSTRUCT).await;
        if most == 1 {
            // Too many agents have uncounted decisions: the oldest are counted.
            for agent in [&agents[1], &agents[1], &agents[2], &agents[2], &agents[1]] {
                assert_eq!(ask_in(&world, agent, "USD").await.unwrap(), 201, "others are decided for");
                world.clock.advance(7);
            }
        } else {
            // So many currencies are in memory by then that one more has all be counted first.
            assert_eq!(ask_in(&world, &agents[0], "USD").await.unwrap(), 201);
            assert!(ask_in(&world, &agents[0], "CZK").await.is_err());
        }
        beside(&world, &agents[1], FREE).await;
        assert_eq!(ask_in(&world, &agents[0], "CZK").await.unwrap(), 201);
        rests(&world).await;
        world.store.close();
        oracle::holds(&world.database);
    }
}

/// What is in memory is written at the end, unless it is of another log by then.
#[tokio::test]
async fn what_another_program_has_changed_is_not_written_over_at_the_end() {
    let world = World::new().await;
    let agent = agents(&world, 1).await.remove(0);
    for _ in 0..3 {
        assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
    }
    let other = rusqlite::Connection::open(world.database.strip_prefix("sqlite://").unwrap()).unwrap();
    let newest = "DELETE FROM decisions WHERE decision = (SELECT max(decision) FROM decisions)";
    assert_eq!(other.execute(newest, []), Ok(1));
    drop(other);
    world.store.close();
    assert_eq!(found(&world.database), ["logs: 1 entries of decisions that are not there"]);
    // The first of a month is counted at once, the third is gone.
    assert_eq!(all_uncounted(&world).len(), 1);
}
