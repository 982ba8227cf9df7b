//! HTTP requests to others: one request at a time, within bounds of time and of bytes.
//!
//! What is read is counted below HTTP and below TLS, from one request to the next: interim answers without end, heads
//! and chunks that say nothing, and records of TLS that carry nothing all come to the same end. No redirect is followed, and
//! no proxy asked.

mod connection;
mod lookups;
mod names;

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;
use tokio::time::{Instant, timeout_at};

use self::connection::Connector;
pub use self::lookups::on_behalf_of;
pub use self::names::{Names, SystemNames};
use crate::error::Fault;

/// How much of an answer's body is read, in bytes. What is longer costs its sender the connection.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long a head may be, in bytes, each of the interim ones included.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// How much is read of an answer in all, in bytes on the connection; and of a handshake.
const MAX_READ_BYTES: usize = MAX_HEAD_BYTES + MAX_BODY_BYTES;
/// How many headers an answer may have.
const MAX_HEADERS: usize = 100;
/// How long a connection is kept for the next request. Common servers close theirs after five seconds, and what is sent
/// into one that closes is lost.
const IDLE: Duration = Duration::from_secs(4);
/// How many connections to one host are kept.
const MAX_IDLE: usize = 64;
/// What others see as the client.
const USER_AGENT: HeaderValue = HeaderValue::from_static("mandate");
const ANYTHING: HeaderValue = HeaderValue::from_static("*/*");

/// Why there was no answer. The text is for the owner of the other end; it holds neither the URL nor an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The URL may not be asked, or not any more.
    #[error("not sent: {0}")]
    Refused(String),
    /// The name resolves to no address, or to none that may be reached.
    #[error("not sent: the host has no public address")]
    NoAddress,
    /// Too many names are being looked up already, for the environment or in all.
    #[error("not sent: too many other names are being looked up")]
    Crowded,
    /// Nothing came in time.
    #[error("no answer in time")]
    Late,
    /// More came than an answer may have.
    #[error("the answer was too long")]
    TooLong,
    /// No program listens there.
    #[error("the connection was refused")]
    ConnectionRefused,
    /// No secure connection came about, for example since the certificate is not valid.
    #[error("no TLS connection could be made")]
    Tls,
    /// There was no connection, or it broke before the answer.
    #[error("the connection failed")]
    Connection,
    /// Something is wrong on this side.
    #[error("not sent")]
    Here,
}

/// What was answered.
#[derive(Debug)]
pub struct Answered {
    /// The status. It counts, however the body ends.
    pub status: StatusCode,
    /// The body, if all of it came.
    pub body: Result<Bytes, NoAnswer>,
}

/// Asks others.
#[derive(Clone)]
pub struct Client {
    inner: legacy::Client<Connector, Full<Bytes>>,
    limit: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Client {
    /// One that asks `names` what a name resolves to, and gives a request so long, from the lookup to the end of the
    /// answer.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(names: Arc<dyn Names>, limit: Duration) -> Result<Self, Fault> {
        Self::trusting(names, limit, connection::system_roots())
    }

    /// The same; it trusts those who have a certificate of `roots`.
    fn trusting(names: Arc<dyn Names>, limit: Duration, roots: RootCertStore) -> Result<Self, Fault> {
        let connector = Connector::new(names, limit, roots)?;
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .http1_max_headers(MAX_HEADERS)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .build(connector);
        Ok(Self { inner, limit })
    }

    /// Posts a JWT.
    ///
    /// # Errors
    /// No status was answered.
    pub async fn post_jwt(&self, url: &str, token: String) -> Result<Answered, NoAnswer> {
        let jwt = HeaderValue::from_static("application/jwt");
        let request = Request::post(url).header(header::CONTENT_TYPE, jwt).body(Bytes::from(token));
        self.send(request.map_err(|_| NoAnswer::Refused("url cannot be sent".to_owned()))?).await
    }

    /// Sends a request.
    ///
    /// # Errors
    /// No status was answered.
    pub async fn send(&self, mut request: Request<Bytes>) -> Result<Answered, NoAnswer> {
        let deadline = Instant::now() + self.limit;
        request.headers_mut().entry(header::USER_AGENT).or_insert(USER_AGENT);
        request.headers_mut().entry(header::ACCEPT).or_insert(ANYTHING);
        let asking = self.inner.request(request.map(Full::new));
        let answer = timeout_at(deadline, asking).await.map_err(|_| NoAnswer::Late)?;
        let (head, body) = answer.map_err(|e| NoAnswer::from(&e))?.into_parts();
        let body = timeout_at(deadline, read(body)).await.unwrap_or(Err(NoAnswer::Late));
        Ok(Answered { status: head.status, body })
    }
}

/// Reads a body to its end, so that its connection can be used again.
async fn read(mut body: Incoming) -> Result<Bytes, NoAnswer> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|e| NoAnswer::of(&e))?.into_data() else { continue };
        if whole.len() + data.len() > MAX_BODY_BYTES {
            return Err(NoAnswer::TooLong);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

impl NoAnswer {
    /// The cause behind an error.
    fn of(error: &(dyn Error + 'static)) -> Self {
        let causes = || std::iter::successors(Some(error), |error| cause(*error));
        let refused = |e: &io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
        if let Some(own) = causes().find_map(|cause| cause.downcast_ref::<Self>()) {
            own.clone()
        } else if causes().filter_map(|cause| cause.downcast_ref()).any(refused) {
            Self::ConnectionRefused
        } else {
            Self::Connection
        }
    }
}

impl From<&legacy::Error> for NoAnswer {
    fn from(error: &legacy::Error) -> Self {
        Self::of(error)
    }
}

impl From<Infallible> for NoAnswer {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// What is behind an error. An I/O error passes over the one that it wraps.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests;
