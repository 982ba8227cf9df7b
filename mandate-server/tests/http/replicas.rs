//! Two servers on one database, asked at once: every promise holds as if there were one. Run on several threads, so that
//! the two are in fact at work at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::wire::Reply;
use crate::world::{World, spend};

/// How often each race is run.
const ROUNDS: usize = 5;
/// How many ask at once.
pub(crate) const RACERS: usize = 24;

/// Two servers that agree about the time.
async fn pair() -> [World; 2] {
    let one = World::start().await;
    let other = one.beside(Arc::clone(&one.clock)).await;
    [one, other]
}

/// The same request, so many times at once, to one server after another.
pub(crate) async fn race(
    servers: &[World; 2],
    racers: usize,
    key: &str,
    path: &str,
    headers: &str,
    body: &Value,
) -> Vec<Reply> {
    let text = body.to_string();
    let asked = (0..racers).map(|number| servers[number % 2].post_text(key, path, headers, &text));
    join_all(asked).await
}

pub(crate) fn verdicts<'a>(replies: impl IntoIterator<Item = &'a Reply>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for reply in replies {
        assert_eq!(reply.status, 201, "{}", reply.body);
        *counts.entry(reply.json()["verdict"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

pub(crate) fn statuses(replies: &[Reply]) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for reply in replies {
        *counts.entry(reply.status).or_default() += 1;
    }
    counts
}

/// All objects of a list, newest first.
pub(crate) async fn all(world: &World, key: &str, path: &str) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    let and = if path.contains('?') { '&' } else { '?' };
    loop {
        let mut page = world.get(key, &format!("{path}{and}limit=100{cursor}")).await.json();
        found.append(page["data"].as_array_mut().unwrap());
        let Some(next) = page["next_cursor"].as_str() else { return found };
        cursor = format!("&cursor={next}");
    }
}

/// Writes a mandate of [`World::mandate`] with a monthly limit.
pub(crate) async fn limited(world: &World, agent: &str, per_month: u32) -> String {
    let mandate = json!({
        "principal": "role:finance", "agent": agent, "categories": ["software"], "review_above": 200,
        "limits": { "per_transaction": 500, "per_month": per_month, "currency": "USD" },
        "expires": "2026-12-31",
    });
    let written = world.post(&world.organization_key, "/v1/mandates", &mandate).await;
    assert_eq!(written.status, 201, "{}", written.body);
    written.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_under_one_key_is_decided_once() {
    let servers = pair().await;
    let agent = servers[0].agent("a").await;
    servers[0].mandate("agt_a").await;
    for round in 0..ROUNDS {
        let headers = format!("Idempotency-Key: payment-{round}\r\n");
        let replies = race(&servers, 8, &agent, "/v1/authorizations", &headers, &spend(1)).await;
        assert_eq!(replies.iter().filter(|reply| !reply.replayed()).count(), 1);
        assert!(replies.iter().all(|reply| (reply.status, &reply.body) == (201, &replies[0].body)));

        let created = json!({ "name": format!("b{round}") });
        let headers = format!("Idempotency-Key: agent-{round}\r\n");
        let key = &servers[0].organization_key;
        let replies = race(&servers, 8, key, "/v1/agents", &headers, &created).await;
        assert_eq!(replies.iter().filter(|reply| !reply.replayed()).count(), 1);
        assert!(replies.iter().all(|reply| (reply.status, &reply.body) == (201, &replies[0].body)));
    }
    assert_eq!(all(&servers[1], &agent, "/v1/decisions").await.len(), ROUNDS);
    servers[0].holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_under_one_key_is_decided_once_over_midnight() {
    let servers = pair().await;
    let clock = Arc::clone(&servers[0].clock);
    let agent = servers[0].agent("a").await;
    servers[0].mandate("agt_a").await;
    // A second before the end of the day.
    clock.advance(12 * 60 * 60 - 1);
    for round in 0..ROUNDS {
        let headers = format!("Idempotency-Key: payment-{round}\r\n");
        let body = spend(1);
        let midnight = async {
            tokio::task::yield_now().await;
            clock.advance(1);
        };
        let asked = race(&servers, 8, &agent, "/v1/authorizations", &headers, &body);
        let (mut replies, ()) = tokio::join!(asked, midnight);
        replies.extend(race(&servers, 4, &agent, "/v1/authorizations", &headers, &body).await);
        assert_eq!(replies.iter().filter(|reply| !reply.replayed()).count(), 1);
        assert!(replies.iter().all(|reply| (reply.status, &reply.body) == (201, &replies[0].body)));
        clock.advance(24 * 60 * 60 - 1);
    }
    assert_eq!(all(&servers[1], &agent, "/v1/decisions").await.len(), ROUNDS);
    servers[0].holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_for_two_requests_is_a_conflict_for_one_of_them() {
    let servers = pair().await;
    let agent = servers[0].agent("a").await;
    servers[0].mandate("agt_a").await;
    for round in 0..ROUNDS {
        let headers = format!("Idempotency-Key: payment-{round}\r\n");
        let (one, other) = (spend(1).to_string(), spend(2).to_string());
        let (one, other) = tokio::join!(
            servers[0].post_text(&agent, "/v1/authorizations", &headers, &one),
            servers[1].post_text(&agent, "/v1/authorizations", &headers, &other)
        );
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409], "{} {}", one.body, other.body);
    }
    assert_eq!(all(&servers[1], &agent, "/v1/decisions").await.len(), ROUNDS);
    servers[0].holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_is_never_passed_and_velocity_is_counted_together() {
    let servers = pair().await;
    for round in 0..ROUNDS {
        let name = format!("a{round}");
        let agent = servers[0].agent(&name).await;
        limited(&servers[0], &format!("agt_{name}"), 100).await;
        // Three times 30 fit into 100.
        let replies = race(&servers, RACERS, &agent, "/v1/authorizations", "", &spend(30)).await;
        let wanted = [("allow".to_owned(), 3), ("deny_limit".to_owned(), RACERS - 3)];
        assert_eq!(verdicts(&replies), BTreeMap::from(wanted));

        let name = format!("b{round}");
        let agent = servers[1].agent(&name).await;
        limited(&servers[1], &format!("agt_{name}"), 1000).await;
        let replies = race(&servers, RACERS, &agent, "/v1/authorizations", "", &spend(1)).await;
        let wanted = [("allow".to_owned(), 10), ("deny_velocity".to_owned(), RACERS - 10)];
        assert_eq!(verdicts(&replies), BTreeMap::from(wanted));
        let kept = all(&servers[0], &agent, "/v1/decisions").await;
        let nonces: BTreeSet<_> = kept.iter().map(|decision| decision["nonce"].to_string()).collect();
        assert_eq!((kept.len(), nonces.len()), (RACERS, RACERS));
        let usage = servers[1].get(&agent, "/v1/usage").await.json();
        assert_eq!((&usage["data"][0]["requests"], &usage["data"][0]["spent"]), (&json!(RACERS), &json!(10)));
    }
    servers[0].holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_agents_at_once_make_no_deadlock_and_lose_nothing() {
    const AGENTS: usize = 12;
    let servers = pair().await;
    let mut keys = Vec::new();
    for number in 0..AGENTS {
        keys.push(servers[0].agent(&format!("a{number:02}")).await);
        limited(&servers[0], &format!("agt_a{number:02}"), 100).await;
    }
    for round in 0..ROUNDS {
        // One server is asked in the order of the agents, the other in the opposite one.
        let body = spend(1);
        let asked = (0..2 * AGENTS).map(|number| {
            let agent = if number % 2 == 0 { number / 2 } else { AGENTS - 1 - number / 2 };
            servers[number % 2].post(&keys[agent], "/v1/authorizations", &body)
        });
        let replies = join_all(asked).await;
        assert_eq!(verdicts(&replies), BTreeMap::from([("allow".to_owned(), 2 * AGENTS)]), "round {round}");
        assert_eq!(
            all(&servers[0], &servers[0].organization_key, "/v1/decisions").await.len(),
            2 * AGENTS * (round + 1)
        );
    }
    servers[0].holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_resolution_of_a_review_wins() {
    let servers = pair().await;
    let agent = servers[0].agent("a").await;
    limited(&servers[0], "agt_a", 2000).await;
    let key = &servers[0].organization_key;
    for round in 0..ROUNDS {
        let asked = servers[round % 2].post(&agent, "/v1/authorizations", &spend(300)).await.json();
        let review = asked["review"]["id"].as_str().unwrap();
        let (approve, deny) = (format!("/v1/reviews/{review}/approve"), format!("/v1/reviews/{review}/deny"));
        let replies = join_all((0..8).map(|number| {
            let path = if number % 4 < 2 { &approve } else { &deny };
            servers[number % 2].send("POST", path, key, "", "")
        }));
        let replies = replies.await;
        let won: Vec<_> = replies.iter().filter(|reply| reply.succeeded()).collect();
        assert_eq!(won.len(), 1, "{:?}", statuses(&replies));
        let resolved = if won[0].status == 201 { "approved" } else { "denied" };
        for lost in replies.iter().filter(|reply| !reply.succeeded()) {
            assert!(lost.refused(400, "invalid_request").contains(resolved));
        }
        let kept = all(&servers[0], &agent, "/v1/decisions").await;
        let fresh = kept.iter().filter(|decision| decision["supersedes"] == asked["decision"]).count();
        assert_eq!(fresh, usize::from(resolved == "approved"));
    }
    servers[0].holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_revocation_here_nothing_is_allowed_there() {
    let servers = pair().await;
    for round in 0..ROUNDS {
        let name = format!("a{round}");
        let agent = servers[0].agent(&name).await;
        let mandate = servers[0].mandate(&format!("agt_{name}")).await;
        let (here, there) = (&servers[round % 2], &servers[1 - round % 2]);
        assert_eq!(verdicts([&there.post(&agent, "/v1/authorizations", &spend(1)).await])["allow"], 1);
        let revoke = format!("/v1/mandates/{mandate}/revoke");
        // Some ask while it is being revoked, and one when that has been answered.
        let body = spend(1);
        let (revoked, meanwhile) = tokio::join!(
            here.send("POST", &revoke, &here.organization_key, "", ""),
            join_all((0..4).map(|_| there.post(&agent, "/v1/authorizations", &body)))
        );
        assert_eq!((revoked.status, meanwhile.len()), (200, 4), "{}", revoked.body);
        let after = there.post(&agent, "/v1/authorizations", &spend(1)).await;
        assert_eq!(verdicts([&after])["deny_revoked"], 1);
        let mut order = all(here, &agent, "/v1/decisions").await;
        order.reverse();
        let first = order.iter().position(|decision| decision["verdict"] == "deny_revoked").unwrap();
        assert!(order[first..].iter().all(|decision| decision["verdict"] == "deny_revoked"));
    }
    let events = all(&servers[0], &servers[0].organization_key, "/v1/events").await;
    assert_eq!(events.iter().filter(|event| event["type"] == "mandate.revoked").count(), ROUNDS);
    servers[0].holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mode_switched_here_is_that_of_the_next_decision_there() {
    let servers = pair().await;
    let agent = servers[0].agent("a").await;
    servers[0].mandate("agt_a").await;
    for (round, mode) in ["observe", "enforce", "observe", "enforce"].into_iter().enumerate() {
        let (here, there) = (&servers[round % 2], &servers[1 - round % 2]);
        let switched = here.post(&here.organization_key, "/v1/enforcement", &json!({ "mode": mode })).await;
        assert_eq!(switched.status, 200, "{}", switched.body);
        let next = there.post(&agent, "/v1/authorizations", &spend(1)).await.json();
        assert_eq!(next["mode"], mode);
        let shown = there.get(&there.organization_key, "/v1/enforcement").await;
        assert_eq!(shown.json(), switched.json());
    }
    servers[0].holds();
}

#[tokio::test(flavor = "multi_thread")]
async fn names_mandates_webhooks_and_escrows_are_taken_once() {
    let servers = pair().await;
    let key = servers[0].organization_key.as_str();
    let agent = servers[0].agent("a").await;
    for round in 0..ROUNDS {
        let named = race(&servers, 8, key, "/v1/agents", "", &json!({ "name": format!("b{round}") })).await;
        assert_eq!(statuses(&named), BTreeMap::from([(201, 1), (409, 7)]));

        let mandates = join_all((0..6).map(|number| limited(&servers[number % 2], "agt_a", 1000))).await;
        let kept = all(&servers[0], key, "/v1/mandates").await;
        let active: Vec<_> = kept.iter().filter(|mandate| mandate["status"] == "active").collect();
        assert_eq!((active.len(), kept.len()), (1, mandates.len() * (round + 1)));
        // Each of the others was replaced by one that came later, and none by two.
        let replaced = kept.iter().filter(|mandate| mandate["status"] == "replaced");
        let by: BTreeSet<_> = replaced.map(|mandate| mandate["replaced_by"].to_string()).collect();
        assert_eq!(by.len(), kept.len() - 1, "{kept:#?}");

        let allowed = servers[0].post(&agent, "/v1/authorizations", &spend(1)).await.json();
        let deal = json!({ "decision": allowed["decision"], "condition": "goods", "refund_after": "2027-06-30T00:00:00Z" });
        let escrows = race(&servers, 6, key, "/v1/escrows", "", &deal).await;
        assert_eq!(statuses(&escrows)[&201], 1, "{:?}", statuses(&escrows));
        let escrow = escrows.iter().find(|reply| reply.status == 201).unwrap().json();
        let path = format!("/v1/escrows/{}/transitions", escrow["escrow"].as_str().unwrap());
        let moved = race(&servers, 6, key, &path, "", &json!({ "to": "delivered" })).await;
        assert_eq!(statuses(&moved), BTreeMap::from([(200, 1), (400, 5)]));
    }
    let hook = json!({ "url": "https://hooks.example.com/m", "events": ["mandate.revoked"] });
    let hooks = race(&servers, 24, key, "/v1/webhooks", "", &hook).await;
    assert_eq!(statuses(&hooks), BTreeMap::from([(201, 16), (400, 8)]));
    servers[0].holds();
}
