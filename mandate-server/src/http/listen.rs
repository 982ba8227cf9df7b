//! A listener: accepts connections within its limits, tells every request's id, and writes it to the log.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use mandate_core::RequestId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tracing::{Level, error, event, warn};

use super::reply::{Body, Failure, Reply, render};
use crate::clock::{Clock, Ids};
use crate::error::Fault;

/// Connections that a listener holds at a time. Those beyond wait in the operating system's queue.
const MAX_CONNECTIONS: usize = 16_384;
/// How long the head of a request may take to arrive, in seconds; hence also how long a connection may be idle.
const HEAD_READ_SECONDS: u64 = 30;
/// The largest head of a request, in bytes. The number of its headers is bounded by hyper, to 100.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// How much of what a connection has sent is held in memory, in bytes.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// How long requests that are under way may take when the server stops, in seconds.
const DRAIN_SECONDS: u64 = 15;
/// How long to wait when the operating system gives no more connections, in milliseconds.
const ACCEPT_PAUSE_MILLIS: u64 = 50;

/// What stands behind a listener.
pub(crate) trait Site: Send + Sync + 'static {
    /// Answers a request; says in `told` which route it took.
    fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        told: &mut Told,
    ) -> impl Future<Output = Result<Reply, Failure>> + Send;
}

/// What the log tells of a request.
#[derive(Debug)]
pub(crate) struct Told {
    /// The id of the request.
    pub(crate) id: RequestId,
    /// The path's template. What was asked for in fact stays out of the log.
    pub(crate) path: &'static str,
}

/// Draws the ids of requests.
pub(crate) struct RequestIds {
    pub(crate) ids: Arc<Ids>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl RequestIds {
    fn next(&self) -> RequestId {
        RequestId::from_bytes(self.ids.next(self.clock.now()))
    }
}

/// Serves `site` until `stop` changes, and then ends what is under way, for up to [`DRAIN_SECONDS`].
pub(crate) async fn serve<S: Site>(
    listener: TcpListener,
    site: Arc<S>,
    ids: Arc<RequestIds>,
    mut stop: watch::Receiver<bool>,
) {
    let http = http();
    let connections = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let (slot, stream) = tokio::select! {
            accepted = accept(&listener, &slots) => match accepted { Some(accepted) => accepted, None => break },
            _ = stop.changed() => break,
        };
        let (site, ids) = (Arc::clone(&site), Arc::clone(&ids));
        let service = service_fn(move |request| exchange(Arc::clone(&site), request, ids.next()));
        let connection = connections.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            // How a connection ends is the client's business: there is nobody to tell.
            let _ = connection.await;
            drop(slot);
        });
    }
    drop(listener);
    if tokio::time::timeout(Duration::from_secs(DRAIN_SECONDS), connections.shutdown()).await.is_err() {
        warn!(seconds = DRAIN_SECONDS, "some requests did not end in time");
    }
}

fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(HEAD_READ_SECONDS))
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_BUFFER_BYTES);
    http
}

/// The next connection, when there is room for it. Nothing comes once the semaphore is closed.
async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> Option<(OwnedSemaphorePermit, TcpStream)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without it, an answer would wait for the acknowledgement of the one before it.
                let _ = stream.set_nodelay(true);
                return Some((slot, stream));
            }
            Err(e) => {
                warn!(error = %e, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MILLIS)).await;
            }
        }
    }
}

/// One request and its answer. A panic is a fault like any other.
async fn exchange<S: Site>(
    site: Arc<S>,
    request: Request<Incoming>,
    id: RequestId,
) -> Result<Response<Body>, Infallible> {
    let began = Instant::now();
    let method = request.method().clone();
    let mut told = Told { id, path: "" };
    let answered = AssertUnwindSafe(site.respond(request, &mut told)).catch_unwind().await;
    let outcome = answered.unwrap_or_else(|panic| Err(Failure::Fault(panicked(panic.as_ref()))));
    if let Err(Failure::Fault(fault)) = &outcome {
        error!(request_id = %id, reason = %fault, "fault");
    }
    let response = render(outcome, id);
    tell(&told, &method, response.status().as_u16(), began.elapsed());
    Ok(response)
}

fn tell(told: &Told, method: &hyper::Method, status: u16, duration: Duration) {
    let Told { id, path } = told;
    let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    if status < 400 {
        event!(Level::DEBUG, request_id = %id, %method, path, status, duration_us, "request");
    } else {
        event!(Level::INFO, request_id = %id, %method, path, status, duration_us, "request");
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Fault {
    let message =
        panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    Fault::new(format!("a handler panicked: {}", message.unwrap_or("no message")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{SystemClock, SystemEntropy};
    use hyper::StatusCode;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    /// A site that panics, that waits until it is told, or that answers.
    #[derive(Default)]
    struct Probe {
        entered: Notify,
        leave: Notify,
    }

    impl Site for Probe {
        async fn respond(
            self: Arc<Self>,
            request: Request<Incoming>,
            _: &mut Told,
        ) -> Result<Reply, Failure> {
            match request.uri().path() {
                "/panic" => panic!("by request"),
                "/wait" => {
                    self.entered.notify_one();
                    self.leave.notified().await;
                }
                _ => {}
            }
            Ok(Reply::text(StatusCode::OK, "done\n"))
        }
    }

    async fn start() -> (SocketAddr, Arc<Probe>, watch::Sender<bool>, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, probe, stop) =
            (listener.local_addr().unwrap(), Arc::new(Probe::default()), watch::Sender::new(false));
        let ids =
            RequestIds { ids: Arc::new(Ids::new(Arc::new(SystemEntropy))), clock: Arc::new(SystemClock) };
        let serving = tokio::spawn(serve(listener, Arc::clone(&probe), Arc::new(ids), stop.subscribe()));
        (address, probe, stop, serving)
    }

    async fn get(address: SocketAddr, path: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_panic_is_a_fault_like_any_other() {
        let (address, _probe, _stop, _serving) = start().await;
        let answer = get(address, "/panic", "").await;
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        assert!(answer.contains(r#"{"error":{"code":"server_error","#) && !answer.contains("by request"));
        assert!(answer.contains("\r\nx-request-id: req_"), "{answer}");
        assert!(get(address, "/", "").await.starts_with("HTTP/1.1 200 "), "the listener goes on");
    }

    #[tokio::test]
    async fn a_head_that_is_too_large_is_refused() {
        let (address, _probe, _stop, _serving) = start().await;
        let (large, small) = (MAX_HEAD_BYTES, MAX_HEAD_BYTES - 1000);
        for (bytes, status) in [(large, "431"), (small, "200")] {
            let answer = get(address, "/", &format!("X: {}\r\n", "x".repeat(bytes))).await;
            assert_eq!(answer.split(' ').nth(1), Some(status));
        }
        let many = "X: x\r\n".repeat(101);
        assert_eq!(get(address, "/", &many).await.split(' ').nth(1), Some("431"));
    }

    #[tokio::test]
    async fn what_is_under_way_is_ended_when_the_server_stops() {
        let (address, probe, stop, serving) = start().await;
        let waiting = tokio::spawn(async move { get(address, "/wait", "").await });
        probe.entered.notified().await;
        let idle = TcpStream::connect(address).await.unwrap();
        stop.send_replace(true);
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!serving.is_finished());
        probe.leave.notify_one();
        assert!(waiting.await.unwrap().ends_with("\r\n\r\ndone\n"));
        serving.await.unwrap();
        drop(idle);
    }
}
