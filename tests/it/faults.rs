//! Three servers on one PostgreSQL, under load, while servers, the database or the network fail.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mandate_tests::proxy::Half;
use mandate_tests::standby::either;
use mandate_tests::{Cluster, Kind, Proxy, campaign};

use crate::harness::{Client, Ledger, Replicas, on_both};

const SERVERS: usize = 3;
/// How often each fault comes, times the scale.
const ROUNDS: usize = 2;
/// Requests that are answered between two faults.
const BETWEEN: usize = 60;
/// How long the network passes nothing on.
const STALL: Duration = Duration::from_secs(2);
/// How long a server may take to notice that its database is gone.
const NOTICED: Duration = Duration::from_secs(30);
/// How long a database is away: longer than requests wait for it.
const OUTAGE: Duration = Duration::from_secs(10);
/// How long a server is stopped: longer than the database lets it keep locks, and than others wait for a word of it.
const STANDSTILL: Duration = Duration::from_secs(8);

fn rounds() -> usize {
    ROUNDS * campaign::scale() as usize
}

/// A cluster of its own, with a database for the servers.
fn cluster() -> (Cluster, String) {
    let cluster = Cluster::start();
    cluster.create("mandate");
    let url = cluster.url("mandate");
    (cluster, url)
}

on_both! {
    servers_that_are_killed_leave_nothing_half_done,
}

fn servers_that_are_killed_leave_nothing_half_done(kind: Kind) {
    let database = kind.fresh();
    // A file belongs to one server.
    let servers = if kind == Kind::Sqlite { 1 } else { SERVERS };
    let replicas = Replicas::start(database.url(), servers);
    let mut ledger = Ledger::open(&replicas, campaign::seed("killed servers"));
    ledger.under_load(|progress| {
        for round in 0..rounds() * SERVERS {
            replicas.replace(round % servers);
            progress.answers(BETWEEN);
        }
    });
    ledger.check();
}

/// A machine is moved, or swaps: one server is stopped in the midst of its transactions, and goes on with what it knew.
#[test]
fn servers_go_on_while_one_is_frozen_and_it_catches_up() {
    let database = Kind::Postgres.fresh();
    let replicas = Replicas::start(database.url(), SERVERS);
    let mut ledger = Ledger::open(&replicas, campaign::seed("standstill"));
    for round in 0..rounds() {
        ledger.under_load(|progress| {
            replicas.suspend(round % SERVERS, || {
                let began = Instant::now();
                // The others answer all the while.
                while began.elapsed() < STANDSTILL {
                    progress.answers(1);
                }
            });
        });
        for server in 0..SERVERS {
            assert_eq!(replicas.ops(server).get("/readyz").status, 200);
        }
    }
    ledger.check();
}

#[test]
fn servers_go_on_when_the_database_has_crashed_and_is_there_again() {
    let (cluster, url) = cluster();
    let replicas = Replicas::start(&url, SERVERS);
    let mut ledger = Ledger::open(&replicas, campaign::seed("crashed database"));
    for _ in 0..2 * rounds() {
        ledger.under_load(|_| cluster.crash_and_start());
        for server in 0..SERVERS {
            assert_eq!(replicas.ops(server).get("/readyz").status, 200);
        }
    }
    ledger.check();
}

#[test]
fn servers_follow_the_database_to_its_standby() {
    let seed = campaign::seed("failover");
    for round in 0..u64::from(campaign::scale()) {
        let (cluster, _) = cluster();
        let standby = cluster.standby();
        let replicas = Replicas::start(&either(&cluster, &standby, "mandate"), SERVERS);
        let mut ledger = Ledger::open(&replicas, seed + round);
        ledger.under_load(|_| {
            cluster.crash();
            standby.promote();
        });
        ledger.check();
    }
}

/// Waits until a server has its database again.
fn answers(replicas: &Replicas, organization: &Client) {
    let began = Instant::now();
    while replicas.ops(0).get("/readyz").status != 200 || organization.get("/agents").status != 200 {
        assert!(began.elapsed() < NOTICED, "{}", replicas.logged());
    }
}

#[test]
fn a_server_without_its_database_is_not_ready_and_logs_the_kind_of_the_fault() {
    let (cluster, url) = cluster();
    let replicas = Replicas::start(&url, 1);
    let organization = replicas.organization("acme");
    let agent = organization.buyer("a");
    assert_eq!(agent.ask(1).status, 201);
    cluster.crash();
    let began = Instant::now();
    // At first a request waits for the database, and the answer is cut off by its own time limit.
    let logged = loop {
        assert_eq!(replicas.ops(0).get("/readyz").status, 503);
        let logged = replicas.logged();
        if logged.contains("\"not ready\"") {
            break logged;
        }
        assert!(began.elapsed() < NOTICED, "{logged}");
    };
    for message in ["\"not ready\"", "\"the database cannot be connected to\""] {
        let lines: Vec<_> = logged.lines().filter(|line| line.contains(message)).collect();
        assert!(!lines.is_empty(), "{logged}");
        assert!(lines.iter().all(|line| line.contains("\"kind\":\"unavailable\"")), "{logged}");
    }
    cluster.start_again();
    answers(&replicas, &organization.client);
    assert_eq!(agent.ask(1).status, 201);
    assert_eq!(replicas.hold(&organization.client), 2);
}

/// While the database is away and clients ask on, there is a line a second, and one thread tries to connect.
#[test]
fn a_server_whose_database_is_away_logs_a_line_a_second_and_tries_alone() {
    /// Eight attempts a second while requests wait, then two; and some for what was under way.
    const ATTEMPTS: usize = 100;
    /// One a second for requests and for those that connect, and some for what runs in the background.
    const LINES: usize = 25;
    let database = Kind::Postgres.fresh();
    let (proxy, through) = Proxy::before_database(database.url());
    let replicas = Replicas::start(&through, 1);
    let acme = replicas.organization("acme");
    let (agent, organization) = (acme.buyer("a"), &acme.client);
    assert_eq!(agent.ask(1).status, 201);
    let (lines, connections) = (replicas.logged().lines().count(), proxy.connections());
    let is_back = AtomicBool::new(false);
    let asking = || {
        let mut refused = 0;
        while !is_back.load(Ordering::SeqCst) {
            refused += usize::from(organization.apart().get("/agents").status == 500);
        }
        refused
    };
    let refused = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(asking)).collect();
        proxy.refuse_for(OUTAGE);
        is_back.store(true, Ordering::SeqCst);
        asking.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    let (logged, attempts) = (replicas.logged(), proxy.connections() - connections);
    let lines = logged.lines().count() - lines;
    println!("{refused} refused, {lines} lines, {attempts} attempts");
    assert!(refused > LINES, "{refused} refused");
    assert!(lines < LINES, "{lines} lines for {refused} refused: {logged}");
    assert!(attempts < ATTEMPTS, "{attempts} attempts");
    assert!(logged.contains("\"others\":"), "{logged}");
    let requests = logged.lines().filter(|line| line.contains("\"message\":\"request\""));
    assert_eq!(requests.filter(|line| line.contains("\"status\":500")).count(), 0, "{logged}");
    answers(&replicas, organization);
    assert_eq!(agent.ask(1).status, 201);
    assert_eq!(replicas.hold(organization), 2);
}

/// The database's host is gone without a word: connections hang, those that there are and new ones.
#[test]
fn servers_follow_the_database_past_a_host_that_swallows_everything() {
    let seed = campaign::seed("black hole");
    for round in 0..u64::from(campaign::scale()) {
        let (cluster, _) = cluster();
        let standby = cluster.standby();
        let proxy = Proxy::before(cluster.address());
        let url = either(&cluster, &standby, "mandate");
        let through = url.replace(&cluster.address().to_string(), &proxy.address().to_string());
        let replicas = Replicas::start(&through, SERVERS);
        let mut ledger = Ledger::open(&replicas, seed + round);
        ledger.under_load(|_| {
            proxy.swallow();
            cluster.crash();
            standby.promote();
        });
        for server in 0..SERVERS {
            assert_eq!(replicas.ops(server).get("/readyz").status, 200);
        }
        ledger.check();
    }
}

#[test]
fn servers_live_with_a_network_that_cuts_delays_stalls_and_half_closes() {
    let database = Kind::Postgres.fresh();
    let (proxy, through) = Proxy::before_database(database.url());
    let replicas = Replicas::start(&through, SERVERS);
    let mut ledger = Ledger::open(&replicas, campaign::seed("network"));
    for _ in 0..rounds() {
        ledger.under_load(|progress| {
            for fault in [
                &(|| proxy.cut()) as &dyn Fn(),
                &|| proxy.half_close(Half::ToServer),
                &|| proxy.half_close(Half::ToClient),
                &|| proxy.delay(Duration::from_millis(20)),
                &|| proxy.cut(),
                &|| proxy.delay(Duration::ZERO),
            ] {
                fault();
                progress.answers(BETWEEN);
            }
        });
        ledger.under_load(|_| proxy.stall_for(STALL));
        ledger.under_load(|_| proxy.refuse_for(STALL));
    }
    ledger.check();
}
