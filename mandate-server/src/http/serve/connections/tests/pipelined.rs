//! Requests that arrive in one piece, and what follows them.

use super::*;

/// More often than a server needs to read what has arrived, and then the end.
const LOOKS: usize = 64;

/// The answers to a connection's requests, each but the last `200` and `done`, and what came behind those.
#[track_caller]
fn behind_answered(answers: &str, requests: usize) -> &str {
    let mut rest = answers;
    for _ in 0..requests {
        let (answer, behind) = rest.split_once("\r\n\r\ndone\n").unwrap_or_else(|| panic!("{answers:?}"));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answers:?}");
        rest = behind;
    }
    rest
}

/// hyper has read it with the request before it.
#[tokio::test]
async fn what_follows_a_request_and_is_none_has_the_documented_answer() {
    let server = start().await;
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let requests = [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 1),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20), 20),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}".to_owned(), 1),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n".to_owned(),
            1,
        ),
    ];
    for (request, count) in &requests {
        for (behind, status) in [
            ("?\r\n\r\n".to_owned(), "400"),
            ("\0".to_owned(), "400"),
            ("GET / HTTP/7.0\r\n\r\n".to_owned(), "400"),
            (preface.to_owned(), "400"),
            (format!("\r\n{preface}"), "400"),
            (format!("{preface}{}", "\0\0\0\u{4}\0\0\0\0\0".repeat(100_000)), "400"),
            ("\u{16}\u{3}\u{1}\0\u{5}hello".to_owned(), "400"),
            (format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(MAX_HEAD_BYTES)), "431"),
        ] {
            let answers = server.answered(&format!("{request}{behind}")).await;
            assert_refused(behind_answered(&answers, *count), status);
        }
        // A part of a head, and what is no head.
        for (behind, is_answered) in
            [("GET / HTTP/1.1\r\nHost:", true), ("G", true), ("\r\n", false), ("", false)]
        {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(format!("{request}{behind}").as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let answers = rest(&mut stream).await;
            let last = behind_answered(&answers, *count);
            if is_answered { assert_refused(last, "400") } else { assert_eq!(last, "", "{behind:?}") }
        }
    }
}

/// A client may send several requests and close its half of the connection.
#[tokio::test]
async fn a_client_that_closes_its_half_behind_several_requests_gets_all_answers() {
    let server = start().await;
    let (wait, other) = ("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let post = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
    for is_in_one_segment in [true, false] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let all = [wait, other, post, wait, post, other];
        let (first, rest_of) = if is_in_one_segment {
            (all.concat(), String::new())
        } else {
            (wait.to_owned(), all[1..].concat())
        };
        stream.write_all(first.as_bytes()).await.unwrap();
        server.probe.entered.notified().await;
        stream.write_all(rest_of.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        // Each time the one thread of this test looks at the sockets: the server sees the end.
        for _ in 0..LOOKS {
            tokio::task::yield_now().await;
        }
        server.probe.leave.notify_one();
        server.probe.entered.notified().await;
        server.probe.leave.notify_one();
        let answers = rest(&mut stream).await;
        assert_eq!(behind_answered(&answers, all.len()), "");
    }
}
