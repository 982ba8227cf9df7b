//! Every list, over HTTP: what was there when a walk began comes once, in both directions, while more is written.

use mandate_server::http::router::table;
use reqwest::Method;
use serde_json::Value;

use crate::samples::{sample, terms};
use crate::tenants::{Tenant, Tenants, text};
use crate::world::World;

/// Each list, what adds to it, and the member that is an object's id.
const LISTS: [(&str, &str, &str); 6] = [
    ("/v1/agents", "/v1/agents", "id"),
    ("/v1/mandates", "/v1/mandates", "id"),
    ("/v1/decisions", "/v1/authorizations", "jti"),
    ("/v1/webhooks", "/v1/webhooks", "webhook"),
    ("/v1/events", "/v1/mandates/{id}/revoke", "event"),
    ("/v1/escrows", "/v1/escrows", "escrow"),
];
/// What is read by GET without an id, and is no list of objects.
const NO_LISTS: [&str; 2] = ["/v1/enforcement", "/v1/usage"];

async fn add(tenants: &Tenants, path: &str) {
    let ours = &tenants.ours;
    let sample = sample(ours, "POST", path).await;
    let key = ours.key(table().iter().find(|r| r.path == path && r.method == Method::POST).unwrap().key);
    let asking = ours.client.request(&Method::POST, &path.replace("{id}", &sample.id)).bearer_auth(key);
    let asking = if sample.body.is_null() { asking } else { asking.json(&sample.body) };
    assert!(asking.asked().await.succeeded());
    // Ten requests of an agent in any minute are enough.
    tenants.world.clock.advance(7);
}

async fn page(ours: &Tenant, list: &str, query: &str) -> Value {
    ours.client.get(&format!("{list}?{query}")).bearer_auth(&ours.organization_key).asked().await.json()
}

fn ids(page: &Value, member: &str) -> Vec<String> {
    page["data"].as_array().unwrap().iter().map(|object| text(&object[member])).collect()
}

#[tokio::test]
async fn every_list_gives_each_row_once_while_it_grows() {
    let tenants = &Tenants::new().await;
    let ours = &tenants.ours;
    for (list, path, member) in LISTS {
        for _ in 0..3 {
            add(tenants, path).await;
        }
        let there = ids(&page(ours, list, "limit=100").await, member);
        let oldest = there.last().unwrap();
        for (start, mut wanted) in [
            (String::new(), there.clone()),
            (format!("&ending_before={oldest}"), there[..there.len() - 1].to_vec()),
            (format!("&starting_after={}", there[0]), there[1..].to_vec()),
        ] {
            let (mut query, mut seen) = (format!("limit=2{start}"), Vec::new());
            loop {
                let found = page(ours, list, &query).await;
                seen.extend(ids(&found, member));
                assert_eq!(found["has_more"], found.get("next_cursor").is_some(), "{list}");
                let Some(cursor) = found.get("next_cursor") else { break };
                query = format!("limit=2&cursor={}", text(cursor));
                add(tenants, path).await;
            }
            seen.retain(|id| wanted.contains(id));
            seen.sort();
            wanted.sort();
            assert_eq!(seen, wanted, "{list} {query}");
        }
    }
}

#[test]
fn no_list_is_forgotten() {
    let reads = table().into_iter().filter(|r| r.method == Method::GET && !r.path.contains('{'));
    let lists: Vec<_> = reads.map(|r| r.path).filter(|path| !NO_LISTS.contains(path)).collect();
    assert_eq!(lists.len(), LISTS.len());
    assert!(LISTS.iter().all(|(list, ..)| lists.contains(list)), "{lists:?}");
}

#[tokio::test]
async fn mandates_are_found_by_agent_and_status() {
    let Tenants { world, ours, .. } = &Tenants::new().await;
    let (agent, other) = (ours.agent().await, ours.agent().await);
    let write = async |agent: &str| text(&ours.create("/v1/mandates", &terms(agent)).await["id"]);
    let (replaced, revoked, active) = (write(&agent.0).await, write(&agent.0).await, write(&other.0).await);
    ours.create(&format!("/v1/mandates/{revoked}/revoke"), &serde_json::json!({})).await;
    let found = async |key: &str, query: &str| {
        let listed = ours.client.get(&format!("/v1/mandates?{query}")).bearer_auth(key).asked().await;
        assert_eq!(listed.status, 200, "{query}: {}", listed.body);
        ids(&listed.json(), "id")
    };
    let key = &ours.organization_key;
    assert_eq!(found(key, &format!("agent={}", agent.0)).await, [revoked.clone(), replaced.clone()]);
    for (status, wanted) in [("active", &active), ("revoked", &revoked), ("replaced", &replaced)] {
        assert_eq!(found(key, &format!("status={status}")).await, std::slice::from_ref(wanted), "{status}");
    }
    assert_eq!(found(key, &format!("status=revoked&agent={}", other.0)).await, [""; 0]);
    assert_eq!(found(&agent.1, "status=replaced").await, [replaced]);
    assert_eq!(
        found(&agent.1, &format!("agent={}", other.0)).await,
        [""; 0],
        "to an agent another is absent"
    );
    world.clock.advance(800 * 86_400);
    assert_eq!(found(key, "status=expired").await, std::slice::from_ref(&active));
    for (query, message) in [
        ("status=gone", "status must be active, revoked, replaced or expired; got `gone`"),
        ("agent=x", "agent must be `agt_` and the agent's name"),
    ] {
        let refused = ours.client.get(&format!("/v1/mandates?{query}")).bearer_auth(key).asked().await;
        assert!(refused.refused(400, "invalid_request").starts_with(message), "{}", refused.body);
    }
    // An agent names the mandate that governs it.
    for (agent, mandate) in [(&agent.0, &revoked), (&other.0, &active)] {
        let shown = ours.client.get(&format!("/v1/agents/{agent}")).bearer_auth(key).asked().await;
        assert_eq!(shown.json()["mandate"], mandate.as_str());
    }
    let (fresh, _) = ours.agent().await;
    let shown = ours.client.get(&format!("/v1/agents/{fresh}")).bearer_auth(key).asked().await.json();
    assert_eq!(shown.get("mandate"), None);
}

#[tokio::test]
async fn escrows_are_found_by_their_state_page_by_page() {
    let tenants = &Tenants::new().await;
    let ours = &tenants.ours;
    for _ in 0..5 {
        add(tenants, "/v1/escrows").await;
    }
    let all = ids(&page(ours, "/v1/escrows", "limit=100").await, "escrow");
    for id in [&all[1], &all[3]] {
        ours.create(&format!("/v1/escrows/{id}/transitions"), &serde_json::json!({"to": "delivered"})).await;
    }
    for (state, wanted) in
        [("delivered", vec![&all[1], &all[3]]), ("funded", vec![&all[0], &all[2], &all[4]])]
    {
        let (mut query, mut seen) = (format!("state={state}&limit=1"), Vec::new());
        loop {
            let found = page(ours, "/v1/escrows", &query).await;
            seen.extend(ids(&found, "escrow"));
            let Some(cursor) = found.get("next_cursor") else { break };
            query = format!("state={state}&limit=1&cursor={}", text(cursor));
        }
        assert_eq!(seen.iter().collect::<Vec<_>>(), wanted, "{state}");
    }
    let first = page(ours, "/v1/escrows", "state=funded&limit=1").await;
    let other = format!("/v1/escrows?state=delivered&limit=1&cursor={}", text(&first["next_cursor"]));
    let refused = ours.client.get(&other).bearer_auth(&ours.organization_key).asked().await;
    assert_eq!(refused.refused(400, "invalid_request"), "cursor expired or malformed");
}

/// Whether another agent exists is not for an agent to know.
#[tokio::test]
async fn to_an_agent_the_place_of_another_agent_is_no_place() {
    let world = World::start().await;
    let (key, _) = (world.agent("a").await, world.agent("b").await);
    for parameter in ["starting_after", "ending_before"] {
        let at = async |id: &str| world.get(&key, &format!("/v1/agents?{parameter}={id}")).await;
        assert_eq!(at("agt_a").await.status, 200);
        let (other, absent) = (at("agt_b").await, at("agt_x").await);
        assert_eq!(other.refused(400, "invalid_request").replace("agt_b", "agt_x"), absent.message());
    }
}
