//! Connections to allowed addresses, with or without TLS. The bytes that are read are counted.

use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, io, vec};

use futures_util::future::BoxFuture;
use hyper::Uri;
use hyper::http::uri::Scheme;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower_service::Service;
use tracing::warn;

use super::certificates::{self, Verifier};
use super::lookups::Lookups;
use super::{MAX_READ_BYTES, Names, NoAnswer};
use crate::error::Fault;

type BoxError = Box<dyn Error + Send + Sync>;

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector<Resolver>,
    tls: TlsConnector,
    limit: Duration,
    /// A place for each connection that may be kept behind its first answer.
    idle: Arc<Semaphore>,
}

impl Connector {
    /// A connector with a time limit for each connection, handshake included, of whose connections at most `idle` are
    /// used again. A connection attempt goes on in the background when its request has got another connection meanwhile.
    pub(super) fn new(
        names: Arc<dyn Names>,
        limit: Duration,
        idle: usize,
        roots: RootCertStore,
    ) -> Result<Self, Fault> {
        let mut tcp = HttpConnector::new_with_resolver(Resolver(Lookups::new(names)));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let tls = TlsConnector::from(Arc::new(tls(roots)?));
        Ok(Self { tcp, tls, limit, idle: Arc::new(Semaphore::new(idle)) })
    }
}

/// The authorities that the operating system trusts.
pub(super) fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        warn!("this system trusts no certificate: no server can be reached over https");
    }
    roots
}

fn tls(roots: RootCertStore) -> Result<ClientConfig, Fault> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| Fault::new(format!("TLS cannot be used: {e}")))?;
    let builder = match Verifier::new(roots, provider) {
        Some(verifier) => builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)),
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

impl Service<Uri> for Connector {
    type Response = TokioIo<CountedConnection>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let secure = uri.scheme() == Some(&Scheme::HTTPS);
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let (tls, idle, connecting) = (self.tls.clone(), Arc::clone(&self.idle), self.tcp.call(uri));
        let connected = async move {
            let read = Arc::new(AtomicUsize::new(0));
            let counted = CountedStream { tcp: connecting.await?.into_inner(), read: Arc::clone(&read) };
            let io: Pin<Box<dyn Io>> = if secure {
                let name = ServerName::try_from(host).map_err(|_| NoAnswer::Tls)?;
                Box::pin(tls.connect(name, counted).await.map_err(|e| unshaken(&e))?)
            } else {
                Box::pin(counted)
            };
            Ok(TokioIo::new(CountedConnection { io, read, place: idle.try_acquire_owned().ok() }))
        };
        let limited = timeout(self.limit, connected);
        Box::pin(async move { limited.await.unwrap_or_else(|_| Err(NoAnswer::Late.into())) })
    }
}

/// Why a handshake failed: invalid data is an error of TLS, everything else an error of the connection.
fn unshaken(error: &io::Error) -> NoAnswer {
    match error.kind() {
        io::ErrorKind::InvalidData => certificates::refused(error),
        _ => NoAnswer::of(error),
    }
}

/// Name resolution in the form that the connector needs.
#[derive(Clone)]
struct Resolver(Lookups);

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = NoAnswer;
    type Future = BoxFuture<'static, Result<Self::Response, NoAnswer>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoAnswer>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookups = self.0.clone();
        Box::pin(async move { Ok(lookups.look_up(name.as_str()).await?.into_iter()) })
    }
}

trait Io: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

/// A stream that counts the bytes read, and fails beyond the limit.
struct CountedStream {
    tcp: TcpStream,
    read: Arc<AtomicUsize>,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buf))?;
        let more = buf.filled().len() - before;
        let read = self.read.fetch_add(more, Ordering::Relaxed).saturating_add(more);
        if read > MAX_READ_BYTES {
            return Poll::Ready(Err(io::Error::other(NoAnswer::TooLong)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

/// A connection as HTTP sees it. Each write by HTTP begins a request, and resets the count. Bytes that TLS writes
/// by itself do not.
pub(super) struct CountedConnection {
    io: Pin<Box<dyn Io>>,
    read: Arc<AtomicUsize>,
    /// What it needs to be used again. It is given back once the connection is closed.
    place: Option<OwnedSemaphorePermit>,
}

impl fmt::Debug for CountedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedConnection").field("read", &self.read).finish_non_exhaustive()
    }
}

impl Connection for CountedConnection {
    /// A poisoned connection has its one answer, and is then closed: the pool takes back none.
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.place.is_none() {
            connected.poison();
        }
        connected
    }
}

impl AsyncRead for CountedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.read.store(0, Ordering::Relaxed);
        self.io.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_shutdown(cx)
    }
}
