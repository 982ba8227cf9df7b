//! A database that grants fewer connections than a server wants, or no lock: what decides comes first, and a server that
//! cannot decide is not ready.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mandate_tests::cluster::{OpenTransaction, query, run, until_waited};
use mandate_tests::wait::until_async;

use crate::wire::{Reply, exchange};
use crate::world::{World, spend};

/// Far fewer than a server's threads.
const LIMIT: usize = 5;
/// More agents than batch workers, and more readers and writers than threads.
const AGENTS: usize = 8;
const OTHERS: usize = 16;
const ROUNDS: usize = 5;
/// How soon a server that cannot decide is not ready: after 5 seconds, with room for a slow machine.
const SOON: Duration = Duration::from_secs(12);
/// How often a session waits for a table that is locked, until each wait is given up.
const WAITS: usize = 3;
const DECISIONS: &str = "SELECT count(*) FROM decisions";

/// The database of a server: its name, and the URL of another one of the same cluster.
fn apart(world: &World) -> (String, String) {
    let (cluster, name) = world.settings.database.rsplit_once('/').unwrap();
    let name = name.split('?').next().unwrap().to_owned();
    (name, format!("{cluster}/postgres"))
}

async fn ready(world: &World) -> Reply {
    exchange(world.running.ops, "GET", "/readyz", "", b"").await
}

/// Asks until the answer has this status; gives the answer.
async fn until(world: &World, status: u16) -> Reply {
    let what = format!("/readyz is {status}");
    let asked = async || Some(ready(world).await).filter(|reply| reply.status == status);
    until_async(SOON, &what, asked).await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_few_connections_all_authorizations_are_decided() {
    let world = &World::start().await;
    let mut agents = Vec::with_capacity(AGENTS);
    for number in 0..AGENTS {
        agents.push(world.agent(&format!("a{number}")).await);
    }
    let organization = &world.organization_key;
    let lists = || join_all((0..OTHERS).map(|_| world.get(organization, "/v1/agents")));
    // Those that read have all their connections before any decides.
    assert!(lists().await.iter().all(|reply| reply.status == 200));
    let (name, cluster) = apart(world);
    run(&cluster, &format!("ALTER DATABASE {name} CONNECTION LIMIT {LIMIT}"));
    let kill =
        format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}'");
    let _ = query(&cluster, &kill);
    // Those that read connect again before any decides.
    lists().await;
    let body = spend(1);
    for _ in 0..ROUNDS {
        let decide = join_all(agents.iter().map(|key| world.post(key, "/v1/authorizations", &body)));
        let (decided, _) = tokio::join!(decide, lists());
        for reply in decided {
            assert_eq!(reply.status, 201, "{}", reply.body);
        }
    }
    assert_eq!(until(world, 200).await.body, "ready\n");
    for reply in lists().await {
        assert_eq!(reply.status, 200, "those that read share what is left: {}", reply.body);
    }
    let open = query(&cluster, &format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'"));
    assert!(open.parse::<usize>().unwrap() <= LIMIT, "{open}");
    run(&cluster, &format!("ALTER DATABASE {name} CONNECTION LIMIT -1"));
    assert_eq!(world.holds(), ROUNDS * AGENTS);
}

/// Reading goes on all the time, so that only what decides can say it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_gets_no_lock_for_its_decisions_is_not_ready() {
    let world = &World::start().await;
    let agent = &world.agent("a").await;
    let url = world.settings.database.as_str();
    let body = spend(1);
    assert_eq!(world.post(agent, "/v1/authorizations", &body).await.status, 201);
    for locked in ["ONLY decisions", "decisions_2026_06"] {
        assert_eq!(until(world, 200).await.body, "ready\n");
        let holder = OpenTransaction::begin(url, &format!("LOCK TABLE {locked} IN ACCESS EXCLUSIVE MODE"));
        let unready = async {
            let reply = until(world, 503).await;
            assert!(reply.body.starts_with("nothing is decided"), "{}", reply.body);
            assert_eq!(world.get(&world.organization_key, "/v1/agents").await.status, 200);
            holder.commit();
        };
        let (asked, ()) = tokio::join!(world.post(agent, "/v1/authorizations", &body), unready);
        assert_eq!(asked.status, 201, "{locked}: {}", asked.body);
    }
    assert_eq!(until(world, 200).await.body, "ready\n");
    assert_eq!(query(url, DECISIONS), "3");
    world.holds();
}

/// A transaction that was not committed, since its statements could not be prepared behind a lock, is not left open.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_a_table_costs_each_request_patience_alone() {
    let world = &World::start().await;
    let mut agents = Vec::with_capacity(AGENTS);
    for number in 0..AGENTS {
        agents.push(world.agent(&format!("a{number}")).await);
    }
    let holder =
        OpenTransaction::begin(&world.settings.database, "LOCK TABLE decisions IN ACCESS EXCLUSIVE MODE");
    let release = async {
        until_waited(&world.settings.database, WAITS, 1).await;
        holder.commit();
    };
    let body = spend(1);
    let asked = join_all(agents.iter().map(|agent| world.post(agent, "/v1/authorizations", &body)));
    let (answers, ()) = tokio::join!(asked, release);
    for answer in answers {
        assert_eq!(answer.status, 201, "{}", answer.body);
    }
    world.holds();
}

/// Without requests: what asks is the load balancer, which would send the first ones here.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_that_could_not_decide_is_not_ready() {
    let world = &World::start().await;
    for locked in [
        "agents IN SHARE MODE",
        "decisions_2026_06 IN SHARE MODE",
        "events_2026_06 IN SHARE MODE",
        "environments IN ACCESS EXCLUSIVE MODE",
    ] {
        let holder = OpenTransaction::begin(&world.settings.database, &format!("LOCK TABLE {locked}"));
        let says = until(world, 503).await.body;
        assert!(says.starts_with("nothing is decided"), "{locked}: {says}");
        holder.commit();
        assert_eq!(until(world, 200).await.body, "ready\n", "{locked}");
    }
}

/// Nothing is locked, and every batch fails at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_role_lacks_a_right_is_not_ready_until_it_decides() {
    let world = &World::start().await;
    let agent = &world.agent("a").await;
    let grant = |does: &str| run(&world.settings.database, does);
    let body = spend(1);
    let unready = async || {
        let refused = world.post(agent, "/v1/authorizations", &body).await;
        refused.refused(500, "server_error");
        Some(ready(world).await).filter(|reply| reply.status == 503)
    };
    grant("REVOKE UPDATE ON agents FROM CURRENT_USER");
    let reply = until_async(SOON, "/readyz is 503", unready).await;
    assert!(reply.body.starts_with("nothing is decided"), "{}", reply.body);
    grant("GRANT UPDATE ON agents TO CURRENT_USER");
    assert_eq!(world.post(agent, "/v1/authorizations", &body).await.status, 201);
    assert_eq!(until(world, 200).await.body, "ready\n");
}

/// One held row says nothing about all other agents.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_held_agent_is_ready() {
    let world = &World::start().await;
    let agent = &world.agent("held").await;
    let holder = OpenTransaction::begin(
        &world.settings.database,
        "SELECT 1 FROM agents WHERE agent = 'agt_held' FOR UPDATE",
    );
    let body = spend(1);
    let ready = async {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(7) {
            let reply = ready(world).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        holder.commit();
    };
    let (asked, ()) = tokio::join!(world.post(agent, "/v1/authorizations", &body), ready);
    assert_eq!(asked.status, 201, "{}", asked.body);
}
