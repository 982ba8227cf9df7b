//! Rotations of signing keys as clients see them: the key set that is published, and who signs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mandate_core::EnvironmentKind;
use mandate_core::jwks::KeySet;
use mandate_server::app::{App, Running};
use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::config::{Config, Settings};
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::audit::Operator;
use mandate_server::service::signing::rotation::{
    self, CACHE_SECONDS, INCOMING_SECONDS, Maker, OUTGOING_SECONDS,
};

use crate::apart;
use crate::wire::{Reply, exchange};
use crate::world::{World, noon, spend};

const MASTER: [u8; 32] = [7; 32];

async fn key_set(public: SocketAddr) -> Reply {
    exchange(public, "GET", "/.well-known/jwks.json", "", b"").await
}

fn kids(reply: &Reply) -> Vec<String> {
    let set = KeySet::parse(reply.body.as_bytes()).unwrap();
    set.iter().map(|key| key.kid().to_string()).collect()
}

/// Asks until so many keys are published.
async fn published(public: SocketAddr, count: usize) -> Reply {
    let since = Instant::now();
    loop {
        let reply = key_set(public).await;
        if kids(&reply).len() == count {
            return reply;
        }
        assert!(since.elapsed() < Duration::from_secs(30), "{reply:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_server_switches_at_the_stored_instant() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    world.mandate("agt_a").await;
    let signed_by = async || {
        let answer = world.post(&agent, "/v1/authorizations", &spend(1)).await.json();
        let token = answer["verdict_token"].as_str().unwrap().to_owned();
        mandate_core::jwt::Unverified::parse(&token).unwrap().kid().to_string()
    };
    let old = signed_by().await;
    let before = key_set(world.running.public).await;

    let (master, by) =
        (MasterKey::from_bytes(MASTER), Operator { name: "test".to_owned(), at: world.clock.now() });
    let maker = Maker { master: &master, entropy: &SystemEntropy };
    let rotated = apart::run_once(&world.settings.database, |tx| {
        rotation::rotate(tx, maker, &EnvironmentKind::ALL, &by)
    });
    let new = rotated.unwrap().unwrap()[0].kid.clone();
    let both = published(world.running.public, 4).await;
    assert!(kids(&both).contains(&old) && kids(&both).contains(&new));
    assert_ne!(both.header("etag"), before.header("etag"));
    let promised = format!("public, max-age={CACHE_SECONDS}");
    assert_eq!(both.header("cache-control"), Some(promised.as_str()));
    assert_eq!(signed_by().await, old);

    world.clock.advance(INCOMING_SECONDS - 1);
    assert_eq!(signed_by().await, old);
    world.clock.advance(1);
    assert_eq!(signed_by().await, new);
    world.clock.advance(OUTGOING_SECONDS - 1);
    assert!(kids(&key_set(world.running.public).await).contains(&old));
    world.clock.advance(1);
    let after = key_set(world.running.public).await;
    assert!(!kids(&after).contains(&old) && kids(&after).contains(&new));
    let stale = format!("If-None-Match: {}\r\n", both.header("etag").unwrap());
    let asked = exchange(world.running.public, "GET", "/.well-known/jwks.json", &stale, b"").await;
    assert_eq!(asked.status, 200, "a client with the old set gets the new one");
}

#[tokio::test]
async fn a_server_that_cannot_sign_with_the_key_whose_turn_it_is_says_so() {
    let world = World::start().await;
    let ready = async || {
        let reply = exchange(world.running.ops, "GET", "/readyz", "", b"").await;
        (reply.status, reply.body)
    };
    let (old, new) = (MasterKey::from_bytes(MASTER), MasterKey::from_bytes([8; 32]));
    let maker = || Maker { master: &new, entropy: &SystemEntropy };
    let by = Operator { name: "test".to_owned(), at: world.clock.now() };
    let rotated = apart::run_once(&world.settings.database, |tx| {
        rotation::reseal(tx, &old, maker(), &by)?;
        rotation::rotate(tx, maker(), &[EnvironmentKind::Production], &by)
    });
    rotated.unwrap().unwrap();
    published(world.running.public, 3).await;
    world.clock.advance(INCOMING_SECONDS - 1);
    assert_eq!(ready().await, (200, "ready\n".to_owned()), "the old key still signs");
    world.clock.advance(1);
    let body = "nothing is signed for production; restart the server\n".to_owned();
    assert_eq!(ready().await, (503, body));
    let metrics = exchange(world.running.ops, "GET", "/metrics", "", b"").await.body;
    for line in [
        "mandate_ready 0",
        "mandate_signing_ready{kind=\"production\"} 0",
        "mandate_signing_ready{kind=\"sandbox\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn a_schedule_rotates_keys_whose_time_has_come() {
    let held = apart::migrated(crate::KIND);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let settings = Settings {
        database: held.url().to_owned(),
        api_address: any,
        public_address: any,
        ops_address: any,
        signing_key_rotation_days: Some(30),
        ..Settings::default()
    };
    let clock = noon();
    let start = async || -> Running {
        let config = Config { settings: settings.clone(), master_key: MasterKey::from_bytes(MASTER) };
        App::start(config, Arc::clone(&clock) as _, Arc::new(SystemEntropy)).await.unwrap()
    };
    let first = start().await;
    assert_eq!(kids(&key_set(first.public).await).len(), 2);
    first.stop().await;
    clock.advance(30 * 24 * 60 * 60);
    let second = start().await;
    published(second.public, 4).await;
    second.stop().await;
}
