//! Which addresses are connected to, whatever names resolve to and receivers answer.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;
use crate::service::endpoint::tests::NOT_PUBLIC;

/// Long enough for an event that happens, short enough to wait for one that must not.
const SOON: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(30);
/// Stands in for the allowed network. Every other loopback address stands in for an internal one.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Answers each lookup with the next of its lists, and repeats the last.
#[derive(Debug)]
struct Listed(Mutex<VecDeque<Vec<IpAddr>>>);

impl Listed {
    fn saying(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Self(Mutex::new(answers.iter().map(parse).collect())))
    }
}

impl Names for Listed {
    fn look_up(&self, _: &str) -> BoxFuture<'static, Vec<SocketAddr>> {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        let found = answer.unwrap().into_iter().map(|address| SocketAddr::new(address, 0)).collect();
        std::future::ready(found).boxed()
    }
}

fn egress(networks: &[&str]) -> EgressPolicy {
    EgressPolicy {
        loopback: false,
        networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
    }
}

fn dialer(egress: EgressPolicy, answers: &[&[&str]], attempt: Duration) -> Dialer {
    Dialer::with(egress, Listed::saying(answers), attempt, 64).unwrap()
}

fn developers(attempt: Duration) -> Dialer {
    dialer(EgressPolicy { loopback: true, networks: Vec::new() }, &[&["127.0.0.1"]], attempt)
}

/// Listens at each address on the same port, and reports each connection.
async fn listen(addresses: &[Ipv4Addr]) -> (u16, mpsc::UnboundedReceiver<(Ipv4Addr, TcpStream)>) {
    let (sender, connected) = mpsc::unbounded_channel();
    let mut port = 0;
    for address in addresses {
        let listener = TcpListener::bind((*address, port)).await.unwrap();
        port = listener.local_addr().unwrap().port();
        let (sender, address) = (sender.clone(), *address);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = sender.send((address, stream));
            }
        });
    }
    (port, connected)
}

/// Reads a request up to the end of its body, which is `token`.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"token") {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
    }
    String::from_utf8(request).unwrap()
}

#[tokio::test]
async fn no_spelling_of_an_address_that_is_not_public_is_dialled() {
    let dialer = dialer(EgressPolicy::PUBLIC, &[&["127.0.0.1"]], SOON);
    for host in NOT_PUBLIC {
        let refused = dialer.post(1, &format!("https://{host}:9/"), "token".to_owned()).await;
        assert!(matches!(refused, Err(NoAnswer::Refused(_))), "{host}: {refused:?}");
        let plain = dialer.post(1, &format!("http://{host}:9/"), "token".to_owned()).await;
        assert!(matches!(plain, Err(NoAnswer::Refused(_))), "{host}: {plain:?}");
    }
}

#[tokio::test]
async fn a_name_that_resolves_to_such_an_address_is_not_connected_to() {
    for host in NOT_PUBLIC {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let Ok(address) = bare.parse::<IpAddr>() else { continue };
        let dialer = dialer(EgressPolicy::PUBLIC, &[&[bare]], SOON);
        let refused = dialer.post(1, "https://hooks.example:9/", "token".to_owned()).await;
        assert_eq!(refused, Err(NoAnswer::NoAddress), "{address}");
    }
}

#[tokio::test]
async fn of_a_mix_only_what_may_be_reached_is_connected_to() {
    let inside = Ipv4Addr::new(127, 0, 0, 3);
    let (port, mut connected) = listen(&[OUTSIDE, inside, Ipv4Addr::LOCALHOST]).await;
    let mix = ["127.0.0.1", "127.0.0.3", "::1", "10.0.0.1", "127.0.0.2", "::ffff:127.0.0.2"];
    let dialer = dialer(egress(&["127.0.0.2/32"]), &[&mix], LONG);
    let url = format!("https://hooks.example:{port}/");
    for _ in 0..3 {
        let (answer, ()) = tokio::join!(dialer.post(1, &url, "token".to_owned()), async {
            // It is not a TLS server: only the address matters here.
            let (address, stream) = connected.recv().await.unwrap();
            assert_eq!(address, OUTSIDE);
            drop(stream);
        });
        assert!(matches!(answer, Err(NoAnswer::Connection | NoAnswer::Tls)), "{answer:?}");
    }
    assert!(connected.try_recv().is_err());
}

#[tokio::test]
async fn a_name_that_is_bound_anew_to_an_address_inside_leads_nowhere() {
    let (port, mut connected) = listen(&[OUTSIDE, Ipv4Addr::LOCALHOST]).await;
    let answers: &[&[&str]] = &[&["127.0.0.2"], &["127.0.0.1"], &["::1", "127.0.0.1"], &["127.0.0.2"]];
    let dialer = dialer(egress(&["127.0.0.2/32"]), answers, LONG);
    let url = format!("https://rebound.example:{port}/");
    let mut outside = 0;
    for inside in [false, true, true, false] {
        let (answer, ()) = tokio::join!(dialer.post(1, &url, "token".to_owned()), async {
            if !inside {
                assert_eq!(connected.recv().await.unwrap().0, OUTSIDE);
                outside += 1;
            }
        });
        assert_eq!(answer == Err(NoAnswer::NoAddress), inside, "{answer:?}");
    }
    assert_eq!(outside, 2);
    assert!(connected.try_recv().is_err(), "no connection was made inside");
}

#[tokio::test]
async fn a_connection_is_used_again_and_a_redirect_is_an_answer() {
    let (port, mut connected) = listen(&[Ipv4Addr::LOCALHOST]).await;
    let dialer = developers(LONG);
    let url = format!("http://hooks.localhost:{port}/in?k=v");
    let receiver = async {
        let (_, mut stream) = connected.recv().await.unwrap();
        let head = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /elsewhere\r\nset-cookie: a=b\r\n";
        for _ in 0..2 {
            let request = read_request(&mut stream).await.to_lowercase();
            assert!(request.starts_with("post /in?k=v http/1.1\r\n"), "{request}");
            assert!(request.contains("content-type: application/jwt\r\n"), "{request}");
            assert!(!request.contains("cookie") && !request.contains("referer"), "{request}");
            stream.write_all(format!("{head}content-length: 2\r\n\r\nhi").as_bytes()).await.unwrap();
        }
        connected.try_recv().is_err()
    };
    let posting = async {
        for _ in 0..2 {
            assert_eq!(dialer.post(1, &url, "token".to_owned()).await, Ok(307));
        }
    };
    assert!(tokio::join!(receiver, posting).0, "one connection");
}

/// The start of an endless answer, what it repeats, and the expected result.
const ENDLESS: [(&str, &str, Result<u16, NoAnswer>); 7] = [
    ("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n", "x", Ok(200)),
    ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "1\r\nx\r\n", Ok(200)),
    ("HTTP/1.1 503 Not Now\r\n\r\n", "x", Ok(503)),
    ("", "HTTP/1.1 100 Continue\r\n\r\n", Err(NoAnswer::TooLong)),
    ("", "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", Err(NoAnswer::TooLong)),
    ("HTTP/1.1 200 OK\r\nx-long: ", "x", Err(NoAnswer::Connection)),
    ("HTTP/1.1 200 OK\r\n", "x: y\r\n", Err(NoAnswer::Connection)),
];

#[tokio::test]
async fn of_an_endless_answer_a_bounded_part_is_read() {
    let (port, mut connected) = listen(&[Ipv4Addr::LOCALHOST]).await;
    let dialer = developers(LONG);
    for (beginning, piece, expected) in ENDLESS {
        let receiver = async {
            let (_, mut stream) = connected.recv().await.unwrap();
            read_request(&mut stream).await;
            stream.write_all(beginning.as_bytes()).await.unwrap();
            let (pieces, mut written) = (piece.repeat(64 * 1024 / piece.len()), 0);
            while stream.write_all(pieces.as_bytes()).await.is_ok() {
                written += pieces.len();
            }
            written
        };
        let url = format!("http://127.0.0.1:{port}/");
        let posting = dialer.post(1, &url, "token".to_owned());
        let (written, answer) = tokio::join!(receiver, posting);
        assert_eq!(answer, expected, "{beginning}{piece}");
        assert!(
            written < 250_000_000,
            "{written} bytes of {beginning}{piece}: what the kernel's buffers hold"
        );
    }
}

#[tokio::test]
async fn the_bytes_of_one_answer_do_not_count_for_the_next() {
    let (port, mut connected) = listen(&[Ipv4Addr::LOCALHOST]).await;
    let dialer = developers(LONG);
    let body = "x".repeat(60 * 1024);
    let receiver = async {
        let (_, mut stream) = connected.recv().await.unwrap();
        for _ in 0..8 {
            read_request(&mut stream).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
        connected.try_recv().is_err()
    };
    let posting = async {
        for _ in 0..8 {
            assert_eq!(
                dialer.post(1, &format!("http://127.0.0.1:{port}/"), "token".to_owned()).await,
                Ok(200)
            );
        }
    };
    assert!(tokio::join!(receiver, posting).0, "one connection");
}

#[tokio::test]
async fn an_attempt_ends_in_time_whatever_comes() {
    let (port, mut connected) = listen(&[Ipv4Addr::LOCALHOST]).await;
    let dialer = developers(SOON);
    let url = format!("http://127.0.0.1:{port}/");
    let answers: [(&[u8], Result<u16, NoAnswer>); 4] = [
        (b"", Err(NoAnswer::Late)),
        (b"HTTP/1.1 200 OK\r\nx-slow: ", Err(NoAnswer::Late)),
        (b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n", Ok(204)),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n", Ok(200)),
    ];
    for (answer, expected) in answers {
        let receiver = async {
            let (_, mut stream) = connected.recv().await.unwrap();
            read_request(&mut stream).await;
            stream.write_all(answer).await.unwrap();
            stream
        };
        let (answered, stream) = tokio::join!(dialer.post(1, &url, "token".to_owned()), receiver);
        assert_eq!(answered, expected);
        drop(stream);
    }
}

#[tokio::test]
async fn what_is_said_of_no_answer_names_neither_url_nor_address() {
    let (port, mut connected) = listen(&[Ipv4Addr::LOCALHOST]).await;
    let dialer = developers(LONG);
    let resetting = async {
        drop(connected.recv().await.unwrap());
    };
    let url = format!("http://127.0.0.1:{port}/s3cret");
    let (reset, ()) = tokio::join!(dialer.post(1, &url, "token".to_owned()), resetting);
    assert_eq!(reset.unwrap_err().to_string(), "the connection failed");
    let tls = format!("https://127.0.0.1:{port}/s3cret");
    let plain = async {
        let (_, mut stream) = connected.recv().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    };
    let (tls, _) = tokio::join!(dialer.post(1, &tls, "token".to_owned()), plain);
    assert_eq!(tls.unwrap_err().to_string(), "no TLS connection could be made");
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let closed = dialer.post(1, &format!("http://{closed}/s3cret"), "token".to_owned()).await;
    assert_eq!(closed.unwrap_err().to_string(), "the connection was refused");
    let inside = dialer.post(1, "https://10.0.0.1/s3cret", "token".to_owned()).await.unwrap_err().to_string();
    assert!(inside.starts_with("not sent: url must have a host that is public"), "{inside}");
    assert!(!inside.contains("s3cret") && !inside.contains("10.0.0.1"), "{inside}");
}
