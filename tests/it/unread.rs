//! Peers that ask for much and read nothing, against a server process whose memory can be measured.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use mandate_tests::wait::{DEADLINE, until};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::{Agent, Client, TestServer};

const CONNECTIONS: usize = 1_500;
/// After so many the memory is looked at.
const LOOK: usize = 10;
/// One address may have 1,024 connections.
const ADDRESSES: u8 = 10;
/// Keys of the same environment besides its first.
const KEYS: usize = 20;
/// Organizations, whose sandboxes have as many keys together as there are connections.
const ORGANIZATIONS: usize = 10;
/// Keys that are issued at a time.
const AT_A_TIME: usize = 10;
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

/// Gives an organization as many mandates as a list may have, each of them long.
fn mandates(organization: &Client) {
    Agent::register(organization, "buyer");
    let categories: Vec<_> = (0..64).map(|n| format!("{n:a>64}")).collect();
    let mandate = json!({
        "principal": "role:finance", "agent": "agt_buyer", "categories": categories, "expires": "2099-12-31",
        "limits": {"per_transaction": 500, "currency": "USD"},
    });
    (0..100).for_each(|_| assert_eq!(organization.post("/mandates", &mandate).status, 201));
}

/// More keys of an organization's sandbox, some issued at a time.
fn issue(server: &TestServer, organization: &str, count: usize) -> Vec<String> {
    let issue = |n: usize| {
        let of = ["key", "issue", "--organization", organization, "--environment", "sandbox", "--label"];
        let issued = server.operate(&[&of[..], &[&format!("reader-{n}"), "--json"]].concat()).code(0).json();
        issued["key"].as_str().unwrap().to_owned()
    };
    let some = |thread: usize| (thread..count).step_by(AT_A_TIME).map(issue).collect::<Vec<_>>();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_A_TIME).map(|thread| scope.spawn(move || some(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Opens the connections, which use these keys by turns. Gives them with the most memory that the server had.
async fn open(server: &TestServer, keys: &[String]) -> (Vec<TcpStream>, u64) {
    let base = server.ready("base_url").strip_prefix("http://").unwrap();
    let api: SocketAddr = base.split('/').next().unwrap().parse().unwrap();
    let (mut streams, mut most) = (Vec::with_capacity(CONNECTIONS), 0);
    let addresses = (1..=ADDRESSES).cycle();
    for (number, (key, from)) in keys.iter().cycle().zip(addresses).take(CONNECTIONS).enumerate() {
        let ask = format!("GET {LIST} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\r\n");
        streams.push(deaf(from, api, &ask).await);
        if number % LOOK == 0 {
            most = most.max(server.memory_kib());
        }
    }
    (streams, most)
}

/// The most memory that the server has from now on, for as long as answers are rendered.
async fn watch(server: &TestServer, mut most: u64) -> u64 {
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(server.memory_kib());
    }
    println!("at most {most} KiB");
    most
}

#[tokio::test]
async fn fifteen_hundred_that_read_nothing_leave_the_server_small() {
    let server = TestServer::start();
    let organization = server.demo().client;
    mandates(&organization);
    let mut keys = issue(&server, "demo", KEYS);
    keys.push(organization.key().to_owned());
    let other = server.organization("other").client;
    let (streams, most) = open(&server, &keys).await;
    // Others are served, and the server knows that it works.
    Agent::register(&other, "meanwhile");
    assert_eq!(other.get("/agents").status, 200);
    assert_eq!(server.stranger("ops_url").get("/readyz").status, 200);
    let most = watch(&server, most).await;
    assert!(most < MEMORY_KIB, "{most} KiB");
    assert_eq!(other.get("/agents").status, 200);
    drop(streams);
}

/// Each has a key of its own, and no key has much that is not read.
#[tokio::test]
async fn fifteen_hundred_with_a_key_each_that_read_nothing_leave_the_server_small() {
    let server = TestServer::start();
    let mut keys = Vec::with_capacity(CONNECTIONS);
    for name in (0..ORGANIZATIONS).map(|number| format!("org-{number}")) {
        mandates(&server.organization(&name).client);
        keys.extend(issue(&server, &name, CONNECTIONS / ORGANIZATIONS));
    }
    assert_eq!(keys.len(), CONNECTIONS);
    let other = server.organization("other").client;
    let (streams, most) = open(&server, &keys).await;
    // Their first answers take the room of all first answers. What writes goes on.
    Agent::register(&other, "meanwhile");
    assert_eq!(server.stranger("ops_url").get("/readyz").status, 200);
    let most = watch(&server, most).await;
    assert!(most < MEMORY_KIB, "{most} KiB");
    drop(streams);
    until(DEADLINE, "the room is free", || (other.get("/agents").status == 200).then_some(()));
}
