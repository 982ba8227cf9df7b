//! Peers that ask for much and read nothing, against a server process whose memory can be measured.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::{Agent, TestServer};

const CONNECTIONS: u8 = 150;
/// One address may have 1,024 connections.
const ADDRESSES: u8 = 10;
/// Keys of the same environment besides its first.
const KEYS: usize = 20;
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

#[tokio::test]
async fn fifteen_hundred_that_read_nothing_leave_the_server_small() {
    let server = TestServer::start();
    let organization = server.demo().client;
    Agent::register(&organization, "buyer");
    let categories: Vec<_> = (0..64).map(|n| format!("{n:a>64}")).collect();
    let mandate = json!({
        "principal": "role:finance", "agent": "agt_buyer", "categories": categories, "expires": "2099-12-31",
        "limits": {"per_transaction": 500, "currency": "USD"},
    });
    (0..100).for_each(|_| assert_eq!(organization.post("/mandates", &mandate).status, 201));

    let base = server.ready("base_url").strip_prefix("http://").unwrap();
    let api: SocketAddr = base.split('/').next().unwrap().parse().unwrap();
    let issue = ["key", "issue", "--organization", "demo", "--environment", "sandbox", "--label"];
    let issued = (0..KEYS).map(|n| {
        let issued =
            server.operate(&[&issue[..], &[&format!("reader-{n}"), "--json"]].concat()).code(0).json();
        issued["key"].as_str().unwrap().to_owned()
    });
    let ask =
        |key: String| format!("GET {LIST} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\r\n");
    let requests: Vec<_> = issued.chain([organization.key().to_owned()]).map(ask).collect();
    let other = server.organization("other").client;
    let mut streams = Vec::new();
    let mut most = 0;
    for (_, request) in (0..CONNECTIONS).zip(requests.iter().cycle()) {
        for from in 1..=ADDRESSES {
            streams.push(deaf(from, api, request).await);
        }
        most = most.max(server.memory_kib());
    }
    // Others are served, and the server knows that it works.
    Agent::register(&other, "meanwhile");
    assert_eq!(other.get("/agents").status, 200);
    assert_eq!(server.stranger("ops_url").get("/readyz").status, 200);
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(server.memory_kib());
    }
    println!("{} connections, at most {most} KiB", streams.len());
    assert!(most < MEMORY_KIB, "{most} KiB");
    assert_eq!(other.get("/agents").status, 200);
}
