//! A small HTTP/1.1 receiver on loopback, limited in connections, bytes and time. It reads whole requests,
//! passes each on in the thread of its connection, and sends the answer it gets.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// How many connections are served at a time. Others wait in the listener's queue.
const MAX_CONNECTIONS: usize = 8;
/// The longest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The most headers of a request.
const MAX_HEADERS: usize = 64;
/// The longest body, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long a request may take to arrive, and its answer to be sent.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
/// How much is read at a time.
const PIECE_BYTES: usize = 8 * 1024;

/// A status, and a short text.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

/// Receives POST requests on `port` of 127.0.0.1, 0 for a free one, on any path, and answers each as `answer`
/// says for its body. `answer` may run on several threads at once. Returns the address. It runs until the
/// process ends.
pub(crate) fn receive(
    port: u16,
    answer: impl Fn(&[u8]) -> Answer + Clone + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let address = listener.local_addr()?;
    for _ in 0..MAX_CONNECTIONS {
        let (listener, answer) = (listener.try_clone()?, answer.clone());
        thread::Builder::new().name("receiver".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // A peer that disconnects early has sent nothing.
                let _ = serve(stream, &answer);
            }
        })?;
    }
    Ok(address)
}

/// Serves the only request of a connection.
fn serve(mut stream: TcpStream, answer: impl FnOnce(&[u8]) -> Answer) -> io::Result<()> {
    let deadline = Instant::now().checked_add(TRANSFER_TIMEOUT);
    stream.set_write_timeout(Some(TRANSFER_TIMEOUT))?;
    let answer = match read(&mut stream, deadline)? {
        Err(refused) => refused,
        Ok(body) => answer(&body),
    };
    let Answer { status, text } = answer;
    let length = text.len();
    // Only these two statuses have no body, and neither is used with a text.
    let head = if matches!(status, 204 | 304) {
        format!("HTTP/1.1 {status} \r\nconnection: close\r\n\r\n")
    } else {
        format!(
            "HTTP/1.1 {status} \r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
        )
    };
    stream.write_all(head.as_bytes())
}

/// Reads a request to its end. Returns its body, or why it is refused.
fn read(stream: &mut TcpStream, deadline: Option<Instant>) -> io::Result<Result<Vec<u8>, Answer>> {
    let mut bytes = Vec::new();
    loop {
        match expected(&bytes) {
            Err(refused) => return Ok(Err(refused)),
            Ok(Some((head, length))) if bytes.len() >= head.saturating_add(length) => {
                let body = bytes.get(head..head.saturating_add(length)).unwrap_or_default();
                return Ok(Ok(body.to_vec()));
            }
            Ok(_) => {}
        }
        let left = deadline.and_then(|deadline| deadline.checked_duration_since(Instant::now()));
        let Some(left) = left.filter(|left| !left.is_zero()) else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        stream.set_read_timeout(Some(left))?;
        let mut piece = [0; PIECE_BYTES];
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => bytes.extend_from_slice(piece.get(..n).unwrap_or_default()),
        }
    }
}

/// The lengths of head and body, once the head is complete.
fn expected(bytes: &[u8]) -> Result<Option<(usize, usize)>, Answer> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(Answer::new(431, "the head is too long")),
        Err(e) => return Err(Answer::new(400, format!("this is not an HTTP request: {e}"))),
    };
    if request.method != Some("POST") {
        return Err(Answer::new(405, "webhooks are posted"));
    }
    let of = |name| request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    if of("transfer-encoding").next().is_some() {
        return Err(Answer::new(411, "a Content-Length is required"));
    }
    let mut lengths = of("content-length").map(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    match (lengths.next(), lengths.next()) {
        (Some(Some(length)), None) if length <= MAX_BODY_BYTES => Ok(Some((head, length))),
        (Some(Some(_)), None) => {
            Err(Answer::new(413, format!("the body must not be longer than {MAX_BODY_BYTES} bytes")))
        }
        (None, _) => Err(Answer::new(411, "a Content-Length is required")),
        _ => Err(Answer::new(400, "the Content-Length is refused")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> u16 {
        expected(text.as_bytes()).unwrap_err().status
    }

    #[test]
    fn only_requests_of_a_known_and_bounded_length_are_read() {
        let head = "POST /in HTTP/1.1\r\ncontent-length: 3\r\n\r\n";
        assert_eq!(expected(format!("{head}abc").as_bytes()).unwrap(), Some((head.len(), 3)));
        assert_eq!(expected(&head.as_bytes()[..20]).unwrap(), None);
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), 405);
        assert_eq!(status("POST / HTTP/1.1\r\n\r\n"), 411);
        assert_eq!(status("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"), 411);
        assert_eq!(status("POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"), 400);
        assert_eq!(status("POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n"), 400);
        assert_eq!(status("POST / HTTP/1.1\r\ncontent-length: 65537\r\n\r\n"), 413);
        assert_eq!(status("\u{16}\u{3}\u{1}"), 400);
        assert_eq!(status(&format!("POST /{} ", "a".repeat(MAX_HEAD_BYTES))), 431);
    }
}
