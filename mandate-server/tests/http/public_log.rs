//! The public log over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use mandate_core::log::{LogProof, Policy, SignedCheckpoint, Tile, VerifierKey, token_hash};

use crate::wire::exchange;
use crate::world::{World, spend};

/// How long a checkpoint may take here.
const PATIENCE: Duration = Duration::from_secs(30);

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

    let checkpoint = get("/log/sandbox/checkpoint", "").await;
    assert_eq!(checkpoint.header("cache-control"), Some("no-cache"));
    let signed = SignedCheckpoint::parse(checkpoint.body.as_bytes()).unwrap();
    let size = signed.verify(&key).unwrap().size();
    let etag = format!("If-None-Match: {}\r\n", checkpoint.header("etag").unwrap());
    let again = get("/log/sandbox/checkpoint", &etag).await.status;
    assert!(again == 304 || again == 200, "another checkpoint may have come");

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
