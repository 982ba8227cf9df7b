//! Connections over real sockets, with short limits.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing;
use hyper::StatusCode;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::clock::{Ids, SystemClock, SystemEntropy};
use crate::error::Repeated;
use crate::http::RequestIds;
use crate::http::fallback::on_path;
use crate::http::respond::{response, text};
use crate::metrics::{Listener as Name, Metrics, Reading};
use crate::traces::Traces;

mod pipelined;

/// A deadline that a test can wait for.
const SHORT: Duration = Duration::from_millis(100);
/// An answer too large for the buffers between two sockets.
static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| vec![b'x'; 64 * 1024 * 1024]);

/// How handlers and tests wait for each other.
#[derive(Default)]
struct Probe {
    entered: Notify,
    leave: Notify,
}

/// A router whose handlers panic, wait for the test, answer at length, or just answer.
fn router(probe: Arc<Probe>) -> Router {
    let panic = async || -> Response { panic!("by request") };
    let wait = async |State(probe): State<Arc<Probe>>| {
        probe.entered.notify_one();
        probe.leave.notified().await;
        text(StatusCode::OK, "done\n")
    };
    let large = async || response(StatusCode::OK, [], LARGE.as_slice());
    let done = async || text(StatusCode::OK, "done\n");
    Router::new()
        .route("/panic", on_path("/panic", routing::get(panic)))
        .route("/wait", routing::get(wait))
        .route("/large", routing::get(large))
        .fallback(done)
        .with_state(probe)
}

struct Listening {
    address: SocketAddr,
    probe: Arc<Probe>,
    metrics: Metrics,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

async fn start() -> Listening {
    start_with(Name::Api, Limits::default(), None).await
}

async fn start_with(name: Name, limits: Limits, tls: Option<TlsAcceptor>) -> Listening {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, probe, stop) =
        (socket.local_addr().unwrap(), Arc::new(Probe::default()), watch::Sender::new(false));
    let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
    let metrics = Metrics::new();
    let site = Site {
        name,
        router: router(Arc::clone(&probe)),
        ids: Arc::new(RequestIds { ids, clock: Arc::new(SystemClock) }),
        metrics: metrics.clone(),
        traces: Traces::default(),
        repeated: Repeated::default(),
    };
    let serving = tokio::spawn(serve(socket, Arc::new(Listener { site, tls, limits }), stop.subscribe()));
    Listening { address, probe, metrics, stop, serving }
}

impl Listening {
    /// The answer to the only request of a connection.
    async fn get(&self, path: &str, headers: &str) -> String {
        get(self.address, path, headers).await
    }

    /// The answer to these bytes, until the server closes the connection.
    async fn answered(&self, bytes: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }

    fn counted(&self, line: &str) -> bool {
        self.metrics.write(&Reading::default()).unwrap().lines().any(|written| written == line)
    }
}

async fn get(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A server that closes before it has read everything resets the connection, after its answer.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// Asserts that an answer has this status, an id, and an error envelope with the same id.
#[track_caller]
fn assert_refused(answer: &str, status: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
    let error: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["request_id"]),
        (&"invalid_request".into(), &id.into())
    );
    assert!(head.contains("\r\nconnection: close") && head.contains("\r\ndate: "), "{head}");
    assert!(head.contains(&format!("\r\ncontent-length: {}", body.len())), "{head}");
    assert!(head.contains("\r\ncontent-type: application/json"), "{head}");
}

#[tokio::test]
async fn a_panic_is_a_fault_like_any_other() {
    let server = start().await;
    let answer = server.get("/panic", "").await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert!(answer.contains(r#"{"error":{"code":"server_error","#) && !answer.contains("by request"));
    assert!(answer.contains("\r\nx-request-id: req_"), "{answer}");
    assert!(server.get("/", "").await.starts_with("HTTP/1.1 200 "), "the listener goes on");
    assert!(server.counted("mandate_faults_total 1"));
    let counted =
        "mandate_http_requests_total{listener=\"api\",method=\"GET\",path=\"/panic\",status=\"5xx\"} 1";
    assert!(server.counted(counted), "the path is known although the handler has panicked");
}

#[tokio::test]
async fn what_is_turned_away_unread_has_an_id_and_the_envelope() {
    let server = start().await;
    let (large, small) = (MAX_HEAD_BYTES, MAX_HEAD_BYTES - 1000);
    assert_refused(&server.get("/", &format!("X: {}\r\n", "x".repeat(large))).await, "431");
    assert!(server.get("/", &format!("X: {}\r\n", "x".repeat(small))).await.starts_with("HTTP/1.1 200 "));
    let many = server.get("/", &"X: x\r\n".repeat(101)).await;
    assert_refused(&many, "431");
    assert!(many.contains("or has more than 100 headers"), "{many}");
    let beyond =
        format!("GET / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", u128::from(u64::MAX) + 1);
    let unreadable =
        ["?\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n", "GET / HTTP/7.0\r\n\r\n", "\0", &beyond];
    for bytes in unreadable {
        let answer = server.answered(bytes).await;
        assert_refused(&answer, "400");
        let message = "this is not an HTTP/1.1 request, or its Content-Length cannot be read";
        assert!(answer.contains(message), "{answer}");
    }
    assert!(server.counted(
        "mandate_http_requests_total{listener=\"api\",method=\"other\",path=\"\",status=\"4xx\"} 7"
    ));
}

/// What can be sent on a connection of TCP and is no request in HTTP/1.0 or 1.1: HTTP/2, TLS, something else, or a part.
#[tokio::test]
async fn what_is_no_request_has_the_documented_answer() {
    let server = start().await;
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = "\0\0\0\u{4}\0\0\0\0\0";
    for bytes in [
        preface.to_owned(),
        format!("\r\n{preface}"),
        format!("{preface}{settings}"),
        format!("{preface}{}", settings.repeat(100_000)),
        preface[..18].to_owned(),
        "\u{16}\u{3}\u{1}\0\u{5}hello".to_owned(),
        "SSH-2.0-OpenSSH_9.9\r\n\r\n".to_owned(),
        "GET /\r\n\r\n".to_owned(),
        "GET / HTTP/2.0\r\n\r\n".to_owned(),
    ] {
        assert_refused(&server.answered(&bytes).await, "400");
    }
    // In two pieces: hyper has seen the first.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    for piece in [&preface[..3], &preface[3..]] {
        stream.write_all(piece.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_refused(&rest(&mut stream).await, "400");
    // A head that does not go on, and what is no head.
    for (bytes, answered) in [("GET / HTTP/1.1\r\nHost:", true), ("G", true), ("", false), ("\r\n", false)] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = rest(&mut stream).await;
        if answered { assert_refused(&answer, "400") } else { assert_eq!(answer, "", "{bytes:?}") }
    }
}

/// A client that has sent its request may close its half of the connection, and waits for the answer.
#[tokio::test]
async fn a_client_that_closes_its_half_gets_its_answer() {
    let server = start().await;
    for bytes in [
        "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /wait HTTP/1.0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        if bytes.contains("/wait ") {
            server.probe.entered.notified().await;
        }
        stream.shutdown().await.unwrap();
        // Long enough for the server to see the end.
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.probe.leave.notify_one();
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.") && answer.ends_with("\r\n\r\ndone\n"), "{bytes}: {answer:?}");
    }
}

/// An answer that is given before the body has arrived reaches the client, which may read only when it has sent all.
#[tokio::test]
async fn an_early_answer_is_not_overtaken_by_a_reset() {
    let server = start().await;
    let length = 20 * 1024 * 1024;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; length]).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("done\n"), "{answer}");
}

#[tokio::test]
async fn a_refusal_by_hyper_has_the_same_form_after_answered_requests() {
    let server = start().await;
    for bytes in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        for _ in 0..2 {
            stream.write_all(bytes.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let end: &[u8] = if bytes.starts_with("HEAD") { b"\r\n\r\n" } else { b"done\n" };
            while !answer.ends_with(end) {
                answer.push(stream.read_u8().await.unwrap());
            }
            assert!(answer.starts_with(b"HTTP/1.1 200 "));
        }
        stream.write_all(b"?\r\n\r\n").await.unwrap();
        assert_refused(&rest(&mut stream).await, "400");
    }
}

#[tokio::test]
async fn a_request_that_two_readers_may_read_differently_is_refused() {
    let server = start().await;
    for (bytes, ok) in [
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a:1\r\nConnection: close\r\n\r\n", true),
        ("GET / HTTP/1.0\r\n\r\n", true),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            false,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
            false,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", false),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", false),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            true,
        ),
    ] {
        let answer = server.answered(bytes).await;
        if ok {
            assert!(answer.split(' ').nth(1) == Some("200"), "{bytes}: {answer}");
        } else {
            assert_refused(&answer, "400");
        }
    }
}

/// The bytes behind an ambiguous request are not read as another request.
#[tokio::test]
async fn nothing_is_smuggled_behind_a_request() {
    let server = start().await;
    let ambiguous =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let (first, second) = ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
    for bytes in [format!("{ambiguous}{second}"), format!("{first}{ambiguous}{second}")] {
        let answer = server.answered(&bytes).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), bytes.matches("HTTP/1.1").count() - 1, "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 400 ").count(), 1, "{answer}");
    }
    let zipped = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n";
    assert!(server.answered(zipped).await.starts_with("HTTP/1.1 400 "));
    let chunked =
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n0\r\n\r\n";
    assert!(server.answered(chunked).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_peer_that_does_not_ask_in_time_is_closed() {
    let limits = Limits { head: SHORT, ..Limits::default() };
    let server = start_with(Name::Api, limits, None).await;
    let (whole, begun) = ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x");
    assert_eq!(server.answered("").await, "", "a peer that is silent is not spoken to");
    for (server, is_public) in [(&server, false), (&start_with(Name::Public, limits, None).await, true)] {
        let refused = server.answered(begun).await;
        assert_refused(&refused, "408");
        let for_any_page = refused.contains("\r\naccess-control-allow-origin: *\r\n");
        assert_eq!(for_any_page, is_public, "{refused}");
    }
    let idle = server.answered(whole).await;
    assert!(idle.starts_with("HTTP/1.1 200 ") && idle.ends_with("done\n"), "{idle:?}");
    let (first, second) = server
        .answered(&format!("{whole}{begun}"))
        .await
        .split_once("done\n")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    assert!(first.starts_with("HTTP/1.1 200 "), "{first:?}");
    assert_refused(&second, "408");
    let mut trickling = TcpStream::connect(server.address).await.unwrap();
    trickling.write_all(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
    let (mut reading, mut writing) = trickling.split();
    let trickle = async {
        while writing.write_all(b"x").await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let ended = async {
        let mut answer = Vec::new();
        let _ = reading.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    // Unread input can make the reset overtake the answer.
    tokio::select! {
        answer = ended => assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}"),
        () = trickle => {}
    }
}

#[tokio::test]
async fn a_peer_that_does_not_read_holds_no_slot() {
    let server =
        start_with(Name::Api, Limits { stalled: SHORT, connections: 1, ..Limits::default() }, None).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    silent.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    silent.readable().await.unwrap();
    assert!(server.get("/", "").await.ends_with("done\n"), "when its time is over, the next one is served");
    let mut answer = Vec::new();
    let _ = silent.read_to_end(&mut answer).await;
    assert!(answer.len() < LARGE.len());
}

#[tokio::test]
async fn one_address_has_so_many_connections_and_no_more() {
    let server =
        start_with(Name::Api, Limits { connections_per_peer: Some(2), ..Limits::default() }, None).await;
    let first = TcpStream::connect(server.address).await.unwrap();
    let second = TcpStream::connect(server.address).await.unwrap();
    // The operating system queues connections in order: the third is accepted after these two.
    assert_eq!(rest(&mut TcpStream::connect(server.address).await.unwrap()).await, "");
    assert!(
        server.counted("mandate_http_connections_refused_total{listener=\"api\",reason=\"peer_limit\"} 1")
    );
    drop((first, second));
    while !server.counted("mandate_http_connections_open{listener=\"api\"} 0") {
        tokio::task::yield_now().await;
    }
    assert!(server.get("/", "").await.ends_with("done\n"));
}

fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    TlsAcceptor::from(Arc::new(config.with_single_cert(vec![made.cert.der().clone()], key).unwrap()))
}

#[tokio::test]
async fn a_handshake_ends_by_its_deadline_or_when_it_is_none() {
    let limits = Limits { handshake: SHORT, ..Limits::default() };
    let server = start_with(Name::Api, limits, Some(acceptor())).await;
    // The beginning of a TLS record.
    for (said, reason) in [
        ("", "handshake_timeout"),
        ("\u{16}\u{3}\u{1}", "handshake_timeout"),
        ("GET / HTTP/1.1\r\n\r\n", "handshake"),
    ] {
        let answer = server.answered(said).await;
        assert!(!answer.contains("HTTP/1.1"), "{answer}");
        while !server.counted("mandate_http_connections_open{listener=\"api\"} 0") {
            tokio::task::yield_now().await;
        }
        let refused =
            format!("mandate_http_connections_refused_total{{listener=\"api\",reason=\"{reason}\"}}");
        assert!(server.counted(&format!("{refused} {}", if said.len() == 3 { 2 } else { 1 })), "{said}");
    }
}

#[tokio::test]
async fn what_is_under_way_is_ended_when_the_server_stops() {
    let Listening { address, probe, stop, serving, .. } = start().await;
    let waiting = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        rest(&mut stream).await
    });
    probe.entered.notified().await;
    // The server waits neither for a silent peer nor for one that has sent half a head.
    let idle = TcpStream::connect(address).await.unwrap();
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nHost: x").await.unwrap();
    stop.send_replace(true);
    assert_eq!(rest(&mut half).await, "");
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!serving.is_finished());
    probe.leave.notify_one();
    let answer = waiting.await.unwrap();
    assert!(answer.ends_with("\r\n\r\ndone\n") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
    serving.await.unwrap();
    drop(idle);
}
