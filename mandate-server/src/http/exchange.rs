//! One request and its answer: the request's id, what no site is asked about, and the line in the log.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, Version};
use mandate_core::{RequestId, Timestamp, Verdict};
use tracing::{Level, error, event};

use super::listen::Door;
use super::reply::{Failure, Reply, amended, render};
use super::wire::{Answer, MAX_HEAD_BYTES, MAX_HEADERS, TIMEOUT, Turn};
use crate::clock::{Clock, Ids};
use crate::error::{Fault, Refusal};
use crate::metrics::Listener;
use crate::model::records::Mode;
use crate::traces::{Span, Traced};

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
    /// The place of the request in a trace, if it is among those sampled.
    pub(crate) traced: Option<Traced>,
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

/// One request and its answer. A panic is a fault like any other.
pub(super) async fn exchange<S: Site>(
    door: Arc<Door<S>>,
    request: Request<Incoming>,
    turn: Turn,
) -> Result<Response<Answer>, Infallible> {
    turn.answer();
    let (began, under_way) = (Instant::now(), door.metrics.under_way(door.name));
    let method = request.method().clone();
    let span = begin(&door, &request);
    let mut told = Told { id: door.ids.next(), path: "", traced: span.as_ref().map(Span::place) };
    let malformed = malformed(&request, &turn);
    let close = malformed.is_some();
    let outcome = if let Some(refusal) = malformed {
        Err(Failure::Refused(refusal))
    } else {
        let answering = AssertUnwindSafe(Arc::clone(&door.site).respond(request, &mut told));
        let answered = answering.catch_unwind().await;
        answered.unwrap_or_else(|panic| Err(Failure::Fault(panicked(panic.as_ref()))))
    };
    if let Err(Failure::Fault(fault)) = &outcome {
        door.metrics.fault();
        error!(request_id = %told.id, reason = %fault, "fault");
    }
    let decided = outcome.as_ref().ok().and_then(Reply::decided);
    let mut response = render(outcome, told.id);
    if close {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    tell(&door, &told, Some(&method), response.status().as_u16(), began.elapsed());
    if let Some(span) = span {
        end(span, &told, &method, response.status().as_u16(), decided);
    }
    Ok(response.map(|body| Answer::new(body, turn, under_way)))
}

/// The span of a request. Whoever looks after the server leaves none, and strangers do not say which trace theirs is in.
fn begin<S>(door: &Door<S>, request: &Request<Incoming>) -> Option<Span> {
    let joins = match door.name {
        Listener::Api => true,
        Listener::Public => false,
        Listener::Ops => return None,
    };
    door.traces.request(request.method(), request.headers(), joins)
}

fn end(mut span: Span, told: &Told, method: &Method, status: u16, decided: Option<(Verdict, Mode)>) {
    span.tell("mandate.request_id", told.id.to_string());
    if let Some((verdict, mode)) = decided {
        span.tell("mandate.verdict", verdict.as_str());
        span.tell("mandate.mode", mode.as_str());
    }
    span.answered(method, told.path, status);
}

/// What makes a request ambiguous: two readers of it may not agree on whom it is for, or where it ends (RFC 9112,
/// sections 3.2 and 6.1).
fn malformed(request: &Request<Incoming>, turn: &Turn) -> Option<Refusal> {
    let headers = request.headers();
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() < Version::HTTP_11 => {}
        (Some(host), None) if host.is_empty() || Authority::try_from(host.as_bytes()).is_ok() => {}
        _ => return Some(Refusal::invalid("a request must have one Host header, with a host in it")),
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => None,
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            turn.may_have_length().then(|| {
                Refusal::invalid(
                    "a request must have one of Content-Length and Transfer-Encoding, not both; \
                     with Transfer-Encoding it must not come before the last one was answered",
                )
            })
        }
        _ => Some(Refusal::invalid("Transfer-Encoding must be chunked")),
    }
}

/// The bare status by which hyper has turned something away, as an answer of this server.
pub(super) fn amend<S>(door: &Door<S>, bare: &[u8]) -> Vec<u8> {
    let told = Told { id: door.ids.next(), path: "", traced: None };
    let (what, bare) = if bare == TIMEOUT {
        let what =
            format!("the head of the request did not arrive within {} seconds", door.limits.head.as_secs());
        (what, dated(bare, door.ids.clock.now()))
    } else {
        let what = format!(
            "this is no HTTP/1.1 request, or its head is larger than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers"
        );
        (what, bare.to_vec())
    };
    let (status, amended) = amended(&bare, &Refusal::invalid(what), told.id);
    tell(door, &told, None, status, Duration::ZERO);
    amended
}

/// A bare status with the date behind its other headers.
fn dated(bare: &[u8], now: Timestamp) -> Vec<u8> {
    let since = Duration::from_millis(u64::try_from(now.millis()).unwrap_or_default());
    let date = format!("\r\ndate: {}\r\n\r\n", httpdate::fmt_http_date(UNIX_EPOCH + since));
    [bare.strip_suffix(b"\r\n\r\n").unwrap_or(bare), date.as_bytes()].concat()
}

fn tell<S>(door: &Door<S>, told: &Told, method: Option<&Method>, status: u16, duration: Duration) {
    let Told { id, path, .. } = told;
    door.metrics.answered(door.name, method, path, status, duration);
    let method = method.map_or("", Method::as_str);
    let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    if status < 400 {
        event!(Level::DEBUG, request_id = %id, method, path, status, duration_us, "request");
    } else {
        event!(Level::INFO, request_id = %id, method, path, status, duration_us, "request");
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Fault {
    let message =
        panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    Fault::new(format!("a handler panicked: {}", message.unwrap_or("no message")))
}
