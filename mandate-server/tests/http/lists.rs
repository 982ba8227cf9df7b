//! Every list, over HTTP: what was there when a walk began comes once, in both directions, while more is written.

use mandate_server::http::router::table;
use reqwest::Method;
use serde_json::Value;

use crate::samples::sample;
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
