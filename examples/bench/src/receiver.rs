//! A local receiver of events that costs as little as one can: it reads a POST, keeps its body, and answers 204.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::Failure;

/// How many headers a POST may have.
const MAX_HEADERS: usize = 32;
/// How much is read at a time, in bytes.
const BUFFER_BYTES: usize = 16 * 1024;
const NO_CONTENT: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

/// What came: the path that it was posted to, and the token.
pub(crate) type Came = (String, Bytes);

/// One that runs on a thread of its own until this process ends.
#[derive(Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    came: Arc<Mutex<Vec<Came>>>,
}

impl Receiver {
    pub(crate) fn start() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let (address, came) = (listener.local_addr()?, Arc::default());
        let kept = Arc::clone(&came);
        std::thread::spawn(move || runtime.block_on(listen(listener, kept)));
        Ok(Self { address, came })
    }

    /// The URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// How many have come.
    pub(crate) fn count(&self) -> usize {
        locked(&self.came).len()
    }

    /// All that have come; from now on it is counted anew.
    pub(crate) fn take(&self) -> Vec<Came> {
        std::mem::take(&mut locked(&self.came))
    }
}

fn locked(came: &Mutex<Vec<Came>>) -> MutexGuard<'_, Vec<Came>> {
    came.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn listen(listener: TcpListener, came: Arc<Mutex<Vec<Came>>>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let came = Arc::clone(&came);
                // The sender closes its connections when it likes.
                tokio::spawn(async move { _ = receive(stream, &came).await });
            }
            Err(e) => eprintln!("the receiver cannot accept: {e}"),
        }
    }
}

async fn receive(mut stream: TcpStream, came: &Mutex<Vec<Came>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = BytesMut::with_capacity(BUFFER_BYTES);
    loop {
        if let Some((head, path, length)) = head(&buffer)? {
            while buffer.len() < head + length {
                read(&mut stream, &mut buffer).await?;
            }
            buffer.advance(head);
            // A copy of its own: what is kept must not keep the buffer.
            locked(came).push((path, Bytes::copy_from_slice(&buffer.split_to(length))));
            stream.write_all(NO_CONTENT).await?;
        } else {
            read(&mut stream, &mut buffer).await?;
        }
    }
}

async fn read(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<()> {
    buffer.reserve(BUFFER_BYTES);
    match stream.read_buf(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// How long the head is that `buffer` begins with, its path, and how long the body is; none: it is not whole yet.
fn head(buffer: &[u8]) -> io::Result<Option<(usize, String, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(buffer).map_err(io::Error::other)?;
    let httparse::Status::Complete(head) = parsed else { return Ok(None) };
    let path = request.path.unwrap_or_default().to_owned();
    let mut lengths = request.headers.iter().filter(|h| h.name.eq_ignore_ascii_case("content-length"));
    let length = lengths.next().and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    let length = length.ok_or_else(|| io::Error::other("a POST without its length"))?;
    Ok(Some((head, path, length)))
}
