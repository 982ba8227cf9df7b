//! A small HTTP/1.1 receiver, limited in connections, bytes and time. It reads whole requests, passes each on in the thread of
//! its connection, and sends the answer it gets.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// How many connections are served at a time. Others wait in the listener's queue.
const MAX_CONNECTIONS: usize = 8;
/// The longest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The most headers of a request.
const MAX_HEADERS: usize = 64;
/// The longest body of a webhook, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long a request may take to arrive, and its answer to be sent.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
/// How much is read at a time.
const PIECE_BYTES: usize = 8 * 1024;

const TEXT: &str = "text/plain; charset=utf-8";

/// A POST request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    /// The path, with what follows it.
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
}

/// A status, and a short text.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
    content_type: &'static str,
}

impl Answer {
    pub(crate) fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), content_type: TEXT }
    }

    /// The same answer, of another type.
    pub(crate) fn of_type(self, content_type: &'static str) -> Self {
        Self { content_type, ..self }
    }
}

/// Receives POST requests at `address`, at port 0 on a free one, with bodies of at most `max_body` bytes, and answers each as
/// `answer` says. `answer` may run on several threads at once. Returns the address. It runs until the process ends.
pub(crate) fn receive(
    address: SocketAddr,
    max_body: usize,
    answer: impl Fn(Request<'_>) -> Answer + Clone + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    for _ in 0..MAX_CONNECTIONS {
        let (listener, answer) = (listener.try_clone()?, answer.clone());
        thread::Builder::new().name("receiver".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // A peer that disconnects early has sent nothing.
                let _ = serve(stream, max_body, &answer);
            }
        })?;
    }
    Ok(address)
}

/// Serves the only request of a connection.
fn serve(
    mut stream: TcpStream,
    max_body: usize,
    answer: impl FnOnce(Request<'_>) -> Answer,
) -> io::Result<()> {
    let deadline = Instant::now().checked_add(TRANSFER_TIMEOUT);
    stream.set_write_timeout(Some(TRANSFER_TIMEOUT))?;
    let answer = match read(&mut stream, max_body, deadline)? {
        Err(refused) => refused,
        Ok((path, body)) => answer(Request { path: &path, body: &body }),
    };
    let Answer { status, text, content_type } = answer;
    let length = text.len();
    // Only these two statuses have no body, and neither is used with a text.
    let head = if matches!(status, 204 | 304) {
        format!("HTTP/1.1 {status} \r\nconnection: close\r\n\r\n")
    } else {
        format!(
            "HTTP/1.1 {status} \r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
        )
    };
    stream.write_all(head.as_bytes())
}

/// Reads a request to its end. Returns its path and its body, or why it is refused.
fn read(
    stream: &mut TcpStream,
    max_body: usize,
    deadline: Option<Instant>,
) -> io::Result<Result<(String, Vec<u8>), Answer>> {
    let mut bytes = Vec::new();
    loop {
        match expected(&bytes, max_body) {
            Err(refused) => return Ok(Err(refused)),
            Ok(Some(Head { path, end, length })) if bytes.len() >= end.saturating_add(length) => {
                let body = bytes.get(end..end.saturating_add(length)).unwrap_or_default();
                return Ok(Ok((path, body.to_vec())));
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

/// The path of a request, and the lengths of its head and body.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    path: String,
    end: usize,
    length: usize,
}

/// What a head says, once it is complete.
fn expected(bytes: &[u8], max_body: usize) -> Result<Option<Head>, Answer> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(Answer::new(431, "the head is too long")),
        Err(e) => return Err(Answer::new(400, format!("this is not an HTTP request: {e}"))),
    };
    if request.method != Some("POST") {
        return Err(Answer::new(405, "only POST is answered"));
    }
    let of = |name| request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    if of("transfer-encoding").next().is_some() {
        return Err(Answer::new(411, "a Content-Length is required"));
    }
    let mut lengths = of("content-length").map(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    match (lengths.next(), lengths.next()) {
        (Some(Some(length)), None) if length <= max_body => {
            let path = request.path.unwrap_or_default().to_owned();
            Ok(Some(Head { path, end: head, length }))
        }
        (Some(Some(_)), None) => {
            Err(Answer::new(413, format!("the body must not be longer than {max_body} bytes")))
        }
        (None, _) => Err(Answer::new(411, "a Content-Length is required")),
        _ => Err(Answer::new(400, "the Content-Length is refused")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> u16 {
        expected(text.as_bytes(), MAX_BODY_BYTES).unwrap_err().status
    }

    #[test]
    fn only_requests_of_a_known_and_bounded_length_are_read() {
        let head = "POST /in HTTP/1.1\r\ncontent-length: 3\r\n\r\n";
        let found = Head { path: "/in".to_owned(), end: head.len(), length: 3 };
        assert_eq!(expected(format!("{head}abc").as_bytes(), 3).unwrap(), Some(found));
        assert_eq!(expected(head.as_bytes(), 2).unwrap_err().status, 413);
        assert_eq!(expected(&head.as_bytes()[..20], MAX_BODY_BYTES).unwrap(), None);
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
