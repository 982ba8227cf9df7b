//! The order of checks: request id, key, path, method, key class, rate, then the rest.

use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_core::{EnvironmentKind, Timestamp};
use mandate_server::service::keys::DEFAULT_RATE;

use crate::wire::exchange;
use crate::world::{World, spend};

/// Of two things that are wrong, the one that is checked first decides.
#[tokio::test]
async fn the_order_of_checks() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    let slow = world.agent("slow").await;
    world.change_key(&slow, |key| key.rate = 1);
    assert_eq!(world.post(&slow, "/v1/authorizations", &spend(1)).await.status, 201);
    let organization = world.organization_key.as_str();
    for (key, method, path, status, code) in [
        ("", "BREW", "/v1/nowhere", 401, "unauthorized"),
        ("", "GET", "/v1/agents", 401, "unauthorized"),
        (organization, "BREW", "/v1/nowhere", 404, "not_found"),
        (&agent, "BREW", "/v1/enforcement", 400, "invalid_request"),
        (&slow, "BREW", "/v1/authorizations", 400, "invalid_request"),
        (&slow, "GET", "/v1/enforcement", 403, "forbidden"),
        (&slow, "POST", "/v1/authorizations?x=1", 429, "rate_limited"),
        (&slow, "GET", "/v1/agents/agt_unknown", 429, "rate_limited"),
        (organization, "GET", "/v1/agents/agt_unknown?x=1", 400, "invalid_request"),
        (organization, "GET", "/v1/agents/agt_unknown", 404, "not_found"),
    ] {
        let reply = world.send(method, path, key, "", "").await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{method} {path}");
    }
}

/// Every answer to an invalid key is the same, so that it does not say what is wrong.
#[tokio::test]
async fn every_key_that_will_not_do_is_answered_alike() {
    let world = World::start().await;
    let revoked = world.onboard("gone");
    world.change_key(&revoked, |key| key.revoked_at = Some(Timestamp::from_millis(1)));
    let expired = world.onboard("late");
    world.change_key(&expired, |key| key.expires_at = Some(Timestamp::from_millis(1)));
    let unknown = ApiKey::from_random(KeyClass::Organization, EnvironmentKind::Sandbox, &[9; 32]);
    let bearer = |key: &str| format!("Authorization: Bearer {key}\r\n");
    let twice = bearer(&world.organization_key).repeat(2);
    let missing = exchange(world.running.api, "GET", "/v1/agents", "", b"").await;
    assert_eq!((missing.status, missing.code().as_str()), (401, "unauthorized"));
    assert_eq!(
        missing.message(),
        "the API key is missing or revoked; send it as `Authorization: Bearer <API_KEY>`. \
         Keys are issued at onboarding"
    );
    for headers in [
        bearer(&revoked),
        bearer(&expired),
        bearer(unknown.expose()),
        bearer("sk_sandbox_x"),
        bearer(&world.organization_key[..40]),
        format!("Authorization: Basic {}\r\n", world.organization_key),
        twice,
    ] {
        for path in ["/v1/agents", "/v1/nowhere", "/"] {
            let reply = exchange(world.running.api, "GET", path, &headers, b"").await;
            assert_eq!(reply.anonymous(), missing.anonymous(), "{headers}");
        }
    }
}

#[tokio::test]
async fn a_path_is_what_was_sent() {
    let world = World::start().await;
    for path in [
        "/",
        "/v1",
        "/v1/agents/",
        "/v1//agents",
        "//v1/agents",
        "/v1/./agents",
        "/v1/x/../agents",
        "/v1/%61gents",
        "/v1%2Fagents",
        "/V1/agents",
        "/v1/agents;x=1",
        "/v1/reviews",
        "/v1/reviews/rev_1",
        "/v1/policies",
        "/livez",
    ] {
        let reply = world.get(&world.organization_key, path).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"), "{path}");
    }
    world.agent("a").await;
    for id in ["agt_a%20", "%61gt_a", "agt_A", "a", "agt_", "agt_a%2F"] {
        let reply = world.get(&world.organization_key, &format!("/v1/agents/{id}")).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"), "{id}");
    }
    assert_eq!(world.get(&world.organization_key, "/v1/agents/agt_a").await.status, 200);
}

#[tokio::test]
async fn a_rate_limited_request_gets_the_time_to_wait() {
    let world = World::start().await;
    let key = world.agent("a").await;
    assert_eq!(DEFAULT_RATE, 6_000);
    world.change_key(&key, |key| key.rate = 2);
    assert_eq!(world.get(&key, "/v1/decisions").await.status, 200);
    world.clock.advance(10);
    assert_eq!(world.get(&key, "/v1/decisions").await.status, 200);
    let reply = world.get(&key, "/v1/decisions").await;
    assert_eq!((reply.status, reply.code().as_str()), (429, "rate_limited"));
    assert_eq!(reply.header("retry-after"), Some("51"));
    assert_eq!(reply.message(), "the key has used up its rate; retry after 51 seconds");
    world.clock.advance(51);
    assert_eq!(world.get(&key, "/v1/decisions").await.status, 200);
    assert_eq!(world.get(&key, "/v1/decisions").await.header("retry-after"), Some("10"));
}
