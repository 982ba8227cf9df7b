//! A request and its answer: the request's id, the checks before any router, panics, and the request log.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, UNIX_EPOCH};

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Version};
use mandate_core::{RequestId, Timestamp, Verdict};
use tower_service::Service as _;
use tracing::{Level, error, event};

use super::cors;
use super::limit::unread::UnreadAnswer;
use super::respond::{Failure, amended, finish};
use super::serve::stream::{
    AnswerBody, ConnectionState, MAX_HEAD_BYTES, MAX_HEADERS, RequestBody, TIMEOUT, TOO_LARGE, UNREADABLE,
};
use crate::clock::{Clock, Ids};
use crate::error::{Fault, Refusal, Repeated};
use crate::metrics::{Listener, Metrics};
use crate::model::call::Answer;
use crate::model::records::Mode;
use crate::traces::{Span, Traced, Traces, known};

/// What answers and records the requests of one listener.
pub(crate) struct Site {
    pub(crate) name: Listener,
    pub(crate) router: Router,
    pub(crate) ids: Arc<RequestIds>,
    pub(crate) metrics: Metrics,
    pub(crate) traces: Traces,
    /// Faults that have no line of log each.
    pub(crate) repeated: Repeated,
}

impl Site {
    /// Counts a fault, and logs it. Faults of a condition that lasts have a line a second together, and their requests none:
    /// then true is returned.
    fn log_fault(&self, id: RequestId, fault: &Fault) -> bool {
        self.metrics.fault();
        let kind = fault.kind();
        if !fault.lasts() {
            error!(request_id = %id, kind, reason = %fault, "fault");
            return false;
        }
        if let Some(others) = self.repeated.due(kind) {
            error!(request_id = %id, kind, reason = %fault, others, "fault");
        }
        true
    }
}

/// The data of a request for log, metrics and trace: an extension of the request, shared with its handler.
#[derive(Debug)]
pub(super) struct RequestLog {
    /// The id of the request.
    pub(super) id: RequestId,
    /// The template of the path, of a request without a valid key too; empty where no route has the path. The path itself
    /// stays out of the log, since it can hold anything.
    path: OnceLock<&'static str>,
    /// What was decided, and in which mode.
    decided: OnceLock<(Verdict, Mode)>,
    /// The place of the request in a trace, if it is sampled.
    pub(super) traced: Option<Traced>,
}

impl RequestLog {
    fn new(id: RequestId, traced: Option<Traced>) -> Self {
        Self { id, path: OnceLock::new(), decided: OnceLock::new(), traced }
    }

    /// Records which path was found, if none was recorded yet.
    pub(super) fn found(&self, path: &'static str) {
        let _ = self.path.set(path);
    }

    /// Records what was decided, if anything was.
    pub(super) fn decided(&self, answer: &Answer) {
        if let Some(decided) = answer.decided {
            let _ = self.decided.set(decided);
        }
    }

    /// The template of the path.
    pub(super) fn path(&self) -> &'static str {
        self.path.get().copied().unwrap_or_default()
    }
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

/// Answers one request.
pub(super) async fn answer(
    site: &Site,
    request: Request<Incoming>,
    state: ConnectionState,
) -> Result<hyper::Response<AnswerBody>, Infallible> {
    let request = request.map(|body| state.begin_answer(body));
    let (began, under_way) = (Instant::now(), site.metrics.under_way(site.name));
    let method = request.method().clone();
    let span = begin_span(site, &request);
    let log = Arc::new(RequestLog::new(site.ids.next(), span.as_ref().map(Span::place)));
    let malformed = malformed(&request, &state);
    let close = malformed.is_some();
    let is_public = site.name == Listener::Public;
    let preflight = if is_public && !close { cors::preflight(&request) } else { None };
    let response = match (malformed, preflight) {
        (Some(refusal), _) => Failure::from(refusal).into_response(),
        (None, Some(preflight)) => preflight,
        (None, None) => route(site, request, Arc::clone(&log)).await,
    };
    let quiet = match Failure::of(&response) {
        Some(Failure::Fault(fault)) => site.log_fault(log.id, fault),
        _ => false,
    };
    let mut response = finish(response, log.id);
    if is_public {
        cors::allow(response.headers_mut());
    }
    if close {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(unread) = response.extensions_mut().remove::<Arc<UnreadAnswer>>() {
        state.hold(unread);
    }
    let status = response.status().as_u16();
    record(site, &log, Some(&method), (status, quiet), began.elapsed());
    if let Some(span) = span {
        end_span(span, &log, &method, status);
    }
    Ok(response.map(|body| AnswerBody::new(body, state, under_way)))
}

/// The router's answer. A panic becomes a fault like any other.
async fn route(site: &Site, mut request: Request<RequestBody<Incoming>>, log: Arc<RequestLog>) -> Response {
    request.extensions_mut().insert(log);
    let answering = AssertUnwindSafe(site.router.clone().call(request));
    match answering.catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(panic) => Failure::Fault(panicked(panic.as_ref())).into_response(),
    }
}

/// The span of a request. The ops listener has none, and the public listener takes no trace context from its callers.
fn begin_span<B>(site: &Site, request: &Request<B>) -> Option<Span> {
    let joins = match site.name {
        Listener::Api => true,
        Listener::Public | Listener::Console => false,
        Listener::Ops => return None,
    };
    site.traces.request(request.method(), request.headers(), joins)
}

fn end_span(mut span: Span, log: &RequestLog, method: &Method, status: u16) {
    span.set("mandate.request_id", log.id.to_string());
    if let Some((verdict, mode)) = log.decided.get() {
        span.set("mandate.verdict", verdict.as_str());
        span.set("mandate.mode", mode.as_str());
    }
    span.answered(method, log.path(), status);
}

/// Why a request is ambiguous, if it is: two readers of it may not agree on its host, or on where it ends (RFC 9112,
/// sections 3.2 and 6.1).
fn malformed<B>(request: &Request<B>, state: &ConnectionState) -> Option<Refusal> {
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
            state.may_have_length().then(|| {
                Refusal::invalid(
                    "a request must have one of Content-Length and Transfer-Encoding, not both; \
                     with Transfer-Encoding it must not come before the last one was answered",
                )
            })
        }
        _ => Some(Refusal::invalid("Transfer-Encoding must be chunked")),
    }
}

/// The answer that replaces a bare status of hyper's. `head_time` is the limit for a head.
pub(super) fn answer_for_hyper(site: &Site, bare: &[u8], head_time: Duration) -> Vec<u8> {
    let log = RequestLog::new(site.ids.next(), None);
    let what = if bare == TIMEOUT {
        format!("the head of the request did not arrive within {} seconds", head_time.as_secs())
    } else if bare.starts_with(TOO_LARGE) {
        format!(
            "the head of the request is larger than {MAX_HEAD_BYTES} bytes, or has more than {MAX_HEADERS} headers"
        )
    } else {
        "this is not an HTTP/1.1 request, or its Content-Length cannot be read".to_owned()
    };
    let is_ours = [TIMEOUT, UNREADABLE].contains(&bare);
    let bare = if is_ours { dated(bare, site.ids.clock.now()) } else { bare.to_vec() };
    let any_page = |headers: &mut HeaderMap| {
        if site.name == Listener::Public {
            cors::allow(headers);
        }
    };
    let (status, amended) = amended(&bare, &Refusal::invalid(what), log.id, any_page);
    record(site, &log, None, (status, false), Duration::ZERO);
    amended
}

/// A bare status with a Date header added after the others.
fn dated(bare: &[u8], now: Timestamp) -> Vec<u8> {
    let since = Duration::from_millis(u64::try_from(now.millis()).unwrap_or_default());
    let date = format!("\r\ndate: {}\r\n\r\n", httpdate::fmt_http_date(UNIX_EPOCH + since));
    [bare.strip_suffix(b"\r\n\r\n").unwrap_or(bare), date.as_bytes()].concat()
}

/// Counts the answer, and writes it into the log; at the level of debugging if it is well, or `quiet`.
fn record(
    site: &Site,
    log: &RequestLog,
    method: Option<&Method>,
    (status, quiet): (u16, bool),
    duration: Duration,
) {
    let (id, path) = (log.id, log.path());
    site.metrics.answered(site.name, method, path, status, duration);
    let method = method.map_or("", known);
    let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    if status < 400 || quiet {
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
