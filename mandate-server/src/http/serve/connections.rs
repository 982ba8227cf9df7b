//! The connections of a listener: accepted within its limits, served by hyper, and ended in order.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use super::stream::{ConnectionState, ConnectionStream, MAX_HEAD_BYTES};
use crate::http::limit::peers::{Peer, PeerPermit, Peers};
use crate::http::log::{Site, answer, answer_for_hyper};
use crate::metrics::NoConnection;

/// How many connections one address may have at a time, if no proxy is in front.
pub(crate) const MAX_CONNECTIONS_PER_PEER: usize = 1024;
/// How long a TLS handshake may take, in seconds.
const HANDSHAKE_SECONDS: u64 = 10;
/// How long the head of a request may take to arrive, in seconds; hence how long a connection may be idle.
const HEAD_READ_SECONDS: u64 = 30;
/// How long a peer may go without reading what is written to it, in seconds.
const STALLED_SECONDS: u64 = 30;
/// How much received data of a connection is buffered, in bytes.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// How long running requests may take when the server stops, in seconds.
const DRAIN_SECONDS: u64 = 15;
/// The pause after `accept` has failed, in milliseconds.
const ACCEPT_PAUSE_MILLIS: u64 = 50;

/// The limits of a listener. By default the number of its connections has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections at a time. Others wait in the operating system's queue.
    pub(crate) connections: usize,
    /// Connections of one address at a time. None where all connections come from a proxy.
    pub(crate) connections_per_peer: Option<usize>,
    /// For a TLS handshake.
    pub(crate) handshake: Duration,
    /// For the head of a request, and between two requests.
    pub(crate) head: Duration,
    /// For taking some of an answer.
    pub(crate) stalled: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: Semaphore::MAX_PERMITS,
            connections_per_peer: None,
            handshake: Duration::from_secs(HANDSHAKE_SECONDS),
            head: Duration::from_secs(HEAD_READ_SECONDS),
            stalled: Duration::from_secs(STALLED_SECONDS),
        }
    }
}

/// What serves the connections of one socket.
pub(crate) struct Listener {
    pub(crate) site: Site,
    /// Accepts TLS. None for plain HTTP.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) limits: Limits,
}

/// Serves `socket` until `stop` changes. Then running requests have up to [`DRAIN_SECONDS`] to end.
pub(crate) async fn serve(socket: TcpListener, listener: Arc<Listener>, mut stop: watch::Receiver<bool>) {
    // Each connection holds a sender, so that the end of all is the end of the channel.
    let (open, mut all) = mpsc::channel::<()>(1);
    let slots = Arc::new(Semaphore::new(listener.limits.connections));
    let peers = Peers::default();
    loop {
        let (slot, stream, peer) = tokio::select! {
            accepted = accept(&socket, &slots) => match accepted { Some(accepted) => accepted, None => break },
            _ = stop.changed() => break,
        };
        let peer = Peer::at(peer.ip());
        let Ok(permit) = admit(&peers, peer, listener.limits.connections_per_peer) else {
            listener.site.metrics.no_connection(listener.site.name, NoConnection::PeerLimit);
            continue;
        };
        let (listener, open, stop) = (Arc::clone(&listener), open.clone(), stop.clone());
        tokio::spawn(async move {
            connection(listener, (stream, peer), stop).await;
            drop((slot, permit, open));
        });
    }
    drop((socket, open));
    if tokio::time::timeout(Duration::from_secs(DRAIN_SECONDS), all.recv()).await.is_err() {
        warn!(seconds = DRAIN_SECONDS, "some requests did not end in time");
    }
}

/// The next connection, when there is room for it; none once the semaphore is closed.
async fn accept(
    socket: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(OwnedSemaphorePermit, TcpStream, SocketAddr)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    loop {
        match socket.accept().await {
            Ok((stream, peer)) => {
                // Otherwise an answer waits until the peer has acknowledged the one before it.
                let _ = stream.set_nodelay(true);
                return Some((slot, stream, peer));
            }
            Err(e) => {
                warn!(error = %e, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MILLIS)).await;
            }
        }
    }
}

/// Counts a connection for its address, if connections of an address are limited.
fn admit(peers: &Peers, peer: Peer, most: Option<usize>) -> Result<Option<PeerPermit>, ()> {
    most.map(|most| peers.admit(peer, most).ok_or(())).transpose()
}

/// One connection, from its handshake to its end. Its errors are not logged: any peer can cause them at will.
async fn connection(
    listener: Arc<Listener>,
    (stream, peer): (TcpStream, Peer),
    mut stop: watch::Receiver<bool>,
) {
    let (name, metrics) = (listener.site.name, listener.site.metrics.clone());
    let _open = metrics.connection(name);
    let Some(tls) = listener.tls.clone() else { return requests(listener, (stream, peer), stop).await };
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(listener.limits.handshake, tls.accept(stream)) => handshake,
        _ = stop.changed() => return,
    };
    match handshake {
        Ok(Ok(stream)) => requests(listener, (stream, peer), stop).await,
        Ok(Err(_)) => metrics.no_connection(name, NoConnection::Handshake),
        Err(_) => metrics.no_connection(name, NoConnection::HandshakeTimeout),
    }
}

/// The requests of one connection, one after another. When the server stops, a running request is answered,
/// but an incomplete head is not waited for.
async fn requests<T>(listener: Arc<Listener>, (stream, peer): (T, Peer), mut stop: watch::Receiver<bool>)
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(listener.limits.stalled));
    let (state, head_time) = (ConnectionState::default(), listener.limits.head);
    let stream = ConnectionStream::new(stream, state.clone(), head_time);
    let (shared, answering) = (state.clone(), Arc::clone(&listener));
    // Where connections of an address are not limited, that is a proxy's.
    let client = listener.limits.connections_per_peer.map(|_| peer);
    let service = service_fn(move |mut request: Request<Incoming>| {
        client.and_then(|client| request.extensions_mut().insert(client));
        let (listener, state) = (Arc::clone(&answering), shared.clone());
        Box::pin(async move { answer(&listener.site, request, state).await })
    });
    let mut serving = http().serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = poll_fn(|cx| serving.poll_without_shutdown(cx)) => Some(ended),
        _ = stop.changed() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None if state.is_reading_head() => return,
        None => {
            Pin::new(&mut serving).graceful_shutdown();
            poll_fn(|cx| serving.poll_without_shutdown(cx)).await
        }
    };
    let within_head = match ended {
        Ok(()) => false,
        Err(e) if e.is_parse() || e.is_incomplete_message() => true,
        Err(_) => return,
    };
    let parts = serving.into_parts();
    let mut stream = parts.io.into_inner();
    let refusal = stream.refusal(within_head, &parts.read_buf);
    let last = refusal.map(|bare| answer_for_hyper(&listener.site, &bare, head_time)).unwrap_or_default();
    let _ = stream.end(&last).await;
}

fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    // [`ConnectionStream`] limits the time for a head. A client may close its half once it has sent its request.
    http.timer(TokioTimer::new())
        .half_close(true)
        .header_read_timeout(None)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_BUFFER_BYTES);
    http
}

#[cfg(test)]
mod tests;
