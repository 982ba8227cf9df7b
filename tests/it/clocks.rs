//! Clocks that differ and clocks that step: an honest log stays one that holds.

mod database;
mod waits;

use std::thread;

use crate::harness::{
    Agent, Client, DEADLINE, Organization, Ran, Replicas, ShiftedClock, TestServer, authorization, terms,
};
use mandate_core::Timestamp;
use mandate_tests::Kind;
use mandate_tests::campaign::{Numbers, scale, seed};
use mandate_tests::wait::until;
use serde_json::json;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// How far clocks of servers are apart.
const APART: [i64; 4] = [0, 2, 2 * SECOND, 60 * SECOND];
/// By how much a clock steps.
const STEPS: [i64; 4] = [2 * SECOND, 2 * MINUTE, HOUR, 40 * DAY];
/// Requests that each thread makes.
const REQUESTS: u32 = 20;

/// Each step back and ahead, with a restart and without one.
fn steps() -> impl Iterator<Item = (i64, bool)> {
    STEPS.into_iter().flat_map(|step| [(-step, false), (step, true), (step, false), (-step, true)])
}

/// Asks, approves, denies, revokes and replaces, for agents that others ask for too. Answers that a clock which is behind
/// refuses are no matter.
fn act(organization: &Client, agents: &[Agent], random: &mut Numbers, times: u32) {
    for _ in 0..times {
        let agent = random.of(agents);
        let amount = u32::try_from(1 + random.below(300)).unwrap();
        let asked = agent.client.apart().post("/authorizations", &authorization(amount));
        let review = (asked.status == 201).then(|| asked.json()["review"]["id"].clone());
        match (random.below(12), review.as_ref().and_then(|review| review.as_str())) {
            (0..=4, Some(review)) => _ = organization.act(&format!("/reviews/{review}/approve")),
            (5..=6, Some(review)) => _ = organization.act(&format!("/reviews/{review}/deny")),
            (7, _) => _ = organization.post("/mandates", &terms(&agent.id)),
            (8, _) => _ = revoke(organization, agent),
            _ => {}
        }
    }
}

/// Revokes the mandate that governs an agent, if there is one, and writes another. Returns the statuses: where others do
/// the same, the one that was read may be replaced by then.
fn revoke(organization: &Client, agent: &Agent) -> Option<[u16; 2]> {
    let governing = organization.get(&format!("/agents/{}", agent.id)).json()["mandate"].clone();
    let revoked = organization.act(&format!("/mandates/{}/revoke", governing.as_str()?));
    Some([revoked.status, organization.post("/mandates", &terms(&agent.id)).status])
}

fn agents(organization: &Organization) -> Vec<Agent> {
    let agents: Vec<_> = ["a", "b", "c"].into_iter().map(|name| organization.agent(name)).collect();
    for agent in &agents {
        organization.mandate(&terms(&agent.id));
    }
    agents
}

/// Agents by their ids and keys, as clients of a server that may have been started again.
fn of(server: &TestServer, keys: &[(String, String)]) -> Vec<Agent> {
    keys.iter().map(|(id, key)| Agent { id: id.clone(), client: server.client(key) }).collect()
}

#[test]
fn servers_whose_clocks_differ_leave_an_honest_log() {
    let mut random = Numbers::from_seed(seed("clocks apart"));
    for apart in APART {
        let database = Kind::Postgres.fresh();
        let replicas = Replicas::with_clocks(database.url(), &[0, apart]);
        let organization = replicas.organization("acme");
        let agents = agents(&organization);
        thread::scope(|scope| {
            for _ in 0..4 {
                let (mut random, agents) = (Numbers::from_seed(random.draw()), &agents);
                let organization = organization.client.apart();
                scope.spawn(move || act(&organization, agents, &mut random, REQUESTS * scale()));
            }
        });
        let decisions = replicas.hold(&organization.client);
        println!("{apart} ms apart: {decisions} decisions");
        assert!(decisions > 50, "{decisions}");
    }
}

#[test]
fn a_clock_that_steps_leaves_an_honest_log() {
    let mut random = Numbers::from_seed(seed("clock steps"));
    let folder = tempfile::tempdir().unwrap();
    let (clock, mut ahead) = (ShiftedClock::ahead(0), 0);
    let mut server = TestServer::start_by(folder.path(), &clock);
    let (organization, mut issuers) = (server.demo(), vec![server.issuer()]);
    let key = server.ready("organization_key").to_owned();
    let keys: Vec<_> =
        agents(&organization).iter().map(|agent| (agent.id.clone(), agent.client.key().to_owned())).collect();
    let mut client = organization.client;
    for (step, restarts) in steps() {
        let agents = of(&server, &keys);
        act(&client, &agents, &mut random, 12 * scale());
        ahead += step;
        clock.set(ahead);
        if restarts {
            server.kill();
            server = TestServer::start_by(folder.path(), &clock);
            client = server.client(&key);
            issuers.push(server.issuer());
        } else {
            act(&client, &agents, &mut random, 4);
        }
        if is_behind(&server) {
            accept(&server, &clock);
        }
    }
    act(&client, &of(&server, &keys), &mut random, 12);
    let decisions = server.hold(&client, &issuers);
    println!("{decisions} decisions");
    assert!(decisions > 60, "{decisions}");
}

/// Whether nothing is decided, since the clock is behind.
fn is_behind(server: &TestServer) -> bool {
    let ready = server.stranger("ops_url").get("/readyz");
    ready.status == 503 && ready.body.contains("the clock is behind")
}

fn accept(server: &TestServer, clock: &ShiftedClock) {
    let mut command = server.operator(&["clock", "accept", "--yes"]);
    let ran = command.envs(clock.environment()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

#[test]
fn the_clock_is_shown_and_its_acceptance_is_on_record() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ShiftedClock::ahead(0);
    let server = TestServer::start_by(folder.path(), &clock);
    let organization = server.demo();
    agents(&organization)[0].ask(1);
    let operate =
        |args: &[&str]| Ran::from(server.operator(args).envs(clock.environment()).output().unwrap());
    let shown = |deciding: &str| {
        let shown = operate(&["clock", "show"]).code(0).out;
        let lines: Vec<_> = shown.lines().filter_map(|line| line.split_once("  ")).collect();
        let [("clock", now), ("mark", mark), ("deciding", found)] = lines[..] else { panic!("{shown}") };
        assert_eq!(found, deciding);
        [now, mark].map(|instant| Timestamp::parse(instant.trim()).unwrap())
    };
    let [now, mark] = shown("yes");
    assert!(mark.millis_since(now).abs() < MINUTE, "{now}, {mark}");
    let refused = operate(&["clock", "accept", "--yes"]).code(1).err;
    assert!(
        refused.contains("the clock is not behind") && refused.contains("nothing to accept"),
        "{refused}"
    );
    assert_eq!(shown("yes")[1], mark);
    clock.set(-HOUR);
    let warns = || server.logged().matches("authorizations, approvals and new escrows are refused").count();
    until(DEADLINE, "the log says so", || (warns() > 0).then_some(()));
    let [now, mark] = shown("no: the clock is behind its mark");
    assert!((HOUR - MINUTE..=HOUR + SECOND).contains(&mark.millis_since(now)), "{now}, {mark}");
    let json = operate(&["clock", "show", "--json"]).code(0).json();
    assert_eq!((&json["deciding"], &json["mark"]), (&json!(false), &json!(mark)));
    assert!(json["behind_seconds"].as_f64().unwrap() > 3_500.0, "{json}");
    assert_eq!(warns(), 1);
    let accepted = operate(&["clock", "accept", "--yes", "--json"]).code(0).json();
    assert_eq!((&accepted["deciding"], &accepted["exports_reopened"]), (&json!(true), &json!(0)));
    let [now, mark] = shown("yes");
    assert!(mark <= now, "{now}, {mark}");
    let recorded = operate(&["audit", "list", "--json"]).code(0).json();
    assert_eq!((&recorded[0]["action"], &recorded[0]["subject"]), (&json!("clock.accept"), &json!("clock")));
    let details = &recorded[0]["details"];
    assert_eq!((&details["to"], &details["exports_reopened"]), (&accepted["mark"], &json!(0)));
    assert!(server.hold(&organization.client, &[server.issuer()]) > 0);
}

/// What the machine's clock shows.
#[expect(clippy::disallowed_methods, reason = "the clock of the server is to be so far from it")]
fn now_millis() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

#[test]
fn the_end_of_a_year_leaves_an_honest_log() {
    let mut random = Numbers::from_seed(seed("clock year"));
    let folder = tempfile::tempdir().unwrap();
    let end = Timestamp::parse("2027-01-01T00:00:00Z").unwrap().millis();
    let clock = ShiftedClock::ahead(end - now_millis() - HOUR);
    let server = TestServer::start_by(folder.path(), &clock);
    let organization = server.demo();
    let agents = agents(&organization);
    clock.set(end - now_millis() - 4 * SECOND);
    let months = || {
        let usage =
            |month: &str| organization.client.get(&format!("/usage?month={month}")).json()["data"].clone();
        ["2026-12", "2027-01"].map(|month| usage(month).as_array().is_some_and(|rows| !rows.is_empty()))
    };
    until(DEADLINE, "decisions of both years", || {
        act(&organization.client, &agents, &mut random, 4);
        (months() == [true, true]).then_some(())
    });
    assert!(server.hold(&organization.client, &[server.issuer()]) > 1);
}
