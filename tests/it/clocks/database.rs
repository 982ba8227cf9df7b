//! The clock of the database, by which all its servers decide: it steps, it goes over the end of a month while a decision
//! waits, and a standby that takes its place has another.

use std::thread;
use std::time::{Duration, Instant};

use mandate_core::Timestamp;
use mandate_tests::campaign::{Numbers, scale, seed};
use mandate_tests::cluster::{OpenTransaction, query};
use mandate_tests::standby::either;
use mandate_tests::wait::until;
use mandate_tests::{Cluster, Proxy};
use serde_json::json;

use super::{DAY, HOUR, MINUTE, SECOND, act, agents, now_millis, revoke, steps};
use crate::harness::{Agent, Client, DEADLINE, Ledger, Replicas, ShiftedClock, authorization, terms};

/// How soon servers have found the database that takes the place of another.
const RESUMES: Duration = Duration::from_secs(10);
/// What the database's clock shows, in milliseconds.
pub(super) const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
pub(super) const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Waits until a server refuses, since the clock is behind; meanwhile nothing is decided.
fn refuses(client: &Client) {
    let began = Instant::now();
    loop {
        let answer = client.post("/authorizations", &authorization(1));
        assert!(answer.status >= 500 && began.elapsed() < RESUMES, "{answer:?}");
        if answer.status == 503 {
            assert_eq!(answer.header("retry-after"), Some("60"), "{answer:?}");
            assert!(answer.body.contains("clock"), "{answer:?}");
            return;
        }
    }
}

#[test]
fn a_standby_that_is_sixty_days_behind_decides_nothing_until_its_clock_is_accepted() {
    let mut random = Numbers::from_seed(seed("clock of a standby"));
    let cluster = Cluster::start();
    cluster.create("mandate");
    let clock = ShiftedClock::ahead(-60 * DAY);
    let standby = cluster.standby_in(&clock.environment());
    let replicas = Replicas::start(&either(&cluster, &standby, "mandate"), 2);
    let organization = replicas.organization("acme");
    let agents = agents(&organization);
    act(&organization.client, &agents, &mut random, 40);
    let asking = organization.buyer("asking");
    let review = asking.ask(300).text("/review/id");
    let once = || asking.client.post_once("once", "/authorizations", &authorization(1)).unwrap();
    let kept = once();
    cluster.crash();
    standby.promote();
    for number in 0..replicas.count() {
        refuses(&replicas.client(number, asking.client.key()));
        let ready = replicas.ops(number).get("/readyz");
        assert!(ready.status == 503 && ready.body.contains("the clock is behind"), "{ready:?}");
    }
    // What was answered is answered again, and what takes authority away goes on.
    assert_eq!((once().body, once().header("idempotency-replayed")), (kept.body, Some("true")));
    assert_eq!(organization.client.act(&format!("/reviews/{review}/deny")).status, 200);
    assert_eq!(revoke(&organization.client, &agents[0]), Some([200, 201]), "revoked, and replaced");
    replicas.operate(&["clock", "accept", "--yes"]).code(0);
    let recorded = replicas.operate(&["audit", "list", "--json"]).code(0).json();
    assert_eq!(recorded[0]["action"], "clock.accept", "{recorded}");
    act(&organization.client, &agents, &mut random, 40);
    let decided = asking.ask(1).text("/decision");
    let decided_at = asking.client.get(&format!("/decisions/{decided}")).text("/decided_at");
    let behind = now_millis() - Timestamp::parse(&decided_at).unwrap().millis();
    assert!((60 * DAY..60 * DAY + MINUTE).contains(&behind), "{behind}");
    // An accepted clock is no finding.
    assert!(replicas.hold(&organization.client) > 80);
}

/// An organization and its agents, as clients of servers that may have been started again.
fn asking(replicas: &Replicas, number: usize, key: &str, keys: &[(String, String)]) -> (Client, Vec<Agent>) {
    let agents = keys.iter().map(|(id, key)| Agent { id: id.clone(), client: replicas.client(number, key) });
    (replicas.client(number, key), agents.collect())
}

/// A cluster with a clock of its own, so many milliseconds ahead, and two servers on it.
fn servers_by(clock: &ShiftedClock) -> (Cluster, Replicas) {
    let cluster = Cluster::start_in(&clock.environment());
    cluster.create("mandate");
    let replicas = Replicas::start(&cluster.url("mandate"), 2);
    (cluster, replicas)
}

#[test]
fn a_databases_clock_that_steps_under_load_leaves_an_honest_log() {
    let mut random = Numbers::from_seed(seed("clock of a database"));
    let (clock, mut ahead) = (ShiftedClock::ahead(0), 0);
    let (_cluster, replicas) = servers_by(&clock);
    let organization = replicas.organization("acme");
    let key = organization.client.key().to_owned();
    let keys: Vec<_> =
        agents(&organization).iter().map(|agent| (agent.id.clone(), agent.client.key().to_owned())).collect();
    for (step, restarts) in steps() {
        thread::scope(|scope| {
            for number in 0..2 {
                let (mut random, (client, agents)) =
                    (Numbers::from_seed(random.draw()), asking(&replicas, number, &key, &keys));
                scope.spawn(move || act(&client, &agents, &mut random, 8 * scale()));
            }
            ahead += step;
            clock.set(ahead);
        });
        if restarts {
            (0..replicas.count()).for_each(|number| replicas.replace(number));
        }
        let ready = replicas.ops(0).get("/readyz");
        if ready.status == 503 {
            assert!(ready.body.contains("the clock is behind"), "{ready:?}");
            replicas.operate(&["clock", "accept", "--yes"]).code(0);
        }
    }
    let (client, agents) = asking(&replicas, 0, &key, &keys);
    act(&client, &agents, &mut random, 12);
    let decisions = replicas.hold(&client);
    println!("{decisions} decisions");
    assert!(decisions > 120, "{decisions}");
}

/// The last instants of a month, as a database's clock shows them.
#[test]
fn an_approval_that_waits_over_the_end_of_a_month_is_of_the_next() {
    let end = Timestamp::parse("2027-03-01T00:00:00Z").unwrap().millis();
    let clock = ShiftedClock::ahead(end - now_millis() - HOUR);
    let (cluster, replicas) = servers_by(&clock);
    let url = cluster.url("mandate");
    let organization = replicas.organization("acme");
    let reviews = [("held-ends", "2027-02-28"), ("held-goes-on", "2099-12-31")].map(|(name, expires)| {
        let agent = organization.agent(name);
        let mut ends = terms(&agent.id);
        ends["expires"] = json!(expires);
        organization.mandate(&ends);
        assert_eq!(agent.ask(190).text("/verdict"), "allow");
        agent.ask(300).text("/review/id")
    });
    clock.set(end - now_millis() - 3 * SECOND);
    let holder = OpenTransaction::begin(&url, "SELECT 1 FROM agents WHERE agent LIKE 'agt_held%' FOR UPDATE");
    let answers = thread::scope(|scope| {
        let approve = |review: &String| {
            let (client, path) = (organization.client.apart(), format!("/reviews/{review}/approve"));
            scope.spawn(move || client.act(&path))
        };
        let asked: Vec<_> = reviews.iter().map(approve).collect();
        let is_next = || (query(&url, NOW).parse::<i64>().unwrap() >= end).then_some(());
        until(DEADLINE, "the next month", is_next);
        // A wait ends within a second, and begins again.
        until(DEADLINE, "both wait for their rows", || (query(&url, WAITING) == "2").then_some(()));
        holder.commit();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<_>>()
    });
    for (answer, verdict) in answers.iter().zip(["deny_expired", "allow"]) {
        assert_eq!(answer.text("/verdict"), verdict, "{answer:?}");
        let decision = organization.client.get(&format!("/decisions/{}", answer.text("/decision"))).json();
        let decided_at = Timestamp::parse(decision["decided_at"].as_str().unwrap()).unwrap();
        assert!(decided_at.millis() >= end && decision["basis"]["spent"] == 0, "{decision}");
    }
    let spent = |month: &str| {
        let usage = organization.client.get(&format!("/usage?month={month}&agent=agt_held-goes-on")).json();
        usage["data"][0]["spent"].clone()
    };
    assert_eq!([spent("2027-02"), spent("2027-03")], [json!(190), json!(300)]);
    assert_eq!(replicas.hold(&organization.client), 6);
}

/// Connections are cut meanwhile, so that commits are looked up by numbers of both days.
#[test]
fn commits_are_found_while_the_databases_day_ends() {
    let clock = ShiftedClock::ahead(0);
    let cluster = Cluster::start_in(&clock.environment());
    cluster.create("mandate");
    let url = cluster.url("mandate");
    let proxy = Proxy::before(cluster.address());
    let month = |at| Timestamp::from_millis(at).month();
    // The ledger counts one month's payments: the day is not the last of its month.
    let soon = (now_millis() / DAY + 2) * DAY;
    let midnight = if month(soon - 1) == month(soon) { soon } else { soon + DAY };
    clock.set(midnight - now_millis() - 20 * SECOND);
    let through = url.replace(&cluster.address().to_string(), &proxy.address().to_string());
    let replicas = Replicas::start(&through, 2);
    let mut ledger = Ledger::open(&replicas, seed("the end of a day"));
    ledger.under_load(|progress| {
        while query(&url, NOW).parse::<i64>().unwrap() < midnight + SECOND {
            progress.answers(20);
            proxy.cut();
        }
        progress.answers(40);
    });
    ledger.check();
    let days = "SELECT count(DISTINCT get_byte(commit, 0)) FROM commits";
    assert_eq!(query(&url, days), "2");
}
