//! The public log over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use mandate_core::EnvironmentKind::Sandbox;
use mandate_core::jwt::Unverified;
use mandate_core::log::{
    Entry, Hash, LogProof, Policy, SignedCheckpoint, Tile, VerifierKey, token_hash, write_entry,
};
use mandate_server::clock::Clock as _;
use mandate_server::store::sql::public_log;
use mandate_server::store::tx::Tx;
use mandate_tests::wait::until_async;

use crate::apart;
use crate::wire::{Reply, exchange};
use crate::world::{World, spend};

/// How long a checkpoint may take here.
const PATIENCE: Duration = Duration::from_secs(30);

/// Entries that the index does not have yet: a hash that is in no log is compared with each.
const ENTRIES: u64 = 60_000;
/// More lookups than there is room for.
const LOOKUPS: u64 = 64;

/// What the page shows of a token's hash that the log has, and of others.
async fn look_up(public: SocketAddr, hash: &str, wanted: [&str; 3]) {
    let get = async |query: &str| exchange(public, "GET", &format!("/log{query}"), "", b"").await;
    let page = get(&format!("?hash={hash}")).await;
    assert_eq!((page.status, page.header("cache-control")), (200, Some("no-cache")));
    for shown in ["has it: entry"].iter().chain(&wanted) {
        assert!(page.body.contains(shown), "{shown}: {}", page.body);
    }
    let unknown = format!("?hash={}", "0".repeat(64));
    for (query, answer) in [
        (&*unknown, "No log has a decision"),
        ("?hash=%3Cb%3E", "The hash must be 64 digits"),
        ("?hash=", "The hash must be 64 digits"),
    ] {
        let page = get(query).await;
        assert!(page.body.contains(answer) && !page.body.contains("has it: entry"), "{query}: {}", page.body);
    }
    assert!(!get("?other=1").await.body.contains("id=\"found\""));
}

/// The newest checkpoint. Who has it gets it once only.
async fn checkpoint(public: SocketAddr) -> Reply {
    let get = async |headers: &str| exchange(public, "GET", "/log/sandbox/checkpoint", headers, b"").await;
    let mut checkpoint = get("").await;
    loop {
        let etag = checkpoint.header("etag").unwrap().to_owned();
        let again = get(&format!("If-None-Match: {etag}\r\n")).await;
        if again.status == 304 {
            break;
        }
        // Another one has come meanwhile.
        assert!(again.status == 200 && again.body != checkpoint.body, "{}", again.status);
        checkpoint = again;
    }
    assert_eq!(checkpoint.header("cache-control"), Some("no-cache"));
    assert_eq!(get("If-None-Match: \"another\"\r\n").await.status, 200);
    checkpoint
}

#[tokio::test]
async fn the_public_listener_serves_what_verifies() {
    let world = World::start().await;
    let agent = world.agent("buyer").await;
    world.mandate("agt_buyer").await;
    let token = world.post(&agent, "/v1/authorizations", &spend(40)).await.json()["verdict_token"].clone();
    let token = token.as_str().unwrap();
    let hash = token_hash(token).unwrap();
    let hash = hash.as_bytes().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let public = world.running.public;
    let get = async |path: &str, headers: &str| exchange(public, "GET", path, headers, b"").await;
    let proof_path = format!("/log/sandbox/proof/{hash}");
    let start = std::time::Instant::now();
    let proof = loop {
        let reply = get(&proof_path, "").await;
        if reply.status == 200 {
            break reply;
        }
        assert_eq!(reply.status, 404, "{}", reply.body);
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let key = get("/log/sandbox/key", "").await;
    let key = VerifierKey::parse(key.body.trim_end()).unwrap();
    let proved = LogProof::parse(proof.body.as_bytes()).unwrap();
    proved.verify_decision(token, Some(&key), &Policy::none()).unwrap();

    let checkpoint = checkpoint(public).await;
    let signed = SignedCheckpoint::parse(checkpoint.body.as_bytes()).unwrap();
    let size = signed.verify(&key).unwrap().size();

    let kid = Unverified::parse(token).unwrap().kid().to_string();
    let keys = get("/log/sandbox/keys", "").await.body;
    assert!(keys.ends_with(&format!(" {kid}\n")) && keys.lines().count() == 1, "{keys}");

    look_up(public, &hash, [signed.checkpoint().origin(), &key.to_string(), &proof_path]).await;

    let full: Vec<_> = Tile::between(0, size).collect();
    assert_eq!(full.len(), 2);
    for tile in full {
        // It is no text.
        let url = format!("http://{public}/log/sandbox/{}", tile.path());
        let reply = reqwest::Client::builder().no_proxy().build().unwrap().get(url).send().await.unwrap();
        assert_eq!(reply.status(), 200, "{}", tile.path());
        assert_eq!(reply.headers()["cache-control"], "public, max-age=31536000, immutable");
        assert_eq!(reply.headers()["content-type"], "application/octet-stream");
        assert!(!reply.bytes().await.unwrap().is_empty());
    }
    for (path, status) in [
        ("/log/sandbox/tile/0/000.p/255", 404),
        ("/log/sandbox/tile/0/001", 404),
        ("/log/sandbox/tile/0/000.p/0", 400),
        ("/log/sandbox/tile/0/1", 400),
        ("/log/sandbox/proof/00", 400),
        ("/log/sandbox/proof/0000000000000000000000000000000000000000000000000000000000000000", 404),
        ("/log/production/proof/0000000000000000000000000000000000000000000000000000000000000000", 404),
        ("/log/other/key", 404),
        ("/log/sandbox", 404),
        ("/log/sandbox/", 404),
        ("/log/sandbox/no", 404),
        ("/log/sandbox/next", 404),
        ("/log/sandbox/2/key", 404),
        ("/log/sandbox/2/keys", 404),
        ("/log/sandbox/2/checkpoint", 404),
        ("/log/sandbox/1/key", 404),
        ("/log/sandbox/02/key", 404),
    ] {
        let reply = get(path, "").await;
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
    }
    assert_eq!(exchange(public, "POST", "/log/sandbox/key", "", b"").await.status, 400);
    assert!(world.holds() > 0);
}

/// No key is asked for, and the log of everyone must stay readable.
#[tokio::test(flavor = "multi_thread")]
async fn lookups_of_what_is_not_there_keep_nobody_from_the_checkpoint() {
    let world = World::start().await;
    let (public, at) = (world.running.public, world.clock.now());
    let mut waiting = Vec::new();
    for number in 0..ENTRIES {
        let hash = Hash::sha256(&number.to_be_bytes());
        write_entry(&mut waiting, &Entry::Decision { tag: hash, token: hash, record: hash }.to_bytes())
            .unwrap();
    }
    let add = |tx: &mut Tx<'_>| Ok(public_log::add(tx, Sandbox, at, waiting)?);
    apart::run_once(&world.settings.database, add).unwrap().unwrap();
    let checkpoint = async || exchange(public, "GET", "/log/sandbox/checkpoint", "", b"").await;
    let size = async || {
        let signed = checkpoint().await;
        SignedCheckpoint::parse(signed.body.as_bytes()).ok().map(|signed| signed.checkpoint().size())
    };
    until_async(PATIENCE, "the entries are published", async || size().await.filter(|size| *size >= ENTRIES))
        .await;
    let look_up = |number: u64| async move {
        let path = format!("/log/sandbox/proof/{number:064x}");
        exchange(public, "GET", &path, "", b"").await.status
    };
    let look = async {
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(checkpoint().await.status);
        }
        seen
    };
    let (looked_up, seen) = tokio::join!(join_all((0..LOOKUPS).map(look_up)), look);
    assert_eq!(seen, [200; 5]);
    let refused = looked_up.iter().filter(|status| **status == 503).count();
    assert!(refused > 0 && looked_up.iter().all(|status| matches!(status, 404 | 503)), "{looked_up:?}");
    assert_eq!(look_up(0).await, 404, "there is room again");
}
