//! Peers that ask for much and read nothing, against a server process whose memory can be measured.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::{Agent, Client, TestServer};

const CONNECTIONS: usize = 1_500;
/// One address may have 1,024 connections.
const ADDRESSES: u8 = 10;
const MEMORY_KIB: u64 = 256 * 1024;
const LIST: &str = "/v1/mandates?limit=100";

/// A connection from one of several addresses that asks for a long list several times, and reads nothing.
async fn deaf(from: u8, to: SocketAddr, request: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 0, 1, from), 0).into()).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    stream.write_all(request.repeat(4).as_bytes()).await.unwrap();
    stream
}

/// Makes a list of mandates that fills a page of almost half a MiB.
fn fill(organization: &Client) {
    Agent::register(organization, "buyer");
    let categories: Vec<_> = (0..64).map(|n| format!("{n:a>64}")).collect();
    let mandate = json!({
        "principal": "role:finance", "agent": "agt_buyer", "categories": categories, "expires": "2099-12-31",
        "limits": {"per_transaction": 500, "currency": "USD"},
    });
    (0..100).for_each(|_| assert_eq!(organization.post("/mandates", &mandate).status, 201));
}

/// Opens the connections, with one key after the other, and finds that the server stays small and goes on.
async fn stays_small(server: &TestServer, keys: &[String]) -> Vec<TcpStream> {
    let base = server.ready("base_url").strip_prefix("http://").unwrap();
    let api: SocketAddr = base.split('/').next().unwrap().parse().unwrap();
    let mut streams = Vec::new();
    let mut most = 0;
    for ((key, from), number) in keys.iter().cycle().zip((1..=ADDRESSES).cycle()).zip(1..=CONNECTIONS) {
        let request = format!("GET {LIST} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\r\n");
        streams.push(deaf(from, api, &request).await);
        if number % 10 == 0 {
            most = most.max(server.memory_kib());
        }
    }
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(server.memory_kib());
    }
    println!("{} connections, at most {most} KiB", streams.len());
    assert!(most < MEMORY_KIB, "{most} KiB");
    // What changes something is never refused for this.
    assert_eq!(server.organization("other").client.post("/agents", &json!({"name": "other"})).status, 201);
    streams
}

#[tokio::test]
async fn fifteen_hundred_that_read_nothing_leave_the_server_small() {
    let server = TestServer::start();
    let organization = server.demo().client;
    fill(&organization);
    let _deaf = stays_small(&server, &[organization.key().to_owned()]).await;
    // Others read.
    assert_eq!(server.organization("reader").client.get("/agents").status, 200);
}

#[tokio::test]
async fn sixty_keys_that_read_nothing_leave_the_server_small() {
    const ISSUE: [&str; 7] = ["key", "issue", "--organization", "demo", "--environment", "sandbox", "--json"];
    let server = TestServer::start();
    fill(&server.demo().client);
    let issue = || server.operate(&ISSUE).code(0).json()["api_key"].as_str().unwrap().to_owned();
    let keys: Vec<_> = (0..60).map(|_| issue()).collect();
    let _deaf = stays_small(&server, &keys).await;
    // They have met the bound over all.
    let refuses = |key: &String| server.client(key).get(&LIST["/v1".len()..]).status == 503;
    assert!(keys.iter().any(refuses));
}
