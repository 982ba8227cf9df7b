//! A listener: accepts connections within its limits, and ends them in order.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use super::exchange::{RequestIds, Site, amend, exchange};
use super::peers::{Guest, Peers};
use super::wire::{MAX_HEAD_BYTES, Turn, Wire};
use crate::metrics::{Listener, Metrics, NoConnection};
use crate::traces::Traces;

/// Connections that a listener holds at a time. Those beyond wait in the operating system's queue.
const MAX_CONNECTIONS: usize = 16_384;
/// Connections that one address has at a time, where no proxy is in front.
pub(crate) const MAX_CONNECTIONS_PER_PEER: usize = 1024;
/// How long a TLS handshake may take, in seconds.
const HANDSHAKE_SECONDS: u64 = 10;
/// How long the head of a request may take to arrive, in seconds; hence also how long a connection may be idle.
const HEAD_READ_SECONDS: u64 = 30;
/// How long a peer may take none of what is written to it, in seconds.
const STALLED_SECONDS: u64 = 30;
/// How much of what a connection has sent is held in memory, in bytes.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// How long requests that are under way may take when the server stops, in seconds.
const DRAIN_SECONDS: u64 = 15;
/// How long to wait when the operating system gives no more connections, in milliseconds.
const ACCEPT_PAUSE_MILLIS: u64 = 50;

/// What a listener grants its peers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections at a time.
    pub(crate) connections: usize,
    /// Connections of one address at a time; absent where all come from a proxy.
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
            connections: MAX_CONNECTIONS,
            connections_per_peer: None,
            handshake: Duration::from_secs(HANDSHAKE_SECONDS),
            head: Duration::from_secs(HEAD_READ_SECONDS),
            stalled: Duration::from_secs(STALLED_SECONDS),
        }
    }
}

/// What stands behind a socket.
pub(crate) struct Door<S> {
    pub(crate) name: Listener,
    pub(crate) site: Arc<S>,
    pub(crate) ids: Arc<RequestIds>,
    pub(crate) metrics: Metrics,
    pub(crate) traces: Traces,
    /// Speaks TLS; absent for plain HTTP.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) limits: Limits,
}

/// Serves `door` until `stop` changes, and then ends what is under way, for up to [`DRAIN_SECONDS`].
pub(crate) async fn serve<S: Site>(
    listener: TcpListener,
    door: Arc<Door<S>>,
    mut stop: watch::Receiver<bool>,
) {
    let connections = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(door.limits.connections));
    let peers = Peers::default();
    loop {
        let (slot, stream, peer) = tokio::select! {
            accepted = accept(&listener, &slots) => match accepted { Some(accepted) => accepted, None => break },
            _ = stop.changed() => break,
        };
        let Ok(guest) = admit(&peers, peer.ip(), door.limits.connections_per_peer) else {
            door.metrics.no_connection(door.name, NoConnection::PeerLimit);
            continue;
        };
        let (door, watcher, stop) = (Arc::clone(&door), connections.watcher(), stop.clone());
        tokio::spawn(async move {
            converse(door, stream, watcher, stop).await;
            drop((slot, guest));
        });
    }
    drop(listener);
    if tokio::time::timeout(Duration::from_secs(DRAIN_SECONDS), connections.shutdown()).await.is_err() {
        warn!(seconds = DRAIN_SECONDS, "some requests did not end in time");
    }
}

/// The next connection, when there is room for it. Nothing comes once the semaphore is closed.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(OwnedSemaphorePermit, TcpStream, SocketAddr)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without it, an answer would wait for the acknowledgement of the one before it.
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

/// Counts a connection for its address, where that is bounded.
fn admit(peers: &Peers, peer: IpAddr, most: Option<usize>) -> Result<Option<Guest>, ()> {
    most.map(|most| peers.admit(peer, most).ok_or(())).transpose()
}

/// One connection, from its handshake to its end. How it ends is the peer's business: there is nobody to tell.
async fn converse<S: Site>(
    door: Arc<Door<S>>,
    stream: TcpStream,
    watcher: Watcher,
    mut stop: watch::Receiver<bool>,
) {
    let _open = door.metrics.connection(door.name);
    let Some(tls) = door.tls.clone() else { return requests(door, stream, watcher, stop).await };
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(door.limits.handshake, tls.accept(stream)) => shaken,
        _ = stop.changed() => return,
    };
    match shaken {
        Ok(Ok(stream)) => requests(door, stream, watcher, stop).await,
        Ok(Err(_)) => door.metrics.no_connection(door.name, NoConnection::Handshake),
        Err(_) => door.metrics.no_connection(door.name, NoConnection::HandshakeTimeout),
    }
}

/// The requests of one connection, one after the other. When the server stops, one that is under way is answered, and a
/// peer that has not asked to the end is not waited for.
async fn requests<S, T>(door: Arc<Door<S>>, stream: T, watcher: Watcher, mut stop: watch::Receiver<bool>)
where
    S: Site,
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(door.limits.stalled));
    let (turn, amending) = (Turn::default(), Arc::clone(&door));
    let wire = Wire::new(stream, turn.clone(), door.limits.head, move |bare| amend(&amending, bare));
    let asked = turn.clone();
    let service = service_fn(move |request| exchange(Arc::clone(&door), request, asked.clone()));
    let mut talk = pin!(watcher.watch(http().serve_connection(TokioIo::new(wire), service)));
    tokio::select! {
        _ = &mut talk => return,
        _ = stop.changed() => {}
    }
    if !turn.is_with_peer() {
        let _ = talk.await;
    }
}

fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    // The time for a head runs in [`Wire`].
    http.timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_BUFFER_BYTES);
    http
}

#[cfg(test)]
mod tests;
