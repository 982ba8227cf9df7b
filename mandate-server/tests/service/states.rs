//! On state in memory or on state just read: the log is the same, and each decision rests on those before it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use mandate_core::{AgentId, EnvironmentKind, RecentRequests, Total, Verdict};
use mandate_server::admin::organization;
use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::model::call::Caller;
use mandate_server::model::records::AgentKey;
use mandate_server::model::records::Mode;
use mandate_server::service::enforcement;
use mandate_server::service::organizations;
use mandate_server::store::Authorization;
use mandate_server::store::sql::decisions::{self, Filter, Whole};
use mandate_server::store::{self, sql};

use crate::apart;
use crate::check::found;
use crate::oracle;
use crate::rotation::{Random, number};
use crate::world::{World, claim, claim_at, json, random_key};
use mandate_core::api_key::KeyClass;

/// An end of mandates that no campaign comes to.
const LATE: &str = "2099-12-31";
/// What happens in the course of a campaign of scale 1.
const STEPS: i64 = 300;
/// Tasks that ask at once, and how often each does.
const TASKS: u64 = 24;
const ASKED: i64 = 12;
const AGENTS: usize = 3;

pub(crate) fn campaign(name: &str) -> (Random, i64) {
    let seed = number("MANDATE_TEST_SEED").unwrap_or_else(|| RandomState::new().hash_one(name));
    println!("{name}: repeat with MANDATE_TEST_SEED={seed}");
    (Random(seed), number("MANDATE_TEST_SCALE").map_or(1, |scale| i64::try_from(scale).unwrap()))
}

pub(crate) fn below(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(i64::try_from(bound).unwrap())).unwrap()
}

/// An operator's command writes beside the server, which forgets all that it has in memory.
fn interfere(world: &World, number: i64) {
    let name = mandate_core::AgentName::parse(&format!("other-{number}")).unwrap();
    let created = organization::draw(name, world.clock.now(), &SystemEntropy);
    store::run_once(&world.database, |tx| organizations::create(tx, &created)).unwrap().unwrap();
}

pub(crate) async fn switch(world: &World, mode: Mode) {
    let (call, now) = (world.call(&world.organization), world.clock.now());
    let answer = world.write(call, move |tx, call| enforcement::set(tx, call, mode, now)).await;
    assert_eq!(answer.status, 200);
}

/// The log, oldest first.
pub(crate) async fn log(world: &World) -> Vec<Whole> {
    let environment = world.organization.environment.id;
    let read = world
        .store
        .read(move |tx| decisions::onward(tx, environment, &Filter::default(), [0; 16], 1_000_000));
    read.await.unwrap().unwrap()
}

/// A decision without what is drawn for it.
fn summary(whole: &Whole) -> String {
    let d = &whole.decision;
    let review = whole.review.as_ref().map(|review| review.status);
    let mandate = d.mandate.map(|mandate| mandate.to_string()).unwrap_or_default();
    let reason = d.reason.as_ref().map(|reason| reason.replace(&mandate, "it"));
    format!(
        "{} {} {:?} {} {:?} {:?} {} {} {:?} {review:?} {}",
        d.decided_at.seconds(),
        d.verdict,
        d.request,
        d.mode.as_str(),
        reason,
        d.denials,
        d.basis.spent,
        d.basis.recent_requests,
        d.supersedes.is_some(),
        d.mandate.is_some(),
    )
}

/// One life of a world. What is random comes from `random` alone, so that two worlds can live the same; `disturbed`, with
/// another process writing before each request.
async fn live(mut random: Random, steps: i64, disturbed: bool) -> Vec<String> {
    let world = World::of(EnvironmentKind::Sandbox).await;
    let key = random_key(KeyClass::Agent);
    let mut agents: Vec<Arc<Caller>> = Vec::new();
    for name in 0..AGENTS {
        agents.push(world.agent(&format!("a{name}")).await);
    }
    let (mut mandates, mut pending, mut asked) = (Vec::new(), Vec::new(), HashMap::new());
    let mut answers = Vec::new();
    for step in 0..steps {
        let agent = &agents[below(&mut random, AGENTS)];
        match random.below(16) {
            0 | 1 => mandates.push(world.mandate_until(LATE, agent, 900, r#","review_above":200"#).await),
            2 if !mandates.is_empty() => {
                let mandate = &mandates[below(&mut random, mandates.len())];
                world.revoke(mandate).await;
            }
            3 => switch(&world, if random.below(2) == 0 { Mode::Observe } else { Mode::Enforce }).await,
            4 if !pending.is_empty() => {
                let review = pending.swap_remove(below(&mut random, pending.len()));
                // It may have expired.
                answers.push(world.approve(&review).await.status.to_string());
            }
            5 => world.clock.advance([1, 7, 20, 86_400, 12 * 86_400][below(&mut random, 5)]),
            kind => {
                if disturbed {
                    interfere(&world, step);
                }
                let amount = [1, 40, 150, 250, 501][below(&mut random, 5)].to_string();
                let mut call = world.call(agent);
                if kind < 9 {
                    let name = format!("key-{}", random.below(40));
                    let body = format!("{amount} {:?}", agent.agent);
                    call.idempotency = Some(claim_at(&name, &body, &key, world.clock.now()));
                    let now = world.clock.now();
                    let answer = world.decide(call, &amount).await;
                    let kept =
                        asked.entry((agent.key, name)).or_insert_with(|| (body.clone(), now, answer.clone()));
                    if now.millis_since(kept.1) >= 86_400_000 {
                        *kept = (body.clone(), now, answer.clone());
                    }
                    let wanted =
                        if kept.0 == body { kept.2.body == answer.body } else { answer.status == 409 };
                    assert!(wanted, "{answer:?}");
                    answers.push(format!("{} {}", answer.status, answer.replayed));
                } else {
                    let answer = json(&world.decide(call, &amount).await);
                    pending.extend(answer.get("review").map(|review| review["id"].clone()));
                    answers.push(answer["verdict"].to_string());
                }
            }
        }
        if random.below(8) == 0 {
            pending.clear();
        }
    }
    answers.extend(log(&world).await.iter().map(summary));
    sound(&world).await;
    answers
}

/// Each decision rests on those before it, exactly; and a whole check finds nothing.
async fn sound(world: &World) {
    rests(world).await;
    world.store.close();
    assert_eq!(found(&world.database), [""; 0]);
    // And once more when everything is counted.
    let environment = world.organization.environment.id;
    let counted = store::run_once(&world.database, |tx| {
        for number in 0..AGENTS {
            let agent = AgentId::parse(&format!("agt_a{number}")).unwrap();
            let agent = AgentKey { environment, agent };
            sql::agents::lock(tx, &agent)?;
            assert_eq!(sql::uncounted::find(tx, &agent)?.len(), 0);
        }
        Ok(())
    });
    counted.unwrap().unwrap();
    oracle::holds(&world.database);
}

/// Each decision rests on those before it, exactly.
pub(crate) async fn rests(world: &World) {
    let mut spent: BTreeMap<_, Total> = BTreeMap::new();
    let mut recent: BTreeMap<_, RecentRequests> = BTreeMap::new();
    for Whole { decision, .. } in log(world).await {
        let (agent, at) = (decision.request.agent.clone(), decision.decided_at);
        let spent = spent.entry((agent.clone(), at.month(), decision.request.currency.clone())).or_default();
        let recent = recent.entry(agent).or_default();
        assert_eq!(decision.basis.spent, *spent, "{}", decision.id);
        assert_eq!(decision.basis.recent_requests, recent.count_at(at), "{}", decision.id);
        if decision.verdict == Verdict::Allow {
            *spent = spent.plus(decision.request.amount);
        }
        if decision.supersedes.is_none() {
            recent.record(at);
        }
    }
}

#[tokio::test]
async fn on_state_in_memory_or_just_read_the_log_is_the_same() {
    let (random, scale) = campaign("states");
    let in_memory = live(Random(random.0), STEPS * scale, false).await;
    let just_read = live(random, STEPS * scale, true).await;
    assert!(in_memory.len() > 300, "{}", in_memory.len());
    assert_eq!(in_memory, just_read);
}

/// Asks over and over for agents that others ask for too, now and then under a key that others send too.
async fn ask_on(world: Arc<World>, agents: Vec<Arc<Caller>>, mut random: Random, times: i64) {
    let key = random_key(KeyClass::Agent);
    for _ in 0..times {
        let agent = &agents[below(&mut random, agents.len())];
        let mut call = world.call(agent);
        if random.below(3) == 0 {
            call.idempotency = Some(claim(&format!("key-{}", random.below(5)), "{}", &key));
        }
        let amount = [1, 40, 250][below(&mut random, 3)].to_string();
        let answer = world.decide(call, &amount).await;
        assert_eq!(answer.status, 201);
        if random.below(4) == 0
            && !answer.replayed
            && let Some(review) = json(&answer).get("review")
        {
            assert_eq!(world.approve(&review["id"]).await.status, 201);
        }
    }
}

/// Changes what decides, meanwhile.
async fn change(world: Arc<World>, agents: Vec<Arc<Caller>>, mut random: Random, times: i64) {
    let first = random.below(1_000_000);
    for number in 0..times {
        world.clock.advance(7);
        let agent = &agents[below(&mut random, agents.len())];
        match random.below(5) {
            0 | 1 => _ = world.mandate_until(LATE, agent, 100_000, r#","review_above":200"#).await,
            2 => _ = world.revoke(&world.mandate_until(LATE, agent, 100_000, "").await).await,
            3 => switch(&world, if random.below(2) == 0 { Mode::Observe } else { Mode::Enforce }).await,
            _ => {
                let other = Arc::clone(&world);
                tokio::task::spawn_blocking(move || interfere(&other, first + number)).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_goes_on_beside_it_each_decision_rests_on_those_before_it() {
    let (mut random, scale) = campaign("beside");
    let world = Arc::new(World::new().await);
    let mut agents = Vec::new();
    for name in 0..AGENTS {
        agents.push(world.agent(&format!("a{name}")).await);
    }
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let seed = Random(u64::try_from(random.below(i64::MAX >> 32)).unwrap());
        tasks.push(tokio::spawn(ask_on(Arc::clone(&world), agents.clone(), seed, ASKED * scale)));
    }
    let seed = Random(u64::try_from(random.below(i64::MAX >> 32)).unwrap());
    tasks.push(tokio::spawn(change(Arc::clone(&world), agents, seed, ASKED * scale)));
    for task in tasks {
        task.await.unwrap();
    }
    assert!(log(&world).await.len() > 100);
    sound(&world).await;
}

#[tokio::test]
async fn a_decision_that_cannot_be_written_harms_no_other_in_its_batch() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let spoil = "CREATE TRIGGER spoil BEFORE INSERT ON decisions WHEN NEW.amount = '13'
        BEGIN SELECT raise(ABORT, 'spoilt'); END";
    world.change(spoil);
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");

    // The writer is held until all of them wait, for one batch.
    let (release, gate) = std::sync::mpsc::channel();
    let gate = std::sync::Mutex::new(gate);
    let hold = world.store.write(move |_| {
        gate.lock().unwrap().recv().unwrap();
        Ok(())
    });
    let call = world.call(&agent);
    let spoilt = Authorization::new(call, Ok(World::request(&agent, "13")));
    let (_, first, spoilt, second, ()) = tokio::join!(
        hold,
        world.ask(&agent, "2"),
        world.store.decide(spoilt),
        world.ask(&agent, "3"),
        async { release.send(()).unwrap() },
    );
    assert!(spoilt.unwrap_err().to_string().contains("spoilt"));
    for (asked, spent, recent) in [(first, 1, 1), (second, 3, 2)] {
        assert_eq!(asked["verdict"], "allow");
        let basis = world.decision(&agent, &asked["decision"]).await["basis"].clone();
        assert_eq!(basis, serde_json::json!({"spent": spent, "recent_requests": recent}), "decided once");
    }
    world.store.close();
    assert_eq!(oracle::holds(&world.database), 3);
}

/// Both would go on, each from what it has in memory.
#[tokio::test]
async fn a_server_whose_lock_was_deleted_stops_when_another_has_written() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    world.ask(&agent, "1").await;
    let lock = format!("{}-server", world.database.strip_prefix("sqlite://").unwrap());
    std::fs::remove_file(lock).unwrap();
    assert!(world.store.is_lost() && !world.store.has_stopped(), "nothing is asked of it");
    let second = apart::open(&world.database, Arc::clone(&world.engine) as _).unwrap();
    let ask = async |store: &store::Store| {
        store.decide(Authorization::new(world.call(&agent), Ok(World::request(&agent, "1")))).await
    };
    assert_eq!(ask(&second).await.unwrap().status, 201);
    for _ in 0..2 {
        let stopped = ask(&world.store).await.unwrap_err().to_string();
        assert!(stopped.starts_with("the store has stopped"), "{stopped}");
        assert!(world.store.has_stopped());
    }
    assert_eq!(ask(&second).await.unwrap().status, 201);
    world.store.close();
    assert_eq!(ask(&second).await.unwrap().status, 201);
    second.close();
    assert_eq!(found(&world.database), Vec::<String>::new());
    assert_eq!(world.number("SELECT count(*) FROM decisions"), 4);
}

/// What is written there would be lost, or beside another server.
#[tokio::test]
async fn a_server_whose_lock_or_database_is_not_found_decides_nothing_more() {
    for (suffix, how) in ["-server", "-wal", ""]
        .into_iter()
        .flat_map(|suffix| [(suffix, "gone"), (suffix, "copy"), (suffix, "link")])
    {
        let world = World::new().await;
        let agent = world.agent("a").await;
        world.mandate(&agent, 1_000, "").await;
        world.ask(&agent, "1").await;
        assert!(!world.store.is_lost());
        let name = format!("{}{suffix}", world.database.strip_prefix("sqlite://").unwrap());
        let aside = format!("{name}-aside");
        std::fs::rename(&name, &aside).unwrap();
        match how {
            "copy" => _ = std::fs::copy(&aside, &name).unwrap(),
            "link" => std::os::unix::fs::symlink(&aside, &name).unwrap(),
            _ => {}
        }
        assert!(world.store.is_lost() && !world.store.has_stopped(), "{name} {how}: nothing has been asked");
        for _ in 0..2 {
            let call = world.call(&agent);
            let asked = world.store.decide(Authorization::new(call, Ok(World::request(&agent, "1")))).await;
            let stopped = asked.unwrap_err().to_string();
            assert!(stopped.starts_with("the store has stopped") && world.store.has_stopped(), "{stopped}");
        }
        std::fs::rename(&aside, &name).unwrap();
        world.store.close();
        assert_eq!(found(&world.database), Vec::<String>::new());
        assert_eq!(world.number("SELECT count(*) FROM decisions"), 1, "{name}");
    }
}
