//! The server is killed in the middle of load and started again on the same data, over and over.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::mpsc;
use std::thread;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use serde_json::{Value, json};

use crate::harness::{Agent, Answer, Client, TestServer, authorization, campaign, library, terms};

const ROUNDS: u32 = 4;
/// Agents that ask at the same time, each on a thread of its own.
const AGENTS: usize = 6;
const PER_MONTH: i64 = 250;

/// One request: its idempotency key, its body, and the answer if one came.
#[derive(Debug, Clone)]
struct Asked {
    agent: usize,
    key: String,
    body: Value,
    answer: Option<String>,
}

/// Asks on and on until no answer comes. Each request is reported once it is answered or lost.
fn ask_on(round: u32, agent: usize, client: &Client, amounts: &[u32], answers: &mpsc::Sender<Asked>) {
    for (number, amount) in amounts.iter().cycle().enumerate() {
        let (key, body) = (format!("{round}-{agent}-{number}"), authorization(*amount));
        let answer = client.post_once(&key, "/authorizations", &body);
        let answer = answer.ok().map(|answer| {
            assert_eq!(answer.status, 201, "{answer:?}");
            answer.body
        });
        let lost = answer.is_none();
        if answers.send(Asked { agent, key, body, answer }).is_err() || lost {
            return;
        }
    }
}

/// Puts load on a server, and kills it once so many requests are answered. Returns all requests.
fn crash(
    mut server: TestServer,
    round: u32,
    keys: &[String],
    amounts: &[u32],
    kill_after: usize,
) -> Vec<Asked> {
    let clients: Vec<_> = keys.iter().map(|key| server.client(key)).collect();
    thread::scope(|scope| {
        let (answers, answered) = mpsc::channel();
        for (agent, client) in clients.iter().enumerate() {
            let answers = answers.clone();
            scope.spawn(move || ask_on(round, agent, client, amounts, &answers));
        }
        drop(answers);
        let mut asked: Vec<_> = answered.iter().take(kill_after).collect();
        server.kill();
        asked.extend(answered);
        asked
    })
}

/// Everything that holds after the restart, for one round.
fn check(server: &TestServer, keys: &[String], asked: &[Asked]) {
    let clients: Vec<_> = keys.iter().map(|key| server.client(key)).collect();
    let mut effects: HashMap<String, String> = HashMap::new();
    for Asked { agent, key, body, answer } in asked {
        let retry = || clients[*agent].post_once(key, "/authorizations", body).unwrap();
        let first = retry();
        assert_eq!(first.status, 201, "{first:?}");
        if let Some(answer) = answer {
            assert_eq!(&first.body, answer, "what was acknowledged is replayed byte for byte");
            assert_eq!(first.header("idempotency-replayed"), Some("true"));
        }
        let second = retry();
        assert_eq!(
            (second.body.as_str(), second.header("idempotency-replayed")),
            (first.body.as_str(), Some("true"))
        );
        let decision = clients[*agent].get(&format!("/decisions/{}", first.text("/decision")));
        assert_eq!(decision.text("/verdict"), first.text("/verdict"));
        if let Some(token) = first.json()["verdict_token"].as_str() {
            assert_eq!(decision.text("/verdict_token"), token);
        }
        let before = effects.insert(first.text("/decision"), key.clone());
        assert_eq!(before, None, "two keys have one effect");
    }
    let mut kept = 0;
    for client in &clients {
        let mut spent = 0;
        for decision in client.decisions() {
            let id = decision["jti"].as_str().unwrap();
            assert!(effects.contains_key(id), "an effect without a request: {decision}");
            kept += 1;
            if decision["verdict"] == "allow" {
                spent += decision["request"]["amount"].as_i64().unwrap();
            }
        }
        assert!(spent <= PER_MONTH, "{spent} is more than {PER_MONTH}");
    }
    assert_eq!(kept, effects.len(), "each key has one effect");
}

#[test]
fn what_was_acknowledged_survives_and_no_retry_has_a_second_effect() {
    let data = tempfile::tempdir().unwrap();
    let mut runner = campaign::runner("crash", 1);
    let plan = (proptest::collection::vec(10_u32..90, 20), 1_usize..150);
    let mut past: Vec<(Vec<String>, Vec<Asked>)> = Vec::new();
    let mut issuers = Vec::new();
    let mut start = || {
        let server = TestServer::start_in(data.path());
        issuers.push(server.issuer());
        server
    };
    for round in 0..ROUNDS * campaign::scale() {
        let (amounts, kill_after) = plan.new_tree(&mut runner).unwrap().current();
        let keys: Vec<String> = {
            let server = start();
            let organization = server.demo();
            let agents = (0..AGENTS).map(|number| {
                let agent = Agent::register(&organization.client, &format!("buyer-{round}-{number}"));
                let mut limited = terms(&agent.id);
                limited["limits"]["per_month"] = json!(PER_MONTH);
                organization.mandate(&limited);
                agent.client.key().to_owned()
            });
            agents.collect()
        };
        let asked = crash(start(), round, &keys, &amounts, kill_after);
        assert!(asked.iter().filter(|asked| asked.answer.is_some()).count() >= kill_after);
        past.push((keys, asked));
        let server = start();
        let (keys, asked) = past.last().unwrap();
        check(&server, keys, asked);
    }
    // At the end once more, for every round.
    let server = start();
    for (keys, asked) in &past {
        check(&server, keys, asked);
    }
    let asked: usize = past.iter().map(|(_, asked)| asked.len()).sum();
    assert_eq!(server.hold(&server.demo().client, &issuers), asked, "each request was decided once");
}

/// An agent that asks while the disk fails, and how often it was answered.
struct Asking {
    key: String,
    client: Client,
    answered: Cell<usize>,
}

impl Asking {
    /// The agent whose registration was so answered; it has a mandate, and was answered once.
    fn of(organization: &Client, registered: &Answer) -> Self {
        assert_eq!(registered.status, 201, "{registered:?}");
        assert_eq!(organization.post("/mandates", &terms(&registered.text("/id"))).status, 201);
        let key = registered.text("/agent_key");
        let asking = Self { client: organization.with_key(&key), key, answered: Cell::new(0) };
        assert!(asking.asks());
        asking
    }

    /// Whether a request is decided.
    fn asks(&self) -> bool {
        let decided = self.client.post("/authorizations", &authorization(1)).status == 201;
        self.answered.set(self.answered.get() + usize::from(decided));
        decided
    }

    /// It asks another server on the same disk, whose log must hold all that was answered.
    fn goes_on(self, server: &TestServer, organization: &Client, issuer: String) {
        let goes_on = Self { client: server.client(&self.key), ..self };
        assert!(goes_on.asks());
        let decisions = server.hold(organization, &[issuer, server.issuer()]);
        // What met the failure got no answer, and may be there.
        let answered = goes_on.answered.get();
        assert!((answered..=answered + 1).contains(&decisions), "{decisions}, {answered} answered");
    }
}

/// Files of so many blocks hold the database of a new server, and little more.
const SMALL_FILE_BLOCKS: u32 = 1024;

#[test]
fn a_failing_disk_stops_the_store_until_the_server_is_started_again() {
    let root = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_with_small_files(root.path(), SMALL_FILE_BLOCKS);
    let (key, issuer) = (server.ready("organization_key").to_owned(), server.issuer());
    let (organization, ops) = (server.client(&key), server.stranger("ops_url"));
    let create = |number: usize| organization.post("/agents", &json!({"name": format!("agent-{number}")}));
    assert_eq!(ops.get("/readyz").status, 200);
    let asking = Asking::of(&organization, &create(0));
    let acknowledged =
        1 + (1..1000).take_while(|&number| create(number).status == 201 && asking.asks()).count();
    assert!((2..1000).contains(&acknowledged));
    for again in 1..4 {
        assert_eq!(create(acknowledged + again).status, 500);
    }
    let not_ready = ops.get("/readyz");
    let shown = (not_ready.status, not_ready.body.as_str());
    assert_eq!(shown, (503, "the store has stopped; restart the server\n"));
    assert!(ops.get("/metrics").body.contains("\nmandate_ready 0\n"));
    assert_eq!(ops.get("/livez").status, 200);
    let newest = format!("/agents/agt_agent-{}", acknowledged - 1);
    assert_eq!(organization.get(&newest).status, 200, "what is there can be read");
    let log = server.logged();
    assert_eq!(log.matches("look after the disk, then restart the server").count(), 1, "{log}");

    server.kill();
    let server = TestServer::start_in(root.path());
    let organization = server.client(&key);
    assert_eq!(server.stranger("ops_url").get("/readyz").status, 200);
    assert_eq!(organization.get(&newest).status, 200, "what was acknowledged is there");
    assert_eq!(organization.get(&format!("/agents/agt_agent-{}", acknowledged + 1)).status, 404);
    asking.goes_on(&server, &organization, issuer);
}

/// A library that lets the sync of one file fail.
const FAILING: &str = include_str!("disk/failing.c");
/// How many agents are registered, at most, until the log has grown so long that it is checkpointed.
const UNTIL_CHECKPOINT: usize = 2000;

/// Runs a server until the sync of a file of its database fails, and checks what must hold then. Returns how many
/// agents it had acknowledged before, one after another.
fn until_sync_fails(suffix: &str) -> usize {
    let (root, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let library = library(beside.path(), FAILING);
    let (from, failures) = (beside.path().join("from"), beside.path().join("failures"));
    let file = root.path().join(format!("mandate-dev.db{suffix}"));
    let variables = [("FAILING_FILE", &*file), ("FAILING_FROM", &*from), ("FAILING_COUNT", &*failures)];
    let mut server = TestServer::start_with_library(root.path(), &library, &variables);
    let (key, issuer) = (server.ready("organization_key").to_owned(), server.issuer());
    let (organization, ops) = (server.client(&key), server.stranger("ops_url"));
    let create = |number: usize| organization.post("/agents", &json!({"name": format!("agent-{number}")}));
    let asking = Asking::of(&organization, &create(0));
    std::fs::write(&from, "").unwrap();
    assert!(!failures.exists(), "nothing has failed yet");
    let goes_on = |number: &usize| create(*number).status == 201 && asking.asks();
    let acknowledged = 1 + (1..UNTIL_CHECKPOINT).take_while(goes_on).count();
    let failed = || std::fs::read(&failures).map_or(0, |bytes| bytes.len());
    assert_eq!(failed(), 1, "a sync has failed, after {acknowledged} agents");
    for again in 1..4 {
        assert_eq!(create(acknowledged + again).status, 500);
    }
    assert_eq!(ops.get("/readyz").status, 503);
    assert_eq!(organization.get("/agents/agt_agent-0").status, 200, "what is there can be read");
    let log = server.logged();
    assert_eq!(log.matches("look after the disk, then restart the server").count(), 1, "{log}");
    assert_eq!(failed(), 1, "it is not tried again");

    server.kill();
    let server = TestServer::start_in(root.path());
    let organization = server.client(&key);
    assert_eq!(server.stranger("ops_url").get("/readyz").status, 200);
    for number in 0..acknowledged {
        assert_eq!(organization.get(&format!("/agents/agt_agent-{number}")).status, 200, "agent {number}");
    }
    // The request that met the failure got no answer. Those after it were refused.
    assert_eq!(organization.get(&format!("/agents/agt_agent-{}", acknowledged + 1)).status, 404);
    asking.goes_on(&server, &organization, issuer);
    acknowledged
}

#[test]
fn a_log_that_cannot_be_synced_stops_the_store_and_what_was_acknowledged_is_there() {
    assert_eq!(until_sync_fails("-wal"), 1, "each is acknowledged when it is synced");
}

#[test]
fn a_log_that_cannot_be_checkpointed_stops_the_store_and_what_was_acknowledged_is_there() {
    // Each is durable by the sync of the log; that of the database comes with the checkpoint.
    assert!(until_sync_fails("") > 1);
}
