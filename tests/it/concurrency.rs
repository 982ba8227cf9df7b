//! Limits under concurrent requests: exact, whatever the order in which they arrive.

use std::collections::{BTreeMap, HashSet};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mandate_tests::Kind;
use serde_json::{Value, json};

use crate::harness::{Agent, Answer, Service, authorization, on_both, terms};

on_both! {
    of_64_threads_ten_requests_a_minute_get_through,
    of_64_threads_none_gets_one_allow_too_many_in_a_month,
    many_agents_spend_what_their_months_permit,
    of_racing_retries_one_is_carried_out,
    one_resolution_of_a_review_wins,
    after_a_revocation_is_answered_nothing_is_allowed,
}

/// Threads that ask for one agent, and how often each does.
const HAMMERING: usize = 64;
const BLOWS: usize = 12;

/// Runs `work` on so many threads at once, each with its number.
fn at_once<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        let run = |number| {
            let (start, work) = (&start, &work);
            move || {
                start.wait();
                work(number)
            }
        };
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(run(number))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// How often each verdict came.
fn count(answers: impl IntoIterator<Item = Answer>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        assert_eq!(answer.status, 201, "{answer:?}");
        *counts.entry(answer.text("/verdict")).or_default() += 1;
    }
    counts
}

fn with_verdict<'a>(decisions: &'a [Value], verdict: &str) -> impl Iterator<Item = &'a Value> {
    decisions.iter().filter(move |decision| decision["verdict"] == verdict)
}

/// 64 threads ask for the same amount, over and over.
fn hammer(agent: &Agent, amount: u32) -> Vec<Answer> {
    let start = Instant::now();
    let asked = at_once(HAMMERING, |_| {
        let client = agent.client.apart();
        (0..BLOWS).map(|_| client.post("/authorizations", &authorization(amount))).collect::<Vec<_>>()
    });
    assert!(start.elapsed() < Duration::from_mins(1), "the machine is too slow for this test");
    asked.into_iter().flatten().collect()
}

fn of_64_threads_ten_requests_a_minute_get_through(kind: Kind) {
    let service = Service::start(kind);
    let organization = service.demo();
    let agent = organization.buyer("buyer");
    let wanted = [("allow".to_owned(), 10), ("deny_velocity".to_owned(), HAMMERING * BLOWS - 10)];
    assert_eq!(count(hammer(&agent, 1)), BTreeMap::from(wanted));

    let kept = agent.client.decisions();
    assert_eq!((kept.len(), with_verdict(&kept, "allow").count()), (HAMMERING * BLOWS, 10));
    let nonces: HashSet<_> = kept.iter().map(|decision| decision["nonce"].as_str().unwrap()).collect();
    assert_eq!(nonces.len(), kept.len());
    assert_eq!(service.hold(&organization.client), HAMMERING * BLOWS);
}

fn of_64_threads_none_gets_one_allow_too_many_in_a_month(kind: Kind) {
    let service = Service::start(kind);
    let organization = service.demo();
    let agent = organization.agent("buyer");
    let mut limited = terms(&agent.id);
    limited["limits"]["per_month"] = json!(100);
    organization.mandate(&limited);
    // Three times 30 fit into 100; after that the month denies before the velocity rule does.
    let wanted = [("allow".to_owned(), 3), ("deny_limit".to_owned(), HAMMERING * BLOWS - 3)];
    assert_eq!(count(hammer(&agent, 30)), BTreeMap::from(wanted));
    let last = agent.client.decisions().remove(0);
    assert_eq!(last["basis"], json!({ "spent": 90, "recent_requests": 10 }));
    assert_eq!(service.hold(&organization.client), HAMMERING * BLOWS);
}

fn many_agents_spend_what_their_months_permit(kind: Kind) {
    const AGENTS: usize = 12;
    let service = Service::start(kind);
    let organization = service.demo();
    let agents: Vec<Agent> = (0..AGENTS)
        .map(|number| {
            let agent = organization.agent(&format!("buyer-{number}"));
            let mut limited = terms(&agent.id);
            limited["limits"]["per_month"] = json!(100);
            organization.mandate(&limited);
            agent
        })
        .collect();
    // Each agent asks ten times at once: three times 30 fit into 100.
    let answers = at_once(AGENTS * 10, |number| {
        let agent = &agents[number % AGENTS];
        (number % AGENTS, agent.client.apart().post("/authorizations", &authorization(30)))
    });
    let mut of_agent: Vec<Vec<Answer>> = agents.iter().map(|_| Vec::new()).collect();
    for (agent, answer) in answers {
        of_agent[agent].push(answer);
    }
    let wanted = BTreeMap::from([("allow".to_owned(), 3), ("deny_limit".to_owned(), 7)]);
    for answers in of_agent {
        assert_eq!(count(answers), wanted);
    }

    let kept = organization.client.decisions();
    let spent: i64 =
        with_verdict(&kept, "allow").map(|decision| decision["request"]["amount"].as_i64().unwrap()).sum();
    assert_eq!((kept.len(), spent), (AGENTS * 10, 90 * i64::try_from(AGENTS).unwrap()));
    assert_eq!(service.hold(&organization.client), AGENTS * 10);
}

fn of_racing_retries_one_is_carried_out(kind: Kind) {
    const THREADS: usize = 8;
    let service = Service::start(kind);
    let organization = service.demo();
    let agent = organization.buyer("buyer");
    for round in 0..10 {
        let answers = at_once(THREADS, |_| {
            let key = format!("payment-{round}");
            agent.client.apart().post_once(&key, "/authorizations", &authorization(7)).unwrap()
        });
        let fresh = answers.iter().filter(|answer| answer.header("idempotency-replayed").is_none());
        assert_eq!(fresh.count(), 1);
        assert!(answers.iter().all(|answer| answer.status == 201 && answer.body == answers[0].body));

        let created = at_once(THREADS, |_| {
            let body = json!({ "name": format!("agent-{round}") });
            organization.client.apart().post_once(&format!("agent-{round}"), "/agents", &body).unwrap()
        });
        assert!(created.iter().all(|answer| answer.status == 201 && answer.body == created[0].body));
    }
    let kept = agent.client.decisions();
    assert_eq!((kept.len(), with_verdict(&kept, "allow").count()), (10, 10), "a replay is no request");
    assert_eq!(service.hold(&organization.client), 10);
}

fn one_resolution_of_a_review_wins(kind: Kind) {
    const THREADS: usize = 16;
    let service = Service::start(kind);
    let organization = service.demo();
    let agent = organization.buyer("buyer");
    for round in 0..6 {
        let review = agent.ask(300).text("/review/id");
        let answers = at_once(THREADS, |number| {
            // In every other round some deny.
            let action = if round % 2 == 1 && number % 2 == 1 { "deny" } else { "approve" };
            organization.client.apart().act(&format!("/reviews/{review}/{action}"))
        });
        let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status < 300);
        assert_eq!(won.len(), 1, "{won:?}");
        let resolved = if won[0].status == 201 { "approved" } else { "denied" };
        let message = format!("the review is {resolved}; only a pending review can be resolved");
        for answer in lost {
            answer.refused(400, "invalid_request", &message);
        }
    }
    let kept = agent.client.decisions();
    let fresh = kept.iter().filter(|decision| !decision["supersedes"].is_null()).count();
    let approved =
        with_verdict(&kept, "review").filter(|decision| decision["review"]["status"] == "approved").count();
    assert_eq!((fresh, kept.len()), (approved, 6 + approved));
    assert_eq!(service.hold(&organization.client), 6 + approved);
}

fn after_a_revocation_is_answered_nothing_is_allowed(kind: Kind) {
    const ASKING: usize = 8;
    let service = Service::start(kind);
    let organization = service.demo();
    for round in 0..12 {
        let agent = organization.agent(&format!("buyer-{round}"));
        let mandate = organization.mandate(&terms(&agent.id));
        let revoked = AtomicBool::new(false);
        at_once(ASKING + 1, |number| {
            if number == 0 {
                let answer = organization.client.apart().act(&format!("/mandates/{mandate}/revoke"));
                assert_eq!(answer.status, 200);
                revoked.store(true, Ordering::SeqCst);
                return;
            }
            let client = agent.client.apart();
            let mut before = false;
            while !before {
                before = revoked.load(Ordering::SeqCst);
                let verdict = client.post("/authorizations", &authorization(1)).text("/verdict");
                assert!(!before || verdict == "deny_revoked", "{verdict}, after the revocation was answered");
            }
        });
        // In the order of the record, too, nothing follows a denial for revocation but the same.
        let mut in_order = agent.client.decisions();
        in_order.reverse();
        let first = in_order.iter().position(|decision| decision["verdict"] == "deny_revoked").unwrap();
        assert!(in_order[first..].iter().all(|decision| decision["verdict"] == "deny_revoked"));
        assert!(with_verdict(&in_order, "allow").count() <= 10);
    }
    assert!(service.hold(&organization.client) >= 12 * ASKING);
}
