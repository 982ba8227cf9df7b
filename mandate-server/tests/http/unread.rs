//! Peers that ask for long lists and do not read them.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::wire::Reply;
use crate::world::{World, spend};

/// How long the server may take to see what was read.
const WITHIN: Duration = Duration::from_mins(3);
const LIST: &str = "/v1/mandates?limit=100";

/// Mandates with as many categories as there may be, so that a page of them is long.
async fn long_list(world: &World) {
    let categories: Vec<_> = (0..64).map(|n| format!("{n:a>64}")).collect();
    let mandate = json!({
        "principal": "role:finance", "agent": "agt_a", "limits": {"per_transaction": 500, "currency": "USD"},
        "categories": categories, "expires": "2026-12-31",
    });
    for _ in 0..100 {
        assert_eq!(world.post(&world.organization_key, "/v1/mandates", &mandate).await.status, 201);
    }
    assert!(world.get(&world.organization_key, LIST).await.body.len() > 400_000);
}

/// A connection that asks for the list several times and reads nothing.
async fn deaf(world: &World, key: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(world.running.api).await.unwrap();
    let request = format!("GET {LIST} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\r\n");
    stream.write_all(request.repeat(16).as_bytes()).await.unwrap();
    stream
}

/// Asks until the status of the answer is as wanted, and no longer than [`WITHIN`].
async fn until(world: &World, key: &str, path: &str, is_wanted: impl Fn(u16) -> bool) -> Reply {
    let asking = async {
        loop {
            let reply = world.get(key, path).await;
            if is_wanted(reply.status) {
                return reply;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WITHIN, asking).await.unwrap()
}

#[tokio::test]
async fn a_key_that_does_not_read_its_answers_gets_no_more_and_others_do() {
    let world = World::start().await;
    let (agent, other) = (world.agent("a").await, world.onboard("other"));
    long_list(&world).await;
    let key = &world.organization_key;
    let mut deaf_ones = Vec::new();
    for _ in 0..25 {
        deaf_ones.push(deaf(&world, key).await);
    }
    let refused = until(&world, key, LIST, |status| status != 200).await;
    let message = refused.refused(503, "server_error");
    assert!(message.starts_with("too many answers, to this key or to all, were not read"), "{message}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // What is decided is answered, and others read.
    assert_eq!(world.post(key, "/v1/agents", &json!({"name": "b"})).await.status, 201);
    for key in [&agent, &other] {
        assert_eq!(world.get(key, LIST).await.status, 200);
    }
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(1)).await.status, 201);

    drop(deaf_ones);
    until(&world, key, LIST, |status| status == 200).await;
}
