//! {verdicts_url}/.well-known/jwks.json, and what the API host says of it.

use mandate_core::jwks::KeySet;

use crate::harness::{Agent, TestServer, masked, terms};

const PATH: &str = "/.well-known/jwks.json";

#[test]
fn the_key_set_is_public_and_may_be_cached() {
    let server = TestServer::start();
    let stranger = server.stranger("verdicts_url");
    let set = stranger.get(PATH);
    assert_eq!(set.status, 200);
    assert_eq!(set.header("content-type"), Some("application/jwk-set+json"));
    assert_eq!(set.header("cache-control"), Some("public, max-age=300"));
    assert_eq!(masked(set.header("x-request-id").unwrap()), "req_*");
    let etag = set.header("etag").unwrap();
    let fresh = stranger.send("GET", PATH, &[("if-none-match", etag)], "").unwrap();
    assert_eq!((fresh.status, fresh.body.as_str(), fresh.header("etag")), (304, "", Some(etag)));
    assert_eq!(fresh.header("cache-control"), Some("public, max-age=300"));
    let head = stranger.send("HEAD", PATH, &[], "").unwrap();
    assert_eq!((head.status, head.body.as_str(), head.header("etag")), (200, "", Some(etag)));

    let keys = KeySet::parse(set.body.as_bytes()).unwrap();
    let sandbox: Vec<_> = keys.iter().map(|key| key.kid().is_sandbox()).collect();
    assert_eq!(sandbox, [true, false], "one key a kind of environment");
    for key in set.json()["keys"].as_array().unwrap() {
        let mut members: Vec<_> = key.as_object().unwrap().keys().collect();
        members.sort();
        assert_eq!(members, ["alg", "crv", "kid", "kty", "use", "x", "y"]);
    }
    stranger.get("/v1/agents").refused(404, "not_found", "no such path");
    let posted = stranger.act(PATH);
    posted.refused(400, "invalid_request", "POST is not supported on /.well-known/jwks.json");
}

#[test]
fn the_api_host_sends_on_to_it() {
    let server = TestServer::start();
    let url = server.ready("base_url").strip_suffix("/v1").unwrap();
    let host = crate::harness::Client::new(url, None);
    let moved = host.get(PATH);
    let location = format!("{}{PATH}", server.ready("verdicts_url"));
    assert_eq!((moved.status, moved.header("location")), (308, Some(location.as_str())));
}

#[test]
fn each_environment_signs_with_a_key_of_its_own() {
    let server = TestServer::start();
    let organization = server.demo();
    let keys = server.stranger("verdicts_url").get(PATH).json();
    let kid = |place: usize| keys["keys"][place]["kid"].as_str().unwrap().to_owned();
    for (client, kid) in [(&organization.client, kid(0)), (&organization.live, kid(1))] {
        let agent = Agent::register(client, "buyer");
        assert_eq!(client.post("/mandates", &terms("agt_buyer")).status, 201);
        let token = agent.ask(40).text("/verdict_token");
        let token = mandate_core::jwt::Unverified::parse(&token).unwrap();
        assert_eq!(token.kid().as_str(), kid);
    }
    assert!(kid(0).starts_with("sandbox-") && !kid(1).starts_with("sandbox-"));
}

#[test]
fn keys_outlive_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let key_set = || TestServer::start_in(data.path()).stranger("verdicts_url").get(PATH).body;
    assert_eq!(key_set(), key_set());
}
