//! One connection with one HTTP/1.1 request at a time, in as few instructions as will do.
//!
//! A client that shares the machine with the server takes from it what it measures. Hence requests are written as they are
//! rendered, and of an answer no more is read than its status, its length and its body.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Failure;
use crate::target::Target;

/// The most headers that an answer may have.
const MAX_HEADERS: usize = 32;
/// What is read at a time, in bytes. Answers to authorizations are smaller; the buffer grows for others.
const BUFFER_BYTES: usize = 4096;
/// The longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// A connection that is kept.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    head: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// What must be known of a head to read the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    status: u16,
    bytes: usize,
    body_bytes: usize,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(target: &Target) -> Result<Self, Failure> {
        let stream = TcpStream::connect(target.address).await;
        let stream = stream.map_err(|e| format!("cannot connect to {target}: {e}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Sends a request and reads the answer to it.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<Response<'_>, Failure> {
        self.stream.write_all(request).await?;
        let (mut filled, mut head) = (0, None);
        let Head { status, bytes, body_bytes } = loop {
            if filled == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let (before, free) = self.buffer.split_at_mut(filled);
            let read = self.stream.read(free).await?;
            if read == 0 {
                return Err("the connection was closed before the answer's end".into());
            }
            filled = before.len() + read;
            if head.is_none() {
                head = Head::parse(self.buffer.split_at(filled).0)?;
            }
            match head {
                Some(head) if filled == head.bytes + head.body_bytes => break head,
                Some(head) if filled > head.bytes + head.body_bytes => {
                    return Err("something follows the answer".into());
                }
                _ if filled > MAX_ANSWER_BYTES => return Err("the answer is too long".into()),
                _ => {}
            }
        };
        let (head, rest) = self.buffer.split_at(bytes);
        Ok(Response { status, head, body: rest.split_at(body_bytes).0 })
    }
}

impl Head {
    /// The head that `bytes` begin with, if all of it is there.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, Failure> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = response.parse(bytes)? else { return Ok(None) };
        let body_bytes = match find(&response, "content-length") {
            Some(text) => text.parse()?,
            None if response.code == Some(204) => 0,
            None => return Err("an answer without Content-Length".into()),
        };
        Ok(Some(Self { status: response.code.unwrap_or(0), bytes: length, body_bytes }))
    }
}

impl Response<'_> {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        response.parse(self.head).ok()?;
        find(&response, name).map(str::to_owned)
    }

    /// The body, for a message.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.body).into_owned()
    }
}

fn find<'a>(response: &httparse::Response<'_, 'a>, name: &str) -> Option<&'a str> {
    let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(header.value).ok()
}
