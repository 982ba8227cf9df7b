//! HTTP requests to other servers, with limits on time and bytes.
//!
//! The bytes of an answer are counted below HTTP and below TLS. So the limit also ends an answer of endless interim
//! responses, empty chunks or empty TLS records. Redirects are not followed, and no proxy is used.
//! It is hyper and not reqwest, which the CLI has: reqwest takes no connection of ours, where the bytes are counted.

mod certificates;
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

/// The largest body of an answer, in bytes. A longer one ends the connection.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// The largest head of an answer or interim response, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The most bytes that are read from the connection for one answer, or for one handshake.
const MAX_READ_BYTES: usize = MAX_HEAD_BYTES + MAX_BODY_BYTES;
/// The most headers of an answer.
const MAX_HEADERS: usize = 100;
/// How long an idle connection is kept. Common servers close theirs after five seconds, and a request sent into a
/// closing connection is lost.
const IDLE: Duration = Duration::from_secs(4);
/// The most idle connections to one host. A client has a bound for all hosts besides.
const MAX_IDLE_OF_HOST: usize = 64;
/// The `User-Agent`.
const USER_AGENT: HeaderValue = HeaderValue::from_static("mandate");
const ANYTHING: HeaderValue = HeaderValue::from_static("*/*");

/// Why there was no answer. The owner of the other server reads the text, so it has neither the URL nor an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The policy does not allow this URL, or no longer allows it.
    #[error("not sent: {0}")]
    Refused(String),
    /// The name resolves to no address, or to none that the policy allows.
    #[error("not sent: the host has no public address")]
    NoAddress,
    /// Too many lookups are under way, for the environment or in all.
    #[error("not sent: too many other names are being looked up")]
    Crowded,
    /// No answer came in time.
    #[error("no answer in time")]
    Late,
    /// The answer is too long.
    #[error("the answer was too long")]
    TooLong,
    /// No program listens there.
    #[error("the connection was refused")]
    ConnectionRefused,
    /// The certificate is signed by itself, and not one of those that the system trusts.
    #[error("no TLS connection could be made: the certificate is self-signed")]
    SelfSigned,
    /// No authority that the system trusts has signed the certificate, or a certificate between the two is missing.
    #[error("no TLS connection could be made: the certificate leads to no trusted authority")]
    Untrusted,
    /// The certificate has expired.
    #[error("no TLS connection could be made: the certificate has expired")]
    Expired,
    /// The certificate is not valid yet.
    #[error("no TLS connection could be made: the certificate is not valid yet")]
    NotValidYet,
    /// The certificate is for other names.
    #[error("no TLS connection could be made: the certificate is for another name")]
    AnotherName,
    /// The TLS handshake failed for any other reason.
    #[error("no TLS connection could be made")]
    Tls,
    /// The connection failed, or was lost before the answer.
    #[error("the connection failed")]
    Connection,
    /// The fault is on this side.
    #[error("not sent")]
    Here,
}

/// An answer.
#[derive(Debug)]
pub struct Answered {
    /// The status. It is valid even if the body is not complete.
    pub status: StatusCode,
    /// The body, if it is complete.
    pub body: Result<Bytes, NoAnswer>,
}

/// An HTTP client.
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
    /// A client that resolves names with `names`, limits the time from the lookup to the end of the answer, and keeps
    /// at most `idle` connections for further requests. Others are closed behind their first answer.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(names: Arc<dyn Names>, limit: Duration, idle: usize) -> Result<Self, Fault> {
        Self::trusting(names, limit, idle, connection::system_roots())
    }

    /// The same, but it trusts the authorities in `roots`.
    fn trusting(
        names: Arc<dyn Names>,
        limit: Duration,
        idle: usize,
        roots: RootCertStore,
    ) -> Result<Self, Fault> {
        let connector = Connector::new(names, limit, idle, roots)?;
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE_OF_HOST)
            .http1_max_headers(MAX_HEADERS)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .build(connector);
        Ok(Self { inner, limit })
    }

    /// Posts a JWT.
    ///
    /// # Errors
    /// No status was received.
    pub async fn post_jwt(&self, url: &str, token: String) -> Result<Answered, NoAnswer> {
        self.post(url, "application/jwt", token).await
    }

    /// Posts a text of this Content-Type.
    ///
    /// # Errors
    /// No status was received.
    pub async fn post(&self, url: &str, form: &'static str, text: String) -> Result<Answered, NoAnswer> {
        let form = HeaderValue::from_static(form);
        let request = Request::post(url).header(header::CONTENT_TYPE, form).body(Bytes::from(text));
        self.send(request.map_err(|_| NoAnswer::Refused("url cannot be sent".to_owned()))?).await
    }

    /// Sends a request.
    ///
    /// # Errors
    /// No status was received.
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

/// The source of an error. For an I/O error, the error that it wraps.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests;
