//! A lock on a row that a session outside of any server keeps: on an agent's it delays no other agent, on a webhook's no other
//! organization, and it makes nothing late.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mandate_tests::cluster::{OpenTransaction, query, run};
use mandate_tests::wait::{DEADLINE, until_async};
use serde_json::json;

use crate::wire::exchange;
use crate::world::{World, spend};

/// More agents than batch workers, so that some share that of the held agent.
const OTHERS: usize = 8;
/// Requests for the held agent.
const LATE: usize = 5;
/// So many held agents that trying them all takes longer than any other request should wait.
const MANY: usize = 100;
/// How long others wait at most while rows are held, with room for a slow machine. One wait for a lock may take 3 seconds.
const BRIEF: Duration = Duration::from_secs(6);
/// How long a request of another organization waits at most, while those of one meet a held row: one wait for a lock, with room
/// for a slow machine, and less than what the row is held for.
const PROMPT: Duration = Duration::from_secs(6);
/// Half of its requests are answered within this time: batches wait for the row once, not each.
const USUAL: Duration = Duration::from_secs(1);
/// Sessions that hold a row one after another, always one of them, and for how long each: longer together than one wait for
/// a lock may take, and shorter than a request waits.
const RELAY: usize = 4;
const HOLD: &str = "SELECT 1 FROM agents WHERE agent = 'agt_held' FOR UPDATE; SELECT pg_sleep(1.2)";
const RELAY_SECONDS: Duration = Duration::from_secs(16);
/// How long a row is held: longer than one wait for it may take, and shorter than a request waits.
const PATIENCE: Duration = Duration::from_secs(9);
/// Requests for one agent of two servers at once.
const HOT: usize = 200;
/// More scripts than threads that write.
const REVOCATIONS: usize = 12;
/// Agents that ask three servers at once, and how often each.
const ASKING: usize = 60;
const EACH: usize = 6;
/// A transaction that has written decisions takes a quarter of a second to be committed.
const SLOW_COMMITS: &str =
    "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.25); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON log_pending DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        EXECUTE FUNCTION slowly()";
const DECISIONS: &str = "SELECT count(*) FROM decisions WHERE agent = 'agt_held'";
const MANY_DECISIONS: &str = "SELECT count(*) FROM decisions WHERE agent LIKE 'agt_held%'";

/// How many jobs wait for threads or locks, as the metrics say.
async fn waiting(world: &World) -> usize {
    measured(world, "mandate_store_queue_jobs ").await
}

async fn measured(world: &World, name: &str) -> usize {
    let metrics = exchange(world.running.ops, "GET", "/metrics", "", b"").await.body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_end_matches(".0").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_row_is_held_delays_no_other_and_is_not_decided_for_later() {
    let world = &World::start().await;
    let held = &world.agent("held").await;
    let mut others = Vec::with_capacity(OTHERS);
    for number in 0..OTHERS {
        others.push(world.agent(&format!("a{number}")).await);
    }
    let url = world.settings.database.as_str();
    let holder = OpenTransaction::begin(url, "SELECT 1 FROM agents WHERE agent = 'agt_held' FOR UPDATE");
    let (began, body) = (Instant::now(), spend(1));
    let late = join_all((0..LATE).map(|_| world.post(held, "/v1/authorizations", &body)));
    let free = async {
        for _ in 0..2 {
            for reply in join_all(others.iter().map(|key| world.post(key, "/v1/authorizations", &body))).await
            {
                assert_eq!(reply.status, 201, "{}", reply.body);
            }
        }
        began.elapsed()
    };
    // All that wait for the agent are counted, whatever thread has set them aside.
    let counted = async {
        while waiting(world).await < LATE {
            assert!(began.elapsed() < Duration::from_secs(15), "{} wait", waiting(world).await);
        }
    };
    let (late, free, ()) = tokio::join!(late, free, counted);
    assert!(free < BRIEF, "the others were answered after {free:?}");
    for reply in late {
        reply.refused(500, "server_error");
    }
    let given_up = began.elapsed();
    assert!(measured(world, "mandate_store_lock_waits_total ").await >= 1);
    assert!(given_up > Duration::from_secs(19) && given_up < Duration::from_secs(25), "{given_up:?}");
    holder.commit();
    assert_eq!(world.post(held, "/v1/authorizations", &body).await.status, 201);
    assert_eq!(query(url, DECISIONS), "1", "what was given up is not done later");
    world.holds();
}

/// What waits in the database's queue is served in its turn. What only looks whether the row is free never finds it so.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_row_is_never_free_gets_its_turn() {
    let world = &World::start().await;
    let (held, other) = (&world.agent("held").await, &world.agent("other").await);
    let url = world.settings.database.as_str();
    let began = Instant::now();
    let relay = (0..RELAY).map(|_| {
        let url = url.to_owned();
        tokio::task::spawn_blocking(move || {
            while began.elapsed() < RELAY_SECONDS {
                run(&url, HOLD);
            }
        })
    });
    let relay: Vec<_> = relay.collect();
    while waiting_for_locks(url) < RELAY - 1 {
        tokio::task::yield_now().await;
    }
    let body = spend(1);
    let late = async {
        let replies = join_all((0..LATE).map(|_| world.post(held, "/v1/authorizations", &body))).await;
        (replies, began.elapsed())
    };
    let free = async {
        for _ in 0..LATE {
            let began = Instant::now();
            assert_eq!(world.post(other, "/v1/authorizations", &body).await.status, 201);
            assert!(began.elapsed() < BRIEF, "the other was answered after {:?}", began.elapsed());
        }
    };
    let ((replies, took), ()) = tokio::join!(late, free);
    for reply in replies {
        assert_eq!(reply.status, 201, "{}", reply.body);
    }
    assert!(took < RELAY_SECONDS, "the row was never free until {RELAY_SECONDS:?}: {took:?}");
    join_all(relay).await;
    assert_eq!(query(url, DECISIONS), LATE.to_string());
    world.holds();
}

/// An agent of several servers is decided for by each in its turn, and its numbers have no gap.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_all_servers_decide_for_delays_no_other() {
    let one = World::start().await;
    let servers = [&one.beside(Arc::clone(&one.clock)).await, &one];
    let (hot, other) = (&one.agent("held").await, &one.agent("other").await);
    let body = spend(1);
    let hot = async {
        let asked = (0..HOT).map(|number| servers[number % 2].post(hot, "/v1/authorizations", &body));
        for reply in join_all(asked).await {
            assert_eq!(reply.status, 201, "{}", reply.body);
        }
    };
    let free = async {
        for number in 0..2 * LATE {
            let began = Instant::now();
            assert_eq!(servers[number % 2].post(other, "/v1/authorizations", &body).await.status, 201);
            assert!(began.elapsed() < BRIEF, "the other was answered after {:?}", began.elapsed());
        }
    };
    tokio::join!(hot, free);
    assert_eq!(query(&one.settings.database, DECISIONS), HOT.to_string());
    one.holds();
}

/// Behind a session that waits for the row, others wait twice: for it, and for the row.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_wait_for_one_agent_have_patience_each() {
    let one = World::start().await;
    let servers =
        [&one.beside(Arc::clone(&one.clock)).await, &one.beside(Arc::clone(&one.clock)).await, &one];
    let held = &one.agent("held").await;
    let holder = OpenTransaction::begin(
        &one.settings.database,
        "SELECT 1 FROM agents WHERE agent = 'agt_held' FOR UPDATE",
    );
    let body = spend(1);
    let asked = join_all(servers.iter().map(|server| server.post(held, "/v1/authorizations", &body)));
    let freed = async {
        tokio::time::sleep(PATIENCE).await;
        holder.commit();
    };
    let (replies, ()) = tokio::join!(asked, freed);
    for reply in replies {
        assert_eq!(reply.status, 201, "{}", reply.body);
    }
    assert_eq!(query(&one.settings.database, DECISIONS), "3");
    one.holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_agents_whose_rows_are_held_delay_no_other_for_long() {
    let world = &World::start().await;
    let (mut held, mut others) = (Vec::with_capacity(MANY), Vec::with_capacity(OTHERS));
    for number in 0..MANY {
        held.push(world.agent(&format!("held{number}")).await);
    }
    for number in 0..OTHERS {
        others.push(world.agent(&format!("a{number}")).await);
    }
    let url = world.settings.database.as_str();
    let holder = OpenTransaction::begin(url, "SELECT 1 FROM agents WHERE agent LIKE 'agt_held%' FOR UPDATE");
    let (began, body) = (Instant::now(), spend(1));
    let late = join_all(held.iter().map(|key| world.post(key, "/v1/authorizations", &body)));
    let free = async {
        while waiting(world).await < MANY {
            assert!(began.elapsed() < Duration::from_secs(15), "{} wait", waiting(world).await);
        }
        let mut took = Duration::ZERO;
        // The first request may wait until it is known that all of these are held.
        for _ in 0..2 {
            let began = Instant::now();
            for reply in join_all(others.iter().map(|key| world.post(key, "/v1/authorizations", &body))).await
            {
                assert_eq!(reply.status, 201, "{}", reply.body);
            }
            took = began.elapsed();
        }
        assert!(took < BRIEF, "the others were answered after {took:?}");
        holder.commit();
    };
    let (late, ()) = tokio::join!(late, free);
    let answered = late.iter().filter(|reply| reply.status == 201).count();
    let stored: usize = query(url, MANY_DECISIONS).parse().unwrap();
    assert_eq!(stored, answered, "what was given up is not done later");
    world.holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_an_agent_that_is_held_delays_no_other_revocation_and_is_done_when_it_is_free() {
    let world = &World::start().await;
    let agents = ["held", "free"];
    let mut mandates = Vec::with_capacity(agents.len());
    for name in agents {
        world.agent(name).await;
        mandates.push(world.mandate(&format!("agt_{name}")).await);
    }
    let [held, free] = [0, 1].map(|at| format!("/v1/mandates/{}/revoke", mandates[at]));
    let url = world.settings.database.as_str();
    let holder = OpenTransaction::begin(url, "SELECT 1 FROM agents WHERE agent = 'agt_held' FOR UPDATE");
    let revoke = |path| world.send("POST", path, &world.organization_key, "", "");
    let waiting = join_all((0..REVOCATIONS).map(|_| revoke(&held)));
    let others = async {
        // Every thread that writes has one of them.
        let waits = async || (waiting_for_locks(url) > 0).then_some(());
        until_async(DEADLINE, "a revocation waits", waits).await;
        let began = Instant::now();
        assert_eq!(revoke(&free).await.status, 200);
        let mode = world.post(&world.organization_key, "/v1/enforcement", &json!({"mode": "observe"})).await;
        assert_eq!(mode.status, 200, "{}", mode.body);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(6), "the others were done after {took:?}");
        holder.commit();
    };
    let (revoked, ()) = tokio::join!(waiting, others);
    for reply in revoked {
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    world.holds();
}

/// While a webhook's row is held, requests of these agents are answered as always, but for one wait, and the server is ready.
async fn delays_no(world: &World, agents: &[String]) {
    let (since, body, mut took) = (Instant::now(), &spend(1), Vec::new());
    while since.elapsed() < PATIENCE {
        let began = Instant::now();
        for reply in join_all(agents.iter().map(|key| world.post(key, "/v1/authorizations", body))).await {
            assert_eq!(reply.status, 201, "{}", reply.body);
        }
        took.push(began.elapsed());
        let ready = exchange(world.running.ops, "GET", "/readyz", "", b"").await;
        assert_eq!(ready.status, 200, "{}", ready.body);
    }
    took.sort();
    let (usual, longest) = (took[took.len() / 2], took[took.len() - 1]);
    assert!(usual < USUAL && longest < PROMPT, "the others were answered after {usual:?}, and {longest:?}");
}

/// Reviews that are announced wait for it. The later ones wait twice in the database: for those before them, and for the row.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_whose_row_is_held_delays_no_other_organization() {
    let world = &World::start().await;
    let (url, organization) = (world.settings.database.as_str(), &world.organization_key);
    let webhook = json!({"url": "https://hooks.example/in", "events": ["decision.review_pending"]});
    assert_eq!(world.post(organization, "/v1/webhooks", &webhook).await.status, 201);
    let mut keys = Vec::with_capacity(OTHERS);
    for number in 0..OTHERS {
        keys.push(world.agent(&format!("late{number}")).await);
        world.mandate(&format!("agt_late{number}")).await;
    }
    let other = world.onboard("other");
    let mut others = Vec::with_capacity(OTHERS);
    for number in 0..OTHERS {
        let created = world.post(&other, "/v1/agents", &json!({"name": format!("a{number}")})).await;
        others.push(created.json()["agent_key"].as_str().unwrap().to_owned());
    }
    let holder = OpenTransaction::begin(url, "SELECT 1 FROM webhooks FOR UPDATE");
    let review = &spend(300);
    let late = join_all((0..).zip(&keys).map(async |(number, key)| {
        tokio::time::sleep(Duration::from_millis(700) * number).await;
        world.post(key, "/v1/authorizations", review).await
    }));
    let free = async {
        delays_no(world, &others).await;
        holder.commit();
    };
    let (late, ()) = tokio::join!(late, free);
    for reply in late {
        assert_eq!(reply.status, 201, "{}", reply.body);
    }
    assert_eq!(query(url, "SELECT count(*) FROM deliveries"), OTHERS.to_string());
    world.holds();
}

/// What makes no event of the organization is decided meanwhile, whatever others of it wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_whose_row_is_held_delays_no_request_without_an_event() {
    let world = &World::start().await;
    let (url, organization) = (world.settings.database.as_str(), &world.organization_key);
    let webhook = json!({"url": "https://hooks.example/in", "events": ["decision.review_pending"]});
    assert_eq!(world.post(organization, "/v1/webhooks", &webhook).await.status, 201);
    let mut keys = Vec::with_capacity(2 * OTHERS);
    for number in 0..2 * OTHERS {
        keys.push(world.agent(&format!("a{number}")).await);
        world.mandate(&format!("agt_a{number}")).await;
    }
    let (announced, others) = keys.split_at(OTHERS);
    let holder = OpenTransaction::begin(url, "SELECT 1 FROM webhooks FOR UPDATE");
    let review = &spend(300);
    let late = join_all(announced.iter().map(|key| world.post(key, "/v1/authorizations", review)));
    let free = async {
        delays_no(world, others).await;
        holder.commit();
    };
    let (late, ()) = tokio::join!(late, free);
    for reply in late {
        assert_eq!(reply.status, 201, "{}", reply.body);
    }
    world.holds();
}

/// Each batch with an event holds the webhook's row until its COMMIT has ended, here for a quarter of a second.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_announce_reviews_while_commits_are_slow_wait_for_each_other_and_fail_none() {
    let one = World::start().await;
    let servers =
        [&one.beside(Arc::clone(&one.clock)).await, &one.beside(Arc::clone(&one.clock)).await, &one];
    let url = one.settings.database.as_str();
    let webhook = json!({"url": "https://hooks.example/in", "events": ["decision.review_pending"]});
    assert_eq!(one.post(&one.organization_key, "/v1/webhooks", &webhook).await.status, 201);
    let mut keys = Vec::with_capacity(ASKING);
    for number in 0..ASKING {
        keys.push(one.agent(&format!("a{number}")).await);
        one.mandate(&format!("agt_a{number}")).await;
    }
    run(url, SLOW_COMMITS);
    let (review, body) = (&spend(300), &spend(1));
    let asked = join_all((0..).zip(&keys).map(async |(number, key)| {
        let mut longest = Duration::ZERO;
        for turn in 0..EACH {
            let (server, began) = (servers[(number + turn) % servers.len()], Instant::now());
            let body = if (number + turn).is_multiple_of(4) { review } else { body };
            let reply = server.post(key, "/v1/authorizations", body).await;
            assert_eq!(reply.status, 201, "{}", reply.body);
            longest = longest.max(began.elapsed());
        }
        longest
    }));
    let longest = asked.await.into_iter().max().unwrap();
    assert!(longest < BRIEF, "the last was answered after {longest:?}");
    run(url, "DROP FUNCTION slowly CASCADE");
    one.holds();
}

/// Every decision waits for it that is later than the mark, and none is refused before its 20 seconds are over.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_the_row_of_the_clock_is_decided_when_it_is_free() {
    let world = &World::start().await;
    let mut agents = Vec::with_capacity(OTHERS);
    for number in 0..OTHERS {
        agents.push(world.agent(&format!("a{number}")).await);
    }
    let body = &spend(1);
    assert_eq!(world.post(&agents[0], "/v1/authorizations", body).await.status, 201);
    world.clock.advance(60);
    let holder = OpenTransaction::begin(&world.settings.database, "SELECT 1 FROM clock FOR UPDATE");
    let late = join_all((0..).zip(&agents).map(async |(number, key)| {
        tokio::time::sleep(Duration::from_millis(700) * number).await;
        world.post(key, "/v1/authorizations", body).await
    }));
    let freed = async {
        tokio::time::sleep(PATIENCE).await;
        let ready = exchange(world.running.ops, "GET", "/readyz", "", b"").await;
        assert_eq!(ready.status, 503, "nothing is decided: {}", ready.body);
        holder.commit();
    };
    let (late, ()) = tokio::join!(late, freed);
    for reply in late {
        assert_eq!(reply.status, 201, "{}", reply.body);
    }
    world.holds();
}

fn waiting_for_locks(url: &str) -> usize {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    query(url, waiting).parse().unwrap()
}
