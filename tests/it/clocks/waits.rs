//! What waits for an agent's row is dated behind the wait, by the database's clock, whether the wait ended in its time or was
//! begun again.

use std::thread;
use std::time::Duration;

use mandate_core::{DecisionId, EventId, MandateId, Timestamp};
use mandate_tests::Kind;
use mandate_tests::cluster::{OpenTransaction, query, run};
use mandate_tests::wait::until;

use super::HOUR;
use super::database::{NOW, WAITING};
use crate::harness::{Agent, Answer, DEADLINE, Organization, Replicas, authorization, terms};

/// Less than a script waits for a lock before it is run again (500 ms), and than a batch does (3 s).
const SHORT: Duration = Duration::from_millis(100);
/// How often a wait may be cut short by its limit before it ends in time: the machine may be slow.
const TRIES: usize = 20;
/// The transactions that wait for a lock, and the time. One that is run again is another.
const WAITERS: &str = "SELECT coalesce(string_agg(pid || ' since ' || xact_start, ', '), ''),
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// It is held for longer than any wait: what waits is run again.
#[test]
fn what_waited_for_an_agents_row_is_dated_behind_the_wait() {
    let database = Kind::Postgres.fresh();
    let url = database.url();
    // The server's own clock dates nothing.
    let replicas = Replicas::with_clocks(url, &[-HOUR]);
    let organization = replicas.organization("acme");
    for commits in [false, true] {
        let agent = organization.agent(&format!("held-{commits}"));
        let mandate = organization.mandate(&terms(&agent.id));
        let review = agent.ask(300).text("/review/id");
        let paths = [
            "/authorizations".to_owned(),
            format!("/reviews/{review}/approve"),
            format!("/mandates/{mandate}/revoke"),
        ];
        for path in paths {
            let (answer, ended) = held(url, &agent.id, commits, || match path.as_str() {
                "/authorizations" => agent.client.apart().post(&path, &authorization(1)),
                path => organization.client.apart().act(path),
            });
            assert!(answer.status < 300, "{answer:?}");
            let dated = match answer.json()["revoked_at"].as_str() {
                Some(revoked_at) => revoked_at.to_owned(),
                None => organization
                    .client
                    .get(&format!("/decisions/{}", answer.text("/decision")))
                    .text("/decided_at"),
            };
            let dated = Timestamp::parse(&dated).unwrap();
            assert!(dated.millis() >= ended, "{path}, commits: {commits}: {dated}, {ended}");
        }
    }
    assert_eq!(replicas.hold(&organization.client), 6);
}

/// Asks while another transaction holds the agent's row for 3 s. Returns the answer, and when that one ended, by the
/// database's clock.
fn held(url: &str, agent: &str, commits: bool, ask: impl FnOnce() -> Answer + Send) -> (Answer, i64) {
    let hold = format!("UPDATE agents SET created_at = created_at WHERE agent = '{agent}'");
    let holder = OpenTransaction::begin(url, &hold);
    thread::scope(|scope| {
        let asked = scope.spawn(ask);
        until(DEADLINE, "it waits for the row", || (query(url, WAITING) != "0").then_some(()));
        run(url, "SELECT pg_sleep(3)");
        let ended: i64 = query(url, NOW).parse().unwrap();
        if commits {
            holder.commit();
        } else {
            holder.roll_back();
        }
        (asked.join().unwrap(), ended)
    })
}

/// All that reads the time once it holds an agent's row.
#[derive(Debug, Clone, Copy)]
enum Path {
    Authorize,
    Approve,
    Deny,
    Revoke,
    Replace,
}

impl Path {
    const ALL: [Self; 5] = [Self::Authorize, Self::Approve, Self::Deny, Self::Revoke, Self::Replace];

    /// Goes it, for an agent with this mandate and this review.
    fn go(self, organization: &Organization, agent: &Agent, mandate: &str, review: &str) -> Answer {
        let act = |path: &str| organization.client.apart().act(path);
        match self {
            Self::Authorize => agent.client.apart().post("/authorizations", &authorization(1)),
            Self::Approve => act(&format!("/reviews/{review}/approve")),
            Self::Deny => act(&format!("/reviews/{review}/deny")),
            Self::Revoke => act(&format!("/mandates/{mandate}/revoke")),
            Self::Replace => organization.client.apart().post("/mandates", &terms(&agent.id)),
        }
    }

    /// The instant that the answer shows, and those in the ids that were drawn.
    fn dated(self, organization: &Organization, answer: &Answer) -> (Timestamp, Vec<Timestamp>) {
        let client = &organization.client;
        let decided = |id: &str| {
            let decided_at = client.get(&format!("/decisions/{id}")).text("/decided_at");
            (decided_at, DecisionId::parse(id).unwrap().created_at())
        };
        let event = |kind: &str| {
            let id = client.get(&format!("/events?limit=1&type={kind}")).text("/data/0/event");
            EventId::parse(&id).unwrap().created_at()
        };
        let (shown, ids) = match self {
            Self::Authorize => {
                let (shown, id) = decided(&answer.text("/decision"));
                (shown, vec![id])
            }
            Self::Approve => {
                let (shown, id) = decided(&answer.text("/decision"));
                (shown, vec![id, event("decision.resolved")])
            }
            Self::Deny => (answer.text("/review/resolved_at"), vec![event("decision.resolved")]),
            Self::Revoke => (answer.text("/revoked_at"), vec![event("mandate.revoked")]),
            Self::Replace => {
                let id = MandateId::parse(&answer.text("/id")).unwrap();
                (answer.text("/created_at"), vec![id.created_at()])
            }
        };
        (Timestamp::parse(&shown).unwrap(), ids)
    }
}

/// Goes a path while another transaction holds the agent's row. Returns the answer, when that one ended, by the database's
/// clock, and whether the path was in its first wait then.
fn waiting(
    url: &str,
    agent: &Agent,
    commits: bool,
    go: impl FnOnce() -> Answer + Send,
) -> (Answer, i64, bool) {
    let hold = format!("UPDATE agents SET created_at = created_at WHERE agent = '{}'", agent.id);
    let holder = OpenTransaction::begin(url, &hold);
    thread::scope(|scope| {
        let asked = scope.spawn(go);
        let waiters = || {
            let shown = query(url, WAITERS);
            let (waiters, now) = shown.rsplit_once('|').unwrap();
            (waiters.to_owned(), now.parse::<i64>().unwrap())
        };
        let first =
            until(DEADLINE, "it waits for the row", || Some(waiters().0).filter(|first| !first.is_empty()));
        thread::sleep(SHORT);
        let (last, ended) = waiters();
        if commits {
            holder.commit();
        } else {
            holder.roll_back();
        }
        (asked.join().unwrap(), ended, first == last)
    })
}

/// A statement computes what it selects before it waits for the row. Where the holder rolls back, it is not computed again.
#[test]
fn what_is_in_its_wait_when_the_holder_ends_is_dated_behind_it() {
    let database = Kind::Postgres.fresh();
    let url = database.url();
    // The server's own clock dates nothing.
    let replicas = Replicas::with_clocks(url, &[-HOUR]);
    let organization = replicas.organization("acme");
    for path in Path::ALL {
        for commits in [false, true] {
            let in_time = (0..TRIES).any(|number| {
                let name = format!("{path:?}-{commits}-{number}").to_lowercase();
                let agent = organization.agent(&name);
                let mandate = organization.mandate(&terms(&agent.id));
                let review = agent.ask(300).text("/review/id");
                let go = || path.go(&organization, &agent, &mandate, &review);
                let (answer, ended, in_time) = waiting(url, &agent, commits, go);
                assert!(answer.status < 300, "{answer:?}");
                let (shown, ids) = path.dated(&organization, &answer);
                for at in ids.into_iter().chain([shown]) {
                    assert!(at.millis() >= ended, "{path:?}, commits: {commits}: {at}, {ended}");
                }
                in_time
            });
            assert!(in_time, "{path:?}: each of {TRIES} waits came to its limit");
        }
    }
    assert!(replicas.hold(&organization.client) >= 10);
}
